"""`python -m tests.storages [--brief] [s3] [hdfs] [cluster] [shared] [faults] [keys]`: two regions whose tables are not on a disk of this machine, by the command line as users type
it: published, replicated, consumed, killed in the middle, and compared; on an S3 API that answers now and then that it is busy, and
on HDFS with two producers that write one log, and on HDFS below a Spark standalone master. Prints what is shown; exit code 0, or 1 with what failed.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from geo.config import load
from geo.log.topic_log import ID
from geo.names import Topic
from geo.session import session
from geo.tables.cluster import connect
from tests.hdfs import Hdfs
from tests.kafka_broker import free_ports
from tests.object_store import KEY, SECRET, ObjectStore
from tests.processes import JAVA, LEAST
from tests.shared_classes import java_options
from tests.spark_master import WORKERS, Application, Failed, Standalone, Started, on_both, tell

CLUSTERS = ("eu", "us")
TOPIC = "persistent://shop/web/clicks"
LINES = 300
"""That a region is given at once."""

TOPICS = 2
"""Of the broker's cluster: one, and its acknowledgements."""

MINUTE_S = 60.0

_BROUGHT_S = 180.0
"""Until a broker that runs has brought what is new, with the start of a process that looks."""

_SHARED_S = 240.0

_PROVIDER = "software.amazon.awssdk.auth.credentials.ProfileCredentialsProvider"
"""Of Amazon's SDK. Its profile names a program, which is asked again when what it said last has expired."""

_PROGRAM = """
import json
from datetime import datetime, timedelta, timezone
until = datetime.now(timezone.utc) + timedelta(seconds=30)
key = dict(AccessKeyId=open("{file}").read(), SecretAccessKey="{secret}", Expiration=until.strftime("%Y-%m-%dT%H:%M:%SZ"))
print(json.dumps(dict(Version=1, **key)))
"""


class Regions:
    """Two clusters, linked both ways, each with a folder of lines that its broker publishes to each of the topics."""

    def __init__(
        self,
        folder: Path,
        roots: Mapping[str, str],
        conf: Mapping[str, Mapping[str, str]],
        *,
        topics: Sequence[str] = (TOPIC,),
        placement: Mapping[str, object] | None = None,
        **more: object,
    ) -> None:
        self._folder, self.path, self._topics = folder, folder / "geo.yaml", topics
        self.lines: dict[str, int] = dict.fromkeys(roots, 0)
        """How many lines each region was given."""
        for name in roots:
            (folder / f"lines-{name}").mkdir()
        document = {
            "version": 1,
            "clusters": {name: {"root": root, "spark_conf": dict(conf[name]), **more} for name, root in roots.items()},
            "links": [{"source": one, "target": other} for one, other in itertools.permutations(roots, 2)],
            "publish": [{"cluster": name, "topic": topic, "jsonl": f"lines-{name}"} for name in roots for topic in topics],
            **({} if placement is None else {"placement": placement}),
        }
        self.path.write_text(yaml.safe_dump(document))

    def give(self, cluster: str) -> Path:
        first = self.lines[cluster]
        file = self._folder / f"lines-{cluster}" / f"{first:06}.jsonl"
        file.write_text("".join(json.dumps({"key": f"{cluster}-{n}"}) + "\n" for n in range(first, first + LINES)))
        self.lines[cluster] += LINES
        return file

    def start(self, *arguments: str, **env: str) -> Started:
        """`geo`, with the configuration."""
        environment = {
            **os.environ,
            "MASTER": "local[2]",
            "SPARK_SUBMIT_OPTS": java_options(),
            "JDK_JAVA_OPTIONS": JAVA,
            "PYTHONPATH": str(Path(__file__).resolve().parents[1]),
            "GEO_TEST_KEY": KEY,
            "GEO_TEST_SECRET": SECRET,
            **env,
        }
        log = self._folder / f"{'-'.join(word.strip('-') for word in arguments[:3])}-{time.monotonic_ns()}.log"
        command = (sys.executable, "-m", "geo", *arguments, "--config", str(self.path))
        return Started(f"geo {' '.join(arguments)}", log, *command, env=environment)

    def run(self, *arguments: str, code: int = 0, **env: str) -> str:
        """What `geo` said. Raises Failed for another exit code, and where a trace of Java's or Python's is in it."""
        process = self.start(*arguments, **env)
        process.ends(code)
        if "\tat " in process.said or "Traceback" in process.said:
            raise Failed(f"{process.name}: a trace:\n{process.said[-5000:]}")
        return process.said

    def broker(self, cluster: str, code: int = 0, **env: str) -> str:
        return self.run("broker", "--cluster", cluster, "--trigger", "available-now", code=code, **env)

    @property
    def keys(self) -> list[str]:
        """Of all lines that were given."""
        return sorted(f"{cluster}-{n}" for cluster, count in self.lines.items() for n in range(count))

    def check(self) -> int:
        """How many messages each region has: each line once, and both the same. Raises Failed."""
        config = load(self.path)
        os.environ.update(GEO_TEST_KEY=KEY, GEO_TEST_SECRET=SECRET)
        spark = session("delta-geo storages", master="local[2]", conf=LEAST, schemes=config.schemes)
        for topic in self._topics:
            found = []
            for cluster in CLUSTERS:
                log = connect(spark, config.cluster(cluster)).log(Topic.parse(topic))
                rows = log.read().where("marker IS NULL").select("key", *ID).collect() if log.exists() else []
                found.append(sorted(tuple(row) for row in rows))
            if found[0] != found[1] or [row[0] for row in found[0]] != self.keys:
                raise Failed(
                    f"{topic}: {len(self.keys)} lines, {len(found[0])} messages in eu, {len(found[1])} in us, or they are not the same"
                )
        return len(self._topics) * len(self.keys)


