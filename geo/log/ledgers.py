"""Ledger rules L1-L5: which ledger and entry a producer's next rows get. Pure: no Spark, clock, random or I/O.

A producer's `Progress` in one topic is what it has published: per source partition an end, per ledger an end. A batch is
planned against it (`plan`), committed as one Delta commit that carries the batch's record (`Batch.encode`), and folded
into it (`Progress.after`). Because rows and record are one commit, progress can always be told from the log alone:
the newest recorded progress plus the batches committed since.

- L1 entry ids of a ledger are contiguous from 0, publish_time never decreases.
- L2 one writer at a time (geo.log.ownership).
- L3 an id is never used for other data and no hole is left (`continued`).
- L4 ledgers grow with producers, source partitions and distinct `replicate_to`, not with restarts or batches.
- L5 all entries of a ledger have the same `replicate_to`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from geo.errors import SchemaError, UnsafeError

RECORD_VERSION = 1
RECORD_KEY = "geo.publish"

REBUILD_RECORD = '{"geo.rebuild":1}'
"""Record of a commit by which a region got messages of its own back: ledgers may reach further than their producers know."""

LEDGER_RANDOM_BITS = 20
"""A ledger id is the second of its birth followed by 20 random bits: it grows with time, needs no counter that a restored
backup could turn back, stays below 2**53 (exact in JSON) until the year 2242, and a clash within one second, one in a
million per pair, is drawn again."""


@dataclass(frozen=True, slots=True, order=True)
class LedgerKey:
    """What separates the ledgers of one producer: the source partition, and where the messages go."""

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


@dataclass(frozen=True, slots=True)
class SourceEnd:
    """How far a source partition is published: its last offset, and how many rows that makes."""

    offset: str
    count: int


@dataclass(frozen=True, slots=True)
class Span:
    """Entries `first..last` of one ledger, fed by one batch."""

    key: LedgerKey
    ledger_id: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Batch:
    """What one commit publishes. Travels inside the commit (its userMetadata)."""

    producer: str
    publish_time_us: int
    spans: tuple[Span, ...]
    sources: Mapping[str, SourceEnd]
    """The end of each source partition once this batch is committed."""

    def encode(self) -> str:
        return json.dumps(
            {
                RECORD_KEY: RECORD_VERSION,
                "producer": self.producer,
                "publish_time_us": self.publish_time_us,
                "spans": [[s.key.source, s.key.listed, s.ledger_id, s.first, s.last] for s in self.spans],
                "sources": {name: [end.offset, end.count] for name, end in sorted(self.sources.items())},
            },
            separators=(",", ":"),
        )

    @classmethod
    def decode(cls, text: str | None) -> Batch | None:
        """None for a commit that is no batch of a producer. Raises SchemaError for a record newer than this program."""
        try:
            fields = json.loads(text or "")
        except ValueError:
            return None
        if not isinstance(fields, dict) or RECORD_KEY not in fields:
            return None
        if fields[RECORD_KEY] != RECORD_VERSION:
            raise SchemaError(
                f"a commit's {RECORD_KEY} record has version {fields[RECORD_KEY]!r}, this program knows {RECORD_VERSION}. Upgrade it."
            )
        return cls(
            fields["producer"],
            fields["publish_time_us"],
            tuple(
                Span(LedgerKey.of(source, to), ledger_id, first, last) for source, to, ledger_id, first, last in fields["spans"]
            ),
            {name: SourceEnd(offset, count) for name, (offset, count) in fields["sources"].items()},
        )


@dataclass(frozen=True, slots=True)
class Progress:
    """All that one producer has published to one topic."""

    ledgers: Mapping[LedgerKey, Ledger] = field(default_factory=dict)
    sources: Mapping[str, SourceEnd] = field(default_factory=dict)
    publish_time_us: int = 0

    def after(self, batch: Batch) -> Progress:
        """The progress once `batch` is committed. Raises UnsafeError if it does not follow on this one (L1, L3)."""
        ledgers = dict(self.ledgers)
        for span in batch.spans:
            known = ledgers.get(span.key, Ledger(span.ledger_id, -1))
            if known.ledger_id == span.ledger_id and known.end + 1 != span.first:
                raise UnsafeError(
                    f"producer {batch.producer}: ledger {span.ledger_id} ends at entry {known.end}, "
                    f"a commit goes on at {span.first}. Run `geo verify` on the topic."
                )
            ledgers[span.key] = Ledger(span.ledger_id, span.last)
        return Progress(ledgers, {**self.sources, **batch.sources}, max(self.publish_time_us, batch.publish_time_us))


@dataclass(frozen=True, slots=True)
class Counted:
    """How many rows a batch has for one ledger key."""

    key: LedgerKey
    rows: int


def plan(
    progress: Progress,
    producer: str,
    counted: Iterable[Counted],
    source_ends: Mapping[str, str],
    now_us: int,
    new_ledger_id: Callable[[], int],
) -> Batch:
    """Give each counted group its ledger and entries, in ledgers that go on where they ended (L1), new ones where none is
    (L4). `source_ends` are the partitions' offsets after this batch. publish_time never goes back, whatever the clock does."""
    spans, rows_of = [], dict.fromkeys(source_ends, 0)
    for group in sorted(counted, key=lambda g: (g.key.source, g.key.replicate_to is not None, g.key.replicate_to or ())):
        ledger = progress.ledgers.get(group.key) or Ledger(new_ledger_id(), -1)
        spans.append(Span(group.key, ledger.ledger_id, ledger.end + 1, ledger.end + group.rows))
        rows_of[group.key.source] += group.rows
    sources = {}
    for name, offset in source_ends.items():
        known = progress.sources.get(name)
        sources[name] = SourceEnd(offset, (known.count if known else 0) + rows_of[name])
    return Batch(producer, max(now_us, progress.publish_time_us), tuple(spans), sources)


