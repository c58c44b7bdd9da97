"""`system/ledgers` read into a producer's Progress and written from it, and the commits of a log folded in between."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from geo.config import Config
from geo.errors import first_line
from geo.log.frames import rows_frame
from geo.log.ledgers import Batch, Ledger, LedgerKey, Progress, SourceEnd, continued
from geo.log.names import Topic
from geo.log.tables import ClusterTables, Table
from schemas import LEDGERS

log = logging.getLogger(__name__)

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


@dataclass(frozen=True, slots=True)
class Recorded:
    """A producer's newest record in one topic."""

    progress: Progress
    table_id: str
    table_version: int
    sequence: int
    checkpoint_id: str | None


class LedgerTable:
    """The rows of one producer and topic in `system/ledgers`."""

    def __init__(self, tables: ClusterTables, config: Config, topic: Topic, producer: str) -> None:
        self._tables, self._config, self._topic, self._producer = tables, config, topic, producer
        self._table = tables.opened_system(LEDGERS)

    def append(
        self,
        progress: Progress,
        keys: Iterable[LedgerKey],
        *,
        table_id: str,
        version: int,
        sequence: int,
        checkpoint_id: str | None,
    ) -> None:
        """Record the ledgers `keys` of `progress`, exact up to `version` of the log."""
        now = datetime.now(timezone.utc)
        rows = []
        for key in keys:
            ledger, source = progress.ledgers[key], progress.sources.get(key.source)
            rows.append(
                {
                    "topic": str(self._topic),
                    "producer": self._producer,
                    "ledger_id": ledger.ledger_id,
                    "source": key.source,
                    "replicate_to": key.listed,
                    "end": ledger.end,
                    "source_end": source.offset if source else None,
                    "source_count": source.count if source else 0,
                    "publish_time": _EPOCH + timedelta(microseconds=progress.publish_time_us),
                    "table_id": table_id,
                    "table_version": version,
                    "checkpoint_id": checkpoint_id,
                    "sequence": sequence,
                    "recorded_at": now,
                }
            )
        self._table.append(rows_frame(self._tables.spark, LEDGERS.types, rows).coalesce(1))

    def read(self) -> Recorded | None:
        """The newest record, None for a producer that never published to the topic."""
        mine = (F.col("topic") == str(self._topic)) & (F.col("producer") == self._producer)
        rows = sorted(self._table.read().where(mine).collect(), key=lambda row: row["sequence"])
        if not rows:
            return None
        ledgers: dict[LedgerKey, Ledger] = {}
        sources: dict[str, SourceEnd] = {}
        for row in rows:
            ledgers[LedgerKey.of(row["source"], row["replicate_to"])] = Ledger(row["ledger_id"], row["end"])
            if row["source_end"] is not None:
                sources[row["source"]] = SourceEnd(row["source_end"], row["source_count"])
        last = rows[-1]
        time_us = max((row["publish_time"].replace(tzinfo=timezone.utc) - _EPOCH) // timedelta(microseconds=1) for row in rows)
        return Recorded(
            Progress(ledgers, sources, time_us), last["table_id"], last["table_version"], last["sequence"], last["checkpoint_id"]
        )

    def resume(self, recorded: Recorded, log_table: Table, table_id: str) -> Progress:
        """What the producer may go on from (L3): the record, the batches committed since, checked against log and peers."""
        latest = log_table.latest_version()
        same = table_id == recorded.table_id and latest >= recorded.table_version
        commits = log_table.history(recorded.table_version, latest) if same else []
        intact = same and not any(commit.operation == "RESTORE" for commit in commits)
        progress = recorded.progress
        for commit in reversed(commits):
            batch = Batch.decode(commit.user_metadata)
            if batch is not None and batch.producer == self._producer:
                progress = progress.after(batch)
        ids = [ledger.ledger_id for ledger in progress.ledgers.values()]
        progress, reasons = continued(progress, self._ends(log_table, ids), self._peer_ends(ids), log_intact=intact)
        for reason in reasons:
            log.warning("producer %s of %s: %s. New messages go to a new ledger.", self._producer, self._topic, reason)
        return progress

    def known_ids(self) -> set[int]:
        """All ledger ids of the cluster, so that a new one is new."""
        return {row["ledger_id"] for row in self._table.read().select("ledger_id").distinct().collect()}

    def _ends(self, log_table: Table, ids: list[int]) -> dict[int, int]:
        mine = (F.col("origin") == self._tables.cluster.name) & F.col("ledger_id").isin(ids)
        ends = log_table.read().where(mine).groupBy("ledger_id").agg(F.max("entry_id").alias("end")).collect()
        return {row["ledger_id"]: row["end"] for row in ends}

    def _peer_ends(self, ids: list[int]) -> dict[str, dict[int, int]]:
        """What peers hold of the ledgers. A peer that cannot be read is left out and named: it may be down for good."""
        found = {}
        for name, cluster in self._config.clusters.items():
            if name == self._tables.cluster.name:
                continue
            try:
                peer = ClusterTables(self._tables.spark, cluster).log(self._topic)
                if peer.exists():
                    found[name] = self._ends(peer, ids)
            except PySparkException as error:
                log.warning("%s: cluster %s cannot be read, its copy is not compared: %s", self._topic, name, first_line(error))
        return found
