"""A Kafka topic as a source, on kafka-python: what there is to read, and reading it, in any process.

A row is a record with its coordinates, so that partition and offset identify it and each partition gets a ledger of its own; what
is published of it says where to go on. Offsets that are gone, a topic that was made anew and partitions that vanished stop the
stream with the range; a broker that is away is waited for. Only committed records are read (`read_committed`).
"""

from __future__ import annotations

import json
import logging
import re
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from gzip import BadGzipFile
from typing import Any, TypeVar

import pyarrow as pa
from kafka import KafkaConsumer, TopicPartition
from kafka.admin import KafkaAdminClient
from kafka.consumer.fetcher import RecordTooLargeError
from kafka.errors import (
    CorruptRecordError,
    KafkaError,
    LeaderNotAvailableError,
    LogTruncationError,
    OffsetOutOfRangeError,
    UnknownTopicOrPartitionError,
    UnsupportedCodecError,
    for_code,
)

from geo.config.secret import keep_silent
from geo.errors import GeoError, RetryableError, SourceChangedError, UnsafeError, UsageError
from geo.log.admission import ERROR
from geo.log.ledgers import SourceEnd
from geo.log.sources.kafka_access import of_client, refuse_hopeless
from geo.log.sources.kafka_rows import BLOCK, PARTITION, RECORD_OFFSET, source_name
from geo.log.sources.kafka_rows import block_of as _block
from geo.log.sources.source import Place, Position
from geo.reasons import Reason, Wrong
from geo.text import show

log = logging.getLogger(__name__)

NATIVE_PARTS = "pip install 'delta-geo[kafka]' brings checksums and codecs as native code"
BATCH_ROWS = 200_000
"""Offsets per batch, over all partitions: 200 MB of 1 KB records, a commit of some seconds."""

WAIT_S = 300.0
"""How long a broker that is away is waited for before the stream ends with a retryable error."""

FEW = 2_000
"""A batch of up to so many offsets is read by the process that plans it: a task costs more than it saves."""

_SAY_S = 10.0
"""How often it is said that a broker is still away."""

_ROWS_PER_BLOCK = 5_000

_MOST_UNREADABLE = 10_000
"""How many offsets in a row are tried, some milliseconds each: more than a batch mostly has."""

T = TypeVar("T")


class _Clients(threading.local):
    """Kafka clients of one thread: they are not thread-safe. A new one takes 145 to 255 ms, so they are kept."""

    def __init__(self) -> None:
        self.consumers: dict[str, KafkaConsumer] = {}
        self.admins: dict[str, KafkaAdminClient] = {}


