"""What many ask of `system/ledgers` one by one is read once for all."""

from __future__ import annotations

from collections.abc import Collection

from geo.log.promised_ends import FRESH_S, Promised, SharedPromises
from geo.names import Topic

ONE, TWO, THREE = (Topic.parse(f"persistent://shop/web/{name}") for name in ("one", "two", "three"))


class Reads:
    """What was read, and the time."""

    def __init__(self, *expected: Topic) -> None:
        self.topics: list[set[Topic]] = []
        self.now = 100.0
        self.shared = SharedPromises(self._read, lambda: self.now)
        self.shared.expect(expected)

    def _read(self, topics: Collection[Topic]) -> Promised:
        self.topics.append(set(topics))
        return {topic: [] for topic in topics}


def test_the_second_that_asks_reads_for_all_and_who_asks_alone_for_itself() -> None:
    reads = Reads(ONE, TWO, THREE)
    for topic in (ONE, TWO, THREE, ONE):
        assert reads.shared.of(topic) == []
    assert reads.topics == [{ONE}, {ONE, TWO, THREE}]
    reads.now += FRESH_S
    reads.shared.of(TWO)
    assert reads.topics[2:] == [{TWO}], "what was read long ago does not count"


def test_a_topic_that_nobody_expected_is_read_too() -> None:
    reads = Reads(ONE)
    for topic in (ONE, TWO):
        assert reads.shared.of(topic) == []
    assert reads.topics == [{ONE}, {ONE, TWO}]
