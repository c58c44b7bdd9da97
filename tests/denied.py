"""`python -m tests.denied FOLDER`: verbs that write, each without each of the rights that it may need, on an S3 API, with one Spark in this process:
what is said, the exit code, that all goes on once the right is given, and that no secret is in what is said or in what Spark tells of itself.
Prints what is shown; exit code 1 with what is not so.
"""

from __future__ import annotations

import io
import json
import logging
import os
import signal
import sys
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path

from pyspark.sql import SparkSession

from geo.cli.main import main as geo
from geo.config import load
from geo.coordination import first_use
from geo.delta import mirror, s3_bucket, s3_store, writer
from geo.journal.cluster import connect
from geo.names import Topic
from geo.session import session
from tests.kafka_broker import free_ports
from tests.object_store import ObjectStore
from tests.processes import LEAST, last_line
from tests.regions import CLUSTERS, TOPIC, Regions
from tests.spark_master import Failed

RIGHTS: Mapping[str, str] = {"to put": "PUT", "to delete": "DELETE", "to list": "LIST", "to get": "GET,HEAD"}
"""Methods that are refused without a right. Many objects are deleted by one request, of which each name is refused."""

_REMEDY = "check the credential in the configuration of its cluster, and what it may do there"

_SECRETS = {f"GEO_TEST_{name}": f"canary-{name.lower()}-0123456789" for name in ("KEY", "SECRET", "TOKEN")}
"""By the environment variables that hold them. The store takes any."""

_ANSWER_S = 5
"""Within which a request is answered."""

_MANY = 20_000
"""Rows of a batch that Spark's tasks write."""


class _Verbs:
    """What is run again and again, each time with something to do."""

    def __init__(self, regions: Regions) -> None:
        self._regions, self._count = regions, 0
        self.erased = list[str]()
        """Keys of messages that were emptied in us."""

    def publish(self) -> list[str]:
        return ["publish", "--cluster", "us", "--topic", TOPIC, "--jsonl", str(self._regions.give("us").parent)]

    def replicate(self) -> list[str]:
        return ["replicate", "--cluster", "eu"]

    def consume(self) -> list[str]:
        said = ["--subscription", "billing", "--trigger", "available-now", "-o", "json"]
        return ["consume", "--cluster", "eu", "--topic", TOPIC, *said]

    def fold(self) -> list[str]:
        return ["subscriptions", "fold", "--cluster", "eu"]

    def reset(self) -> list[str]:
        return [
            "subscriptions",
            "reset",
            "--cluster",
            "eu",
            "--topic",
            TOPIC,
            "--subscription",
            "billing",
            "--to",
            "latest",
            "--yes",
        ]

    def failover(self) -> list[str]:
        return ["failover", "--topic", TOPIC, "--subscription", "billing", "--from", "eu", "--to", "us"]

    def create(self) -> list[str]:
        self._count += 1
        return ["topics", "create", "--cluster", "eu", "--topic", self._newest]

    def set(self) -> list[str]:
        return ["topics", "set", "--cluster", "eu", "--topic", self._newest, "--replication-clusters", "eu"]

    def delete(self) -> list[str]:
        return ["topics", "delete", "--cluster", "eu", "--topic", self._newest, "--yes"]

    @property
    def _newest(self) -> str:
        return f"persistent://shop/web/made-{self._count}"

    def pause(self) -> list[str]:
        return ["links", "pause", "--source", "eu", "--target", "us"]

    def resume(self) -> list[str]:
        return ["links", "resume", "--source", "eu", "--target", "us"]

    def reconcile(self) -> list[str]:
        return ["reconcile", "--source", "us", "--target", "eu", "--topic", TOPIC]

    def backfill(self) -> list[str]:
        return ["backfill", "--source", "us", "--target", "eu", "--topic", TOPIC]

    def rebuild(self) -> list[str]:
        return ["rebuild", "--cluster", "us", "--from", "eu", "--topic", TOPIC, "--yes"]

    def erase(self) -> list[str]:
        self.erased.append(f"us-{len(self.erased)}")
        return ["erase", "--cluster", "us", "--topic", TOPIC, "--where", f"key = '{self.erased[-1]}'", "--yes"]

    def maintain(self) -> list[str]:
        return ["maintain", "--cluster", "us"]

    @property
    def all(self) -> tuple[Callable[[], list[str]], ...]:
        return (
            self.publish, self.replicate, self.consume, self.fold, self.reset, self.failover, self.create, self.set, self.delete, self.pause,
            self.resume, self.reconcile, self.backfill, self.rebuild, self.erase, self.maintain,
        )  # fmt: skip