def continued(
    progress: Progress,
    log_ends: Mapping[int, int],
    peer_ends: Mapping[str, Mapping[int, int]],
    *,
    log_intact: bool,
) -> tuple[Progress, list[str]]:
    """The progress a producer may go on with at a start (L3), and why ledgers were given up, one sentence each.

    `log_ends` and `peer_ends` are ledger → last entry, in the own log and per peer that could be read. `log_intact`: the
    log is the recorded table and was not RESTOREd since the last record. A ledger that is given up stays as it is; its
    key gets a new one with the next batch. The sources' ends are kept: what was published is not published again.

    Raises UnsafeError if the own log holds more of a ledger than any commit of its producer explains.
    """
    kept, reasons = {}, []
    for key, ledger in progress.ledgers.items():
        found = log_ends.get(ledger.ledger_id, -1)
        if found > ledger.end and log_intact:
            raise UnsafeError(
                f"ledger {ledger.ledger_id} (source {key.source}): the log holds entries up to {found}, the producer's record "
                f"explains {ledger.end}. Another writer used this ledger or the commit history is gone. "
                "Publish under a new producer name, and run `geo verify`."
            )
        holders = sorted(name for name, ends in peer_ends.items() if ends.get(ledger.ledger_id, -1) > ledger.end)
        if not log_intact:
            reasons.append(
                f"ledger {ledger.ledger_id} is closed at entry {ledger.end}: the log was re-created, restored or rebuilt"
            )
        elif found < ledger.end:
            reasons.append(
                f"ledger {ledger.ledger_id} is closed: the log ends at entry {found}, it was published up to {ledger.end}"
            )
        elif holders:
            reasons.append(f"ledger {ledger.ledger_id} is closed at entry {ledger.end}: {', '.join(holders)} holds more of it")
        else:
            kept[key] = ledger
    return replace(progress, ledgers=kept), reasons


def ledger_id(second: int, random_bits: int) -> int:
    """The id of a ledger born in that second; see LEDGER_RANDOM_BITS."""
    return (second << LEDGER_RANDOM_BITS) | (random_bits & ((1 << LEDGER_RANDOM_BITS) - 1))
