"""Publishing records of subscriptions to the `__acks` topic of a namespace, and who does it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from hashlib import sha256

from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from geo.config.model import Config
from geo.crash import CrashPoint, reach
from geo.errors import UnsafeError
from geo.log.publisher import Publisher
from geo.names import Topic
from geo.now import now_us
from geo.subscription.acks.ack_state import AckState
from geo.subscription.acks.fold import epoch_is_possible
from geo.subscription.acks.record import encode, key_of, split
from geo.tables.cluster import ClusterTables
from geo.tables.ownership import owned_now, producer_runner
from geo.tables.process import Process

MOVED = "geo.moved"
"""Property of the record of a failover: `from->to`."""

ADMIN = "subscriptions"
"""The producer under which operators' changes are published."""

ENDS_INTERVAL_S = 60.0
"""Between records of the ledger's end. Recording blocks the flusher for about a second; a start after a crash replays the commits
since."""


class AckPublisher:
    """Publishes records of subscriptions of one namespace, as one producer that this process owns from here to `close`.

    Raises AlreadyOwnedError if another process is it.
    """

    def __init__(self, tables: ClusterTables, config: Config, topic: Topic, producer: str, *, take_over: bool = False) -> None:
        self._publisher = Publisher(tables, config, topic.acks, producer)
        columns = [StructField("key", StringType()), StructField("payload", BinaryType())]
        self._publisher.open(StructType(columns), take_over=take_over)

    def publish(self, states: Iterable[tuple[Topic, str, AckState]], properties: Mapping[str, str] | None = None) -> None:
        """Publish what states of (topic, subscription) tell, in one commit."""
        rows = [
            {"key": key_of(topic, subscription), "payload": encode(part), "properties": properties}
            for topic, subscription, state in states
            for part in split(state)
        ]
        if rows:
            reach(CrashPoint.ACKS_BEFORE_FLUSH)
            self._publisher.publish_rows(rows)
            reach(CrashPoint.ACKS_AFTER_FLUSH)
            self._publisher.record_ends_if_due(ENDS_INTERVAL_S)

    def close(self, *, clean: bool = True) -> None:
        self._publisher.close(clean=clean)

    def abandon(self) -> None:
        """As `LedgerWriter.abandon`."""
        self._publisher.abandon()

    def refuse_if_replaced(self) -> None:
        """As `LedgerWriter.refuse_if_replaced`."""
        self._publisher.refuse_if_replaced()


def publish_once(
    tables: ClusterTables,
    config: Config,
    topic: Topic,
    subscription: str,
    decide: Callable[[], AckState],
    properties: Mapping[str, str] | None = None,
) -> AckState:
    """Publish what an operator decides, and return it.

    `decide` is called twice: at first, so that what it refuses leaves nothing behind, and again once no other operator can
    decide: two at once, from the same knowledge, would make one epoch of two resets. An operator who is at it, or was killed, is
    taken over; what he has published counts. Raises what `decide` does, and UnsafeError if no cluster would take the epoch.
    """
    decide()
    publisher = AckPublisher(tables, config, topic, ADMIN, take_over=True)
    try:
        state = decide()
        if not epoch_is_possible(state.epoch, now_us()):
            raise UnsafeError(
                f"subscription {subscription} of {topic} has been reset to an epoch that no cluster takes yet. Try again in a day."
            )
        publisher.publish([(topic, subscription, state)], properties)
    except BaseException:
        publisher.close(clean=False)
        raise
    publisher.close()
    return state


def running_consumer(tables: ClusterTables, topic: Topic, subscription: str) -> Process | None:
    """Who consumes the subscription in this cluster, or did and did not shut down cleanly; None: nobody."""
    runner = consumer_runner(tables, topic, subscription)
    return next((Process.decode(row["holder"]) for row in owned_now(tables) if row["runner"] == runner), None)


def consumer_runner(tables: ClusterTables, topic: Topic, subscription: str) -> str:
    """The name under which the table of owners has a consumer of the subscription in this cluster."""
    return producer_runner(tables, topic.acks, consumer_name(topic, subscription)).name


def consumer_name(topic: Topic, subscription: str) -> str:
    """The producer under which a consumer of the subscription acknowledges; owning it makes it the only one of its cluster."""
    return f"acks-{subscription[:40]}-{sha256(key_of(topic, subscription).encode()).hexdigest()[:16]}"
