"""`system/links`: state and cursor of each inbound link and topic of a cluster, read and written."""

from __future__ import annotations

from collections.abc import Iterable

from geo.journal.cluster import ClusterTables
from geo.journal.rows import as_row
from geo.now import utc_now
from geo.replication.link_state import LinkState
from geo.schemas import LINKS


def read_links(tables: ClusterTables) -> dict[tuple[str, str], LinkState]:
    """The newest state of every inbound link, by (source, topic)."""
    return {(one.source, one.topic): one for one in tables.journal(LINKS).read(LinkState)}


def append_links(tables: ClusterTables, states: Iterable[LinkState]) -> None:
    """Record states in one commit. Each must have a sequence above its link's last."""
    now = utc_now()
    tables.journal(LINKS).append([{**as_row(state), "updated_at": now} for state in states])
