"""`geo topics delete`: a topic goes from one cluster, with what hangs on it there.

What other clusters hold of it stays, and so does what subscriptions acknowledged, by which other clusters go.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from geo.config.model import Config
from geo.coordination.claiming import claim
from geo.coordination.owners import named_owners, refuse_living
from geo.coordination.ownership import Ownership, giving_back
from geo.coordination.runners import filling_runners, origin_runners
from geo.crash import CrashPoint, reach
from geo.delta.ddl import remove_table
from geo.delta.predicate import Among
from geo.disk import local_path
from geo.errors import AlreadyOwnedError, RetryableError, UnknownAnswerError, UnsafeError, UsageError
from geo.journal import upkeep
from geo.journal.cluster import ClusterTables, connect
from geo.log.housekeeping import open_for_writing
from geo.log.ledger_table import close_ledgers
from geo.log.topic_log import count_messages
from geo.log.topics import Unended, known_topics, set_deleted
from geo.names import Topic, check_topic_glob, is_glob, topic_glob_matches
from geo.ops.holdings import Holdings
from geo.ops.removal import TopicFacts, refusal_of_topic
from geo.replication.link_table import read_links
from geo.schemas import LEDGERS, LINKS, REQUESTS, VERSION_STARTS
from geo.session import require_delta
from geo.subscription.acks.acks_topic import read_known
from geo.subscription.acks.record import parse_key
from geo.subscription.pip33.marker_journal import markers_producer
from geo.subscription.versions.version_subscriptions import delete, drop_view, version_subscriptions

_NOT_DONE = "Nothing was deleted."


@dataclass(frozen=True, slots=True)
class Deleted:
    """A topic that was deleted with what hangs on it, or would be. `refused`: why it would not. `stays`: folders that cannot be
    removed from here: until they are, the topic is not made again.
    """

    facts: TopicFacts
    refused: str | None = None
    stays: tuple[str, ...] = ()


def delete_topics(
    spark: SparkSession, config: Config, cluster: str, topics: str, *, lose: bool = False, dry_run: bool = False
) -> list[Deleted]:
    """Delete the topics that a name or a glob stands for in one cluster; a partitioned topic's name stands for its partitions.

    `lose`: also what no other cluster holds. `dry_run` looks and writes nothing. A kill at any point leaves it to be called again. Of several
    topics none is deleted if one is refused. If that is so of one only when its turn comes, those before it are gone, and the error names them.
    Raises UsageError if there is no such topic, UnsafeError, with the reasons, if somebody who lives owns something of one, or messages would be
    lost.
    """
    require_delta(spark)
    tables = open_for_writing(connect(spark, config.cluster(cluster)), config, rehearsal=dry_run)
    holdings = Holdings({name: connect(spark, other) for name, other in config.clusters.items() if name != cluster})
    facts = [_facts(tables, holdings, config, topic) for topic in chosen_topics(tables, topics)]
    refused = [refusal_of_topic(one, lose=lose) for one in facts]
    if dry_run:
        return [Deleted(one, why) for one, why in zip(facts, refused, strict=True)]
    for one, why in zip(facts, refused, strict=True):
        if why is not None and one.lives is None and one.unended:
            _take_back(tables, config, Topic.parse(one.topic))
    _refuse([why for why in refused if why is not None])
    done: list[Deleted] = []
    for one in facts:
        try:
            done.append(_delete(tables, holdings, config, one, lose=lose))
        except (UnsafeError, RetryableError) as error:
            if done:  # what was seen before has changed meanwhile
                so_far = ", ".join(f.facts.topic for f in done)
                error.args = (f"{str(error).replace(_NOT_DONE, 'It was not deleted.')} Before it were deleted: {so_far}.",)
            raise
    return done


def _refuse(reasons: list[str]) -> None:
    if reasons:
        raise UnsafeError("\n".join([*reasons, _NOT_DONE]))


def chosen_topics(tables: ClusterTables, text: str) -> list[Topic]:
    """The topics that are meant, also those of which an earlier delete has not ended. Raises UsageError if there are none."""
    check_topic_glob(text)
    name = None if is_glob(text) else Topic.parse(text)
    if name is not None and name.is_system:
        raise UsageError(f"{name} is a system topic: what subscriptions acknowledged stays, since other clusters go by it.")
    found = []
    for one in known_topics(tables):
        named = topic_glob_matches(text, one.topic) if name is None else name in (one.topic, one.topic.partitioned)
        has_something = not one.is_deleted or one.unended is not None or _has_remains(tables, one.topic)
        if named and not one.topic.is_system and has_something:
            found.append(one.topic)
    if not found:
        raise UsageError(f"{tables.cluster.name} has no topic {'that matches ' if name is None else ''}{text}.")
    return found


def _has_remains(tables: ClusterTables, topic: Topic) -> bool:
    log = tables.log(topic)
    return log.exists() or (log.by_path and tables.files.is_partly_removed(log.name))


def _facts(tables: ClusterTables, holdings: Holdings, config: Config, topic: Topic) -> TopicFacts:
    cluster, log = tables.cluster.name, tables.log(topic)
    lives, replaced = None, markers_producer(tables, topic)
    try:
        refuse_living(
            tables, [one for name, one in named_owners(tables) if name.topic == topic and name.runner != replaced], else_=""
        )
    except AlreadyOwnedError as error:
        lives = str(error).strip()
    known = read_known(tables, topic).states
    return TopicFacts(
        str(topic),
        cluster,
        0 if (seen := log.snapshot()) is None else count_messages(log, seen.version),
        holdings.only_in(tables, config, topic),
        lives,
        tuple(sorted(f"{source}->{cluster}" for source, of in read_links(tables) if of == str(topic))),
        len(tables.journal(REQUESTS).newest(topics=str(topic))),
        tuple(sorted({row["producer"] for row in tables.journal(LEDGERS).newest(topic=str(topic))})),
        tuple(sorted(name for of, name in map(parse_key, [k for k, s in known.items() if not s.deleted]) if of == topic)),
        tuple(one.name for one in config.published_in(cluster) if one.topic == topic),
        (unended := _unended(tables, topic)) is not None,
        unended is Unended.REMOVES,
    )


def _unended(tables: ClusterTables, topic: Topic) -> Unended | None:
    """Finds how far an earlier delete of the topic is."""
    one = next(one for one in known_topics(tables) if one.topic == topic)
    return one.unended or (Unended.REMOVES if one.is_deleted else None)


def _delete(tables: ClusterTables, holdings: Holdings, config: Config, facts: TopicFacts, *, lose: bool) -> Deleted:
    """Delete one topic, in this order, with a named crash point after each arrow:

    1. own every way into it, every producer and consumer of it → 2. see again what would be lost; say in the registry that it
    is deleted → 3. whoever began meanwhile, under a name that nobody owned yet, is seen now, or sees the registry
    (`Publisher._read_routes`). So does who deletes it in another cluster at the same time, who therefore counts no more as
    holding it. If there is one, the registry says the opposite again, else that it removes → 4. close its ledgers, let the rows
    of its links and requests go → 5. remove checkpoints and held rows, → 6. the log, at once for whoever looks → 7. say that it
    has ended, own nothing.

    From 2 on links leave the topic alone, and nobody publishes to it or makes it again before 7. So a half-deleted topic is never taken for an
    empty one; a call after a death goes through all of it again.
    """
    topic, log = Topic.parse(facts.topic), tables.log(Topic.parse(facts.topic))
    ownership = _own(tables, config, topic)
    with giving_back([ownership], _is_refused):
        unended = _unended(tables, topic)
        facts = replace(facts, lives=None, unended=unended is not None, removes=unended is Unended.REMOVES)
        try:
            if seen := log.exists():
                ownership.fence(log)
            version = log.latest_version() if seen else None
            facts = _refuse_loss(tables, holdings, config, facts, lose=lose)
            if unended is None:
                set_deleted(tables, topic, deleted=True, unended=Unended.BEGUN)
            reach(CrashPoint.DELETE_REGISTERED)
            _refuse_others(tables, topic, ownership, version)
            facts = _refuse_loss(tables, holdings, config, facts, lose=lose)
        except (UnsafeError, RetryableError):
            _say_it_is_there(tables, topic)
            raise
        set_deleted(tables, topic, deleted=True, unended=Unended.REMOVES)
        reach(CrashPoint.DELETE_REMOVES)
        done = Deleted(facts, stays=_remove(tables, config.clusters, topic, ownership))
        if not done.stays:
            set_deleted(tables, topic, deleted=True)
    return done


def _is_refused(error: Exception) -> bool:
    """Tells whether nothing is in flight after the error."""
    return isinstance(error, (UnsafeError, RetryableError)) and not isinstance(error, UnknownAnswerError)


def _own(tables: ClusterTables, config: Config, topic: Topic) -> Ownership:
    """Step 1 of `_delete`: own every way into the topic, every producer and consumer of it. Who writes markers is replaced though it lives:
    nobody needs them without the topic, and it writes no more."""
    runners = [name.runner for name, _ in named_owners(tables) if name.topic == topic]
    for ways in (origin_runners, filling_runners):
        runners += ways(config.clusters.keys(), topic, tables.cluster.name)
    wanted, replaced = list({one.name: one for one in runners}.values()), [markers_producer(tables, topic)]
    (ownership,) = claim(tables, [wanted], take_over=replaced, point=CrashPoint.DELETE_CLAIMED)
    return ownership


def _take_back(tables: ClusterTables, config: Config, topic: Topic) -> None:
    """An earlier delete, which is refused now and had only begun, is as if it had never been."""
    with giving_back([_own(tables, config, topic)]):
        _say_it_is_there(tables, topic)


def _say_it_is_there(tables: ClusterTables, topic: Topic) -> None:
    """Let links carry it again, if a delete has only begun: all of it is there."""
    if _unended(tables, topic) is Unended.BEGUN:
        set_deleted(tables, topic, deleted=False)


def _refuse_loss(tables: ClusterTables, holdings: Holdings, config: Config, facts: TopicFacts, *, lose: bool) -> TopicFacts:
    """The facts as they are now. Raises UnsafeError for what would be lost."""
    topic = Topic.parse(facts.topic)
    log = tables.log(topic)
    only, seen = holdings.only_in(tables, config, topic), log.snapshot()
    now = replace(facts, only=only, messages=0 if seen is None else count_messages(log, seen.version))
    _refuse([why for why in [refusal_of_topic(now, lose=lose)] if why is not None])
    return now


def _refuse_others(tables: ClusterTables, topic: Topic, ownership: Ownership, version: int | None) -> None:
    """Raises AlreadyOwnedError, RetryableError if somebody began, or wrote the log, since it was seen at `version` (None: it was
    not there)."""
    others = [one for name, one in named_owners(tables) if name.topic == topic and one.token != ownership.token]
    refuse_living(tables, others, else_=_NOT_DONE)
    log = tables.log(topic)
    if (log.latest_version() if log.exists() else None) != version:
        raise RetryableError(f"{topic}: somebody committed to {log} meanwhile. {_NOT_DONE} Run it again.")


def _remove(tables: ClusterTables, clusters: Iterable[str], topic: Topic, ownership: Ownership) -> tuple[str, ...]:
    """Steps 4 to 6. Returns the folders that cannot be removed from here; with one of them the log stays too."""
    close_ledgers(tables, topic, "the topic was deleted", ownership.generation)
    for one in version_subscriptions(tables, str(topic)):
        delete(tables, topic, one.subscription)
    for schema, column in ((LINKS, "topic"), (REQUESTS, "topics"), (VERSION_STARTS, "topic")):
        if tables.journal(schema).newest(None, **{column: str(topic)}):
            upkeep.clean(tables.journal(schema), ~Among(column, frozenset({str(topic)})))
    reach(CrashPoint.DELETE_ROWS_GONE)
    ownership.refuse_if_lost()
    places = [tables.checkpoint(kind, topic.path) for kind in ("publish", "held")]
    places += [tables.checkpoint("replicate", source, topic.path) for source in clusters]
    stays = tuple(place for place in places if not tables.files.remove_folder(place) and _is_there(tables, place))
    reach(CrashPoint.DELETE_FOLDERS_GONE)
    log = tables.log(topic)
    drop_view(tables, topic)
    if stays or not (remove_table(log) or not log.exists()):
        return (*stays, str(log))
    reach(CrashPoint.DELETE_LOG_GONE)
    return ()


def _is_there(tables: ClusterTables, folder: str) -> bool:
    """Tells whether there is a folder, on a storage that Spark reaches."""
    assert local_path(folder) is None, "this process removes it"
    try:
        tables.spark.read.option("recursiveFileLookup", "true").text(folder)
    except AnalysisException:
        return False
    return True
