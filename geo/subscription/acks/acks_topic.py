"""The `__acks` topic of a namespace: what its records tell of subscriptions.

What is known of a subscription in a cluster is `system/cursors`, as far as they were folded, and all newer records. Both together are right whether
or not a fold runs.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from geo.delta.ddl import find_checked
from geo.delta.scan import scan
from geo.errors import UnsafeError
from geo.journal.cluster import ClusterTables
from geo.journal.rows import Row
from geo.names import Topic, check_subscription
from geo.schemas import CURSORS, TOPIC_LOG
from geo.subscription.acks.ack_state import AckState
from geo.subscription.acks.gathered import joined
from geo.subscription.acks.gathered_frames import news
from geo.subscription.acks.record import RecordRefusal, decode_all, key_of, told_unreadable
from geo.subscription.acks.subscription_state import SubscriptionState

log = logging.getLogger(__name__)

MOVED = "geo.moved"
"""Property of the record of a failover: `from->to`."""

ADMIN = "subscriptions"
"""The producer under which operators' changes are published."""


@dataclass(frozen=True, slots=True)
class Known:
    """Subscriptions of one namespace as a cluster knows them. By their records' key (`topic/subscription`)."""

    known: Mapping[str, SubscriptionState]
    refused: Mapping[str, Mapping[RecordRefusal, int]]
    """Counts of the records that are in no cursor and changed nothing."""
    version: int | None
    """Version of the `__acks` log up to which it was read; None: there is none."""

    @property
    def states(self) -> dict[str, AckState]:
        """The subscriptions as they are in this region."""
        return {key: state for key, known in self.known.items() if (state := known.here) is not None}

    def all_of(self, topic: Topic, subscription: str) -> SubscriptionState:
        """All that is known of the subscription, without a look at what cannot be read."""
        return self.known.get(key_of(topic, subscription), SubscriptionState())

    def state_of(self, topic: Topic, subscription: str, *, in_spite: bool = False) -> AckState | None:
        """The subscription as it is in this region; None: there is no record of it.

        Raises UnsafeError where some of its records are of a newer program, or none can be read. Beginning it again would skip or repeat what they
        tell. `in_spite`: whoever asks wants that. Other records that cannot be read beside those that can are logged.
        """
        state, refused = self.all_of(topic, subscription).here, self.refused.get(key_of(topic, subscription), {})
        reasons = told_unreadable(refused)
        if not reasons:
            return state
        of = f"subscription {subscription} of {topic}: records in {topic.acks} cannot be read ({reasons})"
        if not in_spite and (state is None or RecordRefusal.NEWER_ENCODING in refused):
            raise UnsafeError(
                f"{of}. Run the delta-geo that wrote them. A consumer begins in spite of them with `geo consume --ignore-unreadable`: "
                "then what they acknowledge is delivered again."
            )
        log.warning("%s; they change nothing", of)
        return state


def read_cursors(tables: ClusterTables, namespace: Topic, **only: str | Collection[str]) -> dict[str, Row]:
    """The cursors of a topic's namespace, or of those of them with these values, by the keys of their subscriptions."""
    mine = ("topic", f"persistent://{namespace.tenant}/{namespace.namespace}/")
    return {f"{row['topic']}/{row['subscription']}": row for row in tables.journal(CURSORS).newest(mine, **only)}


def read_known(tables: ClusterTables, topic: Topic, subscription: str | None = None) -> Known:
    """Reads what the cluster of `tables` knows of `subscription` of `topic`, or of all subscriptions of the topic's namespace. It goes by the
    cursors, and the records that are not in them.
    """
    key = None if subscription is None else key_of(topic, check_subscription(subscription))
    log_table = tables.log(topic.acks)
    if find_checked(log_table, TOPIC_LOG) is None:
        return Known({}, {}, None)
    version = log_table.latest_version()  # before the cursors: they may know more, never less
    only = {} if subscription is None else {"topic": str(topic), "subscription": subscription}
    cursors = read_cursors(tables, topic, **only)
    known = {one: decode_all(bytes(row["state"]), limited=False) for one, row in cursors.items()}
    found = scan(log_table, version, news(tables.cluster.name, cursors, key))
    newer = joined(found)
    known |= {one: known.get(one, SubscriptionState()) | more.told.state for one, more in newer.items()}
    refused = {one: {RecordRefusal(reason): count for reason, count in more.refused.items()} for one, more in newer.items()}
    return Known(known, refused, version)
