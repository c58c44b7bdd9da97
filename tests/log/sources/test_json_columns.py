"""What the values of a line say for the columns of a typed topic: exactly, or why not. No Spark."""

from __future__ import annotations

import base64
import json
import math
from datetime import date, datetime
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from geo.log.sources.json_columns import OwnColumns
from geo.log.sources.json_line import MESSAGE, parse_line, parse_lines
from tests.test_times import ZONES

KINDS = {
    "small": pa.int8(),
    "whole": pa.int64(),
    "amount": pa.decimal128(10, 2),
    "ratio": pa.float64(),
    "single": pa.float32(),
    "open": pa.bool_(),
    "name": pa.string(),
    "raw": pa.binary(),
    "day": pa.date32(),
    "at": pa.timestamp("us", "UTC"),
    "local": pa.timestamp("us"),
    "tags": pa.list_(pa.string()),
    "counts": pa.map_(pa.int32(), pa.int64()),
    "inner": pa.struct([("x", pa.int16()), ("y", pa.list_(pa.date32()))]),
}
OWN = OwnColumns(pa.schema(list(KINDS.items())), ("anything",))


def _said(fields: dict[str, Any]) -> dict[str, Any]:
    """The columns as a table has them, of those that are given."""
    arrays = parse_lines([json.dumps(fields, ensure_ascii=False).encode()], OWN)
    row = pa.RecordBatch.from_arrays(arrays, schema=pa.schema([*MESSAGE, *OWN.schema])).to_pylist()[0]
    assert row["error"] is None, row["error"]
    return {name: row[name] for name in fields}


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=4)
ZONE = st.sampled_from(ZONES)
SECURE = st.datetimes(datetime(1, 1, 3), datetime(9999, 12, 29))
"""Times that are in the years 1 to 9999 in UTC, too, whatever their zone."""


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "small": st.integers(-128, 127),
            "whole": st.integers(-(2**63), 2**63 - 1),
            "amount": st.decimals(-99_999_999, 99_999_999, places=2),
            "ratio": st.floats(),
            "single": st.floats(width=32),
            "open": st.booleans(),
            "name": TEXT,
            "raw": st.binary(max_size=4),
            "day": st.dates(),
            "at": st.tuples(SECURE, ZONE, st.booleans()),
            "local": st.datetimes().map(lambda time: time.replace(fold=0)),
            "tags": st.lists(st.none() | TEXT, max_size=3),
            "counts": st.dictionaries(st.integers(-9, 9), st.none() | st.integers(-9, 9), max_size=3),
            "inner": st.fixed_dictionaries(
                {"x": st.none() | st.integers(-9, 9)}, optional={"y": st.lists(st.dates(), max_size=2)}
            ),
        },
    ),
    st.booleans(),
)
@example({"at": (datetime(9999, 12, 29, 23, 59, 59, 999_999), ZoneInfo("Pacific/Kiritimati"), True)}, False)
def test_what_a_line_says_is_in_the_columns(meant: dict[str, Any], as_text: bool) -> None:
    given, expected = dict(meant), dict(meant)
    for name in meant.keys() & {"small", "whole", "amount", "ratio", "single"}:
        number = meant[name]
        if isinstance(number, float) and not math.isfinite(number):
            given[name] = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[str(number)]
        elif isinstance(number, Decimal) or as_text:
            given[name] = str(number)
    if "at" in meant:
        time, zone, fold = meant["at"]
        expected["at"] = time.replace(tzinfo=zone, fold=fold).astimezone(ZoneInfo("UTC")).replace(fold=0)
        given["at"] = time.replace(tzinfo=zone, fold=fold).isoformat()
        assert parse_line(json.dumps({"event_time": given["at"]}).encode())[0]["event_time"] == expected["at"]
    for name in meant.keys() & {"day", "local"}:
        given[name] = meant[name].isoformat()
    if "raw" in meant:
        given["raw"] = base64.b64encode(meant["raw"]).decode()
    if "counts" in meant:
        given["counts"] = {str(key): value for key, value in meant["counts"].items()}
        expected["counts"] = list(meant["counts"].items())
    if "inner" in meant:
        days = meant["inner"].get("y")
        given["inner"] = {"x": meant["inner"]["x"], "y": days and [day.isoformat() for day in days]}
        expected["inner"] = {"x": meant["inner"]["x"], "y": days}
    assert repr(_said(given)) == repr(expected)  # NaN is not itself