class _Said(list[str]):
    """All that was said."""

    def refuse_secrets(self) -> None:
        for name, secret in _SECRETS.items():
            for said in self:
                if secret in said:
                    at = said.index(secret)
                    raise Failed(f"{name} is shown: {said[max(0, at - 300) : at + 100]}")


class _Runs:
    def __init__(self, regions: Regions, all_said: _Said) -> None:
        self._path, self._all_said = regions.path, all_said

    def run(self, arguments: list[str]) -> tuple[int, str]:
        """A verb as in a process of its own: the exit code, and what it says."""
        first_use._admitted.clear()
        s3_store._port.cache_clear()
        mirror._known.clear()
        writer._committed.clear()
        said = io.StringIO()
        signals = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            with redirect_stdout(said), redirect_stderr(said):
                code = geo([*arguments, "--config", str(self._path)])
        finally:
            logging.basicConfig(force=True)
            for number, before in signals.items():
                signal.signal(number, before)
        self._all_said.append(said.getvalue())
        return code, said.getvalue()

    def goes(self, arguments: list[str]) -> str:
        code, said = self.run(arguments)
        if code:
            raise Failed(f"{_name(arguments)}: exit code {code}:\n{said[-5000:]}")
        return said

    def refused(self, store: ObjectStore, arguments: list[str], methods: str) -> str | None:
        """What is said without the right to do this; None: it did without. Raises Failed unless that is one line, with what to do, and the
        exit code of a failure."""
        with _without(store, methods):
            code, said = self.run(arguments)
        told = [line for line in said.splitlines() if _REMEDY in line]
        if "Traceback" in said or "\tat " in said or code not in (0, 1) or (code and not told):
            raise Failed(f"{_name(arguments)} without the right to {methods}: exit code {code}:\n{said[-5000:]}")
        return told[-1].strip() if code else None


def _name(arguments: list[str]) -> str:
    return " ".join(word for word in arguments[:2] if not word.startswith("-"))


@contextmanager
def _without(store: ObjectStore, methods: str) -> Iterator[None]:
    store.refuse("AccessDenied", 403, methods)
    if "DELETE" in methods:
        store.next_of("POST", "kept", 10_000)
    try:
        yield
    finally:
        store.refuse()
        store.forget_faults()


def _denied(store: ObjectStore, regions: Regions, runs: _Runs) -> Iterator[str]:
    verbs = _Verbs(regions)
    for verb in verbs.all:
        runs.goes(verb())
    for verb in verbs.all:
        told, arguments = dict[str, str](), list[str]()
        for right, methods in RIGHTS.items():
            if verb == verbs.delete:
                runs.goes(verbs.create())
            arguments = verb()
            if (said := runs.refused(store, arguments, methods)) is not None:
                told[right] = said
            runs.goes(arguments)
        yield f"{_name(arguments)} without the right {', '.join(told)}: one line, exit code 1, and it goes on once that is given"
    yield from _hung(store, verbs, runs)
    for cluster in CLUSTERS:
        runs.goes(["replicate", "--cluster", cluster])
    erased = ", ".join(f"'{key}'" for key in verbs.erased)
    runs.goes(["erase", "--cluster", "eu", "--topic", TOPIC, "--where", f"key IN ({erased})", "--yes"])  # as in us
    yield f"geo verify: {last_line(runs.goes(['verify']))}"


