"""Slots of a link in which topics may replicate a batch at the same time: Kafka's fetchers. Pure: no Spark, clock or I/O.

A topic belongs to the fetcher of its name (`fetcher_id`), and a fetcher replicates one batch at a time. So a link's batches are at most
`num_fetchers` at once. Who has had a turn waits behind all others of its fetcher that have news, so a busy topic starves none. (Kafka's
AbstractFetcherThread moves a partition it has processed to the end of its map.) A fetcher is nothing but its line. One without topics is gone. No
position is kept here, so a resize has none to lose (AbstractFetcherManager.resizeThreadPool keeps them).
"""

from __future__ import annotations

from collections import deque

from geo.names import Topic

_WRAP, _SIGN = 2**32, 2**31


def fetcher_id(topic: str, partition: int, num_fetchers: int) -> int:
    """The fetcher of a partition by the formula of Kafka's AbstractFetcherManager.getFetcherId: 31 times Java's hash of the topic, plus the
    partition, in 32 bits. Its magnitude (0 of the least number, as Kafka's Utils.abs) modulo the number of fetchers."""
    units = topic.encode("utf-16-be", "surrogatepass")
    hashed = 0
    for at in range(0, len(units), 2):
        hashed = (31 * hashed + int.from_bytes(units[at : at + 2], "big")) % _WRAP
    whole = (31 * hashed + partition) % _WRAP
    magnitude = 0 if whole == _SIGN else whole if whole < _SIGN else _WRAP - whole
    return magnitude % num_fetchers


def fetcher_of(topic: Topic, num_fetchers: int) -> int:
    """The fetcher of a topic; the partitions of a partitioned topic are spread as Kafka spreads them."""
    return fetcher_id(str(topic.partitioned or topic), topic.partition or 0, num_fetchers)


class Fetchers:
    """Topics that have a turn, and topics that wait for one. A topic that has asked is not to ask again until its turn has ended or it was removed."""

    def __init__(self, num_fetchers: int) -> None:
        self.num_fetchers = num_fetchers
        self.on_turn: dict[Topic, int] = {}
        """The topics whose turn it is, each with its fetcher."""
        self.lines: dict[int, deque[Topic]] = {}
        """The topics that wait, by fetcher, in the order in which they are served."""

    def ask(self, topic: Topic) -> None:
        """Let the topic wait for a turn, behind those that wait for its fetcher already."""
        self.lines.setdefault(fetcher_of(topic, self.num_fetchers), deque()).append(topic)

    def begin(self) -> list[Topic]:
        """The topics whose turn begins now: the first in the line of each fetcher that is free, those of the lowest number
        first."""
        begun = []
        for fetcher in sorted(self.lines):
            if len(self.on_turn) >= self.num_fetchers:  # after a resize turns of more may still be under way
                break
            if fetcher in self.on_turn.values():
                continue
            line = self.lines[fetcher]
            topic = line.popleft()
            if not line:
                del self.lines[fetcher]
            self.on_turn[topic] = fetcher
            begun.append(topic)
        return begun

    def remove(self, topic: Topic) -> None:
        """Its turn has ended, or it waits no longer."""
        self.on_turn.pop(topic, None)
        for fetcher, line in list(self.lines.items()):
            if topic in line:
                line.remove(topic)
                if not line:
                    del self.lines[fetcher]

    def resize(self, num_fetchers: int) -> None:
        """Deal those who wait again, in the order in which they would have been served fetcher by fetcher. Turns that are under way end as they
        began.
        """
        lines, self.lines, self.num_fetchers = list(self.lines.values()), {}, num_fetchers
        for place in range(max(map(len, lines), default=0)):
            for line in lines:
                if place < len(line):
                    self.ask(line[place])
