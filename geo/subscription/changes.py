"""What operators change of subscriptions: create, reset, delete. Each change is one record, which links bring to the other
clusters and which wins over what was acknowledged before it, wherever and whenever it arrives.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import SparkSession

from geo.config.model import Config
from geo.errors import UsageError
from geo.log.housekeeping import open_for_writing
from geo.log.topic_log import open_log
from geo.names import Topic, check_subscription
from geo.subscription.acks.ack_publisher import Told, publish_once
from geo.subscription.acks.ack_state import AckState, merged
from geo.subscription.acks.acks_topic import read_known
from geo.subscription.acks.fold import Fold
from geo.subscription.acks.peer_acks import known_by_peers, peers_of
from geo.subscription.acks.record import key_of
from geo.subscription.acks.start_position import StartPosition, base_at, split_at
from geo.subscription.version_subscriptions import version_subscription
from geo.tables.cluster import ClusterTables, connect


@dataclass(frozen=True, slots=True)
class Changed:
    """What a reset repeats or skips of the messages in this cluster, or would."""

    topic: str
    subscription: str
    cluster: str
    epoch: int
    repeated: int
    skipped: int


def create(spark: SparkSession, config: Config, cluster: str, topic: Topic, subscription: str, start: StartPosition) -> AckState:
    """Create a subscription that begins at `start`, as `cluster` holds the topic. Raises UsageError if it is there, or at a
    peer whose link will bring it and that answers in time, or if the name is that of a version subscription here."""
    tables = _tables(spark, config, cluster, subscription)
    if (of_versions := version_subscription(tables, topic, subscription)) is not None:
        raise UsageError(f"{of_versions} is there already in {cluster}: its consumer knows versions only. Choose another name.")
    key = key_of(topic, subscription)
    peers = Fold()
    peers.add(known_by_peers(peers_of(tables, config, topic.acks), key))
    base = base_at(start, open_log(tables, topic)[0])

    def begun() -> list[Told]:
        here = read_known(tables, topic, subscription).state_of(topic, subscription, in_spite=True)
        known = [state for state in (here, peers.states.get(key)) if state is not None]
        state = merged(known) if known else None
        if state is not None and not state.deleted:
            way = "`geo subscriptions reset` moves it."
            if here is None or here.deleted:
                way = f"A peer of {cluster} has it, and its link brings it here: consume it, or reset it there."
            raise UsageError(f"subscription {subscription} of {topic} is there already. {way}")
        return [(topic, subscription, AckState(base=base) if state is None else state.create_again(base))]

    return publish_once(tables, config, topic, begun)[0][2]


def reset(
    spark: SparkSession,
    config: Config,
    cluster: str,
    topic: Topic,
    subscription: str,
    to: StartPosition,
    *,
    dry_run: bool = False,
) -> Changed:
    """Let a subscription begin anew at `to`, in every cluster. What is acknowledged so far does not count any more.

    Raises UsageError if there is no such subscription here, UnsafeError if records of it cannot be read.
    """
    tables = _tables(spark, config, cluster, subscription, rehearsal=dry_run)
    state = _present(tables, topic, subscription)
    log, _ = open_log(tables, topic)
    base = base_at(to, log)
    begun = state.reset(cluster, base)
    if not dry_run:
        begun = _publish(tables, config, topic, subscription, lambda state: state.reset(cluster, base))
    version = log.latest_version()
    (present, before), (_, after) = (split_at(one, log, version) for one in (state.base, base))
    done = state.acked | before
    return Changed(
        str(topic), subscription, cluster, begun.epoch.counter,
        ((present & done) - after).size, ((present - done) & after).size,
    )  # fmt: skip


def delete(spark: SparkSession, config: Config, cluster: str, topic: Topic, subscription: str) -> AckState:
    """Delete a subscription in every cluster, for good: neither acknowledgements still on their way nor a reset by somebody who
    did not know of it bring it back."""
    tables = _tables(spark, config, cluster, subscription)
    return _publish(tables, config, topic, subscription, lambda state: state.delete(cluster))


def _publish(
    tables: ClusterTables, config: Config, topic: Topic, subscription: str, change: Callable[[AckState], AckState]
) -> AckState:
    def changed() -> list[Told]:
        return [(topic, subscription, change(_present(tables, topic, subscription)))]

    return publish_once(tables, config, topic, changed)[0][2]


def _tables(spark: SparkSession, config: Config, cluster: str, subscription: str, *, rehearsal: bool = False) -> ClusterTables:
    check_subscription(subscription)
    return open_for_writing(connect(spark, config.cluster(cluster)), config, rehearsal=rehearsal)


def _present(tables: ClusterTables, topic: Topic, subscription: str) -> AckState:
    """What is known of a subscription that is there."""
    state = read_known(tables, topic, subscription).state_of(topic, subscription)
    if state is None or state.deleted:
        raise UsageError(
            f"{tables.cluster.name} knows no subscription {subscription} of {topic}. `geo subscriptions create` makes one."
        )
    return state