def story(regions: Regions, *, brief: bool) -> Iterator[str]:
    """What is shown on either storage."""
    for cluster in CLUSTERS:
        regions.give(cluster)
    said = regions.broker("us")
    yield f"a pass of the broker of us: {said.strip().splitlines()[-1]}"
    regions.broker("eu", code=-signal.SIGKILL, GEO_CRASH="link-after-reconcile-append:kill")
    said = regions.broker("eu")
    yield f"a broker of eu killed behind the commit by which a link began, and one more pass: {said.strip().splitlines()[-1]}"
    if brief:
        return
    regions.broker("us")
    consume = (
        "consume",
        "--cluster",
        "eu",
        "--topic",
        TOPIC,
        "--subscription",
        "billing",
        "--trigger",
        "available-now",
        "-o",
        "json",
    )
    yield _consumed(regions, regions.run(*consume))


def _consumed(regions: Regions, said: str) -> str:
    keys = sorted(re.findall(r'"key": "((?:eu|us)-\d+)"', said))
    if keys != regions.keys:
        raise Failed(f"{len(keys)} messages were consumed, not the {len(regions.keys)} lines")
    return f"a consumer in eu: {len(keys)} messages, each line once"


def verified(regions: Regions) -> str:
    said = regions.run("verify")
    if "clean:" not in said:
        raise Failed(said)
    return f"geo verify: {said.strip().splitlines()[-1]}; the tables alone: {regions.check()} messages, each line once, both regions equal"


