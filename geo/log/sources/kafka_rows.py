"""Records of a Kafka topic as rows: what of a record becomes which column. Reads nothing."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from geo.log.admission import ERROR
from geo.times import FIRST_US, LAST_US

PARTITION, RECORD_OFFSET = "_geo_kafka_partition", "_geo_kafka_offset"
"""Columns of a record's coordinates."""

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
        (ERROR, pa.string()),
    ]
)


def source_name(topic: str, partition: int) -> str:
    """A Kafka partition as the source partition of a ledger."""
    return f"kafka:{topic}:{partition}"


def block_of(records: Sequence[Any]) -> pa.RecordBatch:
    """Records of one partition, one at least, as BLOCK. Column by column: a dict and a time a record were two thirds of a read."""
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
        pa.nulls(len(records), pa.string()),
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
    """Headers as properties. What properties cannot hold exactly (a name twice, no UTF-8, one of our names) is in `kafka.headers`. That is a JSON
    list of [name, value in base64]."""
    listed = list(headers)
    try:
        plain = {name: value.decode("utf-8") for name, value in listed if value is not None}
    except UnicodeDecodeError:
        plain = {}
    if len(plain) == len(listed) and not any(name.startswith("kafka.") for name in plain):
        return plain
    return {"kafka.headers": json.dumps([[name, None if v is None else base64.b64encode(v).decode()] for name, v in listed])}
