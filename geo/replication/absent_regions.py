"""Regions that are gone: nothing is registered at their place, though others have replicated from them. Reads only."""

from __future__ import annotations

from collections.abc import Iterable

from geo.errors import RetryableError
from geo.faults import FAULTS, session_is_gone
from geo.journal.cluster import ClusterTables
from geo.log.absence import gone_region
from geo.log.topics import known_topics
from geo.replication.link_table import read_links


def refuse_gone(tables: ClusterTables, others: Iterable[ClusterTables]) -> None:
    """Raises RetryableError if a cluster has no topic registered and the links of another one have read it; OSError if its place is
    no folder. A cluster that nobody mentions is taken for a new one."""
    tables.refuse_no_folder()
    if known_topics(tables):
        return
    name = tables.cluster.name
    if mentioned := [other.cluster.name for other in others if other.cluster.name != name and _has_read(other, name)]:
        raise RetryableError(gone_region(name, tables.place, mentioned))


def _has_read(other: ClusterTables, name: str) -> bool:
    try:
        return any(source == name and state.cursor is not None for (source, _), state in read_links(other).items())
    except FAULTS as error:  # whoever looks at that one says so
        if session_is_gone(error):
            raise
        return False
