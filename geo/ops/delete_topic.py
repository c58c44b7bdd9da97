"""`geo topics delete`: a topic goes from one cluster, with what hangs on it there.

What other clusters hold of it stays, and so does what subscriptions acknowledged, by which other clusters go.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from geo.config.model import Config
from geo.crash import CrashPoint, reach
from geo.errors import AlreadyOwnedError, RetryableError, UnsafeError, UsageError
from geo.log.housekeeping import open_for_writing
from geo.log.ledger_table import close_ledgers
from geo.log.topic_log import count_messages
from geo.log.topics import known_topics, set_deleted
from geo.names import Topic, check_topic_glob, is_glob, topic_glob_matches
from geo.ops.holdings import only_in
from geo.ops.removal import TopicFacts, refusal_of_topic
from geo.replication.link_table import read_links
from geo.session import require_delta
from geo.sql_text import literal
from geo.subscription.acks.acks_topic import read_known
from geo.subscription.acks.record import parse_key
from geo.tables.cluster import ClusterTables, connect
from geo.tables.files import is_partly_removed, local_path, remove_folder
from geo.tables.ownership import Ownership, claim, filling_runner, origin_runner, refuse_living, release, ways_of
from schemas import LEDGERS, LINKS, REQUESTS

_NOT_DONE = "Nothing was deleted."


@dataclass(frozen=True, slots=True)
class Deleted:
    """What went with a topic, or would go. `refused`: why it would not. `stays`: folders that cannot be removed from here: until
    they are, the topic is not made again."""

    facts: TopicFacts
    refused: str | None = None
    stays: tuple[str, ...] = ()


def delete_topics(
    spark: SparkSession, config: Config, cluster: str, topics: str, *, lose: bool = False, dry_run: bool = False
) -> list[Deleted]:
    """Delete the topics that a name or a glob stands for in one cluster; a partitioned topic's name stands for its partitions.

    `lose`: also what no other cluster holds. `dry_run` looks and writes nothing. A kill at any point leaves it to be called again.
    Of several topics none is deleted if one is refused. Raises UsageError if there is no such topic, UnsafeError, with the reasons,
    if somebody who lives owns something of one, or messages would be lost.
    """
    require_delta(spark)
    tables = open_for_writing(connect(spark, config.cluster(cluster)), config)
    others = {name: connect(spark, other) for name, other in config.clusters.items() if name != cluster}
    facts = [_facts(tables, others, config, topic) for topic in _chosen(tables, topics)]
    refused = [refusal_of_topic(one, lose=lose) for one in facts]
    if dry_run:
        return [Deleted(one, why) for one, why in zip(facts, refused, strict=True)]
    _refuse([why for why in refused if why is not None])
    return [_delete(tables, others, config, one, lose=lose) for one in facts]


def _refuse(reasons: list[str]) -> None:
    if reasons:
        raise UnsafeError("\n".join([*reasons, _NOT_DONE]))


def _chosen(tables: ClusterTables, text: str) -> list[Topic]:
    """The topics that are meant, also those of which an earlier delete has not ended."""
    check_topic_glob(text)
    name = None if is_glob(text) else Topic.parse(text)
    if name is not None and name.is_system:
        raise UsageError(f"{name} is a system topic: what subscriptions acknowledged stays, since other clusters go by it.")
    found = []
    for one in known_topics(tables):
        named = topic_glob_matches(text, one.topic) if name is None else name in (one.topic, one.topic.partitioned)
        if named and not one.topic.is_system and (not one.is_deleted or _has_remains(tables, one.topic)):
            found.append(one.topic)
    if not found:
        raise UsageError(f"{tables.cluster.name} has no topic {'that matches ' if name is None else ''}{text}.")
    return found


def _has_remains(tables: ClusterTables, topic: Topic) -> bool:
    log = tables.log(topic)
    return log.exists() or (log.by_path and is_partly_removed(log.name))


def _facts(tables: ClusterTables, others: Mapping[str, ClusterTables], config: Config, topic: Topic) -> TopicFacts:
    cluster, log = tables.cluster.name, tables.log(topic)
    lives = None
    try:
        refuse_living(tables, [row for _, row in ways_of(tables, topic)], else_="")
    except AlreadyOwnedError as error:
        lives = str(error).strip()
    known = read_known(tables, topic).states
    return TopicFacts(
        str(topic),
        cluster,
        count_messages(log) if log.exists() else 0,
        only_in(tables, others, config, topic),
        lives,
        tuple(sorted(f"{source}->{cluster}" for source, of in read_links(tables) if of == str(topic))),
        len(tables.journal(REQUESTS).newest(topics=str(topic))),
        tuple(sorted({row["producer"] for row in tables.journal(LEDGERS).newest(topic=str(topic))})),
        tuple(sorted(name for of, name in map(parse_key, [k for k, s in known.items() if not s.deleted]) if of == topic)),
        topic in {one.topic for one in known_topics(tables) if one.is_deleted},
    )


def _delete(
    tables: ClusterTables, others: Mapping[str, ClusterTables], config: Config, facts: TopicFacts, *, lose: bool
) -> Deleted:
    """One topic, in this order, with a named crash point after each arrow:

    1. own every way into it, every producer and consumer of it → 2. see again what would be lost; say in the registry that it is
    deleted → 3. whoever began meanwhile, under a name that nobody owned yet, is seen now, or sees the registry
    (`Publisher._read_routes`): if there is one, the registry says the opposite again 4. close its ledgers, let the rows of its
    links and requests go → 5. remove checkpoints and held rows, → 6. the log, at once for whoever looks → 7. own nothing.

    From 2 on links leave the topic alone, and nobody publishes to it or makes it anew before 6. So a half-deleted topic is never
    taken for an empty one; a call after a death goes through all of it again.
    """
    topic, log = Topic.parse(facts.topic), tables.log(Topic.parse(facts.topic))
    runners = {one.name: one for one, _ in ways_of(tables, topic)}
    for way in (origin_runner, filling_runner):
        runners |= {one.name: one for one in (way(origin, topic, tables.cluster.name) for origin in config.clusters)}
    (ownership,) = claim(tables, [list(runners.values())], point=CrashPoint.DELETE_CLAIMED)
    try:
        version = None
        if log.exists():
            ownership.fence(log)
            version = log.latest_version()
            now = replace(facts, only=only_in(tables, others, config, topic), lives=None)
            _refuse([why for why in [refusal_of_topic(now, lose=lose)] if why is not None])
            facts = replace(now, messages=count_messages(log))
        if not facts.unended:
            set_deleted(tables, topic, deleted=True)
        reach(CrashPoint.DELETE_REGISTERED)
        _refuse_others(tables, topic, ownership, version, facts)
        done = Deleted(facts, stays=_remove(tables, config.clusters, topic, ownership))
        release([ownership])
    except (UnsafeError, RetryableError):
        release([ownership])  # nothing is in flight
        raise
    finally:
        ownership.abandon()
    return done


def _refuse_others(tables: ClusterTables, topic: Topic, ownership: Ownership, version: int | None, facts: TopicFacts) -> None:
    """Step 3."""
    try:
        others = [row for _, row in ways_of(tables, topic) if row["token"] != ownership.token]
        refuse_living(tables, others, else_=_NOT_DONE)
        log = tables.log(topic)
        if version is not None and log.latest_version() != version:
            raise RetryableError(f"{topic}: somebody committed to {log} meanwhile. {_NOT_DONE} Run it again.")
    except (AlreadyOwnedError, RetryableError):
        if not facts.unended:
            set_deleted(tables, topic, deleted=False)
        raise


def _remove(tables: ClusterTables, clusters: Iterable[str], topic: Topic, ownership: Ownership) -> tuple[str, ...]:
    """Steps 4 to 6. Returns the folders that cannot be removed from here; with one of them the log stays too."""
    close_ledgers(tables, topic, "the topic was deleted")
    if tables.journal(LINKS).newest(topic=str(topic)):
        tables.journal(LINKS).clean(f"topic <> {literal(str(topic))}")
    if tables.journal(REQUESTS).newest(topics=str(topic)):
        tables.journal(REQUESTS).clean(f"topics <> {literal(str(topic))}")
    reach(CrashPoint.DELETE_ROWS_GONE)
    ownership.refuse_if_lost()
    places = [tables.checkpoint(kind, topic.path) for kind in ("publish", "held")]
    places += [tables.checkpoint("replicate", source, topic.path) for source in clusters]
    stays = tuple(place for place in places if not remove_folder(place) and _is_there(tables, place))
    reach(CrashPoint.DELETE_FOLDERS_GONE)
    log = tables.log(topic)
    if stays or not (log.remove() or not log.exists()):
        return (*stays, str(log))
    reach(CrashPoint.DELETE_LOG_GONE)
    return ()


def _is_there(tables: ClusterTables, folder: str) -> bool:
    """Whether there is a folder, on a storage that Spark reaches."""
    assert local_path(folder) is None, "this process removes it"
    try:
        tables.spark.read.option("recursiveFileLookup", "true").text(folder)
    except AnalysisException:
        return False
    return True
