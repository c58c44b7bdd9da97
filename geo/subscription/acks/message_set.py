"""Sets of messages, as ranges of entries per ledger: what is acknowledged, delivered, waiting. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from geo.ids import LedgerId, MessageId
from geo.subscription.acks import ranges
from geo.subscription.acks.ranges import Ranges


@dataclass(frozen=True, slots=True)
class MessageSet:
    """Ledgers without any message are left out, so equal sets are equal values."""

    ledgers: Mapping[LedgerId, Ranges] = field(default_factory=dict)

    @classmethod
    def of(cls, ids: Iterable[MessageId]) -> MessageSet:
        entries: dict[LedgerId, list[int]] = {}
        for one in ids:
            entries.setdefault(one.ledger, []).append(one.entry_id)
        return cls({ledger: ranges.of_entries(found) for ledger, found in entries.items()})

    @classmethod
    def union(cls, sets: Iterable[MessageSet]) -> MessageSet:
        """Unites many sets. Of the largest only the ledgers that others name too are looked at. What is acknowledged has as many as there ever were,
        and a batch a few.
        """
        largest, *others = sorted(sets, key=lambda one: len(one.ledgers), reverse=True) or [cls()]
        more: dict[LedgerId, list[Ranges]] = {}
        for one in others:
            for ledger, held in one.ledgers.items():
                more.setdefault(ledger, []).append(held)
        if not more:
            return largest
        changed = {ledger: ranges.union(largest.ledgers.get(ledger, ()), *held) for ledger, held in more.items()}
        return cls({**largest.ledgers, **changed})

    @classmethod
    def parse(cls, text: str) -> MessageSet:
        """The inverse of `str`."""
        found: dict[LedgerId, list[ranges.Range]] = {}
        for word in text.split():
            ledger, _, held = word.rpartition(":")
            first, _, last = held.partition("-")
            found.setdefault(LedgerId.parse(ledger), []).append((int(first), int(last or first)))
        return cls({ledger: ranges.joined(sorted(held)) for ledger, held in found.items()})

    def halves(self) -> tuple[MessageSet, MessageSet]:
        """Its messages by origin, ledger and entry: the first half, and the others."""
        every = list(self)
        return self.of(every[: len(every) // 2]), self.of(every[len(every) // 2 :])

    def __bool__(self) -> bool:
        return bool(self.ledgers)

    def __contains__(self, one: MessageId) -> bool:
        return ranges.contains(self.ledgers.get(one.ledger, ()), one.entry_id)

    def __or__(self, other: MessageSet) -> MessageSet:
        return MessageSet.union((self, other))

    def __sub__(self, other: MessageSet) -> MessageSet:
        left = {name: ranges.difference(mine, other.ledgers.get(name, ())) for name, mine in self.ledgers.items()}
        return MessageSet({name: found for name, found in left.items() if found})

    def __and__(self, other: MessageSet) -> MessageSet:
        both = {name: ranges.intersection(mine, other.ledgers.get(name, ())) for name, mine in self.ledgers.items()}
        return MessageSet({name: found for name, found in both.items() if found})

    def __iter__(self) -> Iterator[MessageId]:
        """The messages by origin, ledger and entry."""
        for (origin, ledger_id), found in sorted(self.ledgers.items()):
            for first, last in found:
                for entry_id in range(first, last + 1):
                    yield MessageId(origin, ledger_id, entry_id)

    def __str__(self) -> str:
        """Such as `eu:7:0-41 eu:7:43 us:9:0-3`."""
        return " ".join(
            f"{origin}:{ledger_id}:{first}" + (f"-{last}" if last > first else "")
            for (origin, ledger_id), found in sorted(self.ledgers.items())
            for first, last in found
        )

    def shown(self, most: int = 100) -> str:
        """Text as `str`, with so many ranges at most."""
        every = str(self).split(" ")
        return " ".join(every[:most]) + (f" and {len(every) - most} ranges more" if len(every) > most else "")

    @property
    def size(self) -> int:
        """Count of the messages."""
        return sum(map(ranges.size, self.ledgers.values()))

    @property
    def range_count(self) -> int:
        """Count of ranges, with which its memory and its encoding grow."""
        return sum(map(len, self.ledgers.values()))

    def mark_delete(self, ledger: LedgerId, begin: int = 0) -> int:
        """The entry up to which all of the ledger's from `begin` on are in the set; `begin` - 1: none."""
        return ranges.mark_delete(self.ledgers.get(ledger, ()), begin)

    def marks(self, begins: Mapping[LedgerId, int]) -> dict[LedgerId, int]:
        """Finds, of ledgers that begin at the given entries, the entry up to which all are in the set, where any is. What is before its beginning has
        expired: a hole there holds up nothing.
        """
        marks = {ledger: self.mark_delete(ledger, begin) for ledger, begin in begins.items()}
        return {ledger: end for ledger, end in marks.items() if end >= begins[ledger]}
