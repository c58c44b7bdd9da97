"""Ledger rules L1-L5: which ledger and entry a producer's next rows get. Pure: no Spark, clock, random or I/O.

A producer's `ProducerProgress` in one topic is what it has published: per source partition an end, per ledger an end. A batch is
planned against it (`plan`), committed as one Delta commit that carries the batch's record (`Batch.encode`), and folded
into it (`ProducerProgress.after`). Because rows and record are one commit, progress can always be derived from the log alone:
the newest recorded progress plus the batches committed since.

- L1 entry ids of a ledger are contiguous from 0, publish_time never decreases.
- L2 one writer at a time (geo.coordination.ownership).
- L3 an id is never used for other data and no hole is left (geo.log.continuing).
- L4 ledgers grow with producers, source partitions and distinct `replicate_to`, not with restarts or batches.
- L5 all entries of a ledger have the same `replicate_to`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from geo.delta.commits import Commit, Kind, read_record
from geo.errors import UnsafeError

RECORD_VERSION = 2
RECORD_KEY = "geo.publish"

REBUILD_KEY = "geo.rebuild"
REBUILD_RECORD = '{"geo.rebuild":1}'
"""Record of a commit by which a region got messages of its own back: ledgers may reach further than their producers know."""

LINK_KEY, LINK_VERSION = "geo.link", 1
"""Key of the record of a commit by which a link replicated something (geo.replication.link_state)."""

BACKFILL_KEY, BACKFILL_VERSION = "geo.backfill", 1
"""Key of that of a backfill: the origins of which it appended messages, long after they were published."""

RECORDS = (RECORD_KEY, REBUILD_KEY, LINK_KEY, BACKFILL_KEY)
"""Keys of the records of this program's appends to a topic log."""

LEDGER_RANDOM_BITS = 20
"""A ledger id is the second of its birth followed by 20 random bits. It grows with time, and needs no counter that a restored backup could turn back.
It stays below 2**53 (exact in JSON) until the year 2242. A clash within one second, one in a million per pair, is drawn again.
"""


@dataclass(frozen=True, slots=True, order=True)
class LedgerKey:
    """The key that separates the ledgers of one producer: the source partition, and where the messages go."""

    source: str
    replicate_to: tuple[str, ...] | None

    @classmethod
    def of(cls, source: str, replicate_to: Iterable[str] | None) -> LedgerKey:
        return cls(source, None if replicate_to is None else tuple(replicate_to))

    @property
    def listed(self) -> list[str] | None:
        """`replicate_to` as tables and JSON have it."""
        return None if self.replicate_to is None else list(self.replicate_to)


@dataclass(frozen=True, slots=True)
class Ledger:
    ledger_id: int
    end: int
    """Last committed entry; -1 while it is empty."""
    time_us: int = 0
    """publish_time of the last entry; of an empty ledger, when it was opened."""
    uncompared: tuple[str, ...] = ()
    """Peers that were away when it was opened and have not been compared with it since."""


@dataclass(frozen=True, slots=True)
class SourceEnd:
    """The end up to which a source partition is published: its last offset, and how many rows that makes with what content.

    `hash` is the XOR of the rows' hashes, so it does not depend on their order or on the batches they came in. 0 of a source whose published rows
    are never looked at again (`Identity.gapless`).
    """

    offset: str
    count: int
    hash: int = 0

    @property
    def parts(self) -> list[str]:
        """The parts of the offset as text, and the source's mark if there is one (`Identity.encode`)."""
        found: list[str] = json.loads(self.offset)
        return found


@dataclass(frozen=True, slots=True)
class Span:
    """Entries `first..last` of one ledger, fed by one batch."""

    key: LedgerKey
    ledger_id: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Batch:
    """The record of one commit, which publishes rows. Travels inside the commit (its userMetadata)."""

    producer: str
    publish_time_us: int
    spans: tuple[Span, ...]
    sources: Mapping[str, SourceEnd]
    """The end of each source partition once this batch is committed."""

    @property
    def rows(self) -> int:
        return sum(span.last - span.first + 1 for span in self.spans)

    def encode(self) -> str:
        return json.dumps(
            {
                RECORD_KEY: RECORD_VERSION,
                "producer": self.producer,
                "publish_time_us": self.publish_time_us,
                "spans": [[s.key.source, s.key.listed, s.ledger_id, s.first, s.last] for s in self.spans],
                "sources": {name: _listed(end) for name, end in sorted(self.sources.items())},
            },
            separators=(",", ":"),
        )

    @classmethod
    def decode(cls, text: str | None) -> Batch | None:
        """None for a commit that is no batch of a producer. Raises SchemaError for a record newer than this program."""

        def batch(fields: Mapping[str, Any]) -> Batch:
            spans = (Span(LedgerKey.of(source, to), *entries) for source, to, *entries in fields["spans"])
            sources = {name: SourceEnd(*end) for name, end in fields["sources"].items()}
            return cls(fields["producer"], fields["publish_time_us"], tuple(spans), sources)

        return read_record(text, RECORD_KEY, RECORD_VERSION, batch)


