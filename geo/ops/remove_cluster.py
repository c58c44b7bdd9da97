"""`geo clusters remove`: a cluster goes from the federation: what hangs on it in all other clusters.

Its own storage is left alone, it may be away for good. What others hold of its messages stays, and what was acknowledged there.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from pyspark.sql import SparkSession

from geo.asking import ask_all
from geo.config.model import Config
from geo.coordination.claiming import claim
from geo.coordination.claims import Owner
from geo.coordination.owners import named_owners, refuse_living
from geo.coordination.ownership import giving_back
from geo.coordination.runners import Runner, RunnerKind
from geo.crash import CrashPoint, reach
from geo.delta.predicate import Among
from geo.disk import local_path
from geo.errors import AlreadyOwnedError, RetryableError, UnsafeError
from geo.ids import LedgerId
from geo.journal import upkeep
from geo.journal.cluster import ClusterTables, connect
from geo.log.housekeeping import open_for_writing
from geo.log.ledger_parts import ledger_parts
from geo.log.ledgers import LedgerPart
from geo.log.peers import WAIT_S
from geo.log.topic_policies import set_replication_clusters
from geo.log.topics import known_topics, registered_topics
from geo.names import Topic, check_cluster
from geo.ops.holdings import Holdings
from geo.ops.removal import LeftBehind, OnlyThere, lacking, refusal_of_cluster
from geo.replication.link_requests import Action
from geo.replication.link_state import LinkState
from geo.replication.link_table import read_links
from geo.schemas import LINKS, REQUESTS, VERSION_STARTS
from geo.session import require_delta
from geo.text import first_line


@dataclass(frozen=True, slots=True)
class InCluster:
    """Things in another cluster that hang on the removed one. `away`: why that one cannot be read, or written; nothing was done
    there.
    """

    cluster: str
    links: tuple[str, ...] = ()
    """Topics that its link replicated into this cluster."""
    requests: int = 0
    """Requests to that link that go."""
    pauses: int = 0
    """Requests to pause it that stay as long as the configuration has the cluster. A process that still has the link goes by them, and would begin
    it again.
    """
    policies: tuple[str, ...] = ()
    """Topics whose replication clusters here name it."""
    lives: str | None = None
    away: str | None = None
    stays: str | None = None
    """A folder of streaming checkpoints, of use to nobody, that cannot be removed from here."""


@dataclass(frozen=True, slots=True)
class RemovedCluster:
    """Result of a removal, or of its rehearsal. `unread`: why what only the cluster has is not known; None: it could be read.
    `refused`: why it would not be done now.
    """

    cluster: str
    topics: tuple[LeftBehind, ...]
    unread: str | None
    others: tuple[InCluster, ...]
    refused: tuple[str, ...] = ()


def remove_cluster(
    spark: SparkSession, config: Config, name: str, *, lose: bool = False, dry_run: bool = False
) -> RemovedCluster:
    """Let go, in every other cluster that can be read, of what hangs on the cluster `name`. It need not be readable, nor be in
    the configuration, which is not changed.

    `lose`: also if it alone holds messages, or that is not known. `dry_run` looks and writes nothing. A kill at any point
    leaves it to be called again. Raises UsageError for a cluster that nobody knows. Raises UnsafeError, with the reasons, if
    somebody who lives owns a way from it, or messages would be lost; then nothing was done.
    """
    require_delta(spark)
    others = {other: connect(spark, cluster) for other, cluster in config.clusters.items() if other != check_cluster(name)}
    found = refuse_unknown(others, config, name)
    has_links = any(one.links or one.policies for one in found)
    there = {one.cluster: others[one.cluster] for one in found if one.away is None}
    known = sorted({topic for one in found for topic in one.links})
    topics, unread = _left_behind(spark, config, name, others, there, list(map(Topic.parse, known)))
    lives = {one.cluster: one.lives for one in found if one.lives is not None}
    refused = tuple(refusal_of_cluster(name, topics, unread if has_links else None, lives, lose=lose))
    if dry_run:
        return RemovedCluster(name, topics, unread, found, refused)
    if refused:
        raise UnsafeError("\n".join([*refused, "Nothing was removed."]))
    done = tuple(one if one.away is not None else _remove(there[one.cluster], config, name, one) for one in found)
    return RemovedCluster(name, topics, unread, done)


def refuse_unknown(clusters: Mapping[str, ClusterTables], config: Config, name: str) -> tuple[InCluster, ...]:
    """Finds what hangs on a cluster in each of the others. Raises UsageError for one that nobody knows."""
    others = {other: tables for other, tables in clusters.items() if other != check_cluster(name)}
    found = _look(others, name, is_configured=name in config.clusters)
    if not any(one.links or one.requests or one.policies for one in found):
        config.cluster(name)
    return found


def _look(others: Mapping[str, ClusterTables], name: str, *, is_configured: bool) -> tuple[InCluster, ...]:
    found = []
    asked = {other: partial(_hangs_in, tables, name, is_configured=is_configured) for other, tables in others.items()}
    for other, answer in ask_all(asked, WAIT_S).items():
        try:
            found.append(answer.result())
        except Exception as error:  # whatever it has: it is as good as away
            found.append(InCluster(other, away=first_line(error)))
    return tuple(found)


def _hangs_in(tables: ClusterTables, name: str, *, is_configured: bool) -> InCluster:
    """Finds what hangs on the cluster `name` in another one."""
    tables.refuse_no_folder()
    links = _links(tables, name)
    lives = None
    try:
        refuse_living(tables, [owner for _, owner in _ways(tables, name, links.values())], else_="")
    except AlreadyOwnedError as error:
        lives = str(error).strip()
    asked = tables.journal(REQUESTS).newest(source=name)
    stay = [row for row in asked if is_configured and row["kind"] == Action.PAUSE.kind]
    return InCluster(
        tables.cluster.name,
        tuple(sorted(links)),
        len(asked) - len(stay),
        sum(row["action"] == Action.PAUSE.value for row in stay),
        tuple(str(one.topic) for one in registered_topics(tables) if name in (one.replication_clusters or ())),
        lives,
    )


def _links(tables: ClusterTables, name: str) -> dict[str, LinkState]:
    return {topic: state for (source, topic), state in read_links(tables).items() if source == name}


def _ways(tables: ClusterTables, name: str, links: Collection[LinkState]) -> list[tuple[Runner, Owner]]:
    """The ways into this cluster that hang on the other one. They are those of its origin, whoever goes them, and of all that its link replicates,
    backfills beside it too. With who has, or had, each.
    """
    carried = {(origin, state.topic) for state in links for origin in state.origins}
    return [
        (way.runner, owner)
        for kind in (RunnerKind.ORIGIN, RunnerKind.BACKFILL)
        for way, owner in sorted(named_owners(tables, kind), key=lambda one: str(one[0]))
        if way.who == name or (way.who, str(way.topic)) in carried
    ]


def _left_behind(
    spark: SparkSession,
    config: Config,
    name: str,
    others: Mapping[str, ClusterTables],
    there: Mapping[str, ClusterTables],
    read_before: Sequence[Topic],
) -> tuple[tuple[LeftBehind, ...], str | None]:
    """Finds of each topic of the cluster what only it has, and what others still lack; and why the first is not known. `there`:
    those of the others that can be read, `read_before`: topics that their links have read of it.
    """
    if name not in config.clusters:
        return (), f"{config.path} does not say any more where it is"
    tables, topics, why = connect(spark, config.cluster(name)), list(read_before), None
    only: dict[Topic, OnlyThere] = {}
    try:
        topics = ask_all({name: partial(_topics_of, tables, was_read=bool(read_before))}, WAIT_S)[name].result()
        holdings = Holdings(others)
        only = {topic: holdings.only_in(tables, config, topic) for topic in topics}
    except Exception as error:  # whatever it has: it is as good as away
        why = first_line(error)
    clusters = dict(there) if why is not None else {**there, name: tables}
    found, links = [], {other: _links(of, name) for other, of in there.items()}
    for topic in topics:
        logs = {other: _parts(of, topic) for other, of in clusters.items()}
        due = {other: of[str(topic)].floors or {} for other, of in links.items() if str(topic) in of}
        found.append(LeftBehind(str(topic), only.get(topic), lacking(name, logs, due)))
    return tuple(found), why


def _topics_of(tables: ClusterTables, *, was_read: bool) -> list[Topic]:
    """Topics of the cluster. Raises RetryableError where that is not there, of a cluster that links have read too (`was_read`)
    if it is empty.
    """
    tables.refuse_no_folder()
    place = None if tables.location is None else local_path(tables.location)
    if place is not None and not place.exists():
        raise RetryableError(f"{place} is not there")
    known = known_topics(tables)
    if was_read and not known:
        raise RetryableError("its registry is not there, or empty")
    return [one.topic for one in known if not one.is_deleted]


def _parts(tables: ClusterTables, topic: Topic) -> dict[LedgerId, LedgerPart]:
    log = tables.log(topic)
    return ledger_parts(log, log.latest_version()) if log.exists() else {}


def _remove(tables: ClusterTables, config: Config, name: str, found: InCluster) -> InCluster:
    """In one other cluster, in this order, with a named crash point after each arrow: 1. own the ways from it → 2. let the rows
    of its links go, with cursors and floors → 3. what people asked of them (`InCluster.pauses`) → 4. and its name in policies of
    topics; remove what its streams left 5. own nothing. A call after a death does the rest."""
    open_for_writing(tables, config)
    ways = [runner for runner, _ in _ways(tables, name, _links(tables, name).values())]
    not_of = ~Among("source", frozenset({name}))
    with giving_back(claim(tables, [ways], point=CrashPoint.REMOVE_CLAIMED) if ways else []):
        if tables.journal(VERSION_STARTS).newest(cluster=name):
            upkeep.clean(
                tables.journal(VERSION_STARTS), ~Among("cluster", frozenset({name}))
            )  # what it told of other clusters stays
        if found.links:
            upkeep.clean(tables.journal(LINKS), not_of)
        reach(CrashPoint.REMOVE_LINKS_GONE)
        if found.requests:
            stay = frozenset({Action.PAUSE.kind} if name in config.clusters else ())
            upkeep.clean(tables.journal(REQUESTS), not_of | Among("kind", stay))
        reach(CrashPoint.REMOVE_REQUESTS_GONE)
        for one in registered_topics(tables):
            if name in (named := one.replication_clusters or ()):
                set_replication_clusters(tables, config, one.topic, [other for other in named if other != name])
        if not tables.files.remove_folder(place := tables.checkpoint("replicate", name)):
            found = replace(found, stays=place)
    return found
