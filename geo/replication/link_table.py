"""`system/links`: state and progress of each inbound link and topic of a cluster, read and written."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from datetime import datetime, timezone

from geo.log.frames import rows_frame
from geo.log.tables import ClusterTables
from geo.replication.state import LinkState, State
from schemas import LINKS


def read_links(tables: ClusterTables) -> dict[tuple[str, str], LinkState]:
    """The newest state of every inbound link, by (source, topic)."""
    table = tables.system(LINKS)
    if not table.exists():
        return {}
    table.check(LINKS)
    newest: dict[tuple[str, str], LinkState] = {}
    for row in table.read().drop("updated_at").collect():
        fields = row.asDict()
        state = LinkState(**{**fields, "state": State(fields["state"])})
        known = newest.get((state.source, state.topic))
        if known is None or state.sequence > known.sequence:
            newest[state.source, state.topic] = state
    return newest


def append_links(tables: ClusterTables, states: Iterable[LinkState]) -> None:
    """Record states in one commit. Each must have a sequence above its link's last."""
    now = datetime.now(timezone.utc)
    rows = [{**asdict(state), "state": state.state.value, "updated_at": now} for state in states]
    if rows:
        tables.opened_system(LINKS).append(rows_frame(tables.spark, LINKS.types, rows).coalesce(1))