_clients = _Clients()


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
        settings: Mapping[str, Any],
        topic: str,
        *,
        start: str = "earliest",
        batch_rows: int = BATCH_ROWS,
        accept_lost: bool = False,
        accept_unreadable: Sequence[OffsetSpan] = (),
    ) -> None:
        self._settings, self._topic, self._start = dict(settings), topic, start
        self._batch_rows, self._accept_lost = batch_rows, accept_lost
        self._accept_unreadable = tuple(accept_unreadable)
        self._first: dict[int, int] | None = None
        self._end: dict[int, int] | None = None

    def place_of(self, source: str, end: SourceEnd) -> Place | None:
        """Where a partition goes on that is published up to `end`; None of another topic's."""
        if not self.has(source):
            return None
        offset, *more = end.parts
        return [int(offset) + 1, *(more or [""])]

    def has(self, source: str) -> bool:
        """Whether it is a partition of the topic."""
        of, _, number = source.rpartition(":")
        return source_name(self._topic, 0).rpartition(":")[0] == of and number.isdigit()

    def say(self, source: str, place: Place) -> str:
        """As partition and offset."""
        return f"partition {source.rpartition(':')[2]} from offset {place[0]}"

    def mark_of(self, place: Place) -> str:
        """The topic's id."""
        return str(place[1])

    def begin(self, known: Position) -> Position:
        """The position at which to begin. Raises SourceChangedError if places are known of another topic."""
        begins, ends = self._bounds()
        topic_id = self.topic_id()
        refuse_other_topic(self._topic, topic_id, known)
        # At a later start a partition of which nothing is known came later, or its note is lost: it begins with offset 0, whatever the
        # others began with, and the next batch says what of it is gone.
        first = ends if self._start == "latest" and not known else begins
        names = {source_name(self._topic, p): offset for p, offset in sorted(first.items())}
        if self._start == "latest" and (more := [name for name in names if known and name not in known]):
            log.warning(
                "Kafka topic %s: read from the first offset, since nothing is known of it: %s", self._topic, ", ".join(more)
            )
        # A partition that is known and not there any more stays in it: the next batch says so.
        new = {name: 0 if known else offset for name, offset in names.items()}
        return {name: [known[name][0] if name in known else new[name], topic_id] for name in sorted({*names, *known})}

    def unread(self, position: Position) -> Collection[str]:
        """None: partitions are few, and none of them is ever moved."""
        return ()

    def end_here(self) -> None:
        """Read no further than what is there now."""
        self._end = self._bounds()[1]

    def next(self, start: Position) -> Position:
        """The position up to which the next batch is read. Raises SourceChangedError if offsets from `start` on are gone."""
        begins, ends = self._bounds()
        topic_id = self._check(start, begins, ends)
        until = self._end if self._end is not None else ends
        known = self._offsets(start)
        begun = {p: max(known.get(p, begins[p]), begins[p]) for p in sorted(ends)}
        left = {p: max(0, until.get(p, 0) - begun[p]) for p in begun}
        share = _shares(left, self._batch_rows)
        self._first = self._first if self._first is not None else {p: begun[p] for p in until if p in begun}
        return {source_name(self._topic, p): [begun[p] + share[p], topic_id] for p in begun}

    def part_of(self, position: Position) -> float | None:
        """As the part of the offsets that there were at the first batch."""
        if self._end is None or self._first is None:
            return None
        left = sum(self._end[p] - first for p, first in self._first.items())
        done = sum(offset - self._first[p] for p, offset in self._offsets(position).items() if p in self._first)
        return done / left if left else None

    def spans(self, start: Position, end: Position) -> list[OffsetSpan]:
        """What is read between two positions. A partition that came between is read from its first offset."""
        known, begins = self._offsets(start), self._bounds()[0] if self._accept_lost or end.keys() - start.keys() else {}
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
        """Whether the process that planned them reads them itself."""
        return sum(span.end - span.first for span in spans) <= FEW

    def close(self) -> None:
        """Close the clients of this thread."""
        _forget(self._settings)

    def read(self, span: OffsetSpan) -> Iterator[pa.RecordBatch]:
        """The records, in order, as BLOCK. Raises SourceChangedError, UnsafeError where a record cannot be read, UsageError, RetryableError."""
        partition, end = span.partition, span.end
        consumer, where = self._consumer_at(span)
        named = f"Kafka topic {self._topic}, partition {partition}"
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
                    f"{_not_the_one(self._topic, f'partition {partition}: {error}')}", code=Reason.SOURCE_RECREATED
                ) from None
            except Exception as error:
                _forget(self._settings)
                if not _is_of_record(error):
                    refusal = of_client(error, self._settings, self._topic) if isinstance(error, KafkaError) else None
                    raise (refusal or RetryableError(f"{named}: {error}", code=Reason.NO_ANSWER)) from None
                bad = self._unreadable(OffsetSpan(partition, position, end), error)
                yield self._passed(bad, error)
                consumer, where = self._consumer_at(OffsetSpan(partition, bad.end, end))
                continue
            if rows := [record for record in records if record.offset < end]:
                yield _block(rows)
            waited = time.monotonic() - progressed
            if after > position:
                progressed, warned = time.monotonic(), 0.0
            elif waited > WAIT_S:
                raise RetryableError(f"{named}: no answer for {waited:.0f} s at {position}.", code=Reason.NO_ANSWER)
            elif waited - warned > _SAY_S:
                warned = waited
                log.warning("%s: no answer for %.0f s, waiting", named, waited)

    def _consumer_at(self, span: OffsetSpan, **more: int) -> tuple[KafkaConsumer, TopicPartition]:
        consumer, where = self._waited_for(lambda: self._consumer(**more)), TopicPartition(self._topic, span.partition)
        consumer.assign([where])
        consumer.seek(where, span.first)
        return consumer, where

    def _unreadable(self, span: OffsetSpan, error: Exception) -> OffsetSpan:
        """The offsets at the beginning of a span that cannot be read, at most `_MOST_UNREADABLE`. A batch of records is read as a whole or from
        its beginning, so those that stand behind a bad record in its batch cannot be either. Raises RetryableError if the first can be
        read now.

        Each offset is tried: where a batch ends nobody says but itself, and it is damaged.
        """
        first = OffsetSpan(span.partition, span.first, span.first + 1)
        if isinstance(error, UnsupportedCodecError) and not self._accepts(first):
            return first  # all that follow may be so
        span = OffsetSpan(span.partition, span.first, min(span.end, span.first + _MOST_UNREADABLE))
        consumer, where = self._consumer_at(span, max_partition_fetch_bytes=1)  # one batch is what a broker gives at least
        try:
            for offset in range(span.first, span.end):
                consumer.seek(where, offset)
                try:
                    began = time.monotonic()
                    while not consumer.poll(timeout_ms=1000) and consumer.position(where) == offset:
                        if time.monotonic() - began > _SAY_S:
                            raise RetryableError(
                                f"Kafka topic {self._topic}: no answer at offset {offset}.", code=Reason.NO_ANSWER
                            )
                except Exception as again:
                    if _is_of_record(again):
                        continue
                    raise RetryableError(f"Kafka topic {self._topic}: {again}", code=Reason.NO_ANSWER) from None
                if offset == span.first:
                    raise RetryableError(
                        f"Kafka topic {self._topic}, partition {span.partition}: offset {offset} could not be read, and now can be.",
                        code=Reason.SOURCE_UNREADABLE,
                    )
                return OffsetSpan(span.partition, span.first, offset)
            return span
        finally:
            _forget(self._settings)

    def _accepts(self, bad: OffsetSpan) -> bool:
        return any(a.partition == bad.partition and a.first <= bad.first and bad.end <= a.end for a in self._accept_unreadable)

    def _passed(self, bad: OffsetSpan, error: Exception) -> pa.RecordBatch:
        """The row that says that offsets were accepted as lost. Raises UnsafeError if they were not, UsageError if a codec is not there."""
        offsets = f"offset {bad.first}" + (f" to {bad.end - 1}" if bad.end - bad.first > 1 else "")
        what = f"Kafka topic {self._topic}, partition {bad.partition}: {offsets} cannot be read ({error})"
        if not self._accepts(bad):
            accept = f"To go on without, which loses what is in it: `geo publish … --accept-unreadable {bad}` once."
            if isinstance(error, UnsupportedCodecError):
                raise UsageError(Wrong(Reason.SETUP, what, f"{NATIVE_PARTS}, on the driver and the workers. {accept}"))
            do = f"Nothing of it was skipped. Another replica may have it whole: make that the leader. {accept}"
            raise UnsafeError(Wrong(Reason.SOURCE_UNREADABLE, what, do))
        row = {PARTITION: source_name(self._topic, bad.partition), RECORD_OFFSET: bad.first}
        return pa.RecordBatch.from_pylist(
            [{**row, ERROR: f"{offsets} cannot be read ({error}) and was accepted as lost"}], schema=BLOCK
        )

    def record_at(self, partition: int, offset: int) -> dict[str, Any] | None:
        """The record with this offset, as a row of BLOCK; None if it is gone. Raises SourceChangedError if the partition does not
        come that far, and errors as `read`."""
        begins, ends = self._bounds()
        if offset >= ends.get(partition, 0):
            there = f"ends at {ends[partition]}" if partition in ends else "it is not there"
            raise SourceChangedError(
                _not_the_one(self._topic, f"partition {partition}: {there}, read up to {offset}"), code=Reason.SOURCE_RECREATED
            )
        if offset < begins[partition]:
            return None
        return next((row for block in self.read(OffsetSpan(partition, offset, offset + 1)) for row in block.to_pylist()), None)

    # -- what the broker says --------------------------------------------------------------------------------------------

    def _bounds(self) -> tuple[dict[int, int], dict[int, int]]:
        """First and next offset of every partition."""

        def ask() -> tuple[dict[int, int], dict[int, int]]:
            consumer = self._consumer()
            numbers = consumer.partitions_for_topic(self._topic)
            if not numbers:
                self.topic_id()  # says why
                raise LeaderNotAvailableError(self._topic)
            wanted = [TopicPartition(self._topic, number) for number in sorted(numbers)]
            begins, ends = consumer.beginning_offsets(wanted), consumer.end_offsets(wanted)
            return {w.partition: begins[w] for w in wanted}, {w.partition: ends[w] for w in wanted}

        return self._waited_for(ask)

    def topic_id(self) -> str:
        """The topic's id; "" where brokers are too old to have any. Raises UsageError if there is no such topic."""

        def ask() -> str:
            (described,) = self._admin().describe_topics([self._topic])
            if described["error_code"] == UnknownTopicOrPartitionError.errno:
                what = f"Kafka topic {self._topic} is not at {self._settings['bootstrap_servers']}"
                raise UsageError(
                    Wrong(Reason.USAGE, what, "Create it there, or correct its name: --kafka-topic, or kafka_topic.")
                )
            if described["error_code"]:
                raise for_code(described["error_code"])()
            found = str(described.get("topic_id") or "")
            return "" if set(found) <= set("0-") else found

        return self._waited_for(ask)

    def group_offsets(self, group: str) -> dict[int, int]:
        """By partition the next offset that a consumer group reads. Raises UsageError if it has committed none of the topic."""
        (found,) = self._waited_for(lambda: self._admin().list_group_offsets({group: None})).values()
        offsets = {at.partition: place.offset for at, place in found.items() if at.topic == self._topic and place.offset >= 0}
        if not offsets:
            at = f"Kafka at {self._settings['bootstrap_servers']}"
            raise UsageError(
                f"{at}: group {show(group)} has committed no offset of topic {self._topic}. Correct --kafka-group or --kafka-topic."
            )
        return offsets

    def _waited_for(self, ask: Callable[[], T]) -> T:
        """The answer, asked for again while the broker is away. Raises UsageError if it refuses."""
        began, said, pause = time.monotonic(), -_SAY_S, 0.5
        while True:
            try:
                return ask()
            except (KafkaError, RetryableError) as error:
                _forget(self._settings)
                if isinstance(error, KafkaError) and (refusal := of_client(error, self._settings, self._topic)) is not None:
                    raise refusal from None
                waited, at = time.monotonic() - began, f"Kafka at {self._settings['bootstrap_servers']}"
                what = f"{at}: {error}." if isinstance(error, KafkaError) else str(error)
                if waited > WAIT_S:
                    raise RetryableError(f"{what} Nobody answered for {waited:.0f} s.", code=Reason.NO_ANSWER) from None
                if waited - said > _SAY_S:
                    said = waited
                    log.warning("%s Trying again", what)
                time.sleep(pause)
                pause = min(10.0, pause * 2)

    def _enter(self) -> None:
        """Before a client is made, in whichever process: what kafka-python logs of it is raised, or said by us."""
        keep_silent("kafka", logging.CRITICAL)
        refuse_hopeless(self._settings)

    def _admin(self) -> KafkaAdminClient:
        key, admins = _cache_key(self._settings), _clients.admins
        if key not in admins:
            self._enter()
            admins[key] = KafkaAdminClient(**self._settings)
        return admins[key]

    def _consumer(self, max_partition_fetch_bytes: int = 8 * 1024 * 1024) -> KafkaConsumer:
        key, consumers = _cache_key(self._settings), _clients.consumers
        if key not in consumers:
            self._enter()
            consumers[key] = KafkaConsumer(
                allow_auto_create_topics=False,
                enable_auto_commit=False,
                group_id=None,
                auto_offset_reset="none",
                isolation_level="read_committed",
                max_partition_fetch_bytes=max_partition_fetch_bytes,
                fetch_max_bytes=64 * 1024 * 1024,
                **self._settings,
            )
        return consumers[key]

    def _check(self, start: Position, begins: Mapping[int, int], ends: Mapping[int, int]) -> str:
        """The topic's id. Raises SourceChangedError if offsets from `start` on are gone, with the ranges and what to do."""
        known, topic_id = self._offsets(start), next((str(before) for _, before in start.values()), "")
        gone = [f"partition {p}: the whole partition, read up to {o}" for p, o in sorted(known.items()) if p not in ends]
        gone += [f"partition {p}: ends at {ends[p]}, read up to {o}" for p, o in sorted(known.items()) if o > ends.get(p, o)]
        if gone or (topic_id and (now := self.topic_id()) and now != topic_id):
            what = "; ".join(gone) or f"its id is {now}, it was {topic_id}"
            raise SourceChangedError(_not_the_one(self._topic, what), code=Reason.SOURCE_RECREATED)
        lost = gone_offsets(known, begins)
        if lost and not self._accept_lost:
            raise SourceChangedError(
                f"Kafka topic {self._topic}: offsets are gone, by retention or deletion, and nothing says that they were read "
                f"({'; '.join(lost)}). Records are lost, unless only ends of transactions and aborted records stood there, which Kafka "
                "cannot tell any more. Nothing was skipped in silence: the stream stops here. To go on behind them, run "
                "`geo publish … --accept-lost` once."
            )
        if lost:
            log.warning("Kafka topic %s: offsets are gone and were accepted as lost: %s", self._topic, "; ".join(lost))
        return topic_id


