"""Finds how far ledgers reach in the logs of a topic, here and in the other clusters, which may be away."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from datetime import date, datetime, time, timezone
from functools import partial

from geo.asking import ask_all
from geo.config.cluster import Cluster
from geo.config.model import Config
from geo.delta.files import check_folder
from geo.delta.predicate import Among, Compare
from geo.delta.table import Table
from geo.journal.cluster import ClusterTables
from geo.log.conditions import published_since
from geo.log.ledger_parts import ledger_ends
from geo.names import Topic
from geo.text import first_line
from geo.times import in_us

log = logging.getLogger(__name__)

WAIT_S = 60.0
"""Seconds that the other clusters may take, all at once. One that does not answer counts as away: a client of an object store that is not there tries
again for minutes.
"""


FEW_IDS = 64
"""Up to so many ledgers are named in a condition."""


def ends_of_ids(log_table: Table, version: int, origin: str, ids: Collection[int], since: date | None) -> dict[int, int]:
    """Return the last entry of each of the ledgers that the log holds at a version. Their last entries are of the date `since` or later (None: any)."""
    if not ids:
        return {}
    asked = frozenset(ids)
    # Many by their bounds: a condition of a thousand numbers would be slow to plan.
    between = Compare("ledger_id", ">=", min(asked)) & Compare("ledger_id", "<=", max(asked))
    wanted = Among("origin", frozenset({origin})) & (Among("ledger_id", asked) if len(asked) <= FEW_IDS else between)
    if since is not None:
        wanted &= published_since(in_us(datetime.combine(since, time(), timezone.utc)))
    found = ledger_ends(log_table, version, wanted)
    return {ledger.ledger_id: last for ledger, last in found.items() if ledger.ledger_id in asked}


def ends_in(tables: ClusterTables, peer: Cluster, topic: Topic, ids: Collection[int], since: date | None) -> Mapping[int, int]:
    """`ends_of_ids`, of ledgers of the cluster of `tables`, in another cluster: none where it has no such topic. Raises what is in
    the way of reading it."""
    other = tables.beside(peer)
    other.refuse_other_cluster()
    there = other.log(topic)
    if there.by_path:
        check_folder(there.name)
    seen = there.snapshot()
    return {} if seen is None else ends_of_ids(there, seen.version, tables.cluster.name, ids, since)


def peer_ends(
    tables: ClusterTables, config: Config, topic: Topic, ids: Collection[int], since: date | None
) -> dict[str, Mapping[int, int] | None]:
    """`ends_of_ids` in each other cluster of the configuration: none where it has no such topic, None for one that is away."""

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
