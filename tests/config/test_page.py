"""docs/configuration.md says what the configuration's reader takes. No Spark."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from geo.config.keys import PARTS, KeysOf
from geo.config.page import page
from geo.times import duration_s, duration_text

ROOT = Path(__file__).resolve().parents[2]


def test_the_page_is_what_the_reader_takes() -> None:
    written = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    assert written == page(), "python -m geo.config.page > docs/configuration.md"


@pytest.mark.parametrize("of", PARTS, ids=lambda of: of.title)
def test_there_is_a_key_for_each_thing_that_is_configured(of: KeysOf) -> None:
    given = {"name", "line"} if of.title in ("clusters", "links", "topics") else set()
    assert {key.parameter for key in of.keys} == {one.name for one in fields(of.made)} - given


def test_the_example_has_every_key() -> None:
    example = (ROOT / "conf" / "example.yaml").read_text(encoding="utf-8")
    in_part_only = {"root", "catalog", "spark_conf", "broker_timeout", "bundles", "strategy", "shedder", "settings"}
    names = {key.name for of in PARTS for key in of.keys}
    assert {name for name in names - in_part_only if f"{name}:" not in example} == set()


@pytest.mark.parametrize("text", ["1 second", "90 seconds", "5 minutes", "1 hour", "36 hours", "1 day", "1 week", "30 days"])
def test_a_duration_is_written_as_it_is_read(text: str) -> None:
    assert duration_text(duration_s(text)) == text