def is_foreign(commit: Commit) -> bool:
    """True if a commit of a topic log may have added rows that this program did not append. It carries no record of ours, or the record of a
    producer that counts other rows than came. Such rows may be copies of any that are there.
    """
    if commit.kind is Kind.RELISTED:
        return True
    if commit.kind is not Kind.APPEND:
        return False
    if not any(commit.has_record(key) for key in RECORDS):
        return True
    batch = Batch.decode(commit.user_metadata)
    return batch is not None and commit.rows is not None and commit.rows != batch.rows


def _listed(end: SourceEnd) -> list[str | int]:
    return [end.offset, end.count, end.hash] if end.hash else [end.offset, end.count]


@dataclass(frozen=True, slots=True)
class ProducerProgress:
    """All that one producer has published to one topic."""

    ledgers: Mapping[LedgerKey, Ledger] = field(default_factory=dict)
    sources: Mapping[str, SourceEnd] = field(default_factory=dict)

    def opened(self, batch: Batch, uncompared: Sequence[str] = ()) -> ProducerProgress:
        """With the ledgers that `batch` begins, still empty. `uncompared` are the peers that are away now."""
        new = {
            span.key: Ledger(span.ledger_id, -1, batch.publish_time_us, tuple(uncompared))
            for span in batch.spans
            if span.key not in self.ledgers
        }
        return replace(self, ledgers={**self.ledgers, **new})

    def after(self, batch: Batch, *, bridged: bool = False) -> ProducerProgress:
        """The progress once `batch` is committed. Raises UnsafeError if it does not follow on this one (L1, L3).

        `bridged`: batches before this one may be unknown, so its ledgers may begin further on, but not further back.
        """
        ledgers = dict(self.ledgers)
        for span in batch.spans:
            known = ledgers.get(span.key)
            if known is None or known.ledger_id != span.ledger_id:
                known = Ledger(span.ledger_id, -1)
            if span.first <= known.end or (span.first > known.end + 1 and not bridged):
                raise UnsafeError(
                    f"producer {batch.producer}: ledger {span.ledger_id} ends at entry {known.end}, "
                    f"a commit goes on at {span.first}. Run `geo verify` on the topic."
                )
            ledgers[span.key] = replace(known, end=span.last, time_us=max(known.time_us, batch.publish_time_us))
        return ProducerProgress(ledgers, {**self.sources, **batch.sources})

    def holds(self, batch: Batch) -> bool:
        """True if `batch` is in it already."""
        found = ((span, self.ledgers.get(span.key)) for span in batch.spans)
        # Ids of ledgers grow with time: the ledger of a key that is newer than the batch's has replaced that one.
        return all(ledger is not None and (span.ledger_id, span.last) <= (ledger.ledger_id, ledger.end) for span, ledger in found)


@dataclass(frozen=True, slots=True)
class LedgerPart:
    """The messages of a ledger that were looked at. All of a ledger have the same `replicate_to` (L5)."""

    first: int
    last: int
    count: int
    replicate_to: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class RowsOfKey:
    """The number of rows that a batch has for one ledger key, and the XOR of their hashes."""

    key: LedgerKey
    rows: int
    hash: int = 0


def new_keys(progress: ProducerProgress, counted: Iterable[RowsOfKey]) -> list[LedgerKey]:
    """The keys that need a new ledger, in the order in which `plan` takes the ids for them."""
    return [group.key for group in _in_order(counted) if group.key not in progress.ledgers]


def plan(
    progress: ProducerProgress,
    producer: str,
    counted: Iterable[RowsOfKey],
    source_ends: Mapping[str, str],
    now_us: int,
    new_ids: Sequence[int] = (),
) -> Batch:
    """Give each counted group its ledger and entries, in ledgers that go on where they ended (L1), new ones where none is (L4).

    `source_ends` are the partitions' offsets after this batch. `new_ids` are distinct ids that no ledger has, one for each of
    `new_keys`. publish_time never goes back within a ledger, whatever the clock does.
    """
    groups = _in_order(counted)
    ids = dict(zip(new_keys(progress, groups), new_ids, strict=True))
    if len(set(new_ids)) != len(new_ids):
        raise ValueError(f"ledger ids must be distinct, given were {list(new_ids)}")
    spans, time_us = [], now_us
    rows_of, hash_of = dict.fromkeys(source_ends, 0), dict.fromkeys(source_ends, 0)
    for group in groups:
        ledger = progress.ledgers.get(group.key) or Ledger(ids[group.key], -1)
        time_us = max(time_us, ledger.time_us)
        spans.append(Span(group.key, ledger.ledger_id, ledger.end + 1, ledger.end + group.rows))
        rows_of[group.key.source] += group.rows
        hash_of[group.key.source] ^= group.hash
    sources = {}
    for name, offset in source_ends.items():
        known = progress.sources.get(name, SourceEnd(offset, 0))
        sources[name] = SourceEnd(offset, known.count + rows_of[name], known.hash ^ hash_of[name])
    return Batch(producer, time_us, tuple(spans), sources)


def _in_order(counted: Iterable[RowsOfKey]) -> list[RowsOfKey]:
    return sorted(counted, key=lambda g: (g.key.source, g.key.replicate_to is not None, g.key.replicate_to or ()))


def ledger_id(second: int, random_bits: int) -> int:
    """The id of a ledger born in that second; see LEDGER_RANDOM_BITS."""
    return (second << LEDGER_RANDOM_BITS) | (random_bits & ((1 << LEDGER_RANDOM_BITS) - 1))
