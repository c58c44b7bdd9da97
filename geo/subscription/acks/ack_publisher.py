"""Publishing records of subscriptions to the `__acks` topic of a namespace, and who does it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from pyspark.sql.types import BinaryType, StringType, StructField, StructType, TimestampType

from geo.config.model import Config
from geo.crash import CrashPoint, reach
from geo.errors import UnsafeError
from geo.journal.cluster import ClusterTables
from geo.log.publisher import Publisher
from geo.names import Topic
from geo.now import now_us
from geo.streams import timetable
from geo.subscription.acks.acks_topic import ADMIN
from geo.subscription.acks.fold import epoch_is_possible
from geo.subscription.acks.record import encode_all, key_of, split_all
from geo.subscription.acks.subscription_state import SubscriptionState
from geo.times import from_us

Told = tuple[Topic, str, SubscriptionState]
"""State of a subscription of a topic, as it is published."""

HOME: Sequence[str] = ()
"""The `replicate_to` of a record of this region only, which no link carries and no peer reads."""

Aged = tuple[SubscriptionState, int | None]
"""A part of a state, and the time in microseconds since 1970 before which it was told; None: now."""


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
        """Publishes, as `publish`, states in parts of which each was told before a time."""
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
        """Closes as `LedgerWriter.close`."""
        self.writer.close(clean=clean)


def publish_once(
    tables: ClusterTables,
    config: Config,
    namespace: Topic,
    decide: Callable[[], Sequence[Told]],
    properties: Mapping[str, str] | None = None,
) -> Sequence[Told]:
    """Publish what an operator decides of subscriptions of the namespace of a topic, in one commit, and return it.

    `decide` is called twice: at first, so that what it refuses leaves nothing behind, and again once no other operator can decide. Two at once,
    from the same knowledge, would make one epoch of two resets. An operator who is at it, or was killed, is taken over; what he has published
    counts. Raises what `decide` does, and UnsafeError if no cluster would take the epoch.
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
