"""`system/links`: state and progress of each inbound link and topic of a cluster, read and written."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from datetime import datetime, timezone

from geo.log.tables import ClusterTables
from geo.replication.state import LinkState, State
from schemas import LINKS


def read_links(tables: ClusterTables) -> dict[tuple[str, str], LinkState]:
    """The newest state of every inbound link, by (source, topic)."""
    found = {}
    for row in tables.journal(LINKS).newest():
        fields = row.asDict()
        del fields["updated_at"]
        found[row["source"], row["topic"]] = LinkState(**{**fields, "state": State(fields["state"])})
    return found


def append_links(tables: ClusterTables, states: Iterable[LinkState]) -> None:
    """Record states in one commit. Each must have a sequence above its link's last."""
    now = datetime.now(timezone.utc)
    rows = [{**asdict(state), "state": state.state.value, "updated_at": now} for state in states]
    if rows:
        tables.journal(LINKS).append(rows)
