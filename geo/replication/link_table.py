"""`system/links`: state and cursor of each inbound link and topic of a cluster, read and written."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import Row

from geo.delta.history import CommitName
from geo.journal.cluster import ClusterTables
from geo.now import utc_now
from geo.replication.link_state import LinkState
from geo.streams.life import State
from schemas import LINKS


def read_links(tables: ClusterTables) -> dict[tuple[str, str], LinkState]:
    """The newest state of every inbound link, by (source, topic)."""
    return {(row["source"], row["topic"]): _state(row) for row in tables.journal(LINKS).newest()}


def append_links(tables: ClusterTables, states: Iterable[LinkState]) -> None:
    """Record states in one commit. Each must have a sequence above its link's last."""
    now = utc_now()
    rows = [
        {
            "source": state.source,
            "topic": state.topic,
            "state": state.state.value,
            "reason": state.reason,
            "generation": state.generation,
            "origins": list(state.origins),
            **_columns("source", state.cursor),
            **_columns("target", state.target),
            "floors": state.floors,
            "expired": state.expired,
            "sequence": state.sequence,
            "updated_at": now,
            "impossible": state.impossible,
        }
        for state in states
    ]
    if rows:
        tables.journal(LINKS).append(rows)


def _state(row: Row) -> LinkState:
    return LinkState(
        source=row["source"],
        topic=row["topic"],
        state=State(row["state"]),
        reason=row["reason"],
        generation=row["generation"],
        origins=tuple(row["origins"]),
        cursor=_cursor(row, "source"),
        target=_cursor(row, "target"),
        floors=row["floors"],
        expired=row["expired"],
        sequence=row["sequence"],
        impossible=row["impossible"],
    )


def _columns(prefix: str, cursor: CommitName | None) -> dict[str, object]:
    return {
        f"{prefix}_table_id": cursor.table_id if cursor else None,
        f"{prefix}_version": cursor.version if cursor else None,
        f"{prefix}_commit": cursor.commit_id if cursor else None,
    }


def _cursor(row: Row, prefix: str) -> CommitName | None:
    if row[f"{prefix}_version"] is None:
        return None
    return CommitName(row[f"{prefix}_table_id"], row[f"{prefix}_version"], row[f"{prefix}_commit"])
