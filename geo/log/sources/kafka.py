"""A Kafka topic as a source, on kafka-python: what there is to read, and reading it, in any process.

A row is a record with its coordinates, so that partition and offset identify it and each partition gets a ledger of its own; what
is published of it says where to go on. Offsets that are gone, a topic that was made anew and partitions that vanished stop the
stream with the range; a broker that is away is waited for. Only committed records are read (`read_committed`).
"""

from __future__ import annotations

import base64
import json
import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import pyarrow as pa
from kafka import KafkaConsumer, TopicPartition
from kafka.admin import KafkaAdminClient
from kafka.errors import (
    KafkaError,
    LeaderNotAvailableError,
    LogTruncationError,
    OffsetOutOfRangeError,
    UnknownTopicOrPartitionError,
    UnsupportedCodecError,
    for_code,
)

from geo.config.secret import keep_silent
from geo.errors import RetryableError, SourceChangedError, UsageError
from geo.log.ledgers import SourceEnd
from geo.log.sources.kafka_access import of_client, refuse_hopeless
from geo.log.sources.source import Place, Position
from geo.reasons import Reason, Wrong
from geo.times import FIRST_US, LAST_US

log = logging.getLogger(__name__)

NATIVE_PARTS = "pip install 'delta-geo[kafka]' brings checksums and codecs as native code"
PARTITION, RECORD_OFFSET = "_geo_kafka_partition", "_geo_kafka_offset"
"""Columns of a record's coordinates."""

BATCH_ROWS = 200_000
"""Offsets per batch, over all partitions: 200 MB of 1 KB records, a commit of some seconds."""

WAIT_S = 300.0
"""How long a broker that is away is waited for before the stream ends with a retryable error."""

FEW = 2_000
"""A batch of up to so many offsets is read by the process that plans it: a task costs more than it saves."""

_SAY_S = 10.0
"""How often it is said that a broker is still away."""

_ROWS_PER_BLOCK = 5_000

_MIN_TIME_MS, _MAX_TIME_MS = FIRST_US // 1_000, LAST_US // 1_000
"""The years 1 to 9999. A time outside (a producer that gives microseconds for milliseconds has such) becomes the property
`kafka.timestamp`, as it was given."""

_NO_TIME = -1
"""The timestamp of a record that has none (RecordBatch.NO_TIMESTAMP)."""

BLOCK = pa.schema(
    [
        (PARTITION, pa.string()),
        (RECORD_OFFSET, pa.int64()),
        ("key", pa.string()),
        ("payload", pa.binary()),
        ("properties", pa.map_(pa.string(), pa.string())),
        ("event_time", pa.timestamp("us", tz="UTC")),
    ]
)

T = TypeVar("T")


class _Clients(threading.local):
    """Kafka clients of one thread: they are not thread-safe. A new one takes 145 to 255 ms, so they are kept."""

    def __init__(self) -> None:
        self.consumers: dict[str, KafkaConsumer] = {}
        self.admins: dict[str, KafkaAdminClient] = {}


_clients = _Clients()


def source_name(topic: str, partition: int) -> str:
    """A Kafka partition as the source partition of a ledger."""
    return f"kafka:{topic}:{partition}"


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


