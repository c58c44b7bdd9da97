"""A Kafka topic as a source, on kafka-python: what there is to read, and reading it, in any process.

A row is a record with its coordinates, so that partition and offset identify it and each partition gets a ledger of its own. What is published of
it says where to go on. Offsets that are gone, a topic that was made again and partitions that vanished stop the stream with the range. Only
committed records are read (`read_committed`).
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from gzip import BadGzipFile
from typing import Any

import pyarrow as pa
from kafka.consumer.fetcher import RecordTooLargeError
from kafka.errors import (
    CorruptRecordError,
    KafkaError,
    LogTruncationError,
    OffsetOutOfRangeError,
    UnsupportedCodecError,
)

from geo.errors import GeoError, RetryableError, SourceChangedError, UnsafeError, UsageError
from geo.log.admission import ERROR
from geo.log.ledgers import SourceEnd
from geo.log.sources.kafka_rows import BLOCK, PARTITION, RECORD_OFFSET, source_name
from geo.log.sources.kafka_rows import block_of as _block
from geo.log.sources.kafka_topic import SAY_S, WAIT_S, KafkaTopic
from geo.log.sources.source import Place, Position
from geo.reasons import Reason, Wrong
from geo.text import show

log = logging.getLogger(__name__)

NATIVE_PARTS = "pip install 'delta-geo[kafka]' brings checksums and codecs as native code"
BATCH_ROWS = 200_000
"""Offsets per batch, over all partitions: 200 MB of 1 KB records, a commit of some seconds."""

FEW = 2_000
"""A batch of up to so many offsets is read by the process that plans it: a task costs more than it saves."""

_ROWS_PER_BLOCK = 5_000

_MOST_UNREADABLE = 10_000
"""Offsets in a row that are tried, some milliseconds each: more than a batch mostly has."""


def refuse_other_topic(topic: str, topic_id: str, known: Position) -> None:
    """Raises SourceChangedError if a place is known of a partition of a topic with another id."""
    for _, before in known.values():
        if before and topic_id and before != topic_id:
            raise SourceChangedError(
                f"{_not_the_one(topic, f'its id is {topic_id}, it was {before}')}", code=Reason.SOURCE_RECREATED
            )


def _not_the_one(topic: str, what: str) -> str:
    return (
        f"Kafka topic {topic} is not the one that was read: it was deleted and made anew, is of another Kafka cluster, or was cut off "
        f"({what}). Nothing was skipped. Publish the new one under another --producer."
    )


@dataclass(frozen=True, slots=True)
class OffsetSpan:
    """Offsets `first` to `end` - 1 of a partition."""

    partition: int
    first: int
    end: int

    def __str__(self) -> str:
        return f"{self.partition}:{self.first}" + (f"-{self.end - 1}" if self.end - self.first > 1 else "")


def parse_span(text: str) -> OffsetSpan:
    """`PARTITION:OFFSET` or `PARTITION:FIRST-LAST`. Raises UsageError."""
    if (found := re.fullmatch(r"(\d{1,9}):(\d{1,18})(?:-(\d{1,18}))?", text, re.ASCII)) is None:
        raise UsageError(f"{show(text)} is no PARTITION:OFFSET or PARTITION:FIRST-LAST, such as 0:17 or 0:17-20")
    return OffsetSpan(int(found[1]), int(found[2]), int(found[3] or found[2]) + 1)


class KafkaReader:
    """Reads one topic. The place of a partition is `[next offset to read, id of the topic]`. `start` is where partitions begin at
    the first start. Offsets that are gone are passed with `accept_lost`, those that cannot be read where they are in `accept_unreadable`, as
    a row with the reason. May be sent to another process."""

    blocks = BLOCK

    def __init__(
        self,
        topic: KafkaTopic,
        *,
        start: str = "earliest",
        batch_rows: int = BATCH_ROWS,
        accept_lost: bool = False,
        accept_unreadable: Sequence[OffsetSpan] = (),
    ) -> None:
        self._topic, self._name, self._start = topic, topic.name, start
        self._batch_rows, self._accept_lost = batch_rows, accept_lost
        self._accept_unreadable = tuple(accept_unreadable)
        self._first: dict[int, int] | None = None
        self._end: dict[int, int] | None = None

    def place_of(self, source: str, end: SourceEnd) -> Place | None:
        """Tells where a partition goes on that is published up to `end`; None of another topic's."""
        if not self.has(source):
            return None
        offset, *more = end.parts
        return [int(offset) + 1, *(more or [""])]

    def has(self, source: str) -> bool:
        """True for a partition of the topic."""
        of, _, number = source.rpartition(":")
        return source_name(self._name, 0).rpartition(":")[0] == of and number.isdigit()

    def say(self, source: str, place: Place) -> str:
        """Show a place as partition and offset."""
        return f"partition {source.rpartition(':')[2]} from offset {place[0]}"

    def mark_of(self, place: Place) -> str:
        """The topic's id."""
        return str(place[1])

    def begin(self, known: Position) -> Position:
        """The position at which to begin. Raises SourceChangedError if places are known of another topic."""
        begins, ends = self._topic.bounds()
        topic_id = self._topic.topic_id()
        refuse_other_topic(self._name, topic_id, known)
        # At a later start a partition of which nothing is known came later, or its note is lost: it begins with offset 0, whatever the
        # others began with, and the next batch says what of it is gone.
        first = ends if self._start == "latest" and not known else begins
        names = {source_name(self._name, p): offset for p, offset in sorted(first.items())}
        if self._start == "latest" and (more := [name for name in names if known and name not in known]):
            log.warning(
                "Kafka topic %s: read from the first offset, since nothing is known of it: %s", self._name, ", ".join(more)
            )
        # A partition that is known and not there any more stays in it: the next batch says so.
        new = {name: 0 if known else offset for name, offset in names.items()}
        return {name: [known[name][0] if name in known else new[name], topic_id] for name in sorted({*names, *known})}

    def unread(self, position: Position) -> Collection[str]:
        """None: partitions are few, and none of them is ever moved."""
        return ()

    def end_here(self) -> None:
        """Read no further than what is there now."""
        self._end = self._topic.bounds()[1]

    def next(self, start: Position) -> Position:
        """The position up to which the next batch is read. Raises SourceChangedError if offsets from `start` on are gone."""
        begins, ends = self._topic.bounds()
        topic_id = self._check(start, begins, ends)
        until = self._end if self._end is not None else ends
        known = self._offsets(start)
        begun = {p: max(known.get(p, begins[p]), begins[p]) for p in sorted(ends)}
        left = {p: max(0, until.get(p, 0) - begun[p]) for p in begun}
        share = _shares(left, self._batch_rows)
        self._first = self._first if self._first is not None else {p: begun[p] for p in until if p in begun}
        return {source_name(self._name, p): [begun[p] + share[p], topic_id] for p in begun}

    def part_of(self, position: Position) -> float | None:
        """Return the part of the offsets that there were at the first batch."""
        if self._end is None or self._first is None:
            return None
        left = sum(self._end[p] - first for p, first in self._first.items())
        done = sum(offset - self._first[p] for p, offset in self._offsets(position).items() if p in self._first)
        return done / left if left else None

    def spans(self, start: Position, end: Position) -> list[OffsetSpan]:
        """Return the offsets that are read between two positions. A partition that came between is read from its first offset."""
        known, begins = self._offsets(start), self._topic.bounds()[0] if self._accept_lost or end.keys() - start.keys() else {}
        spans = []
        for partition, stop in sorted(self._offsets(end).items()):
            first = known.get(partition, begins.get(partition, 0))
            if self._accept_lost:
                first = max(first, begins.get(partition, 0))
            if stop > first:
                spans.append(OffsetSpan(partition, first, stop))
        return spans

    def _offsets(self, position: Position) -> dict[int, int]:
        """The next offset of each partition."""
        return {int(name.rpartition(":")[2]): offset for name, (offset, _) in position.items()}

    def are_few(self, spans: Sequence[OffsetSpan]) -> bool:
        """True if the process that planned the spans reads them itself."""
        return sum(span.end - span.first for span in spans) <= FEW

    def close(self) -> None:
        """Close the clients of this thread."""
        self._topic.close()

    def read(self, span: OffsetSpan) -> Iterator[pa.RecordBatch]:
        """The records, in order, as BLOCK. Raises SourceChangedError, UnsafeError where a record cannot be read, UsageError, RetryableError."""
        partition, end = span.partition, span.end
        consumer, where = self._topic.consumer_at(partition, span.first)
        named = f"Kafka topic {self._name}, partition {partition}"
        position, progressed, warned = span.first, time.monotonic(), 0.0
        # A record below `end` may be missing for good: compacted, or the marker of a transaction. The position passes it.
        while True:
            try:
                if (position := consumer.position(where)) >= end:
                    return
                records = consumer.poll(timeout_ms=1000, max_records=_ROWS_PER_BLOCK).get(where, [])
                after = consumer.position(where)
            except OffsetOutOfRangeError:
                raise SourceChangedError(
                    f"{named}: offset {position} was deleted while the batch was read. Nothing of the batch was published; the next start "
                    "says which offsets are gone.",
                    code=Reason.SOURCE_ROWS_GONE,
                ) from None
            except LogTruncationError as error:
                raise SourceChangedError(
                    f"{_not_the_one(self._name, f'partition {partition}: {error}')}", code=Reason.SOURCE_RECREATED
                ) from None
            except Exception as error:
                self._topic.close()
                if not _is_of_record(error):
                    refusal = self._topic.refusal(error) if isinstance(error, KafkaError) else None
                    raise (refusal or RetryableError(f"{named}: {error}", code=Reason.NO_ANSWER)) from None
                bad = self._unreadable(OffsetSpan(partition, position, end), error)
                yield self._passed(bad, error)
                consumer, where = self._topic.consumer_at(partition, bad.end)
                continue
            if rows := [record for record in records if record.offset < end]:
                yield _block(rows)
            waited = time.monotonic() - progressed
            if after > position:
                progressed, warned = time.monotonic(), 0.0
            elif waited > WAIT_S:
                raise RetryableError(f"{named}: no answer for {waited:.0f} s at {position}.", code=Reason.NO_ANSWER)
            elif waited - warned > SAY_S:
                self._topic.refuse_if_stopped(f"{named}: no answer for {waited:.0f} s at {position}.")
                warned = waited
                log.warning("%s: no answer for %.0f s, waiting", named, waited)

    def _unreadable(self, span: OffsetSpan, error: Exception) -> OffsetSpan:
        """The offsets at the beginning of a span that cannot be read, at most `_MOST_UNREADABLE`. A batch of records is read as a whole or from its
        beginning. So those behind a bad record in its batch cannot be read either. Raises RetryableError if the first can be read now.

        Each offset is tried: where a batch ends nobody says but itself, and it is damaged.
        """
        first = OffsetSpan(span.partition, span.first, span.first + 1)
        if isinstance(error, UnsupportedCodecError) and not self._accepts(first):
            return first  # all that follow may be so
        span = OffsetSpan(span.partition, span.first, min(span.end, span.first + _MOST_UNREADABLE))
        consumer, where = self._topic.consumer_at(
            span.partition, span.first, max_partition_fetch_bytes=1
        )  # one batch is what a broker gives at least
        try:
            for offset in range(span.first, span.end):
                consumer.seek(where, offset)
                try:
                    began = time.monotonic()
                    while not consumer.poll(timeout_ms=1000) and consumer.position(where) == offset:
                        if time.monotonic() - began > SAY_S:
                            raise RetryableError(
                                f"Kafka topic {self._name}: no answer at offset {offset}.", code=Reason.NO_ANSWER
                            )
                except Exception as again:
                    if _is_of_record(again):
                        continue
                    raise RetryableError(f"Kafka topic {self._name}: {again}", code=Reason.NO_ANSWER) from None
                if offset == span.first:
                    raise RetryableError(
                        f"Kafka topic {self._name}, partition {span.partition}: offset {offset} could not be read, and now can be.",
                        code=Reason.SOURCE_UNREADABLE,
                    )
                return OffsetSpan(span.partition, span.first, offset)
            return span
        finally:
            self._topic.close()

    def _accepts(self, bad: OffsetSpan) -> bool:
        return any(a.partition == bad.partition and a.first <= bad.first and bad.end <= a.end for a in self._accept_unreadable)

    def _passed(self, bad: OffsetSpan, error: Exception) -> pa.RecordBatch:
        """The row that says that offsets were accepted as lost. Raises UnsafeError if they were not, UsageError if a codec is not there."""
        offsets = f"offset {bad.first}" + (f" to {bad.end - 1}" if bad.end - bad.first > 1 else "")
        what = f"Kafka topic {self._name}, partition {bad.partition}: {offsets} cannot be read ({error})"
        if not self._accepts(bad):
            accept = f"To go on without, which loses what is in it: `geo publish … --accept-unreadable {bad}` once."
            if isinstance(error, UnsupportedCodecError):
                raise UsageError(Wrong(Reason.SETUP, what, f"{NATIVE_PARTS}, on the driver and the workers. {accept}"))
            do = f"Nothing of it was skipped. Another replica may have it whole: make that the leader. {accept}"
            raise UnsafeError(Wrong(Reason.SOURCE_UNREADABLE, what, do))
        row = {PARTITION: source_name(self._name, bad.partition), RECORD_OFFSET: bad.first}
        return pa.RecordBatch.from_pylist(
            [{**row, ERROR: f"{offsets} cannot be read ({error}) and was accepted as lost"}], schema=BLOCK
        )

    def record_at(self, partition: int, offset: int) -> dict[str, Any] | None:
        """The record with this offset, as a row of BLOCK; None if it is gone. Raises SourceChangedError if the partition does not
        come that far, and errors as `read`."""
        begins, ends = self._topic.bounds()
        if offset >= ends.get(partition, 0):
            there = f"ends at {ends[partition]}" if partition in ends else "it is not there"
            raise SourceChangedError(
                _not_the_one(self._name, f"partition {partition}: {there}, read up to {offset}"), code=Reason.SOURCE_RECREATED
            )
        if offset < begins[partition]:
            return None
        return next((row for block in self.read(OffsetSpan(partition, offset, offset + 1)) for row in block.to_pylist()), None)

    def _check(self, start: Position, begins: Mapping[int, int], ends: Mapping[int, int]) -> str:
        """The topic's id. Raises SourceChangedError if offsets from `start` on are gone, with the ranges and what to do."""
        known, topic_id = self._offsets(start), next((str(before) for _, before in start.values()), "")
        gone = [f"partition {p}: the whole partition, read up to {o}" for p, o in sorted(known.items()) if p not in ends]
        gone += [f"partition {p}: ends at {ends[p]}, read up to {o}" for p, o in sorted(known.items()) if o > ends.get(p, o)]
        if gone or (topic_id and (now := self._topic.topic_id()) and now != topic_id):
            what = "; ".join(gone) or f"its id is {now}, it was {topic_id}"
            raise SourceChangedError(_not_the_one(self._name, what), code=Reason.SOURCE_RECREATED)
        lost = gone_offsets(known, begins)
        if lost and not self._accept_lost:
            raise SourceChangedError(
                f"Kafka topic {self._name}: offsets are gone, by retention or deletion, and nothing says that they were read "
                f"({'; '.join(lost)}). Records are lost, unless only ends of transactions and aborted records stood there, which Kafka "
                "cannot tell any more. Nothing was skipped in silence: the stream stops here. To go on behind them, run "
                "`geo publish … --accept-lost` once."
            )
        if lost:
            log.warning("Kafka topic %s: offsets are gone and were accepted as lost: %s", self._name, "; ".join(lost))
        return topic_id


