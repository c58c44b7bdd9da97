"""What operators change of subscriptions: create, reset, delete. Each change is one record, which links bring to the other
clusters and which wins over what was acknowledged before it, wherever and whenever it arrives.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import SparkSession

from geo.config.model import Config
from geo.errors import UsageError
from geo.log.housekeeping import open_for_writing
from geo.log.topic_log import open_log
from geo.names import Topic, check_subscription
from geo.subscription.acks.ack_publisher import publish_once
from geo.subscription.acks.ack_state import AckState
from geo.subscription.acks.acks_topic import read_known
from geo.subscription.acks.record import key_of
from geo.subscription.acks.start_position import StartPosition, base_at, split_at
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
    """Create a subscription that begins at `start`, as `cluster` holds the topic. Raises UsageError if it is there."""
    tables, state = _read_state(spark, config, cluster, topic, subscription)
    if state is not None and not state.deleted:
        raise UsageError(f"subscription {subscription} of {topic} is there already. `geo subscriptions reset` moves it.")
    log, _ = open_log(tables, topic)
    base = base_at(start, log)
    begun = AckState(base=base) if state is None else state.reset(cluster, base)
    publish_once(tables, config, topic, subscription, begun)
    return begun


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

    Raises UsageError if there is no such subscription here.
    """
    tables, state = _read_state(spark, config, cluster, topic, subscription)
    if state is None or state.deleted:
        raise UsageError(f"{cluster} knows no subscription {subscription} of {topic}. `geo subscriptions create` makes one.")
    log, _ = open_log(tables, topic)
    base = base_at(to, log)
    begun = state.reset(cluster, base)
    (present, before), (_, after) = split_at(state.base, log), split_at(base, log)
    done = state.acked | before
    changed = Changed(
        str(topic), subscription, cluster, begun.epoch.counter,
        ((present & done) - after).size, ((present - done) & after).size,
    )  # fmt: skip
    if not dry_run:
        publish_once(tables, config, topic, subscription, begun)
    return changed


def delete(spark: SparkSession, config: Config, cluster: str, topic: Topic, subscription: str) -> AckState:
    """Delete a subscription in every cluster, for good: acknowledgements still on their way do not bring it back."""
    tables, state = _read_state(spark, config, cluster, topic, subscription)
    if state is None or state.deleted:
        raise UsageError(f"{cluster} knows no subscription {subscription} of {topic}.")
    gone = state.delete(cluster)
    publish_once(tables, config, topic, subscription, gone)
    return gone


def _read_state(
    spark: SparkSession, config: Config, cluster: str, topic: Topic, subscription: str
) -> tuple[ClusterTables, AckState | None]:
    check_subscription(subscription)
    tables = open_for_writing(connect(spark, config.cluster(cluster)), config)
    known = read_known(tables, config, topic, subscription)
    return tables, known.states.get(key_of(topic, subscription))
