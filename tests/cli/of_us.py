"""Verbs as a user types them, about cluster us of a world; and no Spark for those that need none."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pyspark.sql import SparkSession

from geo.cli.main import main
from tests.world import World


def no_spark(*_: object, **__: object) -> SparkSession:
    """In the place of what starts it."""
    raise AssertionError("Spark was started")


def output_of(capsys: pytest.CaptureFixture[str], world: World, *arguments: str, code: int = 0) -> str:
    """What a verb prints that ends with this exit code."""
    found = main([*arguments, "--config", str(world.path), "--cluster", "us"])
    out = capsys.readouterr()
    assert found == code, out
    return out.out + out.err


def as_json(capsys: pytest.CaptureFixture[str], world: World, *arguments: str) -> Any:
    return json.loads(output_of(capsys, world, *arguments, "-o", "json"))
