"""How far ledgers reach in the logs of a topic, here and in the other clusters, which may be away."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from datetime import date
from functools import partial

from pyspark.sql import functions as F

from geo.asking import ask_all
from geo.config.model import Cluster, Config
from geo.log.topic_log import ledger_ranges
from geo.names import Topic
from geo.tables.cluster import ClusterTables, connect
from geo.tables.files import check_folder
from geo.tables.table import Table
from geo.text import first_line

log = logging.getLogger(__name__)

WAIT_S = 60.0
"""How long the other clusters may take, all at once. One that does not answer counts as away: a client of an object store that
is not there tries again for minutes."""


def ledger_ends(log_table: Table, origin: str, ids: Collection[int], since: date | None) -> dict[int, int]:
    """Of each of the ledgers that the log holds its last entry. Their last entries are of the date `since` or later (None:
    any)."""
    if not ids:
        return {}
    # As one text: a literal for each costs a call to the JVM, and there may be thousands.
    rows = log_table.read().where(F.col("origin") == origin).where(f"ledger_id IN ({', '.join(map(str, ids))})")
    if since is not None:
        rows = rows.where(F.col("publish_date") >= F.lit(since))
    return {ledger.ledger_id: last for ledger, (_, last) in ledger_ranges(rows).items()}


def peer_ends(
    tables: ClusterTables, config: Config, topic: Topic, ids: Collection[int], since: date | None
) -> dict[str, Mapping[int, int] | None]:
    """`ledger_ends` in each other cluster of the configuration: none where it has no such topic, None for one that is away."""

    def ask(peer: Cluster) -> Mapping[int, int]:
        there = connect(tables.spark, peer).log(topic)
        if there.by_path:
            check_folder(there.name)
        return ledger_ends(there, tables.cluster.name, ids, since) if there.exists() else {}

    peers = {name: partial(ask, cluster) for name, cluster in config.clusters.items() if name != tables.cluster.name}
    found: dict[str, Mapping[int, int] | None] = {}
    for name, answer in ask_all(peers, WAIT_S).items():
        try:
            found[name] = answer.result()
        except Exception as error:  # whatever a peer has: it stops no publisher here
            log.warning("%s: cluster %s cannot be read, its copy is not compared: %s", topic, name, first_line(error))
            found[name] = None
    return found
