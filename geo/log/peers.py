"""How far ledgers reach in the logs of a topic, here and in the other clusters, which may be away."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from datetime import date
from functools import partial

from pyspark.sql import functions as F

from geo.asking import ask_all
from geo.config.model import Cluster, Config
from geo.delta.arrow_rows import rows_frame
from geo.delta.engines.native.read import DataFile
from geo.delta.files import check_folder
from geo.delta.table import Table
from geo.journal.cluster import ClusterTables, connect
from geo.log.ledger_parts import Ranges, few_ranges, stated_ranges
from geo.log.topic_log import ID, ledger_ranges
from geo.names import Topic
from geo.text import first_line

log = logging.getLogger(__name__)

WAIT_S = 60.0
"""How long the other clusters may take, all at once. One that does not answer counts as away: a client of an object store that
is not there tries again for minutes."""


def ledger_ends(log_table: Table, origin: str, ids: Collection[int], since: date | None) -> dict[int, int]:
    """Of each of the ledgers that the log holds its last entry. Their last entries are of the date `since` or later (None:
    any). Without Spark where this process may read the files (`native.scan`)."""
    if not ids:
        return {}
    wanted = frozenset(ids)

    def told(file: DataFile) -> Ranges | None:
        least, most = (file.statistics.get(f"{end}.ledger_id") for end in ("min", "max"))
        if least is not None and most is not None and (most < min(wanted) or least > max(wanted)):
            return {}
        return stated_ranges(file)

    found = few_ranges(log_table, log_table.latest_version(), ID, lambda rows: rows, told)
    if found is None:
        # Files without any of them are skipped by the bounds; a condition of a thousand numbers would be slow to plan.
        rows = log_table.read().where(F.col("origin") == origin).where(F.col("ledger_id").between(min(ids), max(ids)))
        listed = rows_frame(log_table.spark, {"ledger_id": "BIGINT"}, [{"ledger_id": one} for one in wanted])
        rows = rows.join(F.broadcast(listed), "ledger_id", "left_semi")
        if since is not None:
            rows = rows.where(F.col("publish_date") >= F.lit(since))
        found = ledger_ranges(rows)
    return {
        ledger.ledger_id: last for ledger, (_, last) in found.items() if ledger.origin == origin and ledger.ledger_id in wanted
    }


def ends_in(tables: ClusterTables, peer: Cluster, topic: Topic, ids: Collection[int], since: date | None) -> Mapping[int, int]:
    """`ledger_ends`, of ledgers of the cluster of `tables`, in another cluster: none where it has no such topic. Raises what is in
    the way of reading it."""
    other = connect(tables.spark, peer)
    other.refuse_other_cluster()
    there = other.log(topic)
    if there.by_path:
        check_folder(there.name)
    return ledger_ends(there, tables.cluster.name, ids, since) if there.exists() else {}


def peer_ends(
    tables: ClusterTables, config: Config, topic: Topic, ids: Collection[int], since: date | None
) -> dict[str, Mapping[int, int] | None]:
    """`ledger_ends` in each other cluster of the configuration: none where it has no such topic, None for one that is away."""

    peers = {
        name: partial(ends_in, tables, cluster, topic, ids, since)
        for name, cluster in config.clusters.items()
        if name != tables.cluster.name
    }
    found: dict[str, Mapping[int, int] | None] = {}
    for name, answer in ask_all(peers, WAIT_S).items():
        try:
            found[name] = answer.result()
        except Exception as error:  # whatever a peer has: it stops no publisher here
            log.warning("%s: cluster %s cannot be read, its copy is not compared: %s", topic, name, first_line(error))
            found[name] = None
    return found
