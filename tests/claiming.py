"""`python -m tests.claiming CONFIG PROCESSES TOPICS`: so many processes claim so many topics of the region us at the same moment, each one by one from
a topic of its own on, and append to the logs of those that they get. Then half of them are killed while all append, and the others claim what the dead
had. Prints what is shown; exit code 1 with what is not so. Without Spark (`tests/far.py`).
"""

from __future__ import annotations

import itertools
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.context import ForkProcess
from pathlib import Path
from typing import Any

from geo.coordination.claiming import claim
from geo.coordination.claims import Owner, fence_name
from geo.coordination.ownership import Ownership, release
from geo.coordination.runners import producer_runner
from geo.delta.ddl import create_table
from geo.delta.process import Process
from geo.delta.table import Table
from geo.errors import AlreadyOwnedError
from geo.names import Topic
from geo.schemas import OWNERS, TOPIC_LOG
from tests.delta.logs import rows_of
from tests.far import Far

_LIMIT_S = 600.0


class _Claimer:
    """One of the processes: it does what it is told by a pipe, and says what came of it."""

    def __init__(self, path: Path, topics: Sequence[Topic], told: Connection) -> None:
        self._tables, self._topics, self._told = Far(path).tables("us"), topics, told
        self._owned: dict[Topic, tuple[Ownership, Table]] = {}

    def run(self) -> None:
        while (what := self._told.recv()) != "end":
            assert what == "claim"
            lost: dict[str, str] = {}
            for topic in self._topics:
                if topic not in self._owned:
                    try:
                        self._claim(topic)
                    except AlreadyOwnedError as error:
                        lost[str(topic)] = str(error)
            self._told.send(({str(topic): owned.generation for topic, (owned, _) in self._owned.items()}, lost))
            for topic in itertools.cycle(self._owned):
                self._append(topic)
                if self._told.poll():
                    break
        for topic in self._owned:
            self._append(topic)
        release([owned for owned, _ in self._owned.values()])
        self._told.send(None)

    def _claim(self, topic: Topic) -> None:
        (owned,) = claim(self._tables, [[producer_runner(self._tables, topic, "p")]])
        log = self._tables.log(topic)
        create_table(log, TOPIC_LOG)
        owned.fence(log)
        self._owned[topic] = owned, log
        self._append(topic)

    def _append(self, topic: Topic) -> None:
        owned, log = self._owned[topic]
        owned.append(log, rows_of(0, 1), str(owned.generation))


class _Claimers:
    def __init__(self, path: Path, count: int, topics: Sequence[Topic]) -> None:
        context = get_context("fork")  # before there is a thread
        self.there: dict[int, tuple[ForkProcess, Connection]] = {}
        for number in range(count):
            first = number * len(topics) // count
            ours, others = context.Pipe()
            process = context.Process(target=_act, args=(path, [*topics[first:], *topics[:first]], others), daemon=True)
            process.start()
            assert process.pid is not None
            self.there[process.pid] = process, ours

    def all_do(self, what: str) -> dict[int, Any]:
        """What each says of it, by its process."""
        for _, told in self.there.values():
            told.send(what)
        found = {}
        for pid, (_, told) in self.there.items():
            assert told.poll(_LIMIT_S), f"process {pid} says nothing"
            found[pid] = told.recv()
        return found

    def kill(self, count: int) -> set[int]:
        dead = set(list(self.there)[:count])
        for pid in dead:
            os.kill(pid, signal.SIGKILL)
        for pid in dead:
            self.there.pop(pid)[0].join(_LIMIT_S)
        return dead


def _act(path: Path, topics: Sequence[Topic], told: Connection) -> None:
    _Claimer(path, topics, told).run()


def _owners(said: dict[int, tuple[dict[str, int], dict[str, str]]], topics: Sequence[Topic]) -> dict[str, int]:
    """The process that owns each topic, by what all say. Fails unless each has one, whom every other one named."""
    found = [(topic, pid) for pid, (owned, _) in said.items() for topic in owned]
    owners = dict(found)
    assert (len(found), set(owners)) == (len(owners), {str(topic) for topic in topics}), Counter(topic for topic, _ in found)
    for pid, (owned, lost) in said.items():
        assert owned.keys() | lost.keys() == owners.keys(), pid
        for topic, why in lost.items():
            assert f"already run by process {owners[topic]} on " in why, why
    return owners


def _tell(path: Path, count: int, topics: Sequence[Topic]) -> Iterator[str]:
    claimers, began = _Claimers(path, count, topics), time.monotonic()
    said = claimers.all_do("claim")
    first = _owners(said, topics)
    told = sum(len(lost) for _, lost in said.values())
    generations = {topic: generation for owned, _ in said.values() for topic, generation in owned.items()}
    yield (
        f"{count} processes claimed {len(topics)} topics in {time.monotonic() - began:.0f} s: each has one owner "
        f"({min(len(owned) for owned, _ in said.values())} to {max(len(owned) for owned, _ in said.values())} a process), and {told} "
        "others were told whose it is"
    )
    dead = claimers.kill(count // 2)
    said = claimers.all_do("claim")
    after = _owners(said, topics)
    later = {topic: generation for owned, _ in said.values() for topic, generation in owned.items()}
    taken = {topic for topic, pid in first.items() if pid in dead}
    assert all((later[topic] > generations[topic]) is (topic in taken) for topic in later)
    assert all(after[topic] == pid for topic, pid in first.items() if pid not in dead)
    claimers.all_do("end")
    tables = Far(path).tables("us")
    rows = {one.runner: one for one in tables.journal(OWNERS).read(Owner)}
    commits = Counter[str]()
    for topic in topics:
        runner = producer_runner(tables, topic, "p")
        newest, holder = rows[runner.name], Process.decode(rows[runner.name].holder)
        assert holder is not None
        assert (newest.generation, holder.pid, newest.is_owned) == (later[str(topic)], after[str(topic)], False)
        there = tables.files.names(tables.checkpoint("fences", runner.path))
        assert there == [fence_name(newest.generation, newest.token)], there
        log = tables.log(topic)
        by = [int(one.user_metadata) for one in log.commits(0, log.latest_version()) if one.user_metadata]
        assert by == sorted(by), f"{topic}: an owner that was replaced appended: {by}"
        assert set(by) == {generations[str(topic)], later[str(topic)]}, by
        commits.update("dead" if one < later[str(topic)] else "living" for one in by)
    yield (
        f"{len(dead)} were killed while all appended: the others have their {len(taken)} topics, one fence for each; {commits['dead']} commits of the "
        f"dead, none of them behind one of who followed, and {commits['living']} others"
    )


def main() -> None:
    path, count, number = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    topics = [Topic.parse(f"persistent://shop/web/clicks-{at}") for at in range(number)]
    for line in _tell(path, count, topics):
        print(line, flush=True)


if __name__ == "__main__":
    main()
