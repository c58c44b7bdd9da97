"""Knowledge of the peers of a cluster about subscriptions, before their links have replicated it (design section 6).

A peer's `__acks` log is read through the inbound link's own rule, above its cursor. That is done only while the link carries acknowledgements and is
neither PAUSED nor FAILED. The link copies the records for keeps; a look here folds nothing.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property, partial

import pyarrow as pa

from geo.asking import ask_all
from geo.config.model import Config, Link
from geo.coordination.storage_clock import storage_now_us
from geo.delta.ddl import find_checked
from geo.delta.history import parted
from geo.delta.tail import Tail, least_look_s
from geo.journal.cluster import ClusterTables
from geo.log.topic_policies import replication_clusters
from geo.names import Topic
from geo.replication.link_state import LinkState
from geo.replication.link_table import read_links
from geo.replication.routing import crossing
from geo.replication.rule import Rule
from geo.schemas import TOPIC_LOG
from geo.streams.life import State
from geo.subscription.acks.ack_tail import AckTail, read_records
from geo.subscription.acks.fold import Fold, Received
from geo.text import first_line

log = logging.getLogger(__name__)

AWAY_S = 60.0
"""Seconds that a peer that did not answer is left out at further starts."""

PEERS_S = 10.0
"""Seconds that a start waits for its peers, all at once. What one of them knows that is away comes with its link."""


class PeerAcks:
    """The `__acks` log of a namespace in the source of one inbound link."""

    def __init__(self, tables: ClusterTables, config: Config, link: Link, acks: Topic) -> None:
        self._tables, self._config, self.link, self._acks = tables, config, link, acks
        self._away_until = -math.inf
        self.missed = False
        """A start could not read it: what it was to know then is heard when it can be read again."""
        self._rule = Rule(link.source, link.target, frozenset(link.origins), config.policy(acks).message_ttl_s)

    @cached_property
    def _there(self) -> ClusterTables:
        """Connected when it is first read: whatever that takes, as a secret that is not there, is this peer's matter."""
        return self._tables.beside(self._config.cluster(self.link.source))

    def __str__(self) -> str:
        return f"{self._acks} in {self.link.source}"

    def known(self, keys: Collection[str]) -> list[Received]:
        """Its records of subscriptions with these keys that the link may not have replicated yet. None if it may not be read now, or has no such
        log. Raises RetryableError where the log is not what the link has read.
        """
        tail, found = self.begin(keys)
        while tail is not None and (more := tail.next(lambda: keys)) is not None:
            found += more
        return found

    @property
    def is_away(self) -> bool:
        """It did not answer lately."""
        return time.monotonic() < self._away_until

    def note_away(self) -> None:
        self._away_until, self.missed = time.monotonic() + AWAY_S, True

    def begin(self, keys: Collection[str]) -> tuple[AckTail | None, list[Received]]:
        """Follows the peer's log above the link's cursor; then there are no records to return, since the link has replicated those
        up to it. Where the link does not say where that is, follows it from the newest commit on, and returns the records up to
        there. None: it may not be read now, or there is no such log.
        """
        state = self._state()
        if _is_held_up(state):
            return None, []
        log_table = self._there.log(self._acks)
        seen = log_table.snapshot()
        if seen is None or find_checked(log_table, TOPIC_LOG) is None:
            return None, []
        crosses = partial(self._crossing, None if state is None else state.floors)
        cursor = None if state is None else state.cursor
        there = None if cursor is None else log_table.commit_at(cursor.version)
        if cursor is not None and there is not None and parted(cursor, seen.table_id, seen.version, there) is None:
            return AckTail(Tail(log_table, cursor), crosses), []
        tail = Tail.at_newest(log_table)
        return AckTail(tail, crosses), read_records(log_table, tail.at.version, keys, crosses)

    def may_be_read(self) -> bool:
        return not _is_held_up(self._state())

    @property
    def least_look_s(self) -> float:
        return least_look_s(self._there.log(self._acks))

    def _state(self) -> LinkState | None:
        return read_links(self._tables).get((self.link.source, str(self._acks)))

    def _crossing(self, floors: Mapping[str, int] | None, rows: pa.Table) -> pa.Table:
        return crossing(self._rule, floors, rows, storage_now_us(self._tables))[0]


def _is_held_up(state: LinkState | None) -> bool:
    return state is not None and state.state in (State.PAUSED, State.FAILED)


def peers_of(tables: ClusterTables, config: Config, acks: Topic) -> list[PeerAcks]:
    """The sources of the links that replicate acknowledgements of a namespace into a cluster."""
    local = {tables.cluster.name: replication_clusters(tables, acks)}
    links = config.links_of(acks, local)
    return [PeerAcks(tables, config, link, acks) for link in links if link.target == tables.cluster.name]


def fold_peers(peers: Sequence[PeerAcks], key: str, fold: Fold) -> Fold:
    """Fold what those of them tell of a subscription that answer in time. Of the others it is logged, and they are not waited for again for a
    while."""
    asked = {peer.link.source: peer for peer in peers if not peer.is_away}
    for peer in peers:
        peer.missed |= peer.is_away
    for name, answer in ask_all({name: partial(peer.known, [key]) for name, peer in asked.items()}, PEERS_S).items():
        try:
            fold.add(answer.result())
        except Exception as error:  # whatever it is: nothing that a peer has holds up a start here
            asked[name].note_away()
            log.warning("%s: what %s knows of it comes later: %s", key, name, first_line(error))
    return fold
