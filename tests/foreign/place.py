"""A log in which somebody else commits: its folder, the messages that it begins with, and messages to commit."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from geo.delta.appending import append_rows
from geo.delta.arrow_rows import rows_frame, rows_table
from geo.delta.table import Table
from geo.log.ledgers import Batch, LedgerKey, SourceEnd, Span
from geo.schemas import TOPIC_LOG
from geo.session import own_session
from geo.times import in_us

LEDGER, STRANGE_LEDGER = 1, 9
"""The ledger that each region's own producer writes, and one that only foreign commits write."""

OLD, FIRST, PENDING, LATER, END = range(5), range(20), range(20, 25), range(25, 30), 30
"""Entries of each region: published a day ago; that a log begins with; written right before the foreign commit; right after it."""

_BEGAN = datetime.now(timezone.utc).replace(microsecond=0) - timedelta(minutes=10)


def published_at(entry: int) -> datetime:
    """When an entry was published: those of a batch of five at the same time, the first batch a day before the others."""
    return _BEGAN + timedelta(seconds=entry // 5) - timedelta(days=1 if entry in OLD else 0)


def message(origin: str, entry: int, ledger: int = LEDGER, **other: object) -> dict[str, object]:
    """The row of a message: the same whoever writes it, but for what `other` says."""
    time = published_at(entry)
    row = {"origin": origin, "ledger_id": ledger, "entry_id": entry, "publish_time": time, "producer": "w", "key": f"k{entry}",
           "payload": f"payload {origin} {ledger} {entry}".encode(), "publish_date": time.date()}  # fmt: skip
    return row | other


def messages(origin: str, entries: Iterable[int], ledger: int = LEDGER, **other: object) -> list[dict[str, object]]:
    return [message(origin, entry, ledger, **other) for entry in entries]


OF_OLD_DATE = f"publish_date = '{published_at(OLD[0]).date()}'"
SOME = "entry_id IN (7, 22)"
"""Messages of both regions: one that every log holds, and one that was written right before."""


def batches(origin: str, entries: range) -> Iterable[tuple[pa.Table, str]]:
    """Entries of the region's own ledger as its producer commits them: rows, and the record of their commit."""
    for first in range(entries.start, entries.stop, 5):
        batch = range(first, min(first + 5, entries.stop))
        spans = (Span(LedgerKey("", None), LEDGER, batch[0], batch[-1]),)
        ends = {"": SourceEnd(f'["{batch[-1]}"]', batch[-1] + 1)}
        yield arrow(messages(origin, batch)), Batch("w", in_us(published_at(first)), spans, ends).encode()


def write(log: Table, entries: range, *origins: str) -> None:
    """Let the producers of these regions commit entries."""
    for origin in origins:
        for rows, record in batches(origin, entries):
            append_rows(log, rows, record)


def arrow(rows: Iterable[Mapping[str, object]]) -> pa.Table:
    return rows_table(TOPIC_LOG.types, rows)


@dataclass(frozen=True, slots=True)
class Place:
    """The log of one topic in the region `here`; `there` is the other region, with which it is linked both ways."""

    spark: SparkSession
    path: str
    here: str = "us"
    there: str = "eu"

    def new(self, entries: range = range(5)) -> list[dict[str, object]]:
        """Messages of a ledger that nobody of ours writes."""
        return messages(self.here, entries, STRANGE_LEDGER)

    def old(self) -> list[dict[str, object]]:
        """Messages that the log has, of both regions, as they are there."""
        return [*messages(self.here, range(10, 15)), *messages(self.there, range(10, 15))]

    @property
    def log(self) -> Path:
        return Path(self.path) / "_delta_log"

    def sql(self, statement: str, **settings: str) -> None:
        """Run a statement in which `{log}` is the table, in a session with these settings of `spark.databricks.delta` (`__` for a
        dot)."""
        spark = self.spark
        if settings:
            keys = {f"spark.databricks.delta.{key.replace('__', '.')}": value for key, value in settings.items()}
            spark = own_session(spark, keys)
        spark.sql(statement.replace("{log}", f"delta.`{self.path}`"))

    def rows(self) -> DataFrame:
        return self.spark.read.format("delta").load(self.path)

    def frame(self, rows: Iterable[Mapping[str, object]]) -> DataFrame:
        return rows_frame(self.spark, TOPIC_LOG.types, rows)

    def write(self, frame: DataFrame, mode: str = "append", **options: str) -> None:
        frame.write.format("delta").mode(mode).options(**options).save(self.path)

    def delta_rs(self) -> DeltaTable:
        return DeltaTable(self.path)

    def version(self) -> int:
        return max(int(file.stem) for file in self.log.glob("*.json") if file.stem.isdigit())

    def actions(self, version: int) -> list[dict[str, Any]]:
        """The actions of a commit, in its order."""
        return [json.loads(line) for line in (self.log / f"{version:020}.json").read_text().splitlines() if line.strip()]

    def put(self, actions: Iterable[Mapping[str, object]]) -> None:
        """Commit these actions as they are. Raises FileExistsError if another commit came between."""
        file = self.log / f"{self.version() + 1:020}.json"
        ready = self.log / f".{uuid.uuid4()}.tmp"
        ready.write_text("".join(json.dumps(action) + "\n" for action in actions))
        try:
            os.link(ready, file)
        finally:
            ready.unlink()


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of commit that is not this program's. `make` makes it; `before` prepares the log before any link has read it."""

    name: str
    engine: str
    make: Callable[[Place], object]
    before: Callable[[Place], object] | None = None

    @property
    def slug(self) -> str:
        words = "".join(one if one.isalnum() else " " for one in f"{self.engine} {self.name}".lower()).split()
        return "-".join(words)
