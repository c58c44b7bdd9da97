"""Publishing records of subscriptions to the `__acks` topic of a namespace, and who does it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum

from pyspark.sql.types import BinaryType, StringType, StructField, StructType, TimestampType

from geo.config.model import Config
from geo.coordination.claims import Liveness, Owner
from geo.coordination.holder import Holder
from geo.coordination.holders import RegionHolders
from geo.coordination.ownership import name_of_share, owners_of, subscription_prefix
from geo.crash import CrashPoint, reach
from geo.errors import UnsafeError
from geo.journal.cluster import ClusterTables
from geo.log.publisher import Publisher
from geo.names import Topic
from geo.now import now_us
from geo.streams import timetable
from geo.subscription.acks.fold import epoch_is_possible
from geo.subscription.acks.record import encode_all, key_of, split_all
from geo.subscription.acks.subscription_state import SubscriptionState
from geo.times import from_us

MOVED = "geo.moved"
"""Property of the record of a failover: `from->to`."""

ADMIN = "subscriptions"
"""The producer under which operators' changes are published."""

Told = tuple[Topic, str, SubscriptionState]
"""What is told of a subscription of a topic."""

HOME: Sequence[str] = ()
"""The `replicate_to` of a record of this region only, which no link carries and no peer reads."""

Aged = tuple[SubscriptionState, int | None]
"""A part of a state, and the time in microseconds since 1970 before which it was told; None: now."""


class ConsumerState(str, Enum):
    """What is known of the consumer of a subscription in one cluster."""

    STOPPED = "stopped"
    """None runs, and what the last one acknowledged is published."""
    RUNNING = "running"
    """One gives signs of life."""
    KILLED = "killed"
    """It ended, or is silent for longer than `owner_timeout`, and may have acknowledged more than is published."""


class AckPublisher:
    """Publishes records of subscriptions of one namespace, as one producer that this process owns from here to `close`.

    Raises AlreadyOwnedError if another process is it.
    """

    def __init__(self, tables: ClusterTables, config: Config, topic: Topic, producer: str, *, take_over: bool = False) -> None:
        self._publisher = Publisher(tables, config, topic.acks, producer)
        columns = [
            StructField("key", StringType()),
            StructField("payload", BinaryType()),
            StructField("event_time", TimestampType()),
        ]
        self._publisher.open(StructType(columns), take_over=take_over)
        self.writer = self._publisher.writer

    def publish(self, states: Iterable[Told], properties: Mapping[str, str] | None = None) -> None:
        """Publish what states of (topic, subscription) tell, in one commit: what is of this region only so that it stays here."""
        self.publish_aged(((topic, subscription, [(state, None)]) for topic, subscription, state in states), properties)

    def publish_aged(
        self, states: Iterable[tuple[Topic, str, Iterable[Aged]]], properties: Mapping[str, str] | None = None
    ) -> None:
        """As `publish`, of states in parts of which each was told before a time."""
        rows = [
            {
                "key": key_of(topic, subscription),
                "payload": encode_all(part),
                "properties": properties,
                "replicate_to": None if part.regional is None else [*HOME],
                "event_time": None if before_us is None else from_us(before_us),
            }
            for topic, subscription, parts in states
            for state, before_us in parts
            for part in split_all(state)
        ]
        if rows:
            reach(CrashPoint.ACKS_BEFORE_FLUSH)
            self._publisher.publish_rows(rows)
            reach(CrashPoint.ACKS_AFTER_FLUSH)
            self.writer.record_ends_if_due(timetable.RECORD_ACKS_ENDS_S)

    def close(self, *, clean: bool = True) -> None:
        """As `LedgerWriter.close`."""
        self.writer.close(clean=clean)


def publish_once(
    tables: ClusterTables,
    config: Config,
    namespace: Topic,
    decide: Callable[[], Sequence[Told]],
    properties: Mapping[str, str] | None = None,
) -> Sequence[Told]:
    """Publish what an operator decides of subscriptions of the namespace of a topic, in one commit, and return it.

    `decide` is called twice: at first, so that what it refuses leaves nothing behind, and again once no other operator can
    decide: two at once, from the same knowledge, would make one epoch of two resets. An operator who is at it, or was killed, is
    taken over; what he has published counts. Raises what `decide` does, and UnsafeError if no cluster would take the epoch.
    """
    decide()
    publisher = AckPublisher(tables, config, namespace, ADMIN, take_over=True)
    try:
        told = decide()
        for topic, subscription, state in told:
            if not all(epoch_is_possible(one.epoch, now_us()) for one in state.states):
                raise UnsafeError(
                    f"subscription {subscription} of {topic} has been reset to an epoch that no cluster takes yet. Try again in a day."
                )
        publisher.publish(told, properties)
    except BaseException:
        publisher.close(clean=False)
        raise
    publisher.close()
    return told


def consumers_in(tables: ClusterTables, wanted: Sequence[tuple[Topic, str]]) -> dict[tuple[Topic, str], ConsumerState]:
    """What is known in a cluster of its consumer of each of the subscriptions, or, where several share its keys, of all of them. Owners are
    read once."""
    only = subscription_prefix(tables, *wanted[0]) if len(wanted) == 1 else "subscription "
    states = shares_by_prefix(tables, only)
    return {one: of_shares(states.get(subscription_prefix(tables, *one), {})) for one in wanted}


def shares_by_prefix(tables: ClusterTables, begins: str = "subscription ") -> dict[str, dict[str, ConsumerState]]:
    """What is known of the consumers whose runners' names begin so: by `subscription_prefix`, and by share of the keys (empty: of
    all keys)."""
    states: dict[str, dict[str, ConsumerState]] = {}
    owners = owners_of(tables, begins)
    holders = RegionHolders(tables, owners)
    for one in owners:
        whole, _, share = one.runner.partition(", ")
        states.setdefault(whole, {})[share] = _state(holders.of(one))
    return states


def of_shares(shares: Mapping[str, ConsumerState]) -> ConsumerState:
    """The state of all shares of a subscription: one that runs goes before one that was killed."""
    found = set(shares.values())
    return next((one for one in (ConsumerState.RUNNING, ConsumerState.KILLED) if one in found), ConsumerState.STOPPED)


def lacking_shares(shares: Mapping[str, ConsumerState]) -> list[str]:
    """The shares of the keys that nobody has, where somebody has another one of as many."""
    running = {share for share, state in shares.items() if state is ConsumerState.RUNNING}
    counts = {int(share.rpartition(" of ")[2]) for share in running if share}
    of_all = [name_of_share(number, count) for count in sorted(counts) for number in range(count)]
    return [] if "" in running else [share for share in of_all if share not in running]


def consumers_of(tables: ClusterTables, topic: Topic, subscription: str) -> list[Owner]:
    """All who ever delivered the subscription, or a share of it, in this cluster."""
    whole = subscription_prefix(tables, topic, subscription)
    return [one for one in owners_of(tables, whole) if one.runner.partition(",")[0] == whole]


def _state(found: Holder) -> ConsumerState:
    if found.liveness is Liveness.ENDED:
        return ConsumerState.KILLED if found.claim.in_flight else ConsumerState.STOPPED
    return ConsumerState.KILLED if found.is_dead else ConsumerState.RUNNING
