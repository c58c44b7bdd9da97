"""A topic's log on a local disk, rows of it, and its files as they are."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from geo.delta.arrow_rows import rows_table
from geo.delta.ddl import create_table
from geo.delta.driver import Driver
from geo.delta.table import Table
from geo.schemas import TOPIC_LOG

NOW = datetime(2026, 11, 24, 10, 11, 12, 131415, tzinfo=timezone.utc)


def made_log(spark: SparkSession, folder: Path, name: str = "log") -> Table:
    table = Table(Driver.of(spark), str(folder / name), by_path=True, lock=folder / f"{name}.lock")
    create_table(table, TOPIC_LOG)
    return table


def row_of(entry: int, **others: Any) -> dict[str, Any]:
    return {
        "origin": "us", "ledger_id": 7, "entry_id": entry, "publish_time": NOW + timedelta(microseconds=entry), "producer": "p",
        "key": f"k{entry % 7}", "payload": f"payload {entry}".encode(), "properties": {"a": str(entry)}, "publish_date": NOW.date(),
        **others,
    }  # fmt: skip


def rows_of(first: int, end: int, **others: Any) -> pa.Table:
    return rows_table(TOPIC_LOG.types, [row_of(entry, **others) for entry in range(first, end)])


def log_of(table: Table) -> Path:
    """The `_delta_log`."""
    assert table.log_folder is not None
    return Path(str(table.log_folder))


def commit_of(table: Table, version: int) -> Path:
    return log_of(table) / f"{version:020}.json"


def checksum_of(table: Table, version: int) -> Path:
    return log_of(table) / f"{version:020}.crc"


def actions_of(table: Table, version: int, kind: str) -> list[dict[str, Any]]:
    """What a commit's actions of a kind say."""
    said = map(json.loads, commit_of(table, version).read_text().splitlines())
    return [action[kind] for action in said if kind in action]
