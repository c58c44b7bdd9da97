"""What publish takes every look and every consumer shows, whatever zone, encoding and engine."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from geo.cli.main import main
from geo.log.publish import publish, publish_json_lines
from geo.names import Topic
from geo.times import FIRST_US, LAST_US, from_iso, from_us
from tests.test_times import TWICE_US, ZONES, zone
from tests.world import TOPIC, World

pytestmark = pytest.mark.spark

TYPED = Topic.parse("persistent://shop/orders/typed")

_COLUMNS: Mapping[str, tuple[str, Any]] = {
    "number": ("CAST('NaN' AS DOUBLE)", "NaN"),
    "decimal": ("CAST(1.5 AS DECIMAL(38, 18))", "1.500000000000000000"),
    "day": ("DATE'0001-01-01'", "0001-01-01"),
    "local": ("TIMESTAMP_NTZ'2026-11-01 01:30:00'", "2026-11-01T01:30:00"),
    "parts": (
        "struct(TIMESTAMP'2026-11-01 06:30:00Z' AS t, X'FF' AS b, array(CAST('-Infinity' AS FLOAT)) AS a)",
        {"t": "2026-11-01T06:30:00Z", "b": "/w==", "a": ["-Infinity"]},
    ),
    "times": ("map(TIMESTAMP'9999-12-31 23:59:59Z', CAST(2 AS DECIMAL(10, 2)))", {"9999-12-31T23:59:59Z": "2.00"}),
    "keys": ("map(struct(1 AS x), 'one')", [{"key": {"x": 1}, "value": "one"}]),
}
"""Columns of a typed topic: as SQL has their value, and as JSON."""

SHOWN = {name: value for name, (_, value) in _COLUMNS.items()}

ODD = "\u202eevil\u2066\x1b[2J\r\n\x00\x9b\u2028\N{PILE OF POO}\u0301\ufffe"

TIMES = [FIRST_US, *TWICE_US, LAST_US]


def shown(verb: list[str], encoding: str = "utf-8") -> list[Any]:
    """What a verb prints as JSON, by a parser that takes nothing else; its text fits the encoding."""
    with pytest.MonkeyPatch.context() as patched, io.TextIOWrapper(io.BytesIO(), encoding) as stream:
        patched.setattr(sys, "stdout", stream)
        assert main([*verb, "-o", "json"]) == 0
        stream.seek(0)
        text = stream.read()
    documents = [text] if text.startswith("[") else text.splitlines()
    found = [json.loads(one, parse_constant=pytest.fail) for one in documents]
    return found[0] if text.startswith("[") else found


@pytest.fixture
def odd(world: World, tmp_path: Path) -> World:
    """A topic of odd texts and times, and a typed one."""
    told = (
        {"key": f"{at}{ODD}", "payload": ODD, "properties": {ODD: ODD}, "event_time": from_us(at).isoformat()} for at in TIMES
    )
    lines = tmp_path / "in.jsonl"
    lines.write_text("".join(f"{json.dumps(one)}\n" for one in told))
    publish_json_lines(world.spark, str(lines), TOPIC, world.config, "us").await_termination()
    columns = (f"{sql} AS {name}" for name, (sql, _) in _COLUMNS.items())
    publish(world.spark.sql(f"SELECT 'k' AS key, {', '.join(columns)}"), TYPED, world.config, "us", publish_id="1")
    return world


def test_times_texts_and_values_of_all_kinds_are_shown_and_consumed_in_every_zone_and_encoding(odd: World) -> None:
    at = ["--cluster", "us", "--config", str(odd.path), "--topic"]
    for number, name in enumerate(one.key for one in ZONES):
        encoding = ("ascii", "utf-8", "latin-1")[number % 3]
        for engine in ("native", "spark")[: 2 if number in (1, 9) else 1]:
            with zone(name):
                verb = ["peek", *at, str(TOPIC), "-n", "9", "--payload", "text", "--engine", engine]
                found = shown(verb, encoding)
                (typed,) = shown(["peek", *at, str(TYPED), "--engine", engine], encoding)
            assert [from_iso(one["event_time"]) for one in found] == list(map(from_us, TIMES))
            assert [one["key"] for one in found] == [f"{time}{ODD}" for time in TIMES]
            assert {(one["payload"], *one["properties"].items()) for one in found} == {(ODD, (ODD, ODD))}
            assert typed["columns"] == SHOWN, engine
    for name in ("America/New_York", "Pacific/Kiritimati"):
        with zone(name):
            consume = ["--subscription", name[:3].lower(), "--trigger", "available-now"]
            found, (typed,) = (shown(["consume", *at, str(one), *consume], "ascii") for one in (TOPIC, TYPED))
            assert shown(["consume", *at, str(TOPIC), *consume]) == [], "all is acknowledged"
        assert sorted((from_iso(one["event_time"]), one["key"]) for one in found) == [
            (from_us(time), f"{time}{ODD}") for time in TIMES
        ]
        assert {one: typed[one] for one in SHOWN} == SHOWN
