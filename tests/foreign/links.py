"""Foreign commits below links: at rest, and running. A topic a kind, so that one start of the links serves all kinds."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path

from pyspark.sql import SparkSession

from geo.delta.tail import Tail
from geo.faults import FAULTS
from geo.log.topics import create_topic
from geo.names import Topic
from geo.replication.link_topics import LinkReport
from geo.streams.life import State
from geo.text import first_line
from tests.foreign.held import Effect, Held, Id, differences, disorder, held, ids_brought, ids_of, ids_put, link_appends
from tests.foreign.place import FIRST, LATER, PENDING, Kind, Place, write
from tests.foreign.verdicts import Cell, Verdict, loud, right
from tests.running import Running, running
from tests.world import World

SOURCE, TARGET = "us", "eu"
"""The foreign commit is made in the log of us, which is the source of one link and the target of the other."""


TRIES = 5
"""A foreign commit that another one comes before is made again."""


class LinkedTopic:
    """The topic in which a kind of commit is made, in both regions."""

    def __init__(self, world: World, situation: str, kind: Kind) -> None:
        self.world, self.kind = world, kind
        self.topic = Topic.parse(f"persistent://foreign/{situation}/{kind.slug}")
        self.refused: str | None = None
        """Why the engine does not make such a commit."""
        self.writers: list[str] = []
        """What kept a producer from writing behind the foreign commit."""
        self._ended: dict[str, Held | None] = {}

    def place(self, cluster: str) -> Place:
        return Place(self.world.spark, self.world.log(cluster, self.topic).name)

    def write(self, cluster: str, entries: range) -> None:
        write(self.world.log(cluster, self.topic), entries, cluster)

    def begin(self) -> None:
        for cluster in (SOURCE, TARGET):
            create_topic(self.world.tables(cluster), self.topic)
            self.write(cluster, FIRST)
        if self.kind.before is not None:
            self.kind.before(self.place(SOURCE))

    def commit(self) -> None:
        """What the producers write right before it, and the foreign commit."""
        for cluster in (SOURCE, TARGET):
            self.write(cluster, PENDING)
        place = self.place(SOURCE)
        for tries_left in reversed(range(TRIES)):
            self.before, self.there_before = held(place), held(self.place(TARGET))
            self.versions = {cluster: self.place(cluster).version() for cluster in (SOURCE, TARGET)}
            self._tail = Tail.at_newest(self.world.log(SOURCE, self.topic))
            try:
                self.kind.make(place)
                break
            except Exception as error:  # a running link's commit came between, or the engine does not make such a one
                if not tries_left or "concurrent" not in str(error).lower():
                    self.refused = first_line(error)
                    return
        self.after = held(place)
        assert self.before is not None
        self.effect = Effect.of(self.before, self.after or self.before)

    def go_on(self) -> None:
        """What the producers write after it."""
        for cluster in (SOURCE, TARGET) if self.refused is None else ():
            try:
                self.write(cluster, LATER)
            except Exception as error:
                self.writers.append(first_line(error))

    def held(self, cluster: str) -> Held | None:
        """What its log holds in the end."""
        if cluster not in self._ended:
            self._ended[cluster] = held(self.place(cluster))
        return self._ended[cluster]

    def verdict(self, source: str, target: str, report: LinkReport | None) -> Cell:
        """Of the link between them, from what both logs hold and what it reports."""
        if self.refused is not None:
            return Cell(Verdict.NONE, self.refused)
        due, there = self.held(source), self.held(target)
        assert self.before is not None
        state, reason = (None, "it reports nothing") if report is None else (report.state, report.reason or "")
        if due is None or there is None:
            return loud(reason) if state in (State.FAILED, State.DELAYED) else right("a log that cannot be read is passed over")
        taken = self.effect.takes_from(source) if source == SOURCE else frozenset()
        appends = list(link_appends(self.place(target).path, self.versions[target]))
        faults = [f"in disorder: {what}" for what in disorder(appends)]
        brought = ids_brought(appends)
        # What a running link had just brought and the foreign commit took away comes once more.
        gone = set(brought) - self.after.ids if target == SOURCE and self.after is not None else set()
        if twice := [one for one, count in Counter(brought).items() if count > 1 and one not in gone]:
            faults.append(f"{len(twice)} brought twice (such as {min(twice)})")
        if state in (State.FAILED, State.DELAYED):
            kept = self.there_before if source == SOURCE else None
            return loud(f"{state.value}: {reason}", *faults, *(self._written_wrong(source, due, there, kept)))
        faults += differences(due, there, source, self.after if target == SOURCE else None)
        if taken:
            faults.append(f"{len(taken)} of its source's messages are gone or changed, and it says nothing")
        if report is not None and state is State.STOPPED and report.replicated != len(brought):
            faults.append(f"it reports {report.replicated}, and brought {len(brought)}")
        return right(*faults)

    def tail(self) -> Cell:
        """What a tail of the log that stood right before the foreign commit brings: whole commits, so it brings again what somebody adds
        again. Whoever reads by a tail knows what it was given."""
        if self.refused is not None:
            return Cell(Verdict.NONE, self.refused)
        brought: list[Id] = []
        try:
            while (turn := self._tail.next()) is not None:
                if turn.brings:
                    few = self._tail.few(turn)
                    rows = self._tail.rows(turn).toArrow() if few is None else few
                    brought += ids_of(rows)
                self._tail.take(turn)
        except FAULTS as error:
            return loud(first_line(error))
        assert self.before is not None
        now = self.held(SOURCE) or self.before  # nobody writes into a log that no engine reads
        taken = self.effect.removed | (self.effect.changed - self.effect.beside)
        faults = [f"{len(taken)} messages are gone or changed"] if taken else []
        if missing := now.ids - self.before.ids - set(brought):
            faults.append(f"{len(missing)} not brought (such as {min(missing)})")
        new = Counter(one for one in brought if one not in self.before.ids)
        if twice := [one for one, count in new.items() if count > len(now.rows.get(one, ()))]:
            faults.append(f"{len(twice)} brought more often than they are there (such as {min(twice)})")
        old = {one for one in brought if one in self.before.ids}
        if old := old - self.effect.repeated - ids_put(self.place(SOURCE).path, self.versions[SOURCE]):
            faults.append(f"{len(old)} brought that were there (such as {min(old)})")
        return right(*faults)

    def _written_wrong(self, source: str, due: Held, there: Held, kept: Held | None) -> list[str]:
        """What a link that failed must not have left: messages twice, or such as no producer wrote. What it held it holds."""
        assert self.before is not None
        found = [f"{len(rows)} times {one}" for one, rows in there.rows.items() if one[0] == source and len(rows) > 1 and kept]
        known = [self.before, due, *([] if kept is None else [kept])]
        allowed = {one: {row for some in known for row in some.rows.get(one, ())} for one in there.ids if one[0] == source}
        if kept is not None:
            found += [f"{one} is not as it was" for one in allowed if not set(there.rows[one]) <= allowed[one]]
            found += [f"{one} is gone" for one in kept.ids - there.ids]
        return found[:3]


def _topics(world: World, situation: str, kinds: Sequence[Kind]) -> list[LinkedTopic]:
    topics = [LinkedTopic(world, situation, kind) for kind in kinds]
    for one in topics:
        one.begin()
    _say("the topics are there")
    for target in (TARGET, SOURCE):
        world.replicate(target)
    _say("the links have caught up")
    return topics


def _commit(topics: Sequence[LinkedTopic], *, quietly: bool) -> None:
    """The foreign commits, and what is written after them: at once, or when the links have come to rest."""
    for one in topics:
        one.commit()
        if not quietly:
            one.go_on()
    _say("the foreign commits are made")
    if quietly:
        _quiet(topics)
        for one in topics:
            one.go_on()
        _say("what comes after them is written")


def _say(what: str) -> None:
    print(f"{time.process_time():6.0f} s of this process, {datetime.now():%H:%M:%S}: {what}", file=sys.stderr, flush=True)


def _verdicts(
    topics: Sequence[LinkedTopic], reports: Mapping[tuple[str, str], LinkReport], when: str
) -> dict[Kind, dict[str, Cell]]:
    return {
        one.kind: {
            f"source, {when}": one.verdict(SOURCE, TARGET, reports.get((TARGET, str(one.topic)))),
            f"target, {when}": one.verdict(TARGET, SOURCE, reports.get((SOURCE, str(one.topic)))),
        }
        for one in topics
    }


def at_rest(spark: SparkSession, folder: Path, kinds: Sequence[Kind]) -> dict[Kind, dict[str, Cell]]:
    """The links start again after the foreign commit, and what was published before and after it: they meet all of it at once."""
    world = World(folder, spark=spark)
    topics = _topics(world, "rest", kinds)
    _commit(topics, quietly=False)
    reports = {(target, report.topic): report for target in (TARGET, SOURCE) for report in world.replicate(target)}
    _say("the links have gone on")
    cells = _verdicts(topics, reports, "at rest")
    for one in topics:
        cells[one.kind]["tail"] = one.tail()
    return cells


def _run(links: Running, names: set[str]) -> bool:
    return names <= {report.topic for report in links.reports if report.state is not State.STOPPED}


QUIET_S, LIMIT_S = 6.0, 180.0
"""Running links have come to rest when no log has got a commit for so long, and are waited for so long."""


def while_running(spark: SparkSession, folder: Path, kinds: Sequence[Kind]) -> dict[Kind, dict[str, Cell]]:
    """The links run, both ways, have caught up, and meet the foreign commit alone; what is published after it comes later."""
    world = World(folder, spark=spark)
    topics = _topics(world, "running", kinds)
    with running(world, TARGET) as there, running(world, SOURCE) as here:
        names = {str(one.topic) for one in topics}
        for links in (there, here):
            links.until(partial(_run, links, names))
        _commit(topics, quietly=True)
        _quiet(topics)
        reports = {
            (target, report.topic): report for target, links in ((TARGET, there), (SOURCE, here)) for report in links.reports
        }
    return _verdicts(topics, reports, "running")


def _quiet(topics: Sequence[LinkedTopic]) -> None:
    """Until no log gets a commit any more."""
    seen, since, deadline = None, time.monotonic(), time.monotonic() + LIMIT_S
    while time.monotonic() - since < QUIET_S and time.monotonic() < deadline:
        time.sleep(0.5)
        now = [one.place(cluster).version() for one in topics for cluster in (SOURCE, TARGET)]
        if now != seen:
            seen, since = now, time.monotonic()