class KafkaReader:
    """Reads one topic. The place of a partition is `[next offset to read, id of the topic]`. `begin` is where partitions begin at
    the first start. May be sent to another process."""

    blocks = BLOCK

    def __init__(
        self,
        settings: Mapping[str, Any],
        topic: str,
        *,
        begin: str = "earliest",
        batch_rows: int = BATCH_ROWS,
        accept_lost: bool = False,
    ) -> None:
        self._settings, self._topic, self._begin = dict(settings), topic, begin
        self._batch_rows, self._accept_lost = batch_rows, accept_lost
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
        first = ends if self._begin == "latest" and not known else begins
        names = {source_name(self._topic, p): offset for p, offset in sorted(first.items())}
        if self._begin == "latest" and (more := [name for name in names if known and name not in known]):
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
        """The records, in order, as BLOCK. Raises SourceChangedError, UsageError for a codec that is not there,
        RetryableError."""
        partition, end = span.partition, span.end
        consumer, where = self._waited_for(self._consumer), TopicPartition(self._topic, partition)
        consumer.assign([where])
        consumer.seek(where, span.first)
        named = f"Kafka topic {self._topic}, partition {partition}"
        progressed, warned = time.monotonic(), 0.0
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
            except UnsupportedCodecError as error:
                raise UsageError(f"{named}: {error}. {NATIVE_PARTS}, on the driver and the workers.") from None
            except LogTruncationError as error:
                raise SourceChangedError(
                    f"{_not_the_one(self._topic, f'partition {partition}: {error}')}", code=Reason.SOURCE_RECREATED
                ) from None
            except KafkaError as error:
                _forget(self._settings)
                refusal = of_client(error, self._settings, self._topic)
                raise (refusal or RetryableError(f"{named}: {error}", code=Reason.NO_ANSWER)) from None
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
            key, admins = _cache_key(self._settings), _clients.admins
            if key not in admins:
                self._enter()
                admins[key] = KafkaAdminClient(**self._settings)
            (described,) = admins[key].describe_topics([self._topic])
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

    def _consumer(self) -> KafkaConsumer:
        key, consumers = _cache_key(self._settings), _clients.consumers
        if key not in consumers:
            self._enter()
            consumers[key] = KafkaConsumer(
                allow_auto_create_topics=False,
                enable_auto_commit=False,
                group_id=None,
                auto_offset_reset="none",
                isolation_level="read_committed",
                max_partition_fetch_bytes=8 * 1024 * 1024,
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


def _block(records: Sequence[Any]) -> pa.RecordBatch:
    """Records of one partition, one at least. Column by column: a dict and a time a record were two thirds of a read."""
    topic, partition, number = records[0].topic, records[0].partition, str(records[0].partition)
    keys: list[str | None] = []
    names: list[str] = []
    values: list[str] = []
    ends = [0]
    for record in records:
        key, more = _text_key(record.key)
        keys.append(key)
        if record.headers:
            more |= _headers(record.headers)
        if not _MIN_TIME_MS <= record.timestamp <= _MAX_TIME_MS:
            more["kafka.timestamp"] = str(record.timestamp)
        if more:
            names += more.keys()
            values += more.values()
        names += ("kafka.topic", "kafka.partition", "kafka.offset")
        values += (topic, number, str(record.offset))
        ends.append(len(names))
    columns = [
        pa.repeat(source_name(topic, partition), len(records)),
        pa.array([record.offset for record in records], pa.int64()),
        pa.array(keys, pa.string()),
        pa.array([record.value for record in records], pa.binary()),
        pa.MapArray.from_arrays(pa.array(ends, pa.int32()), pa.array(names), pa.array(values)),
        pa.array([_time_us(record.timestamp) for record in records], pa.int64()),
    ]
    return pa.RecordBatch.from_arrays([c.cast(f.type) for c, f in zip(columns, BLOCK, strict=True)], schema=BLOCK)


def _time_us(time_ms: int) -> int | None:
    """A record's time in microseconds. None: it has none, or one outside the years 1 to 9999."""
    return time_ms * 1_000 if time_ms != _NO_TIME and _MIN_TIME_MS <= time_ms <= _MAX_TIME_MS else None


def _text_key(key: bytes | None) -> tuple[str | None, dict[str, str]]:
    """A key as text; one that is no UTF-8 in base64, which the property `kafka.key` then says."""
    if key is None:
        return None, {}
    try:
        return key.decode("utf-8"), {}
    except UnicodeDecodeError:
        return base64.b64encode(key).decode(), {"kafka.key": "base64"}


def _headers(headers: Iterable[tuple[str, bytes | None]]) -> dict[str, str]:
    """Headers as properties. What properties cannot hold exactly (a name twice, no UTF-8, one of our names) is all in
    `kafka.headers`, as a JSON list of [name, value in base64]."""
    listed = list(headers)
    try:
        plain = {name: value.decode("utf-8") for name, value in listed if value is not None}
    except UnicodeDecodeError:
        plain = {}
    if len(plain) == len(listed) and not any(name.startswith("kafka.") for name in plain):
        return plain
    return {"kafka.headers": json.dumps([[name, None if v is None else base64.b64encode(v).decode()] for name, v in listed])}


def _cache_key(settings: Mapping[str, Any]) -> str:
    return json.dumps(dict(settings), sort_keys=True)


def _forget(settings: Mapping[str, Any]) -> None:
    for clients in (_clients.consumers, _clients.admins):
        client = clients.pop(_cache_key(settings), None)
        if client is not None:
            client.close()
