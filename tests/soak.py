"""`python -m tests.soak [--shape pair] [--versions] [--foreign] [--minutes N] [--seed S]`: publishers and links, killed at random, then compared.

Real processes run side by side, a publisher in each cluster and the links into each. Every few seconds one of them gets
SIGKILL, with its JVM, and is started again, while new lines keep arriving. At the end everything is let run dry and
`geo verify` must be clean and every line published once. The seed is printed; the same seed kills in the same order.

With `--versions` there is a broker in each cluster that runs all, and a version subscription in each whose consumer finishes versions
meanwhile. At the end what tests/version_checks.py says must hold of the tables, and each consumer may go on in every other cluster that
its snapshots ask.

With `--foreign` somebody else commits to the logs beside them (tests/foreign/somebody.py). A publisher may end and say that its log was
changed; it is started again. In the end what links that are FAILED advise is done, and then all must be as without.

With `--hdfs` no lock keeps the processes apart that write one log, and the storage is away for a minute.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import signal
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from geo.cli.running import start_spark
from geo.config import load
from geo.fleet.replicator import Replicator
from geo.journal.cluster import connect
from geo.names import Topic
from geo.ops.verify.verify import verify
from geo.subscription.pip33.version_sync import VersionSync
from geo.subscription.versions.version_starts import read_starts
from geo.subscription.versions.version_subscriptions import create, finish, version_subscription
from geo.testing import config_text
from geo.testing.world import ClusterPlace, beside
from tests.foreign.somebody import Somebody
from tests.hdfs import Hdfs
from tests.kafka_broker import free_ports
from tests.processes import GeoProcess
from tests.version_checks import violations
from tests.world import SHAPES

TOPIC = "persistent://soak/random/kills"

HALT_S = 60.0
"""A restart of a NameNode, or its failing over to another."""


class Soak:
    """The processes, their input, and how often each was killed."""

    def __init__(
        self, folder: Path, shape: str, seed: int, *, versions: bool, foreign: bool = False, place: ClusterPlace = beside
    ) -> None:
        self.folder, self.random = folder, random.Random(seed)
        self.path = folder / "geo.yaml"
        clusters, links = SHAPES[shape]
        sources = [f'  - {{cluster: {name}, topic: "{TOPIC}", jsonl: in/{name}}}' for name in clusters]
        brokers = "snapshots: {frequency: 1 seconds}\npublish:\n" + "\n".join(sources) + "\n" if versions else ""
        self.path.write_text(config_text(clusters, links, place=place) + brokers)
        self.config = load(self.path)
        self.lines = dict.fromkeys(self.config.clusters, 0)
        self.kills: dict[str, int] = {}
        for cluster in self.lines:
            (folder / "in" / cluster).mkdir(parents=True)
        targets = dict.fromkeys(link.target for link in self.config.links)
        names = [*(f"publish {cluster}" for cluster in self.lines), *(f"replicate {target}" for target in targets)]
        self.processes = {
            name: self.start(name) for name in ([f"broker {cluster}" for cluster in self.lines] if versions else names)
        }
        self.consumers = Consumers(self) if versions else None
        self.somebody = self._somebody() if foreign else None

    def _somebody(self) -> Somebody:
        spark = start_spark("delta-geo soak", self.config)
        logs = {name: connect(spark, cluster).log(Topic.parse(TOPIC)).name for name, cluster in self.config.clusters.items()}
        return Somebody(spark, logs, random.Random(self.random.random()))

    def start(self, name: str, trigger: str = "500 ms") -> GeoProcess:
        verb, cluster = name.split()
        args = [verb, "--config", str(self.path), "--cluster", cluster, "--trigger", trigger]
        if verb == "publish":
            args += ["--topic", TOPIC, "--jsonl", str(self.folder / "in" / cluster)]
        return GeoProcess(self.folder / f"{verb}-{cluster}-{self.kills.get(name, 0)}.log", *args)

    def feed(self) -> None:
        """Some more lines for every cluster, in files that are complete when they appear."""
        for cluster, written in self.lines.items():
            count = self.random.randint(1, 200)
            aims = self._aims(cluster)
            text = "".join(
                json.dumps({"key": f"{cluster}-{written + i}", "replicate_to": self.random.choice(aims)}) + "\n"
                for i in range(count)
            )
            path = self.folder / "in" / cluster / f"{written:09d}.jsonl"
            path.with_suffix(".tmp").write_text(text)
            path.with_suffix(".tmp").rename(path)
            self.lines[cluster] = written + count

    def _aims(self, cluster: str) -> list[list[str] | None]:
        """All clusters, none, and each that is reached, with the hubs on the way."""
        others = [name for name in self.config.clusters if name != cluster]
        ways = {name: self.config.hubs(cluster, name, Topic.parse(TOPIC)) for name in others}
        return [None, [], *([name, *hubs] for name, hubs in ways.items() if hubs is not None)]

    def kill_one(self) -> None:
        name = self.random.choice(list(self.processes))
        process = self._running(name)
        process.signal(signal.SIGKILL)
        process.wait()
        self.kills[name] = self.kills.get(name, 0) + 1
        print(f"  SIGKILL {name} ({sum(self.kills.values())} so far), {sum(self.lines.values()):,} lines written", flush=True)
        self.processes[name] = self.start(name)

    def _running(self, name: str) -> GeoProcess:
        process = self.processes[name]
        if (code := process.poll()) is not None:
            said = process.log.read_text()
            if self.somebody is not None and (why := [line for line in said.splitlines() if "Start the producer again" in line]):
                print(f"  {name} ended by itself: {why[-1]}", flush=True)
                self.kills[name] = self.kills.get(name, 0) + 1
                self.processes[name] = self.start(name)
                return self.processes[name]
            raise AssertionError(f"{name} ended by itself with {code}:\n{process.log.read_text()[-3000:]}")
        return process

    def look(self) -> None:
        """Start those again that ended because somebody changed their log."""
        for name in list(self.processes):
            self._running(name)

    def settle(self) -> None:
        """Stop cleanly, publish and replicate what is left."""
        for process in [self._running(name) for name in self.processes]:
            process.signal(signal.SIGTERM)
        for process in self.processes.values():
            process.wait()
        self.kills = dict.fromkeys(self.processes, 1000)  # other log files
        links = [name for name in self.processes if not name.startswith("publish")]
        for name in [*self.processes, *links]:  # links twice: what a hub got after its turn
            process = self.start(name, "available-now")
            if process.wait() != 0:
                said = process.log.read_text()
                if self.somebody is None or not self._resolve(said) or (process := self.start(name, "available-now")).wait() != 0:
                    raise AssertionError(f"{name}:\n{process.log.read_text()[-3000:]}")

    def _resolve(self, said: str) -> bool:
        """Do what FAILED links advise; whether any did."""
        advised = sorted(set(re.findall(r"run: geo (reconcile --source \S+ --target \S+ --topic \S+)", said)))
        for number, verb in enumerate(advised):
            print(f"  as advised: geo {verb}", flush=True)
            log = self.folder / f"advised-{number}-{time.monotonic_ns()}.log"
            process = GeoProcess(log, *verb.split(), "--config", str(self.path))
            if process.wait() != 0:
                raise AssertionError(f"geo {verb}:\n{log.read_text()[-3000:]}")
        return bool(advised)

    def check(self) -> bool:
        """Whether verify is clean and every line is there once in its own region."""
        spark, config = start_spark("delta-geo soak", self.config), self.config
        clean = self.consumers is None or self.consumers.check()
        report = verify(spark, config)
        print("\n".join(report.lines()))
        clean = clean and report.clean
        for cluster, written in self.lines.items():
            log = connect(spark, config.cluster(cluster)).log(Topic.parse(TOPIC)).read()
            own = log.where(f"origin = '{cluster}' AND marker IS NULL")
            found, distinct = own.count(), own.select("key").distinct().count()
            print(f"{cluster}: {written:,} lines written, {found:,} messages of {distinct:,} keys in the log")
            clean = clean and written == found == distinct
        return clean


class Consumers:
    """A consumer of versions in each cluster, by the cluster's name."""

    def __init__(self, soak: Soak) -> None:
        self.soak, self.topic = soak, Topic.parse(TOPIC)
        spark = start_spark("delta-geo soak", soak.config)
        self.clusters = {name: connect(spark, cluster) for name, cluster in soak.config.clusters.items()}

    def go_on(self) -> None:
        """Each finishes some of what is there."""
        for name, tables in self.clusters.items():
            log = tables.log(self.topic)
            if log.exists():
                one, newest = (
                    version_subscription(tables, self.topic, name) or create(tables, self.topic, name),
                    log.latest_version(),
                )
                done = self.soak.random.randint(max(one.finished or 0, newest - 20), newest)
                if one.finished is None or done > one.finished:
                    finish(tables, self.topic, name, done)

    def check(self) -> bool:
        """Let all of them finish all there is and let that be told, then look at the tables."""
        spark, config = next(iter(self.clusters.values())).spark, self.soak.config
        before = None
        while before != (now := {name: tables.log(self.topic).latest_version() for name, tables in self.clusters.items()}):
            before = now
            for name, tables in self.clusters.items():
                finish(tables, self.topic, name, tables.log(self.topic).latest_version())
                Replicator(spark, config, name).run()
                for _ in range(2):  # its controllers hear what its tail has told
                    VersionSync(spark, config, name).run()
        print(f"versions of the logs: {now}")
        holds = True
        for name, tables in self.clusters.items():
            starts = read_starts(tables, self.topic).starts
            told = {other: one.start for (subscription, other), one in starts.items() if subscription == name}
            print(
                f"{name}: {tables.log(self.topic).read().where('marker IS NOT NULL').count():,} markers; its consumer may begin at {told}"
            )
            holds = holds and told.keys() == self.clusters.keys() - {name}
        for what in violations(self.clusters, self.topic):
            print(f"NOT: {what}")
            holds = False
        return holds


