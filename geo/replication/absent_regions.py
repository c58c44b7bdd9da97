"""Regions that are gone: nothing is registered at their place, though others have replicated from them. Reads only."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from functools import partial

from geo.asking import ask_all
from geo.config.cluster import Cluster
from geo.config.model import Config
from geo.delta.mirror import LOOKED_S, may_be_old
from geo.faults import Tried
from geo.journal.cluster import ClusterTables
from geo.log.topics import gone_error, known_topics
from geo.replication.link_table import read_links

_WAIT_S = 10.0
"""Seconds that the others may take to tell, all at once. Who looks at one that is away says so."""


def refuse_gone(tables: ClusterTables, others: Iterable[ClusterTables]) -> None:
    """Raises RetryableError if a cluster has no topic registered and the links of another one have read it; OSError if its place is
    no folder. A cluster that nobody mentions is taken for a new one, and so is one of which nobody tells in time."""
    name = tables.cluster.name
    _refuse_gone(tables, {other.cluster.name: partial(_has_read, other, name) for other in others if other.cluster.name != name})


def _refuse_gone(tables: ClusterTables, have_read: Mapping[str, Callable[[], bool]]) -> None:
    """`have_read`: of each other cluster the question whether its links have read this one."""
    tables.refuse_no_folder()
    if known_topics(tables):
        return
    if mentioned := [other for other, answer in ask_all(have_read, _WAIT_S).items() if _is_so(answer)]:
        raise gone_error(tables, mentioned)


def refuse_to_recreate(config: Config, tables: ClusterTables) -> None:
    """Refuses as `refuse_gone`, for who is about to make topics in a cluster. The policies that a person had set are lost with it, so each topic
    made again would go wherever the configuration lets it. `geo rebuild` comes first, and knows where they were.
    """
    name = tables.cluster.name

    def has_read(other: Cluster) -> bool:
        return _has_read(tables.beside(other), name)

    with may_be_old(LOOKED_S):  # who opened it for writing has just looked
        _refuse_gone(tables, {other: partial(has_read, cluster) for other, cluster in config.clusters.items() if other != name})


def _has_read(other: ClusterTables, name: str) -> bool:
    return any(source == name and state.cursor is not None for (source, _), state in read_links(other).items())


def _is_so(answer: Future[bool]) -> bool:
    with Tried():  # whoever looks at that one says so
        return answer.result()
    return False
