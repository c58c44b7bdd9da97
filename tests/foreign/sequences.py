"""Random sequences of foreign commits, of what producers write and of what links do: each ends with every message where it belongs, once,
or with a link that is FAILED and says why, and that the verb it advises brings to its right end."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import SparkSession

from geo.faults import FAULTS
from geo.log.topics import create_topic
from geo.names import Topic
from geo.ops.verify.report import MEANING, Category, VerifyReport
from geo.ops.verify.verify import verify
from geo.replication.link_topics import LinkReport
from geo.replication.repair import reconcile_links
from geo.streams.life import State
from geo.text import first_line
from tests.foreign.held import Held, Id, Row, differences, held
from tests.foreign.place import FIRST, Kind, Place, write
from tests.world import World

CLUSTERS = ("eu", "us")

STEPS = 4
"""Rounds of a sequence: in each something may be published, somebody may commit, and the links go on."""


class Story:
    """One topic, and what happened to it."""

    def __init__(self, world: World, seed: int, kinds: Sequence[Kind]) -> None:
        self.world, self.random, self._kinds = world, random.Random(seed), kinds
        self.topic = Topic.parse(f"persistent://foreign/sequences/s{seed}")
        self.seed, self.did = seed, list[str]()
        self._ends = dict.fromkeys(CLUSTERS, FIRST.stop)
        self._doubled: dict[str, dict[Id, Sequence[Row]]] = {name: {} for name in CLUSTERS}
        """By cluster: what somebody put into its log again, as often as it was there then."""
        self.failed: dict[str, str] = {}
        """By target: why the link into it is FAILED."""

    def place(self, cluster: str) -> Place:
        there = next(name for name in CLUSTERS if name != cluster)
        return Place(self.world.spark, self.world.log(cluster, self.topic).name, cluster, there)

    def begin(self) -> None:
        for cluster in CLUSTERS:
            create_topic(self.world.tables(cluster), self.topic)
            self._write(cluster, FIRST)

    def _write(self, cluster: str, entries: range) -> None:
        write(self.world.log(cluster, self.topic), entries, cluster)

    def step(self) -> None:
        for cluster in CLUSTERS:
            if self.random.random() < 0.7:
                end = self._ends[cluster]
                try:
                    self._write(cluster, range(end, end + 5))
                    self.did.append(f"{cluster} writes {end}-{end + 4}")
                    self._ends[cluster] = end + 5
                except Exception as error:
                    self.did.append(f"{cluster} cannot write: {first_line(error)}")
        if self.random.random() < 0.8:
            kind, cluster = self.random.choice(self._kinds), self.random.choice(CLUSTERS)
            place = self.place(cluster)
            try:
                if kind.before is not None:
                    kind.before(place)
                kind.make(place)
                self.did.append(f"in {cluster}: {kind.engine}, {kind.name}")
                if (now := held(place)) is not None:
                    self._doubled[cluster] |= {one: rows for one, rows in now.rows.items() if len(rows) > 1}
            except Exception as error:
                self.did.append(f"in {cluster}: {kind.engine}, {kind.name}, refused: {first_line(error)}")

    def note(self, report: LinkReport) -> None:
        target = report.link.partition("->")[2]
        self.did.append(f"link into {target}: {report.state.value} {report.reason or ''}")
        self.failed.pop(target, None)
        if report.state in (State.FAILED, State.DELAYED):
            self.failed[target] = report.reason or ""

    def faults(self) -> list[str]:
        """What is wrong and what nobody has said."""
        logs: dict[str, Held | None] = {name: held(self.place(name)) for name in CLUSTERS}
        found = []
        for target in CLUSTERS:
            source = next(name for name in CLUSTERS if name != target)
            due, there, is_resolved = logs[source], logs[target], target in self.failed and self._resolved(source, target)
            if due is None or there is None:
                found += [f"into {target}: a log that cannot be read is passed over"] if target not in self.failed else []
            elif is_resolved:
                # The source is right as it is now; what the target had beside it, it keeps.
                now = held(self.place(target)) or there
                faults = differences(due, now, source, Held(self._doubled[target]))
                found += [f"into {target}, resolved: {what}" for what in faults if " missing " in what or " twice " in what]
            elif target not in self.failed:
                found += [f"into {target}: {what}" for what in differences(due, there, source, Held(self._doubled[target]))]
        return found

    def _resolved(self, source: str, target: str) -> bool:
        """Whether the verb that a FAILED link advises has brought it to its end."""
        try:
            reconcile_links(self.world.spark, self.world.config, source, target, topics=str(self.topic))
        except FAULTS as error:
            self.did.append(f"geo reconcile into {target}: {first_line(error)}")
            return False
        self.did.append(f"geo reconcile into {target}")
        return True


def run_sequences(spark: SparkSession, folder: Path, kinds: Sequence[Kind], count: int, seed: int) -> list[str]:
    """So many sequences side by side, each in its topic. Returns what was wrong, with all that happened to its topic."""
    world = World(folder, CLUSTERS, spark=spark)
    sequences = {str(one.topic): one for one in (Story(world, seed + number, kinds) for number in range(count))}
    for one in sequences.values():
        one.begin()
    for step in range(STEPS + 1):
        if step:
            for one in sequences.values():
                one.step()
        for target in CLUSTERS:
            for report in world.replicate(target):
                if report.topic in sequences:
                    sequences[report.topic].note(report)
        print(
            f"after {step} steps: {sum(bool(one.failed) for one in sequences.values())} of {count} have a link that is FAILED",
            flush=True,
        )
    wrong = []
    for one in sequences.values():
        faults, had_failed = one.faults(), bool(one.failed)
        if not had_failed:
            try:
                faults += [f"verify: {what}" for what in _found(verify(spark, world.config, str(one.topic)))]
            except FAULTS as error:
                faults.append(f"verify: {first_line(error)}")
        if faults:
            wrong += [f"sequence {one.seed}: {'; '.join(faults)}", *(f"    {what}" for what in one.did)]
    return wrong


def _found(report: VerifyReport) -> list[str]:
    """Faults that verify names, but for ids that somebody put into a log again: of that no link can make one."""
    return [
        f"{found.count} {found.category.words} in {where} (such as {found.examples[0]})"
        for _, where, found in report.findings()
        if found.category in MEANING and found.category is not Category.DUPLICATES
    ]


def fit(kind: Kind) -> bool:
    """Whether a kind may be in a sequence: not if it writes messages in another region's name, or uses an id for something else."""
    return not any(word in kind.name for word in ("that are coming", "under ids that are used"))
