"""Reads a line of JSON, which is one message. The parser of a line, and a faster one of many lines that says the same.

A line is an object with `key`, `payload` (text) or `payload_base64`, `properties`, `replicate_to`, `event_time` (ISO 8601, UTC if it says nothing).
Of a typed topic it has its own columns, too (geo.log.sources.json_columns). docs/formats.md says it to users.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
from pyarrow import json as arrow_json

from geo.log.sources.json_columns import OwnColumns, instant, kind_of

MAX_LINE_BYTES = 16 * 1024 * 1024
"""A payload of the largest size in base64, with room for the rest. A longer line is rejected without being parsed."""

MOST_DIGITS = 200
"""Digits of a number. A column has 38, and a float prints as 17; Python refuses more than 4,300, by a text of its own."""

UNKNOWN = "unknown field"
"""Begins the reason of a line that names a column which the topic does not have."""

BYTES = OwnColumns(pa.schema([]))
"""A topic that has none of its own."""

MESSAGE = pa.schema(
    [
        ("key", pa.string()),
        ("payload", pa.binary()),
        ("properties", pa.map_(pa.string(), pa.string())),
        ("replicate_to", pa.list_(pa.string())),
        ("event_time", pa.timestamp("us", tz="UTC")),
        ("error", pa.string()),
    ]
)
"""Columns of a line. Of one that is none, `error` says why, and all else is NULL."""

_FIELDS = OwnColumns(
    pa.schema(
        [
            ("key", pa.string()),
            ("payload", pa.string()),
            ("payload_base64", pa.binary()),
            MESSAGE.field("properties"),
            MESSAGE.field("replicate_to"),
            MESSAGE.field("event_time"),
        ]
    )
)
"""Fields that a line may have of a message, read as columns are. One of the topic's own that is called `payload_base64` is that column alone."""

_PLAIN = arrow_json.ParseOptions(
    explicit_schema=pa.schema(
        [
            ("key", pa.string()),
            ("payload", pa.string()),
            ("replicate_to", pa.list_(pa.string())),
            ("event_time", pa.string()),
        ]
    ),
    unexpected_field_behavior="error",
)
"""Fields for which Arrow's parser has a type; lines with others are parsed one by one."""


def parse_lines(lines: Sequence[bytes], own: OwnColumns = BYTES) -> list[pa.Array]:
    """Parse lines as the columns of MESSAGE and then the topic's own: of each as `parse_line`. Of a bytes topic lines without
    properties and base64, as most are, are parsed five times as fast."""
    found = _parse_plain(lines) if not own.names else None
    if found is not None:
        return list(found.columns)
    parsed = [_parsed(line, own) for line in lines]
    messages = pa.RecordBatch.from_pylist([message for message, _ in parsed], MESSAGE)
    return [*messages.columns, *own.arrays([columns for _, columns in parsed])]


def _parse_plain(lines: Sequence[bytes]) -> pa.RecordBatch | None:
    """None if there is anything in them about which Arrow's parser and `parse_line` could say different things."""
    # So that an object is a line: Arrow's parser takes two in one, and one in two.
    for line in lines:
        text = line.strip()
        if text[:1] != b"{" or text[-1:] != b"}" or len(line) > MAX_LINE_BYTES:
            return None
    data = b"\n".join(lines)
    try:
        found = arrow_json.read_json(
            pa.py_buffer(data), arrow_json.ReadOptions(use_threads=False, block_size=len(data) + 1), _PLAIN
        )
        found.validate(full=True)  # text that is not UTF-8
        times = [None if time is None else instant(time) for time in found["event_time"].to_pylist()]
    except (pa.ArrowInvalid, ValueError):
        return None
    if len(found) != len(lines):
        return None
    columns = {
        "key": found["key"].combine_chunks(),
        "payload": found["payload"].combine_chunks().cast(pa.binary()),
        "replicate_to": found["replicate_to"].combine_chunks(),
        "event_time": pa.array(times, MESSAGE.field("event_time").type),
    }
    arrays = [columns.get(field.name, pa.nulls(len(lines), field.type)) for field in MESSAGE]
    return pa.RecordBatch.from_arrays(arrays, schema=MESSAGE)


def _parsed(line: bytes, own: OwnColumns) -> tuple[dict[str, Any], dict[str, Any]]:
    try:
        return parse_line(line, own)
    except ValueError as error:
        return {"error": str(error)}, {}


def parse_line(line: bytes, own: OwnColumns = BYTES) -> tuple[dict[str, Any], dict[str, Any]]:
    """The fields of one message, and the topic's own columns. Raises ValueError with a reason fit for the rejects file: it never quotes the
    payload, nor another value."""
    if len(line) > MAX_LINE_BYTES:
        raise ValueError(f"line has more than {MAX_LINE_BYTES} bytes, which is the limit")
    try:
        fields = json.loads(
            line.decode("utf-8"), object_pairs_hook=_object, parse_int=_integer, parse_float=_number, parse_constant=_no_number
        )
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8 at byte {error.start}") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error.msg} at column {error.colno}") from None
    except RecursionError:
        raise ValueError("not JSON: nested too deeply") from None
    if not isinstance(fields, dict):
        raise ValueError(f"a line must be an object, this is {kind_of(fields)}")
    if unknown := sorted(fields.keys() - {*_FIELDS.names, *own.names}):
        raise ValueError(f"{UNKNOWN} {unknown[0][:100]!r}; known are {', '.join(dict.fromkeys([*_FIELDS.names, *own.names]))}")
    message = _FIELDS.read({name: value for name, value in fields.items() if name not in own.names})
    text, raw = message["payload"], message.pop("payload_base64")
    if text is not None and raw is not None:
        raise ValueError("has both payload and payload_base64; give one")
    return {**message, "payload": raw if text is None else text.encode()}, own.read(fields)


def _integer(digits: str) -> int:
    if len(digits) > MOST_DIGITS:
        raise ValueError(f"has a number of more than {MOST_DIGITS} digits")
    return int(digits)


def _number(text: str) -> Decimal:
    """Keep a number as it is written: a float would have other digits."""
    if len(text) > MOST_DIGITS:
        raise ValueError(f"has a number of more than {MOST_DIGITS} digits")
    try:
        return Decimal(text)
    except ArithmeticError:
        raise ValueError("has a number that is beyond any column") from None


def _no_number(word: str) -> None:
    raise ValueError(f"not JSON: {word} is no value of it")


def _object(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse an object in which a name comes twice: nobody knows which value was meant."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"has {twice[:100]!r} twice")
    return found
