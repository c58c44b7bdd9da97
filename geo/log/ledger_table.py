"""`system/ledgers` read into a producer's Progress and written from it, and the commits of a log folded in between."""

from __future__ import annotations

import logging
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone

from pyspark.errors import PySparkException
from pyspark.sql import Row
from pyspark.sql import functions as F

from geo.config_tree import Cluster, Config
from geo.errors import first_line
from geo.log.frames import utc
from geo.log.ledgers import REBUILD_RECORD, Batch, Ledger, LedgerKey, Progress, SourceEnd, continued
from geo.log.names import Topic
from geo.log.table import Table
from geo.log.tables import ClusterTables
from schemas import LEDGERS

log = logging.getLogger(__name__)

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


class LedgerTable:
    """The rows of one producer and topic in `system/ledgers`: one per ledger key counts, the newest.

    The newest of all says up to which version of which table the log is reflected in them; what its producer committed
    after that is told by the commits themselves (`Batch`).
    """

    def __init__(self, tables: ClusterTables, config: Config, topic: Topic, producer: str, log_table: Table) -> None:
        self._tables, self._config, self._topic, self._producer, self._log = tables, config, topic, producer, log_table
        self._journal = tables.journal(LEDGERS)
        self._sequence = 0
        self._table_id = ""
        self.checkpoint_id: str | None = None

    def resume(self) -> tuple[Progress, set[LedgerKey]]:
        """What the producer may go on from (L3), and the keys of which more is published than recorded.

        This is the newest record and the batches committed since, checked against the log and the peers.
        """
        self._table_id = self._log.table_id()
        rows = sorted(
            self._journal.newest(f"topic = '{self._topic}' AND producer = '{self._producer}'"), key=lambda row: row["sequence"]
        )
        if not rows:
            return Progress(), set()
        last = rows[-1]
        self._sequence, self.checkpoint_id = last["sequence"], last["checkpoint_id"]
        latest = self._log.latest_version()
        same = self._table_id == last["table_id"] and latest >= last["table_version"]
        commits = self._log.history(last["table_version"], latest) if same else []
        intact = same and not any(c.operation == "RESTORE" or c.user_metadata == REBUILD_RECORD for c in commits)
        found, changed = _progress(rows), set()
        for commit in reversed(commits):
            batch = Batch.decode(commit.user_metadata)
            if batch is not None and batch.producer == self._producer:
                found = found.after(batch)
                changed |= {span.key for span in batch.spans}
        ids = [ledger.ledger_id for ledger in found.ledgers.values()]
        here, peers = self._all_ends(ids)
        progress, reasons = continued(found, here, peers, log_intact=intact)
        if reasons:
            # Before a ledger is given up all that is known of it is recorded: its source's end is nowhere else.
            self.record(found, found.ledgers, version=latest)
            changed = set()
        for reason in reasons:
            log.warning("producer %s of %s: %s. New messages go to a new ledger.", self._producer, self._topic, reason)
        return progress, changed

    def record(self, progress: Progress, keys: Collection[LedgerKey], *, version: int | None = None) -> None:
        """Record the ledgers `keys` of `progress`. With them all that is published up to `version` of the log, by default its
        newest, must be recorded."""
        self._sequence += 1
        version = self._log.latest_version() if version is None else version
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
                    "table_id": self._table_id,
                    "table_version": version,
                    "checkpoint_id": self.checkpoint_id,
                    "sequence": self._sequence,
                    "recorded_at": now,
                }
            )
        self._journal.append(rows)

    def is_new(self, ledger_id: int) -> bool:
        """Whether no ledger of the cluster has this id."""
        rows = self._journal.rows()
        return rows is None or rows.where(f"ledger_id = {ledger_id}").isEmpty()

    def _ends(self, log_table: Table, ids: list[int]) -> dict[int, int]:
        mine = (F.col("origin") == self._tables.cluster.name) & F.col("ledger_id").isin(ids)
        ends = log_table.read().where(mine).groupBy("ledger_id").agg(F.max("entry_id").alias("end")).collect()
        return {row["ledger_id"]: row["end"] for row in ends}

    def _all_ends(self, ids: list[int]) -> tuple[dict[int, int], dict[str, dict[int, int]]]:
        """What this cluster and its peers hold of the ledgers, all asked at once."""
        peers = [cluster for name, cluster in self._config.clusters.items() if name != self._tables.cluster.name]
        with ThreadPoolExecutor(1 + len(peers), "geo-ends") as pool:
            here = pool.submit(self._ends, self._log, ids)
            there = {peer.name: pool.submit(self._peer_ends, peer, ids) for peer in peers}
        return here.result(), {name: ends for name, found in there.items() if (ends := found.result()) is not None}

    def _peer_ends(self, cluster: Cluster, ids: list[int]) -> dict[int, int] | None:
        """None for a peer without the topic, and for one that cannot be read, which is named: it may be down for good."""
        try:
            peer = ClusterTables(self._tables.spark, cluster).log(self._topic)
            return self._ends(peer, ids) if peer.exists() else None
        except PySparkException as error:
            log.warning(
                "%s: cluster %s cannot be read, its copy is not compared: %s", self._topic, cluster.name, first_line(error)
            )
            return None


def _progress(rows: list[Row]) -> Progress:
    """The progress that the rows of a producer, oldest first, tell of."""
    ledgers: dict[LedgerKey, Ledger] = {}
    sources: dict[str, SourceEnd] = {}
    for row in rows:
        ledgers[LedgerKey.of(row["source"], row["replicate_to"])] = Ledger(row["ledger_id"], row["end"])
        if row["source_end"] is not None:
            sources[row["source"]] = SourceEnd(row["source_end"], row["source_count"])
    time_us = max((utc(row["publish_time"]) - _EPOCH) // timedelta(microseconds=1) for row in rows)
    return Progress(ledgers, sources, time_us)
