"""How far ledgers reach in the logs of a topic, here and in the other clusters, which may be away."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Collection, Mapping
from datetime import date

from pyspark.sql import functions as F

from geo.config.model import Cluster, Config
from geo.faults import FAULTS
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
    found: dict[str, Mapping[int, int] | None] = {name: None for name in config.clusters if name != tables.cluster.name}

    def ask(peer: Cluster) -> None:
        try:
            there = connect(tables.spark, peer).log(topic)
            if there.by_path:
                check_folder(there.name)
            found[peer.name] = ledger_ends(there, tables.cluster.name, ids, since) if there.exists() else {}
        except FAULTS as error:
            log.warning("%s: cluster %s cannot be read, its copy is not compared: %s", topic, peer.name, first_line(error))

    # Daemons, since nobody can end one that hangs.
    asked = [threading.Thread(target=ask, args=(config.cluster(name),), name=f"geo-ends-{name}", daemon=True) for name in found]
    for thread in asked:
        thread.start()
    deadline = time.monotonic() + WAIT_S
    for thread in asked:
        thread.join(max(0.0, deadline - time.monotonic()))
        if thread.is_alive():
            log.warning("%s: a cluster has not answered for %.0f s (%s), its copy is not compared", topic, WAIT_S, thread.name)
    return dict(found)
