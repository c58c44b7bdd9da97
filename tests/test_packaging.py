"""What an installation brings along, and what it offers."""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import distribution
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def test_an_installation_replaces_no_spark_of_a_runtime_unless_asked_to() -> None:
    required = distribution("delta-geo").requires or []
    asking = {line.partition("extra == ")[2].strip("'\"") for line in required if line.startswith(("pyspark", "delta-spark"))}
    assert asking == {"spark", "demo", "notebooks", "test"}, "'': everybody; fold and kafka are for runtimes too"


def test_every_job_has_an_entry_point() -> None:
    scripts = {point.name: point for point in distribution("delta-geo").entry_points if point.group == "console_scripts"}
    jobs = {path.stem for path in (ROOT / "jobs").glob("*.py")} - {"__init__"}
    assert scripts.keys() == {"geo", *(f"geo-{job}" for job in jobs)}
    for job in jobs:
        assert scripts[f"geo-{job}"].load() is import_module(f"jobs.{job}").main
