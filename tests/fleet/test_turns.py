"""Threads that share the turns of a link."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from geo.config.model import DispatchRate
from geo.delta.commits import Commit
from geo.fleet import turns as turns_module
from geo.fleet.fetchers import fetcher_of
from geo.fleet.turns import LinkTurns
from geo.names import Topic
from geo.replication.turns import Most, within
from tests.waiting import until

LIMIT_S = 20.0
TOPICS = [Topic("shop", "web", f"t{number}") for number in range(8)]


def _has_turn(turns: LinkTurns, topic: Topic, stopped: Callable[[], bool]) -> bool:
    """Wait for a turn, and end it at once. Whether it was one."""
    with turns.turn(topic, stopped) as has_turn:
        return has_turn


def _unlimited(topic: Topic) -> DispatchRate:
    return DispatchRate()


def _never() -> bool:
    return False


class Taking:
    """A thread per topic that takes turns all the time, and how many are at one."""

    def __init__(self, turns: LinkTurns) -> None:
        self.turns, self.stop = turns, threading.Event()
        self.at_once = 0
        self.seen: Counter[int] = Counter()
        """How often so many were at a turn at once."""
        self.taken: Counter[Topic] = Counter()
        self._mutex = threading.Lock()

    def take(self, topic: Topic) -> None:
        while not self.stop.is_set():
            with self.turns.turn(topic, self.stop.is_set) as has_turn:
                if not has_turn:
                    return
                with self._mutex:
                    self.at_once += 1
                    self.seen[self.at_once] += 1
                    self.taken[topic] += 1
                time.sleep(0.0005)  # the work of a turn
                with self._mutex:
                    self.at_once -= 1


@contextmanager
def _taking(turns: LinkTurns) -> Iterator[Taking]:
    taking = Taking(turns)
    with ThreadPoolExecutor(len(TOPICS)) as pool:
        done = [pool.submit(taking.take, topic) for topic in TOPICS]
        try:
            yield taking
        finally:
            taking.stop.set()
            for one in done:
                one.result(LIMIT_S)


def test_no_more_turns_at_once_than_fetchers_while_their_number_changes() -> None:
    turns = LinkTurns(2, _unlimited)
    with _taking(turns) as taking:
        until(lambda: sum(taking.taken.values()) > 100)
        assert max(taking.seen) <= 2
        turns.change(5, _unlimited)
        until(lambda: max(taking.seen) > 2)
        assert max(taking.seen) <= 5
        turns.change(1, _unlimited)
        until(lambda: len(turns._fetchers.on_turn) <= 1 and taking.at_once <= 1)  # those of before have ended
        taking.seen.clear()
        until(lambda: sum(taking.seen.values()) > 50)
        assert set(taking.seen) == {1}


def test_topics_of_one_fetcher_take_turns() -> None:
    """However long each wants to go on, none has two turns more than another that wants one all the time."""
    turns = LinkTurns(1, _unlimited)
    with _taking(turns) as taking:
        until(lambda: len(taking.taken) == len(TOPICS))
        first = Counter(taking.taken)
        until(lambda: sum(taking.taken.values()) > sum(first.values()) + 200)
        since = [taking.taken[topic] - first[topic] for topic in TOPICS]
    assert max(since) - min(since) <= 2


def test_what_waits_for_its_rate_holds_up_nobody() -> None:
    slow, fast = TOPICS[0], next(topic for topic in TOPICS[1:] if fetcher_of(topic, 1) == fetcher_of(TOPICS[0], 1))
    turns = LinkTurns(1, lambda topic: DispatchRate(messages_per_second=1) if topic == slow else DispatchRate())
    assert _has_turn(turns, slow, _never)
    turns.took(slow, 3_600, 0)
    assert turns.wait_s(slow) > 3_500
    stop = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(_has_turn, turns, slow, stop.is_set)
        assert all(_has_turn(turns, fast, _never) for _ in range(20))
        assert not waiting.done()
        stop.set()
        assert waiting.result(LIMIT_S) is False, "a stop is heard by who waits"


def test_another_rate_holds_at_once() -> None:
    topic = TOPICS[0]
    turns = LinkTurns(1, lambda topic: DispatchRate(messages_per_second=1))
    turns.took(topic, 3_600, 0)
    turns.change(1, _unlimited)
    assert turns.wait_s(topic) == 0
    assert turns.most(topic).messages is None


def test_a_turn_that_is_left_is_had_by_another_and_its_late_end_ends_nobody_elses() -> None:
    topic, other = TOPICS[0], TOPICS[1]
    turns = LinkTurns(1, _unlimited)
    with turns.turn(topic, _never) as hangs:
        assert hangs
        turns.leave(topic)
        with turns.turn(topic, _never) as again:
            assert again
            stop = threading.Event()
            with ThreadPoolExecutor(1) as pool:
                waiting = pool.submit(_has_turn, turns, other, stop.is_set)
                turns.leave(TOPICS[2])  # of one that has none
                assert not waiting.done()
                stop.set()
                assert waiting.result(LIMIT_S) is False
    assert _has_turn(turns, other, _never)


def test_an_offer_waits_in_line_without_anybody_and_is_anothers_if_nobody_begins_it(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, third = TOPICS[:3]
    turns = LinkTurns(1, _unlimited)
    with turns.turn(first, _never) as has_turn:
        assert has_turn
        assert not turns.offer(second)
        assert not turns.offer(third)
        assert not turns.offer(first), "who has a turn waits for no other"
    assert turns.offer(second)
    assert not turns.offer(third)
    assert _has_turn(turns, second, _never)
    assert turns.offer(third)
    monkeypatch.setattr(turns_module, "_OFFERED_S", 0.0)
    assert not turns.offer(third), "it was offered, and is asked for too late"
    assert _has_turn(turns, first, _never), "who waits has it then, whether or not anybody else asks"
    until(lambda: turns.offer(second))


def test_a_rate_counts_what_a_commit_brings_and_not_what_others_wrote_beside_it() -> None:
    commits = [_commit(version, rows=10, size=1_000) for version in range(6)]

    def of_ours(commit: Commit) -> bool:
        return commit.version % 2 == 1

    assert [one.version for one in within(commits, Most(messages=20), of_ours)] == [0, 1, 2, 3, 4]
    assert [one.version for one in within(commits, Most(size=1_500), of_ours)] == [0, 1, 2]
    assert within(commits, Most(messages=1), of_ours) == commits[:1], "one at least"
    assert within(commits, Most(), of_ours) == commits
    assert within([], Most(), of_ours) == []


def _commit(version: int, *, rows: int, size: int) -> Commit:
    metrics = {"numOutputRows": rows, "numOutputBytes": size}
    return Commit(version, f"id-{version}", "WRITE", {"mode": "Append"}, metrics, None, 0, None)
