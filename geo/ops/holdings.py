"""Messages of a topic that the clusters hold, as facts for a removal. Reads only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial

from geo.asking import ask_all
from geo.config.model import Config
from geo.coordination.storage_clock import checked_now_us
from geo.delta.engine import TableSnapshot
from geo.delta.predicate import All, IsNull
from geo.delta.scan import summarise
from geo.delta.table import Table
from geo.journal.cluster import ClusterTables
from geo.log.conditions import IS_MESSAGE, published_since
from geo.log.peers import WAIT_S
from geo.log.topic_log import ID
from geo.log.topics import deleted_topics
from geo.names import Topic
from geo.ops.removal import Extents, OnlyThere, only_there
from geo.replication.missing import ENTRIES, extents_of
from geo.text import first_line
from geo.times import from_us, in_us


class Holdings:
    """Holdings of clusters, asked during one removal, each time as they are now.

    The time in which a cluster lists its topics is limited. One that could not be asked once counts as away from then on. The
    time for its log is not limited: a large log is no reason to be away. A log is read once a version.
    """

    def __init__(self, others: Mapping[str, ClusterTables]) -> None:
        """`others`: every cluster of the configuration that may hold what the one has that is asked for."""
        self._others = others
        self._away: dict[str, str] = {}
        self._read: dict[tuple[str, Topic], tuple[str, int, Extents]] = {}
        """Content of a log when it was read last, with its table and version, by cluster and topic."""

    def only_in(self, tables: ClusterTables, config: Config, topic: Topic) -> OnlyThere:
        """Finds what a cluster has of a topic, not expired, and no other one that can be read. Where a topic is deleted, or
        being deleted, nobody holds it.
        """
        seen = tables.log(topic).snapshot()
        mine = {} if seen is None else self._held(tables, topic, seen, config.policy(topic).message_ttl_s)
        if not mine:
            return OnlyThere()
        found: list[Extents] = []
        away = dict(self._away)
        asked = {name: partial(_there, other, topic) for name, other in self._others.items() if name not in away}
        for name, answer in ask_all(asked, WAIT_S).items():
            try:
                there = answer.result()
            except Exception as error:  # whatever it has: it is as good as away
                self._away[name] = away[name] = first_line(error)
                continue
            try:
                found.append({} if there is None else self._held(self._others[name], topic, there))
            except Exception as error:
                away[name] = first_line(error)
        return only_there(mine, found, away)

    def _held(self, tables: ClusterTables, topic: Topic, seen: TableSnapshot, ttl_s: int | None = None) -> Extents:
        """The messages of a log as it was seen, but for those that are older than `ttl_s`. Raises WrongClockError."""
        key, known = (tables.cluster.name, topic), self._read.get((tables.cluster.name, topic))
        if known is not None and known[:2] == (seen.table_id, seen.version):
            return known[2]
        since = None
        if ttl_s is not None:
            now_us = checked_now_us(tables, f"{topic}: what would be lost in {tables.cluster.name} is not told", writes=False)
            since = from_us(now_us) - timedelta(seconds=ttl_s)
        self._read[key] = (seen.table_id, seen.version, message_extents(tables.log(topic), seen.version, since))
        return self._read[key][2]


def message_extents(log: Table, version: int, since: datetime | None) -> Extents:
    """Ledger → extent of its messages in a log at a version. With `since`, a time with its zone, of those that were published then or later."""
    wanted = IS_MESSAGE & published_since(in_us(since)) & All(tuple(~IsNull(name) for name in ID))
    return extents_of(summarise(log, version, replace(ENTRIES, where=wanted)))


def _there(tables: ClusterTables, topic: Topic) -> TableSnapshot | None:
    """The log of a topic that a cluster has and does not delete."""
    tables.refuse_no_folder()
    return None if topic in deleted_topics(tables) else tables.log(topic).snapshot()
