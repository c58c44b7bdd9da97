"""Changes of subscriptions by operators: create, reset, delete, and whether regions share them. Each change is one record, which links replicate to
the other clusters, unless it is of one region only. It wins over what was acknowledged before it, wherever and whenever it arrives.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from geo.config.model import Config
from geo.delta.driver import Reads
from geo.errors import UsageError
from geo.journal.cluster import ClusterTables, StartSpark, connect
from geo.log.housekeeping import open_for_writing
from geo.log.topic_log import open_log
from geo.names import Topic, check_subscription
from geo.remedies import how_to_share
from geo.subscription.acks.ack_publisher import Told, publish_once
from geo.subscription.acks.ack_state import AckState
from geo.subscription.acks.acks_topic import read_known
from geo.subscription.acks.fold import Fold
from geo.subscription.acks.peer_acks import fold_peers, peers_of
from geo.subscription.acks.record import key_of
from geo.subscription.acks.start_position import StartPosition, base_at, split_at
from geo.subscription.acks.subscription_state import SubscriptionState, merged_all
from geo.subscription.versions.version_subscriptions import version_subscription

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class Changed:
    """Effect of a reset on the messages in this cluster: what it repeats or skips, or would."""

    topic: str
    subscription: str
    cluster: str
    epoch: int
    repeated: int
    skipped: int


def create(
    spark: SparkSession | StartSpark,
    config: Config,
    cluster: str,
    topic: Topic,
    subscription: str,
    start: StartPosition,
    *,
    replicated: bool | None = None,
) -> SubscriptionState:
    """Create a subscription that begins at `start`, as `cluster` holds the topic. `replicated` False: of that region only; None: as the policy of
    its topic says.

    Raises UsageError if it is there, or if the name is that of a version subscription here. Unless it is to be of this region only, it does so, too,
    if a peer has it whose link will replicate it.
    """
    shared = config.replicates_subscriptions(topic) if replicated is None else replicated
    tables = _tables(spark, config, cluster, subscription)
    if (of_versions := version_subscription(tables, topic, subscription)) is not None:
        raise UsageError(f"{of_versions} is there already in {cluster}: its consumer knows versions only. Choose another name.")
    of_peers = _known_by_peers(tables, config, topic, subscription) if shared else SubscriptionState()
    base = base_at(start, open_log(tables, topic)[0])

    def begun() -> list[Told]:
        found = read_known(tables, topic, subscription)
        here = found.state_of(topic, subscription, in_spite=True)
        known = found.all_of(topic, subscription) | of_peers
        state = known.replicated if shared and (here is None or here.deleted) else known.here
        if state is not None and not state.deleted:
            way = "`geo subscriptions reset` moves it."
            if known.is_regional and here is not None and here.deleted:
                way = f"The others have it, and {cluster} had one of its own. To take part in theirs: {how_to_share(cluster, topic, subscription)}"
            elif not shared and not known.is_regional:
                way = "It is shared; `geo subscriptions set` makes it one of this region only."
            elif here is None or here.deleted:
                way = f"A peer of {cluster} has it, and its link brings it here: consume it, or reset it there."
            raise UsageError(f"subscription {subscription} of {topic} is there already. {way}")
        return [(topic, subscription, known.begun(cluster, base, replicated=shared))]

    return publish_once(tables, config, topic, begun)[0][2]


def switch(
    spark: SparkSession | StartSpark, config: Config, cluster: str, topic: Topic, subscription: str, *, replicated: bool
) -> tuple[SubscriptionState, SubscriptionState]:
    """Let a subscription be shared by all regions from here on, exactly as `cluster` has it, or be of that region only. The others
    keep what they were told. Returns what was known before, and what is known now, which is the same if it was so already.

    Raises UsageError if there is no such subscription here, UnsafeError if records of it cannot be read.
    """
    tables = _tables(spark, config, cluster, subscription)
    of_peers = _known_by_peers(tables, config, topic, subscription) if replicated else SubscriptionState()
    _present(tables, topic, subscription, or_deleted_beside=of_peers)
    before = SubscriptionState()

    def switched() -> list[Told]:
        nonlocal before
        before = _present(tables, topic, subscription, or_deleted_beside=of_peers)
        if before.is_regional is not replicated:
            return []
        known = before | of_peers
        return [(topic, subscription, known.made_replicated(cluster) if replicated else known.made_regional())]

    told = publish_once(tables, config, topic, switched)
    return before, merged_all([before, *(one for _, _, one in told)])


def _known_by_peers(tables: ClusterTables, config: Config, topic: Topic, subscription: str) -> SubscriptionState:
    """Asks those peers for it whose links will replicate it to this cluster and that answer in time."""
    peers, fold = peers_of(tables, config, topic.acks), Fold(tables.cluster.name)
    return fold_peers(peers, key_of(topic, subscription), fold).known.state


def reset(
    spark: SparkSession | StartSpark,
    config: Config,
    cluster: str,
    topic: Topic,
    subscription: str,
    to: StartPosition,
    *,
    dry_run: bool = False,
) -> Changed:
    """Let a subscription begin again at `to`, in every cluster that shares it. What is acknowledged so far does not count any more.

    Raises UsageError if there is no such subscription here, UnsafeError if records of it cannot be read.
    """
    tables = _tables(spark, config, cluster, subscription, rehearsal=dry_run)
    state = _here(_present(tables, topic, subscription))
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


def delete(spark: SparkSession | StartSpark, config: Config, cluster: str, topic: Topic, subscription: str) -> AckState:
    """Delete a subscription in every cluster that shares it, for good. Neither acknowledgements still on their way nor a reset by somebody who did
    not know of it restore it.
    """
    tables = _tables(spark, config, cluster, subscription)
    return _publish(tables, config, topic, subscription, lambda state: state.delete(cluster))


def _publish(
    tables: ClusterTables, config: Config, topic: Topic, subscription: str, change: Callable[[AckState], AckState]
) -> AckState:
    def changed() -> list[Told]:
        known = _present(tables, topic, subscription)
        return [(topic, subscription, known.part(change(_here(known))))]

    return _here(publish_once(tables, config, topic, changed)[0][2])


def _tables(
    spark: SparkSession | StartSpark, config: Config, cluster: str, subscription: str, *, rehearsal: bool = False
) -> ClusterTables:
    check_subscription(subscription)
    return open_for_writing(connect(spark, config.cluster(cluster), reads=Reads.ALL), config, rehearsal=rehearsal)


def _here(known: SubscriptionState) -> AckState:
    """It as it is in this region, where it is there."""
    assert known.here is not None, "a subscription of which nothing is known"
    return known.here


def _present(
    tables: ClusterTables, topic: Topic, subscription: str, *, or_deleted_beside: SubscriptionState | None = None
) -> SubscriptionState:
    """Knowledge of a subscription that is there. With `or_deleted_beside`, what peers know, also of one of this region that was deleted, if a
    replicated one is there.
    """
    found = read_known(tables, topic, subscription)
    state = found.state_of(topic, subscription)
    known = found.all_of(topic, subscription)
    shared = None if or_deleted_beside is None or not known.is_regional else (known | or_deleted_beside).replicated
    if (state is None or state.deleted) and (shared is None or shared.deleted):
        raise UsageError(
            f"{tables.cluster.name} knows no subscription {subscription} of {topic}. `geo subscriptions create` makes one."
        )
    return known
