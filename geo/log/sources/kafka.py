"""A Kafka topic as a source, on kafka-python: what there is to read, and reading it, in any process.

A row is a record with its coordinates, so that partition and offset identify it and each partition gets a ledger of its
own; what is published of it says where to go on. Offsets that are gone, a topic that was made anew and partitions that vanished stop the stream with the range; a
broker that is away is waited for. Only committed records are read (`read_committed`).
"""

from __future__ import annotations

import base64
import json
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import pyarrow as pa
from kafka import KafkaConsumer, TopicPartition
from kafka.admin import KafkaAdminClient
from kafka.errors import KafkaError, OffsetOutOfRangeError, UnknownTopicOrPartitionError, UnsupportedCodecError

from geo.errors import RetryableError, SourceChangedError, UsageError

log = logging.getLogger(__name__)

NATIVE_PARTS = "pip install 'delta-geo[kafka]' brings checksums and codecs as native code"
SOURCE, OFFSET = "_geo_kafka_partition", "_geo_kafka_offset"
"""Columns of a record's coordinates."""

BATCH_ROWS = 200_000
"""Offsets per batch, over all partitions: 200 MB of 1 KB records, a commit of some seconds."""

WAIT_S = 300.0
"""How long a broker that is away is waited for before the stream ends with a retryable error."""

FEW = 2_000
"""A batch of up to so many offsets is read by the process that plans it: a task costs more than it saves."""

_ROWS_PER_BLOCK = 5_000
BLOCK = pa.schema(
    [
        (SOURCE, pa.string()),
        (OFFSET, pa.int64()),
        ("key", pa.string()),
        ("payload", pa.binary()),
        ("properties", pa.map_(pa.string(), pa.string())),
        ("event_time", pa.timestamp("us", tz="UTC")),
    ]
)

T = TypeVar("T")


class _Clients(threading.local):
    """Of this thread: they are not for several. A new one takes 145 to 255 ms, which at a commit a second is a quarter of the time."""

    def __init__(self) -> None:
        self.consumers: dict[str, KafkaConsumer] = {}
        self.admins: dict[str, KafkaAdminClient] = {}


_clients = _Clients()


def source_name(topic: str, partition: int) -> str:
    """A Kafka partition as the source partition of a ledger."""
    return f"kafka:{topic}:{partition}"


def next_offsets(topic: str, ends: Mapping[str, int]) -> dict[str, int]:
    """Next offset to read per partition of `topic`, given the last published offset per `source_name`."""
    prefix = source_name(topic, 0)[:-1]
    return {name.removeprefix(prefix): end + 1 for name, end in ends.items() if name.startswith(prefix)}


def topic_id(settings: Mapping[str, Any], topic: str) -> str:
    """The id that a Kafka topic has now, asked from this process. Errors as `KafkaReader.topic_id`."""
    try:
        return KafkaReader(settings, topic).topic_id()
    finally:
        _forget(settings)


def refuse_other_topic(topic: str, topic_id: str, recorded_ids: Mapping[str, str]) -> None:
    """Raises SourceChangedError if a partition of `topic` was published, by `source_name`, of a topic with another id."""
    prefix = source_name(topic, 0)[:-1]
    for name, before in sorted(recorded_ids.items()):
        if name.startswith(prefix) and before and topic_id and before != topic_id:
            raise SourceChangedError(f"{_not_the_one(topic, f'its id is {topic_id}, it was {before}')}")


def _not_the_one(topic: str, what: str) -> str:
    return (
        f"Kafka topic {topic} is not the one that was read: it was deleted and made anew, is of another Kafka cluster, or was cut off "
        f"({what}). Nothing was skipped. Publish the new one under another --producer."
    )


@dataclass(frozen=True, slots=True)
class Span:
    """Offsets `first` to `end` - 1 of a partition."""

    partition: int
    first: int
    end: int