def _hung(store: ObjectStore, verbs: _Verbs, runs: _Runs) -> Iterator[str]:
    """A store that takes requests and does not answer."""
    for verb in (verbs.publish, verbs.replicate, verbs.create, verbs.pause, verbs.erase):
        arguments, before = verb(), s3_bucket.RETRIES
        store.delay(_ANSWER_S + 2)
        s3_bucket.RETRIES = 0  # else all of it takes a minute each
        try:
            code, said = runs.run(arguments)
        finally:
            s3_bucket.RETRIES = before
            store.delay(0)
        if code != 1 or "nobody answers there" not in said or "Traceback" in said:
            raise Failed(f"{_name(arguments)}, of a store that does not answer: exit code {code}:\n{said[-5000:]}")
        runs.goes(arguments)
        yield f"{_name(arguments)}, of a store that does not answer: {last_line(said)[:200]}"


def _many(regions: Regions, runs: _Runs, folder: Path) -> None:
    """A batch that Spark's tasks write, in both regions."""
    (folder / "many.jsonl").write_text("".join(f'{{"key": "many-{n}"}}\n' for n in range(_MANY)))
    runs.goes(["publish", "--cluster", "us", "--topic", TOPIC, "--jsonl", str(folder / "many.jsonl"), "--producer", "many"])
    runs.goes(["replicate", "--cluster", "eu"])


def _of_spark(spark: SparkSession) -> str:
    """What its page says of its settings."""
    context = spark.sparkContext
    opener, found = urllib.request.build_opener(urllib.request.ProxyHandler({})), ""
    for page in ("environment/", f"api/v1/applications/{context.applicationId}/environment", "SQL/"):
        with opener.open(f"{context.uiWebUrl}/{page}", timeout=60) as answer:
            found += answer.read().decode()
    return found


def _logged(spark: SparkSession, path: Path) -> str:
    """What is logged where all loggers are to say all, while a cluster's settings are given to Spark."""
    logging.basicConfig(stream=(said := io.StringIO()), level=logging.DEBUG, force=True)
    logging.getLogger("py4j").setLevel(logging.NOTSET)
    rows = connect(spark, load(path).cluster("us")).log(Topic.parse(TOPIC)).read().count()
    logging.getLogger("tests").debug("%d rows were read", rows)
    logging.basicConfig(level=logging.ERROR, force=True)
    return said.getvalue()


def _tell(folder: Path, store: ObjectStore) -> Iterator[str]:
    (events := folder / "events").mkdir()
    (folder / "regions").mkdir()
    conf = {
        **LEAST, "spark.eventLog.enabled": "true", "spark.eventLog.dir": events.as_uri(), "spark.eventLog.compress": "false",
        "spark.ui.enabled": "true", "spark.ui.port": "0",
    }  # fmt: skip
    storage = store.storage() | {"aws_session_token": "secret://env/GEO_TEST_TOKEN", "timeout": f"{_ANSWER_S}s"}
    roots, none = {cluster: f"s3a://geo-{cluster}/tables" for cluster in CLUSTERS}, dict[str, str]()
    for cluster in CLUSTERS:
        store.make_bucket(f"geo-{cluster}")
    regions, all_said = Regions(folder / "regions", roots, dict.fromkeys(CLUSTERS, none), storage=storage), _Said()
    ours = os.dup(1)
    os.dup2(2, 1)  # for what Java prints
    spark, runs = session("delta-geo denied", master="local[2]", conf=conf, schemes=["s3a"]), _Runs(regions, all_said)
    os.dup2(ours, 1)
    yield from _denied(store, regions, runs)
    _many(regions, runs, folder)
    all_said += [_of_spark(spark), _logged(spark, regions.path)]
    spark.stop()
    logs = [path for path in events.rglob("events_*") if path.is_file()]
    kinds = [json.loads(line)["Event"] for path in logs for line in path.read_text().splitlines()]
    if not (tasks := kinds.count("SparkListenerTaskEnd")):
        raise Failed("Spark's event log has no tasks")
    all_said += [path.read_text() for path in logs]
    all_said.refuse_secrets()
    yield (
        f"no key, secret or session token in what all that said, on Spark's pages, and in its event log ({len(kinds):,} events, {tasks:,} tasks, "
        f"{sum(map(len, all_said)):,} characters)"
    )


def main() -> None:
    folder = Path(sys.argv[1])
    os.environ.update(_SECRETS)
    store = ObjectStore(free_ports(1)[0], folder / "store.log")
    try:
        for line in _tell(folder, store):
            print(line, flush=True)
    finally:
        store.close()


if __name__ == "__main__":
    main()
