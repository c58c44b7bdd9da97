"""The model of a log against a real table: the same things are done to both, and commits and rows are compared."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from geo.delta.appending import append_frame, append_rows
from geo.delta.arrow_rows import rows_table
from geo.delta.commits import Kind
from geo.delta.ddl import create_table
from geo.delta.driver import Driver
from geo.delta.frames import read_inserts
from geo.delta.table import Table
from geo.ids import MessageId
from geo.schemas import TOPIC_LOG
from geo.times import from_us
from tests.model.log import Log, Row, Rows

pytestmark = pytest.mark.spark

_DAY_US = 86_400 * 1_000_000


def _rows(first: int, end: int, day: int) -> Rows:
    return {MessageId("us", 1, entry): Row(publish_time_us=day * _DAY_US) for entry in range(first, end)}


class _Both:
    """A model and a table, to which the same is done."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.log = Log()
        self.table = Table(Driver.of(spark), str(folder / "log"), by_path=True, lock=folder / "log.lock")
        create_table(self.table, TOPIC_LOG)

    def append(self, rows: Rows, record: str | None, *, by_spark: bool) -> None:
        self.log.append(rows, record)
        listed = [
            {
                "origin": m.origin, "ledger_id": m.ledger_id, "entry_id": m.entry_id, "producer": "p",
                "publish_time": from_us(row.publish_time_us), "publish_date": from_us(row.publish_time_us).date(),
            }
            for m, row in rows.items()
        ]  # fmt: skip
        found = rows_table(TOPIC_LOG.types, listed)
        if by_spark:
            append_frame(self.table, self.table.spark.createDataFrame(found), record)
        else:
            append_rows(self.table, found, record)

    def restore(self, version: int) -> None:
        self.log.restore(version)
        self.table.delta().restoreToVersion(version)

    def compact(self) -> None:
        self.log.compact()
        self.table.delta().optimize().executeCompaction()


_STEPS: list[Callable[[_Both], None]] = [
    lambda both: both.append(_rows(0, 3, 100), None, by_spark=False),
    lambda both: both.append(_rows(3, 5, 101), '{"geo.link":1}', by_spark=True),
    lambda both: both.restore(1),
    lambda both: both.restore(2),
    lambda both: both.append(_rows(5, 8, 101), "record", by_spark=False),
    lambda both: both.compact(),
    lambda both: both.restore(2),
    lambda both: both.append({}, "no row, no commit", by_spark=False),
]


def test_a_modelled_log_says_of_its_commits_what_a_table_says(spark: SparkSession, tmp_path: Path) -> None:
    both = _Both(spark, tmp_path)
    for step in _STEPS:
        step(both)
        there = both.table.read().select("origin", "ledger_id", "entry_id").collect()
        assert sorted(str(MessageId(*row)) for row in there) == sorted(map(str, both.log.rows))
    real, modelled = list(both.table.commits(0, 100)), both.log.commits
    assert [(c.version, c.kind, c.user_metadata) for c in real] == [(c.version, c.kind, c.user_metadata) for c in modelled]
    appends = [(c.rows, m.rows) for c, m in zip(real, modelled, strict=True) if c.kind is Kind.APPEND]
    assert [found for found, _ in appends] == [wanted for _, wanted in appends]
    assert len({c.commit_id for c in real}) == len(real)
    added = {MessageId(r["origin"], r["ledger_id"], r["entry_id"]) for r in read_inserts(both.table, 5, 5).collect()}
    assert added == set(both.log.brought(5, 5))