def _is_of_record(error: Exception) -> bool:
    """Whether what a client raised is of a record's or a batch's own: what kafka-python or a codec makes of its bytes."""
    known = (CorruptRecordError, UnsupportedCodecError, RecordTooLargeError, BadGzipFile)
    # "Failed to make progress" is a KafkaError of no class.
    return isinstance(error, known) or type(error) is KafkaError or not isinstance(error, (KafkaError, OSError, GeoError))


def gone_offsets(known: Mapping[int, int], begins: Mapping[int, int]) -> list[str]:
    """What of a topic's partitions is gone before it was read, for people. `known`: the next offset of each; one of which nothing is known came
    later, and is to be read from its first record on. `begins`: the first offset that is there. At a first start nothing is known, and
    what is there is all."""
    due = {partition: known.get(partition, 0) for partition in sorted({*known, *begins})} if known else {}
    return [f"partition {p}: {offset} to {begins[p] - 1}" for p, offset in due.items() if begins.get(p, 0) > offset]


def _shares(left: Mapping[int, int], total: int) -> dict[int, int]:
    """How many offsets of each partition a batch of `total` takes: all, or of each the same part of what is left."""
    waiting = sum(left.values())
    if waiting <= total:
        return dict(left)
    return {partition: max(1, rows * total // waiting) if rows else 0 for partition, rows in left.items()}


def _cache_key(settings: Mapping[str, Any]) -> str:
    return json.dumps(dict(settings), sort_keys=True)


def _forget(settings: Mapping[str, Any]) -> None:
    for clients in (_clients.consumers, _clients.admins):
        client = clients.pop(_cache_key(settings), None)
        if client is not None:
            client.close()
