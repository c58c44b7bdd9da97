"""Settings of a consumer, validated."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime

from geo.config.choices import Start
from geo.config.model import Config
from geo.coordination.runners import name_of_share
from geo.errors import UsageError
from geo.journal.cluster import ClusterTables
from geo.names import DEAD_LETTERS, Topic, check_cluster
from geo.subscription.acks.ack_state import MAX_REDELIVERIES

MOST_REDELIVERIES = MAX_REDELIVERIES - 1
"""Largest `max_redeliveries`; the count itself goes one higher."""


MOST_SHARES = 1_000
"""Shares of one subscription in one cluster, at most."""


def dead_letter_topic(topic: Topic, subscription: str) -> Topic:
    """Names the topic as Pulsar does."""
    return Topic(topic.tenant, topic.namespace, f"{topic.name}-{subscription}{DEAD_LETTERS}")


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of a consumer: which subscription it reads and how it redelivers; see `geo.subscription.consumer.subscription.Subscription`."""

    tables: ClusterTables
    config: Config
    topic: Topic
    name: str
    start: Start | datetime
    redelivery_delay_s: float
    max_redeliveries: int | None
    batch_rows: int
    max_batch_bytes: int
    origins: frozenset[str] | None
    take_over: bool
    standby: bool
    ignore_unreadable: bool
    key_range: tuple[int, int] | None
    replicate_subscription_state: bool | None
    turn: AbstractContextManager[object]

    def __post_init__(self) -> None:
        if self.topic.is_system:
            raise UsageError(f"{self.topic} is not for consuming: names that start with __ are for what delta-geo itself writes.")
        if self.start not in ("earliest", "latest") and not isinstance(self.start, datetime):
            raise UsageError(f"{self}: start is {self.start!r}; expected earliest, latest or a datetime.")
        for origin in self.origins or ():
            check_cluster(origin)
        if self.origins is not None and not self.origins:
            raise UsageError(f"{self}: origins is empty, so nothing would ever be delivered; None is all of them.")
        least_of = {"batch_rows": 1, "max_batch_bytes": 1, "redelivery_delay_s": 0, "max_redeliveries": 0}
        for option, least in least_of.items():
            value = getattr(self, option)
            if value is not None and value < least:
                raise UsageError(f"{self}: {option} is {value}; expected {least} or more.")
        if self.standby and self.take_over:
            raise UsageError(f"{self}: a standby waits for the consumer that runs here, take_over replaces it; choose one.")
        if self.key_range is not None and not 0 <= self.key_range[0] < self.key_range[1] <= MOST_SHARES:
            raise UsageError(
                f"{self}: key_range is {self.key_range}; expected (i, n) with i from 0 to n - 1, and n at most {MOST_SHARES}."
            )
        if self.max_redeliveries is not None:
            if self.max_redeliveries > MOST_REDELIVERIES:
                raise UsageError(f"{self}: max_redeliveries is {self.max_redeliveries}; expected at most {MOST_REDELIVERIES}.")
            dead_letter_topic(self.topic, self.name)  # its name may be too long

    @property
    def is_replicated_if_new(self) -> bool:
        """Tells whether all regions share it, if this consumer creates it: as it was told, else by the policy of its topic."""
        asked = self.replicate_subscription_state
        return self.config.replicates_subscriptions(self.topic) if asked is None else asked

    @property
    def share(self) -> str:
        """Share of the keys that are its own, in the names of what is only its own; "" for all of them."""
        return "" if self.key_range is None else name_of_share(*self.key_range)

    def __str__(self) -> str:
        return f"subscription {self.name} of {self.topic} in {self.tables.cluster.name}{self.share and f', {self.share}'}"