def _is_of_record(error: Exception) -> bool:
    """True if an error of a client comes from a record or a batch: what kafka-python or a codec makes of its bytes."""
    known = (CorruptRecordError, UnsupportedCodecError, RecordTooLargeError, BadGzipFile)
    # "Failed to make progress" is a KafkaError of no class.
    return isinstance(error, known) or type(error) is KafkaError or not isinstance(error, (KafkaError, OSError, GeoError))


def gone_offsets(known: Mapping[int, int], begins: Mapping[int, int]) -> list[str]:
    """List the offsets of a topic's partitions that are gone before they were read, for people. `known`: the next offset of each; a partition of
    which nothing is known came later, and is to be read from its first record on. `begins`: the first offset that is there. At a first start
    nothing is known, and what is there is all."""
    due = {partition: known.get(partition, 0) for partition in sorted({*known, *begins})} if known else {}
    return [f"partition {p}: {offset} to {begins[p] - 1}" for p, offset in due.items() if begins.get(p, 0) > offset]


def _shares(left: Mapping[int, int], total: int) -> dict[int, int]:
    """Divide a batch of `total` offsets among the partitions: all, or of each the same part of what is left."""
    waiting = sum(left.values())
    if waiting <= total:
        return dict(left)
    return {partition: max(1, rows * total // waiting) if rows else 0 for partition, rows in left.items()}
