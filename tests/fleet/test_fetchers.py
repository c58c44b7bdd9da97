"""Which topics bring a batch at the same time: Kafka's formula, and turns that are fair whatever comes and goes."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from geo.fleet.fetchers import Fetchers, fetcher_id, fetcher_of
from geo.names import Topic

TOPICS = [Topic("shop", "web", f"t{number}") for number in range(12)]


@pytest.mark.parametrize(
    ("topic", "partition", "num_fetchers", "expected"),
    [
        ("foo", 1, 2, 1), ("bar", 2, 2, 1), ("orders", 0, 4, 1), ("orders", 1, 4, 0), ("orders", 0, 10, 9), ("topic_9", 99, 50, 28),
        ("eu.orders", 3, 8, 0), ("", 0, 3, 0),
    ],
)  # fmt: skip
def test_the_formula_is_kafkas(topic: str, partition: int, num_fetchers: int, expected: int) -> None:
    """Vectors made by Kafka's class on Java 17."""
    assert fetcher_id(topic, partition, num_fetchers) == expected


def test_the_least_number_of_32_bits_has_no_magnitude() -> None:
    assert fetcher_id("", -(2**31), 7) == 0


def test_a_character_beyond_16_bits_counts_as_the_two_that_java_has() -> None:
    high, low = 0xD83D, 0xDE00
    assert fetcher_id("\U0001f600", 0, 1_000_003) == (31 * (31 * high + low)) % 2**32 % 1_000_003


def test_the_partitions_of_a_topic_are_spread() -> None:
    orders = Topic("shop", "web", "orders")
    assert [fetcher_of(orders.with_partition(n), 4) for n in range(4)] == [(fetcher_of(orders, 4) + n) % 4 for n in range(4)]


class Turns(RuleBasedStateMachine):
    """Topics that ask, get their turn and end it, or give up, while the number of fetchers changes."""

    def __init__(self) -> None:
        super().__init__()
        self.fetchers = Fetchers(2)
        self.most = 2
        """Turns that may be under way: after a resize also those of before."""
        self.served: dict[Topic, set[Topic]] = {}
        """Of each topic that waits, which others of its fetcher had a turn since."""

    @rule(topic=st.sampled_from(TOPICS))
    def ask(self, topic: Topic) -> None:
        if topic not in self.fetchers.on_turn and topic not in self.served:
            self.fetchers.ask(topic)
            self.served[topic] = set()
            self._begin()

    @precondition(lambda self: self.fetchers.on_turn)
    @rule(data=st.data(), asks_again=st.booleans())
    def end(self, data: st.DataObject, asks_again: bool) -> None:
        topic = data.draw(st.sampled_from(list(self.fetchers.on_turn)))
        self.fetchers.remove(topic)
        self.most = max(self.fetchers.num_fetchers, len(self.fetchers.on_turn))
        if asks_again:
            self.ask(topic)
        else:
            self._begin()

    @rule(topic=st.sampled_from(TOPICS))
    def give_up(self, topic: Topic) -> None:
        self.fetchers.remove(topic)
        self.served.pop(topic, None)
        self._begin()

    @rule(num_fetchers=st.integers(1, 6))
    def resize(self, num_fetchers: int) -> None:
        self.most = max(num_fetchers, len(self.fetchers.on_turn))
        self.fetchers.resize(num_fetchers)
        for served in self.served.values():  # it waits in another line now
            served.clear()
        self._begin()

    def _begin(self) -> None:
        for topic in self.fetchers.begin():
            del self.served[topic]
            for other, served in self.served.items():
                if self._fetcher(other) == self._fetcher(topic):
                    assert topic not in served, f"{topic} had two turns while {other} waited"
                    served.add(topic)

    def _fetcher(self, topic: Topic) -> int:
        return fetcher_of(topic, self.fetchers.num_fetchers)

    @invariant()
    def no_more_than_so_many_at_once(self) -> None:
        assert len(self.fetchers.on_turn) <= self.most

    @invariant()
    def a_fetcher_brings_one_batch_at_a_time(self) -> None:
        assert len(set(self.fetchers.on_turn.values())) == len(self.fetchers.on_turn)

    @invariant()
    def nobody_is_forgotten(self) -> None:
        assert sorted(str(topic) for line in self.fetchers.lines.values() for topic in line) == sorted(map(str, self.served))

    @invariant()
    def nobody_waits_for_a_fetcher_that_is_free(self) -> None:
        if len(self.fetchers.on_turn) < self.fetchers.num_fetchers:
            assert self.fetchers.lines.keys() <= set(self.fetchers.on_turn.values())


TestTurns = Turns.TestCase
TestTurns.settings = settings(stateful_step_count=40)
