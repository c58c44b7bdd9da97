"""A time as .NET and Go write it that have none: Spark knows it, and Python's times end there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from geo.cli.main import main
from geo.log.publish import publish_json_lines
from tests.world import TOPIC, World


@pytest.mark.spark
def test_a_message_of_the_first_year_is_peeked_at_and_consumed(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = tmp_path / "in.jsonl"
    lines.write_text(json.dumps({"key": "b", "event_time": "0001-01-01T00:00:00Z"}) + "\n")
    publish_json_lines(world.spark, world.config, "us", TOPIC, str(lines)).await_termination()
    at = ["--cluster", "us", "--topic", str(TOPIC), "--config", str(world.path), "-o", "json"]
    for verb in (["peek", *at], ["consume", *at, "--subscription", "s", "--trigger", "available-now"]):
        capsys.readouterr()
        assert main(verb) == 0
        assert "0001-01-01T00:00:00" in capsys.readouterr().out
    capsys.readouterr()
    assert main(["consume", *at, "--subscription", "s", "--trigger", "available-now"]) == 0
    assert "0001-01-01" not in capsys.readouterr().out