def test_what_is_not_given_is_null_and_the_envelope_stands_beside() -> None:
    message, own = parse_line(b'{"key": "a", "payload": "p", "whole": 7, "amount": 12.5, "small": 1e2, "single": 0.1}', OWN)
    assert (message["key"], message["payload"], own["name"]) == ("a", b"p", None)
    assert (own["whole"], own["amount"], own["small"]) == (7, Decimal("12.50"), 100)
    assert parse_line(b'{"amount": 99999999.990}', OWN)[1]["amount"] == Decimal("99999999.99")
    assert parse_line(b'{"day": "20130101"}', OWN)[1]["day"] == date(2013, 1, 1)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"small": 128}', "small must be an integer of 8 bits, and is beyond them"),
        ('{"small": 1.5}', "small must be an integer"),
        ('{"whole": true}', "whole must be a number, or the text of one, this is a boolean"),
        ('{"whole": "7 "}', "this is a string"),
        ('{"whole": 1e400}', "whole must be an integer"),
        ('{"amount": 1.234}', r"amount has more than 2 digits behind the point, and the column is DECIMAL\(10,2\)"),
        ('{"amount": 100000000}', "amount has more than 8 digits before the point"),
        ('{"amount": 1e-400}', "behind the point"),
        (f'{{"amount": 1.{"0" * 150}1}}', "behind the point"),
        (f'{{"amount": 1.{"0" * 250}1}}', "a number of more than 200 digits"),
        (f'{{"whole": 1{"0" * 5000}}}', "a number of more than 200 digits"),
        ('{"ratio": 1e309}', "ratio is beyond what the column can hold"),
        ('{"ratio": 1e99999999999999999999}', "beyond"),
        ('{"single": 1e39}', "single is beyond"),
        ('{"ratio": NaN}', "not JSON: NaN is no value of it"),
        ('{"open": 1}', "open must be true or false, this is a number"),
        ('{"name": 5}', "name must be a string, this is a number"),
        ('{"name": "\\ud800"}', "half of a surrogate pair"),
        ('{"raw": "%"}', "raw must be base64"),
        ('{"day": "2013-01-01T00:00:00Z"}', "day must be a date such as"),
        ('{"at": "2013"}', "at must be ISO 8601"),
        ('{"at": "0001-01-01T00:00:00+05:00"}', "at must lie in the years 1 to 9999, as UTC"),
        ('{"local": "2013-01-01T00:00:00Z"}', "a time without a zone"),
        ('{"tags": "a"}', "tags must be a list, this is a string"),
        ('{"tags": ["a", 5]}', "tags has an element, number 2, that must be a string, this is a number"),
        ('{"counts": {"a": 1}}', "counts has an entry, number 1, that must be a number"),
        ('{"counts": {"1": 1, "01": 2}}', "counts has two names that are one key"),
        ('{"inner": {"z": 1}}', "inner has the unknown field 'z'; known are x, y"),
        ('{"inner": {"x": 40000}}', "inner has x, which must be an integer of 16 bits"),
        ('{"anything": {}}', "anything cannot be given in JSON lines, by its type: publish a DataFrame"),
        ('{"amuont": 1}', "unknown field 'amuont'; known are key, .*, amount, "),
        ('{"name": "a", "name": "b"}', "has 'name' twice"),
    ],
)
def test_what_a_column_cannot_hold_is_refused_with_its_name_and_without_its_value(line: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_line(line.encode(), OWN)


def test_a_column_that_is_not_null_is_wanted_in_each_line() -> None:
    own = OwnColumns(pa.schema([pa.field("id", pa.int64(), nullable=False)]))
    for line in (b"{}", b'{"id": null}'):
        with pytest.raises(ValueError, match="id must be there and not null"):
            parse_line(line, own)
    assert parse_line(b'{"id": 5}', own)[1] == {"id": 5}


def test_a_column_of_ones_own_called_payload_base64_is_that_column_alone() -> None:
    own = OwnColumns(pa.schema([("payload_base64", pa.string())]))
    message, columns = parse_line(b'{"payload": "text", "payload_base64": "AAE="}', own)
    assert (message["payload"], columns) == (b"text", {"payload_base64": "AAE="})
    assert parse_line(b'{"payload_base64": "%"}', own)[0]["payload"] is None
