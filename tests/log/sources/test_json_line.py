"""What a line of JSON may say, and that many lines at once say what each of them does. No Spark."""

from __future__ import annotations

import json
from datetime import datetime, timezone

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from geo.log.sources.json_line import MESSAGE, _parse_plain, parse_line, parse_lines


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"{bad", "not JSON"),
        (b"[1]", "must be an object, this is a list"),
        (b'"x"', "must be an object, this is a string"),
        (b"\xff{}", "not UTF-8 at byte 0"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"payload": "a", "payload_base64": "YQ=="}', "both payload and payload_base64"),
        (b'{"payload_base64": "%%"}', "payload_base64 must be base64"),
        (b'{"payload": {"a": 1}}', "payload must be a string, this is an object"),
        (b'{"payload": "\\ud800"}', "surrogate"),
        (b'{"key": 5}', "key must be a string, this is a number"),
        (b'{"properties": []}', "properties must be an object"),
        (b'{"properties": {"a": 1}}', "properties has an entry, number 1, that must be a string"),
        (b'{"replicate_to": "us"}', "replicate_to must be a list"),
        (b'{"event_time": "yesterday"}', "ISO 8601"),
        (b'{"event_time": 12}', "ISO 8601"),
        (b'{"payloda": "a"}', "unknown field 'payloda'"),
        (b'{"key": "a", "payload": "p", "key": "b"}', "has 'key' twice"),
        (b'{"key": "a", "\\u006bey": "b"}', "has 'key' twice"),
        (b'{"properties": {"a": "1", "a": "1"}}', "has 'a' twice"),
    ],
)
def test_a_bad_line_is_refused_with_its_reason(line: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_line(line)


def test_a_reason_never_quotes_the_payload() -> None:
    with pytest.raises(ValueError, match="not JSON") as error:
        parse_line(b'{"payload": "s3cret", ')
    assert "s3cret" not in str(error.value)


def test_a_full_line_is_read() -> None:
    line = {
        "key": "k",
        "payload_base64": "AAE=",
        "properties": {"a": "b", "c": None},
        "replicate_to": ["us"],
        "event_time": "2013-01-01T05:15:00Z",
    }
    assert parse_line(json.dumps(line).encode())[0] == {
        "key": "k",
        "payload": b"\x00\x01",
        "properties": [("a", "b"), ("c", None)],
        "replicate_to": ["us"],
        "event_time": datetime(2013, 1, 1, 5, 15, tzinfo=timezone.utc),
    }


_TEXT = (
    st.none() | st.text(max_size=3) | st.sampled_from(["", "\x00", "\ud800", "\udc00", "é", "2013-01-01T05:15:00Z", "2013-01-01"])
)
_OBJECTS = st.fixed_dictionaries(
    {},
    optional={
        "key": _TEXT,
        "payload": _TEXT | st.integers(),
        "payload_base64": st.sampled_from([None, "AAE=", "%"]),
        "properties": st.none() | st.dictionaries(st.text(max_size=2), _TEXT, max_size=2),
        "replicate_to": st.none() | st.lists(_TEXT, max_size=2) | _TEXT,
        "event_time": st.none() | st.sampled_from(["2013-01-01T05:15:00Z", "2013-01-01T05:15:00.5+02:00", "yesterday", 5]),
        "other": st.just(1),
    },
)
_LINES = st.builds(
    lambda fields, escaped: json.dumps(fields, ensure_ascii=escaped).encode("utf-8", "surrogatepass"), _OBJECTS, st.booleans()
)
_PLAIN = st.builds(
    lambda key, payload: json.dumps({"key": key, "payload": payload}).encode(), st.text(max_size=3), st.text(max_size=5)
)
_ODD = st.sampled_from(
    [
        b'{"key":"a"}{"key":"b"}',
        b'{"key":"a"} {}',
        b'{"key":',
        b'"a"}',
        b'{"key":"a","key":"b"}',
        b'{"key":"a",}',
        b'{"key":"a\x01"}',
        b'{"key":"\xff"}',
        b'\xef\xbb\xbf{"key":"a"}',
        b' {"key":"a"}\r',
        b'\x0b{"key":"a"}',
        b'{"replicate_to":[["a"]]}',
        b'{"replicate_to":[{}]}',
        b'{"key":NaN}',
        b'{"key":"\\u0000"}',
        b"{}",
        b"[" * 10_000,
        b'{"key":' * 10_000 + b"}" * 10_000,
    ]
)


@given(st.lists(_PLAIN, min_size=1, max_size=4) | st.lists(_LINES | _PLAIN | _ODD, min_size=1, max_size=4))
@example([b'{"key":"a"}{"key":"b"}', b'{"key":', b'"c"}'])
@example([b'{"key":"a","key":"b"}'])
def test_many_lines_at_once_say_what_each_of_them_does(lines: list[bytes]) -> None:
    empty = dict.fromkeys(MESSAGE.names)
    expected = []
    for line in lines:
        try:
            expected.append({**empty, **parse_line(line)[0]})
        except ValueError as error:
            expected.append({**empty, "error": str(error)})
    found = pa.RecordBatch.from_arrays(parse_lines(lines), schema=MESSAGE).to_pylist()
    for row in (*found, *expected):  # a map is pairs, or a dict
        row["properties"] = None if row["properties"] is None else dict(row["properties"])
    assert found == expected


def test_usual_lines_are_parsed_many_at_once() -> None:
    line = b'{"key": "k", "payload": "p", "replicate_to": ["eu"], "event_time": "2013-01-01T05:15:00Z"}'
    found = _parse_plain([line, b" " + line + b"\r"])
    assert found is not None
    assert list(found.columns) == parse_lines([line, line])