class Halt:
    """HDFS answers nobody from a time on for HALT_S."""

    def __init__(self, hdfs: Hdfs, begins: float) -> None:
        self._hdfs, self._begins, self._ends = hdfs, begins, begins + HALT_S

    def look(self) -> None:
        if time.monotonic() >= self._ends:
            self._hdfs.go_on()
        elif time.monotonic() >= self._begins:
            self._hdfs.pause()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--shape", choices=SHAPES, default="pair", help="of the links (default: %(default)s)")
    parser.add_argument("--versions", action="store_true", help="brokers, and consumers of versions")
    parser.add_argument("--foreign", action="store_true", help="somebody else commits to the logs, too")
    parser.add_argument("--hdfs", action="store_true", help="clusters on HDFS, which answers nobody for a minute in the middle")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    args = parser.parse_args()
    print(f"{args.shape}, seed {args.seed}, {args.minutes} minutes")
    with tempfile.TemporaryDirectory(prefix="geo-soak-") as folder, ExitStack() as running:
        hdfs = Hdfs(Path(folder) / "hdfs", free_ports(1)[0]) if args.hdfs else None
        if hdfs is not None:
            running.callback(hdfs.close)
        place = beside if hdfs is None else hdfs.below("geo")
        soak = Soak(Path(folder), args.shape, args.seed, versions=args.versions, foreign=args.foreign, place=place)
        try:
            ends = time.monotonic() + args.minutes * 60
            halts = Halt(hdfs, time.monotonic() + args.minutes * 30) if hdfs is not None else None
            next_kill = time.monotonic() + 40
            while time.monotonic() < ends:
                soak.feed()
                if halts is not None:
                    halts.look()
                if soak.consumers is not None:
                    soak.consumers.go_on()
                if soak.somebody is not None:
                    soak.somebody.act()
                    soak.look()
                time.sleep(soak.random.uniform(0.2, 2.0))
                if time.monotonic() >= next_kill:
                    soak.kill_one()
                    next_kill = time.monotonic() + soak.random.uniform(2.0, 40.0)
            if hdfs is not None:
                hdfs.go_on()
            soak.settle()
            clean = soak.check()
            if soak.somebody is not None:
                print(f"somebody: {dict(soak.somebody.done)}")
        finally:
            for process in soak.processes.values():
                process.end()
    print("clean" if clean else "NOT CLEAN")
    return 0 if clean else 1


if __name__ == "__main__":
    sys.exit(main())