def s3(folder: Path, running: ExitStack, *, brief: bool) -> Iterator[str]:
    store = ObjectStore(free_ports(1)[0], folder / "store.log")
    running.callback(store.close)
    for cluster in CLUSTERS:
        store.make_bucket(f"geo-{cluster}")
    roots = {cluster: f"s3a://geo-{cluster}/tables" for cluster in CLUSTERS}
    conf = {cluster: store.settings(f"geo-{cluster}") for cluster in CLUSTERS}
    refused = Regions(_made(folder / "refused"), roots, conf)
    refused.give("eu")
    said = refused.broker("eu", code=3)
    yield f"without `single_driver: true`: {said.strip().splitlines()[-1][:150]} …"

    regions = Regions(_made(folder / "regions"), roots, conf, single_driver=True)
    yield from story(regions, brief=brief)
    if not brief:
        running_one = regions.start("broker", "--cluster", "eu", "--trigger", "5 seconds")
        running_one.finds("(STOPPED|RUNNING|published|brought)")
        said = regions.broker("eu", code=3)
        time.sleep(MINUTE_S)  # until it has nothing to do
        idle = _requests(store)
        regions.give("eu")
        busy = _requests(store) - idle
        yield f"requests of a broker, of each idle topic in an hour: {60 * idle / TOPICS:,.0f}; of a small commit that it publishes: {busy:,}"
        running_one.signal(signal.SIGKILL)
        running_one.ends(-signal.SIGKILL)
        yield f"a second broker of eu beside the first: {said.strip().splitlines()[-1][:100]} …"
    before = store.counts()
    store.fail_one_in(20)
    for cluster in () if brief else CLUSTERS:
        regions.give(cluster)
    for cluster in ("us",) if brief else ("us", "eu", "us"):
        regions.broker(cluster)
    store.fail_one_in(0)
    counts = store.counts() - before
    if not counts["failed"]:
        raise Failed("no request was answered with 503")
    yield f"a 503 to one request in twenty ({counts['failed']} of {sum(counts.values()) - counts['failed']}), passes of brokers"
    yield verified(regions)
    yield f"requests in all: {', '.join(f'{count:,} {what}' for what, count in sorted(store.counts().items()))}"


def faults(folder: Path, running: ExitStack, *, brief: bool) -> Iterator[str]:
    """What a person is told of a storage that cannot be used: one line with what to do, and no trace."""
    if brief:
        return
    port, nobody = free_ports(2)
    store = ObjectStore(port, folder / "store.log")
    running.callback(store.close)
    store.make_bucket("geo-eu")
    place, settings = {"eu": "s3a://geo-eu/tables"}, store.settings("geo-eu")
    regions = Regions(_made(folder / "regions"), place, {"eu": settings}, single_driver=True)
    publish = ("publish", "--cluster", "eu", "--topic", TOPIC, "--jsonl", str(regions.give("eu")))
    regions.run(*publish)
    for what, refusal in (
        ("a key that is not known", ("InvalidAccessKeyId", 403)),
        ("a secret that is wrong", ("SignatureDoesNotMatch", 403)),
        ("a credential that has expired", ("ExpiredToken", 400)),
        ("a bucket that may only be read", ("AccessDenied", 403, "PUT,POST,DELETE")),
    ):
        store.refuse(*refusal)
        for verb in (publish, ("topics",)) if len(refusal) == 2 else (publish,):
            yield f"{what}: {_last_line(regions.run(*verb, code=1))}"
        store.refuse()
    regions.run(*publish)
    elsewhere = {**settings, "fs.s3a.bucket.geo-eu.endpoint": f"http://127.0.0.1:{nobody}"}
    for what, root, conf in (
        ("an endpoint where nobody is", place["eu"], elsewhere),
        (
            "a bucket that is not there",
            "s3a://nowhere/tables",
            {key.replace("geo-eu", "nowhere"): value for key, value in settings.items()},
        ),
    ):
        other = Regions(_made(folder / what.split()[1]), {"eu": root}, {"eu": conf}, single_driver=True)
        yield f"{what}: {_last_line(other.run(*publish, code=1))}"


