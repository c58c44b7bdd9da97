"""A Kafka topic as its brokers tell of it, on kafka-python: its offsets, its id, those of a consumer group, and consumers of its partitions.

A broker that is away is waited for. Clients are those of the thread that asks.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from kafka import KafkaConsumer, TopicPartition
from kafka.admin import KafkaAdminClient
from kafka.errors import KafkaError, LeaderNotAvailableError, UnknownTopicOrPartitionError, for_code

from geo.config.secret import keep_silent
from geo.errors import GeoError, RetryableError, UsageError
from geo.log.sources.kafka_access import of_client, refuse_hopeless
from geo.reasons import Reason, Wrong
from geo.text import show

log = logging.getLogger(__name__)

_STOPS_S = 0.2
"""Seconds within which a wait for a broker that is away is stopped."""

WAIT_S = 300.0
"""Seconds that a broker that is away is waited for before the stream ends with a retryable error."""

SAY_S = 10.0
"""Seconds between two lines that a broker is still away."""

T = TypeVar("T")


class _Clients(threading.local):
    """Kafka clients of one thread: they are not thread-safe. A new one takes 145 to 255 ms, so they are kept."""

    def __init__(self) -> None:
        self.consumers: dict[str, KafkaConsumer] = {}
        self.admins: dict[str, KafkaAdminClient] = {}


_clients = _Clients()


class KafkaTopic:
    """One topic of one Kafka cluster. `settings`: those of its clients, for kafka-python.

    While a broker is away it is waited for, unless `stopped` (RetryableError then). May be sent to another process, where nothing stops it.
    """

    def __init__(self, settings: Mapping[str, Any], name: str, stopped: Callable[[], bool] = lambda: False) -> None:
        self._settings, self.name, self._stopped = dict(settings), name, stopped

    def __reduce__(self) -> tuple[type[KafkaTopic], tuple[Mapping[str, Any], str]]:
        return KafkaTopic, (self._settings, self.name)

    def close(self) -> None:
        """Close the clients of this thread; the next call makes new ones."""
        key = _cache_key(self._settings)
        for client in (_clients.consumers.pop(key, None), _clients.admins.pop(key, None)):
            if client is not None:
                client.close()

    def refusal(self, error: KafkaError) -> GeoError | None:
        """The error by which a broker or a client refuses for good, with what to do. None: it may pass."""
        return of_client(error, self._settings, self.name)

    def consumer_at(self, partition: int, offset: int, **more: int) -> tuple[KafkaConsumer, TopicPartition]:
        """A consumer of a partition that reads next what is at an offset, and the partition. `more`: as `_consumer` takes."""
        consumer, where = self._wait_for(lambda: self._consumer(**more)), TopicPartition(self.name, partition)
        consumer.assign([where])
        consumer.seek(where, offset)
        return consumer, where

    def bounds(self) -> tuple[dict[int, int], dict[int, int]]:
        """First and next offset of every partition."""

        def ask() -> tuple[dict[int, int], dict[int, int]]:
            consumer = self._consumer()
            numbers = consumer.partitions_for_topic(self.name)
            if not numbers:
                self.topic_id()  # says why
                raise LeaderNotAvailableError(self.name)
            wanted = [TopicPartition(self.name, number) for number in sorted(numbers)]
            begins, ends = consumer.beginning_offsets(wanted), consumer.end_offsets(wanted)
            return {w.partition: begins[w] for w in wanted}, {w.partition: ends[w] for w in wanted}

        return self._wait_for(ask)

    def topic_id(self) -> str:
        """The topic's id; "" where brokers are too old to have any. Raises UsageError if there is no such topic."""

        def ask() -> str:
            (described,) = self._admin().describe_topics([self.name])
            if described["error_code"] == UnknownTopicOrPartitionError.errno:
                what = f"Kafka topic {self.name} is not at {self._settings['bootstrap_servers']}"
                raise UsageError(
                    Wrong(Reason.USAGE, what, "Create it there, or correct its name: --kafka-topic, or kafka_topic.")
                )
            if described["error_code"]:
                raise for_code(described["error_code"])()
            found = str(described.get("topic_id") or "")
            return "" if set(found) <= set("0-") else found

        return self._wait_for(ask)

    def group_offsets(self, group: str) -> dict[int, int]:
        """Return, by partition, the next offset that a consumer group reads. Raises UsageError if the group has committed none of the topic."""
        (found,) = self._wait_for(lambda: self._admin().list_group_offsets({group: None})).values()
        offsets = {at.partition: place.offset for at, place in found.items() if at.topic == self.name and place.offset >= 0}
        if not offsets:
            at = f"Kafka at {self._settings['bootstrap_servers']}"
            raise UsageError(
                f"{at}: group {show(group)} has committed no offset of topic {self.name}. Correct --kafka-group or --kafka-topic."
            )
        return offsets

    def refuse_if_stopped(self, what: str) -> None:
        """To be asked while a broker is waited for. Raises RetryableError, which says `what` is waited for, once nobody is to wait any more."""
        if self._stopped():
            raise RetryableError(f"{what} It was waited for until it was stopped.", code=Reason.NO_ANSWER)

    def _wait_for(self, ask: Callable[[], T]) -> T:
        """The answer, asked for again while the broker is away. Raises UsageError if it refuses."""
        began, said, pause = time.monotonic(), -SAY_S, 0.5
        while True:
            try:
                return ask()
            except (KafkaError, RetryableError) as error:
                self.close()
                if isinstance(error, KafkaError) and (refusal := of_client(error, self._settings, self.name)) is not None:
                    raise refusal from None
                waited, at = time.monotonic() - began, f"Kafka at {self._settings['bootstrap_servers']}"
                what = f"{at}: {error}." if isinstance(error, KafkaError) else str(error)
                self.refuse_if_stopped(what)
                if waited > WAIT_S:
                    raise RetryableError(f"{what} Nobody answered for {waited:.0f} s.", code=Reason.NO_ANSWER) from None
                if waited - said > SAY_S:
                    said = waited
                    log.warning("%s Trying again", what)
                until = time.monotonic() + pause
                while time.monotonic() < until and not self._stopped():
                    time.sleep(_STOPS_S)
                pause = min(10.0, pause * 2)

    def _enter(self) -> None:
        """Before a client is made, in whichever process: what kafka-python logs of it is raised, or said by us."""
        keep_silent("kafka", logging.CRITICAL)
        refuse_hopeless(self._settings)

    def _admin(self) -> KafkaAdminClient:
        key, admins = _cache_key(self._settings), _clients.admins
        if key not in admins:
            self._enter()
            admins[key] = KafkaAdminClient(**self._settings)
        return admins[key]

    def _consumer(self, max_partition_fetch_bytes: int = 8 * 1024 * 1024) -> KafkaConsumer:
        key, consumers = _cache_key(self._settings), _clients.consumers
        if key not in consumers:
            self._enter()
            consumers[key] = KafkaConsumer(
                allow_auto_create_topics=False,
                enable_auto_commit=False,
                group_id=None,
                auto_offset_reset="none",
                isolation_level="read_committed",
                max_partition_fetch_bytes=max_partition_fetch_bytes,
                fetch_max_bytes=64 * 1024 * 1024,
                **self._settings,
            )
        return consumers[key]


def _cache_key(settings: Mapping[str, Any]) -> str:
    return json.dumps(dict(settings), sort_keys=True)