class KafkaReader:
    """Reads one topic. A position is `{"topic_id": …, "next": {partition: next offset to read}}`.

    `published` are the offsets to begin with, by partition, of the topic with the id `topic_id`; `begin` is where the others begin, if it
    was not `noted` before. May be sent to another process.
    """

    blocks = BLOCK

    def __init__(
        self,
        settings: Mapping[str, Any],
        topic: str,
        *,
        begin: str = "earliest",
        published: Mapping[str, int] | None = None,
        batch_rows: int = BATCH_ROWS,
        accept_lost: bool = False,
        topic_id: str = "",
    ) -> None:
        self._settings, self._topic, self._begin, self._published = dict(settings), topic, begin, dict(published or {})
        self._expected_id = topic_id
        self._batch_rows, self._accept_lost = batch_rows, accept_lost
        self._end: dict[int, int] | None = None

    def begin(self, noted: dict[str, Any] | None = None) -> dict[str, Any]:
        """The position at which to begin. `noted`: the one of the first start, which counts where nothing was published since."""
        begins, ends = self._bounds()
        first = ends if self._begin == "latest" else begins
        topic_id = self.topic_id()
        refuse_other_topic(self._topic, topic_id, {source_name(self._topic, 0): self._expected_id})
        before = noted["next"] if noted and noted["topic_id"] == topic_id else {}
        # A partition that came later begins with its first record, whatever the others began with.
        where = {p: before.get(str(p), first[p] if not before else begins[p]) for p in first}
        return {"topic_id": topic_id, "next": {str(p): self._published.get(str(p), where[p]) for p in sorted(where)}}

    def end_here(self) -> None:
        """Read no further than what is there now."""
        self._end = self._bounds()[1]

    def next(self, start: dict[str, Any]) -> dict[str, Any]:
        """The position up to which the next batch is read. Raises SourceChangedError if offsets from `start` on are gone."""
        begins, ends = self._bounds()
        self._check(start, begins, ends)
        until = self._end if self._end is not None else ends
        begun = {p: max(start["next"].get(str(p), begins[p]), begins[p]) for p in sorted(ends)}
        left = {p: max(0, until.get(p, 0) - begun[p]) for p in begun}
        share = _shares(left, self._batch_rows)
        return {"topic_id": start["topic_id"], "next": {str(p): begun[p] + share[p] for p in begun}}

    def spans(self, start: dict[str, Any], end: dict[str, Any]) -> list[Span]:
        """What is read between two positions."""
        begins = self._bounds()[0] if self._accept_lost or end["next"].keys() - start["next"].keys() else {}
        spans = []
        for name, stop in sorted(end["next"].items(), key=lambda item: int(item[0])):
            partition = int(name)
            first = max(start["next"].get(name, 0), begins.get(partition, 0))
            if stop > first:
                spans.append(Span(partition, first, stop))
        return spans

    def are_few(self, spans: Sequence[Span]) -> bool:
        """Whether the process that planned them reads them itself."""
        return sum(span.end - span.first for span in spans) <= FEW

    def read(self, span: Span) -> Iterator[pa.RecordBatch]:
        """The records, in order, as BLOCK. Raises SourceChangedError, UsageError for a codec that is not there, RetryableError."""
        yield from self._read(span.partition, span.first, span.end)

    def close(self) -> None:
        """Close the clients of this thread."""
        _forget(self._settings)

    def _read(self, partition: int, first: int, end: int) -> Iterator[pa.RecordBatch]:
        consumer, where = self._consumer(), TopicPartition(self._topic, partition)
        consumer.assign([where])
        consumer.seek(where, first)
        progressed, warned = time.monotonic(), 0.0
        # A record below `end` may be missing for good: compacted, or the marker of a transaction. The position passes it.
        while (position := consumer.position(where)) < end:
            try:
                records = consumer.poll(timeout_ms=1000, max_records=_ROWS_PER_BLOCK).get(where, [])
            except OffsetOutOfRangeError:
                raise SourceChangedError(
                    f"Kafka topic {self._topic}, partition {partition}: offset {position} was deleted while the batch was read. "
                    "Nothing of the batch was published; the next start says which offsets are gone."
                ) from None
            except UnsupportedCodecError as error:
                raise UsageError(
                    f"Kafka topic {self._topic}, partition {partition}: {error}. {NATIVE_PARTS}, on the driver and the workers."
                ) from None
            if rows := [record for record in records if record.offset < end]:
                yield _block(rows)
            waited = time.monotonic() - progressed
            if consumer.position(where) > position:
                progressed, warned = time.monotonic(), 0.0
            elif waited > WAIT_S:
                raise RetryableError(
                    f"Kafka topic {self._topic}, partition {partition}: no answer for {waited:.0f} s at {position}."
                )
            elif waited - warned > 10:
                warned = waited
                log.warning("Kafka topic %s, partition %d: no answer for %.0f s, waiting", self._topic, partition, waited)

    # -- what the broker says --------------------------------------------------------------------------------------------

    def _bounds(self) -> tuple[dict[int, int], dict[int, int]]:
        """First and next offset of every partition."""

        def ask() -> tuple[dict[int, int], dict[int, int]]:
            consumer = self._consumer()
            numbers = consumer.partitions_for_topic(self._topic)
            if not numbers:
                raise self._no_topic()
            wanted = [TopicPartition(self._topic, number) for number in sorted(numbers)]
            begins, ends = consumer.beginning_offsets(wanted), consumer.end_offsets(wanted)
            return {w.partition: begins[w] for w in wanted}, {w.partition: ends[w] for w in wanted}

        return self._waited_for(ask)

    def topic_id(self) -> str:
        """The topic's id; "" where brokers are too old to have any. Raises UsageError if there is no such topic."""

        def ask() -> str:
            key, admins = _cache_key(self._settings), _clients.admins
            if key not in admins:
                admins[key] = KafkaAdminClient(**self._settings)
            (described,) = admins[key].describe_topics([self._topic])
            if described["error_code"] == UnknownTopicOrPartitionError.errno:
                raise self._no_topic()
            found = str(described.get("topic_id") or "")
            return "" if set(found) <= set("0-") else found

        return self._waited_for(ask)

    def _no_topic(self) -> UsageError:
        return UsageError(f"Kafka topic {self._topic} is not at {self._settings['bootstrap_servers']}.")

    def _waited_for(self, ask: Callable[[], T]) -> T:
        """The answer, asked for again while the broker is away."""
        began, pause = time.monotonic(), 0.5
        while True:
            try:
                return ask()
            except KafkaError as error:
                _forget(self._settings)
                waited = time.monotonic() - began
                if waited > WAIT_S:
                    raise RetryableError(
                        f"Kafka at {self._settings['bootstrap_servers']} did not answer for {waited:.0f} s: {type(error).__name__}: {error}"
                    ) from None
                log.warning("Kafka at %s: %s, trying again", self._settings["bootstrap_servers"], error)
                time.sleep(pause)
                pause = min(10.0, pause * 2)

    def _consumer(self) -> KafkaConsumer:
        key, consumers = _cache_key(self._settings), _clients.consumers
        if key not in consumers:
            consumers[key] = KafkaConsumer(
                enable_auto_commit=False,
                group_id=None,
                auto_offset_reset="none",
                isolation_level="read_committed",
                max_partition_fetch_bytes=8 * 1024 * 1024,
                fetch_max_bytes=64 * 1024 * 1024,
                **self._settings,
            )
        return consumers[key]

    def _check(self, start: dict[str, Any], begins: Mapping[int, int], ends: Mapping[int, int]) -> None:
        """Raises SourceChangedError if offsets from `start` on are gone, with the ranges and what to do."""
        known = {int(partition): offset for partition, offset in start["next"].items()}
        gone = [f"partition {p}: the whole partition, read up to {o}" for p, o in sorted(known.items()) if p not in ends]
        gone += [f"partition {p}: ends at {ends[p]}, read up to {o}" for p, o in sorted(known.items()) if o > ends.get(p, o)]
        if gone or (start["topic_id"] and (now := self.topic_id()) and now != start["topic_id"]):
            what = "; ".join(gone) or f"its id is {now}, it was {start['topic_id']}"
            raise SourceChangedError(_not_the_one(self._topic, what))
        lost = [f"partition {p}: {o} to {begins[p] - 1}" for p, o in sorted(known.items()) if begins.get(p, 0) > o]
        if lost and not self._accept_lost:
            raise SourceChangedError(
                f"Kafka topic {self._topic}: offsets that were not read yet are gone, by retention or deletion ({'; '.join(lost)}). "
                "Nothing was skipped in silence: the stream stops here. If they are lost for good, start once with --accept-lost."
            )
        if lost:
            log.warning("Kafka topic %s: offsets are gone and were accepted as lost: %s", self._topic, "; ".join(lost))


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
        pa.array([None if r.timestamp < 0 else r.timestamp * 1000 for r in records], pa.int64()),
    ]
    return pa.RecordBatch.from_arrays([c.cast(f.type) for c, f in zip(columns, BLOCK, strict=True)], schema=BLOCK)


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