def keys(folder: Path, running: ExitStack, *, brief: bool) -> Iterator[str]:
    """Keys that are good for some seconds are rotated while a link runs, whose provider asks a program of the user's for them."""
    if brief:
        return
    store, file = ObjectStore(free_ports(1)[0], folder / "store.log"), folder / "key"
    running.callback(store.close)
    roots = {cluster: f"s3a://geo-{cluster}/tables" for cluster in CLUSTERS}
    conf = {}
    for cluster in CLUSTERS:
        store.make_bucket(f"geo-{cluster}")
        said = store.settings(f"geo-{cluster}")
        conf[cluster] = {key: value for key, value in said.items() if not key.endswith((".access.key", ".secret.key"))}
        conf[cluster][f"fs.s3a.bucket.geo-{cluster}.aws.credentials.provider"] = _PROVIDER
    regions = Regions(_made(folder / "regions"), roots, conf, single_driver=True)
    profile, program = folder / "profile", folder / "keys.py"
    program.write_text(_PROGRAM.format(file=str(file), secret=SECRET))
    profile.write_text(f"[default]\ncredential_process = {sys.executable} {program}\n")
    os.environ["AWS_CONFIG_FILE"] = str(profile)

    def rotate(key: str) -> None:
        file.write_text(key)
        store.takes_only(key)

    def brought() -> int:
        """How many messages eu has, once it has all."""
        deadline = time.monotonic() + _BROUGHT_S
        while True:
            found = re.search(r'"cluster": "eu",[^}]*"messages": (\d+)', regions.run("topics", "-o", "json"))
            count = int(found[1]) if found else 0
            if count >= regions.lines["us"]:
                return count
            if time.monotonic() > deadline:
                raise Failed(f"eu has {count} messages of {regions.lines['us']}:\n{broker.said[-5000:]}")

    rotate("first")
    regions.give("us")
    regions.broker("us")
    broker = regions.start("broker", "--cluster", "eu", "--trigger", "5 seconds")
    for key in ("second", "third"):
        yield f"eu has {brought()} messages by its running broker; from now on the store takes the {key} key only"
        rotate(key)
        regions.give("us")
        regions.broker("us")
    yield f"eu has {brought()} messages by the same broker ({store.counts()['of another key']} requests with an older key were refused)"
    broker.signal(signal.SIGTERM)
    broker.ends(0)
    yield verified(regions)


def _last_line(said: str) -> str:
    return next(line for line in reversed(said.strip().splitlines()) if "--verbose" not in line)[:300]


def _requests(store: ObjectStore) -> int:
    """Of a minute."""
    before = store.counts()
    time.sleep(MINUTE_S)
    return (store.counts() - before).total()


def hdfs(folder: Path, running: ExitStack, *, brief: bool) -> Iterator[str]:
    name_node, regions = _on_hdfs(folder, running)
    yield from story(regions, brief=brief)

    if brief:
        regions.broker("us")
        yield verified(regions)
        return
    # Two more producers of one log, in processes of their own, without a lock that would keep them apart.
    producers = []
    for number in range(2):
        lines = regions.give("eu").rename(folder / f"lines-{number}.jsonl")
        what = ("publish", "--cluster", "eu", "--topic", TOPIC, "--jsonl", str(lines), "--producer", f"other-{number}")
        producers.append(regions.start(*what))
    producers[0].finds("(messages, .* a second|published)")
    name_node.pause()
    time.sleep(5)
    name_node.go_on()
    for producer in producers:
        producer.ends(0)
    yield "two processes published to one log at once, and HDFS did not answer for 5 s meanwhile"
    regions.broker("us")
    yield verified(regions)


def cluster(folder: Path, running: ExitStack, *, brief: bool) -> Iterator[str]:
    """By jobs on a Spark standalone master, as `tests/standalone.py` has them, with nothing of the tables on a disk of this machine."""
    _, regions = _on_hdfs(folder, running)
    spark, applications = Standalone(folder, running), itertools.count()

    def submit(job: str, *arguments: str, code: int = 0, **env: str) -> Application:
        named = f"{next(applications)}-{job}"
        one = spark.submit(named, job, "--config", str(regions.path), *arguments, **env)
        one.process.ends(code)
        return one

    def broker(region: str, code: int = 0, **env: str) -> Application:
        return submit("broker", "--cluster", region, "--trigger", "available-now", code=code, **env)

    for region in CLUSTERS:
        regions.give(region)
    broker("us")
    broker("eu", code=-signal.SIGKILL, GEO_CRASH="link-after-reconcile-append:kill")
    brought = broker("eu").work()
    yield (
        f"on HDFS below a Spark master with {WORKERS} workers: a broker of us, one of eu that was killed behind the commit by which a link "
        f"began, and one more of eu ({on_both(brought.tasks, 'broker', WORKERS)} of its tasks)"
    )
    if not brief:
        consumed = ("--cluster", "eu", "--topic", TOPIC, "--subscription", "billing", "--trigger", "available-now")
        yield _consumed(regions, submit("consume", *consumed, "-o", "json").process.said)
    broker("us")
    said = submit("verify").process.finds(r"(?m)^(clean: .*)")
    yield f"geo verify: {said}; the tables alone: {regions.check()} messages, each line once, both regions equal"


def shared(folder: Path, running: ExitStack, *, brief: bool) -> Iterator[str]:
    """Two brokers share the topics of eu, on HDFS below a Spark standalone master; one of them is killed."""
    if brief:
        return
    topics = [f"persistent://shop/web/clicks-{number}" for number in range(4)]
    _, regions = _on_hdfs(folder, running, topics=topics, placement={"broker_timeout": "10 seconds"})
    spark = Standalone(folder, running, cores=2, memory="2g")
    small = ("--conf", "spark.cores.max=1", "--conf", "spark.executor.memory=512m")

    def broker(region: str, name: str, trigger: str) -> Application:
        what = ("--config", str(regions.path), "--cluster", region, "--name", name, "--trigger", trigger)
        return spark.submit(f"{region}-{name}", "broker", *what, options=small)

    def owners() -> dict[str, list[str]]:
        """By broker, the bundles of eu that it owns."""
        found: dict[str, list[str]] = {}
        said = regions.run("bundles", "list", "--cluster", "eu", "-o", "json")
        for bundle, owner in re.findall(r'"bundle": "([^"]+)",\s*"owner": "(\w+)"', said):
            found.setdefault(owner, []).append(bundle)
        return found

    def equal() -> int:
        deadline = time.monotonic() + _SHARED_S
        while True:
            try:
                return regions.check()
            except Failed:
                if time.monotonic() > deadline:
                    raise
                time.sleep(5)

    for region in CLUSTERS:
        regions.give(region)
    brokers = {name: broker("eu", name, "1 second") for name in ("one", "two")}
    broker("us", "only", "1 second")
    yield f"two brokers of eu and one of us: {equal()} messages in both regions"
    before = owners()
    if set(before) != set(brokers):
        raise Failed(f"the bundles of eu are not shared: {before}")
    yield f"bundles of eu by broker: { ({name: len(found) for name, found in before.items()}) }"
    killed = brokers["one"].process
    killed.signal(signal.SIGKILL)
    killed.ends(-signal.SIGKILL)
    for region in CLUSTERS:
        regions.give(region)
    yield f"broker one was killed: {equal()} messages in both regions"
    if set(after := owners()) != {"two"}:
        raise Failed(f"broker two does not own all bundles of eu: {after}")
    yield f"broker two owns all {len(after['two'])} bundles; {verified(regions)}"


def _on_hdfs(folder: Path, running: ExitStack, **more: Any) -> tuple[Hdfs, Regions]:
    name_node = Hdfs(folder / "hdfs", free_ports(1)[0])
    running.callback(name_node.close)
    roots = {cluster: f"{name_node.uri}/geo/{cluster}" for cluster in CLUSTERS}
    return name_node, Regions(
        _made(folder / "regions"), roots, {cluster: {"dfs.replication": "1"} for cluster in CLUSTERS}, **more
    )


STORAGES: Mapping[str, Callable[..., Iterator[str]]] = {
    "s3": s3,
    "hdfs": hdfs,
    "cluster": cluster,
    "shared": shared,
    "faults": faults,
    "keys": keys,
}

BRIEF = ("s3", "cluster")
"""What the CI runs."""


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def main() -> int:
    parser = argparse.ArgumentParser(prog="./run storages")
    parser.add_argument("storage", nargs="*", metavar="STORAGE", help=f"of {', '.join(STORAGES)} (default: all)")
    parser.add_argument("--brief", action="store_true", help="publish, replicate through a kill, compare: what the CI runs")
    args = parser.parse_args()
    if unknown := set(args.storage) - set(STORAGES):
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    return tell(
        "storages",
        {name: partial(STORAGES[name], brief=args.brief) for name in args.storage or (BRIEF if args.brief else STORAGES)},
    )


if __name__ == "__main__":
    sys.exit(main())
