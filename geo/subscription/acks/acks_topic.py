"""The `__acks` topic of a namespace: what its records tell of subscriptions, and publishing records to it.

What is known of a subscription in a cluster is `system/cursors`, as far as they were folded, and all newer records; both
together are right whether or not a fold runs.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from geo.delta.data_file import DataFile
from geo.delta.predicate import Among, to_sql
from geo.delta.scan import scan_here
from geo.delta.table import Table
from geo.errors import UnsafeError
from geo.ids import LedgerId
from geo.journal.cluster import ClusterTables
from geo.log.conditions import IS_MESSAGE
from geo.log.ledger_parts import only_ledger
from geo.names import Topic, check_subscription
from geo.subscription.acks.ack_state import AckState
from geo.subscription.acks.cursor import parse_ends
from geo.subscription.acks.fold import Fold
from geo.subscription.acks.gathered_frames import (
    FOLD_COLUMNS,
    RECORD_COLUMNS,
    as_ack_columns,
    few,
    gathered_by_tasks,
    newer_rows,
    not_folded,
    received,
)
from geo.subscription.acks.message_set_frames import after
from geo.subscription.acks.record import Refusal, decode_all, key_of, told_unreadable
from geo.subscription.acks.subscription_state import SubscriptionState
from schemas import CURSORS, TOPIC_LOG

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Known:
    """What a cluster knows of the subscriptions of one namespace. By their records' key (`topic/subscription`)."""

    fold: Fold
    version: int | None
    """Of the `__acks` log up to which it was read; None: there is none."""

    @property
    def states(self) -> dict[str, AckState]:
        """The subscriptions as they are in this region."""
        return self.fold.states

    def all_of(self, topic: Topic, subscription: str) -> SubscriptionState:
        """All that is known of the subscription, without a look at what cannot be read."""
        return self.fold.known.get(key_of(topic, subscription), SubscriptionState())

    def state_of(self, topic: Topic, subscription: str, *, in_spite: bool = False) -> AckState | None:
        """The subscription as it is in this region; None: there is no record of it.

        Raises UnsafeError where some of its records are of a newer program, or none can be read: beginning it anew would skip or
        repeat what they tell. `in_spite`: whoever asks wants that. Other records that cannot be read beside those that can are
        logged.
        """
        key = key_of(topic, subscription)
        state, refused = self.all_of(topic, subscription).here, self.fold.refused_of(key)
        reasons = told_unreadable(refused)
        if not reasons:
            return state
        of = f"subscription {subscription} of {topic}: records in {topic.acks} cannot be read ({reasons})"
        if not in_spite and (state is None or Refusal.NEWER_ENCODING in refused):
            raise UnsafeError(
                f"{of}. Run the delta-geo that wrote them. A consumer begins in spite of them with `geo consume --ignore-unreadable`: "
                "then what they acknowledge is delivered again."
            )
        log.warning("%s; they change nothing", of)
        return state


def read_known(tables: ClusterTables, topic: Topic, subscription: str | None = None) -> Known:
    """What the cluster of `tables` knows of `subscription` of `topic`, or of all subscriptions of the topic's namespace."""
    key = None if subscription is None else key_of(topic, check_subscription(subscription))
    log_table = tables.log(topic.acks)
    if log_table.find(TOPIC_LOG) is None:
        return Known(Fold(tables.cluster.name), None)
    version = log_table.latest_version()  # before the cursors: they may know more, never less
    states: dict[str, SubscriptionState] = {}
    folded: dict[str, Mapping[LedgerId, int]] = {}
    cursors = tables.journal(CURSORS)
    if subscription is None:
        cursor_rows = cursors.newest(("topic", f"persistent://{topic.tenant}/{topic.namespace}/"))
    else:
        cursor_rows = cursors.newest(topic=str(topic), subscription=subscription)
    for row in cursor_rows:
        one = f"{row['topic']}/{row['subscription']}"
        states[one] = decode_all(bytes(row["state"]), limited=False)
        folded[one] = parse_ends(row["folded"])
    return Known(_with_newer(Fold(tables.cluster.name, states), log_table, version, key, folded), version)


def _with_newer(
    fold: Fold,
    log_table: Table,
    version: int,
    key: str | None,
    folded: Mapping[str, Mapping[LedgerId, int]],
) -> Fold:
    """The fold of the cursors, with the records, of one subscription or of all, that are not in them."""

    def from_stats(file: DataFile) -> bool | None:
        """True if all of the file's records are in the subscription's cursor; None: it is to be read."""
        if key is None or (only := only_ledger(file)) is None:
            return None
        ledger, _, last = only
        return last <= folded.get(key, {}).get(ledger, -1) or None

    by_itself = Fold(fold.cluster, dict(fold.known))
    wanted = IS_MESSAGE if key is None else IS_MESSAGE & Among("key", frozenset({key}))

    def take(rows: pa.Table) -> bool:
        return bool(by_itself.add(map(received, as_ack_columns(not_folded(rows, folded)))))

    if scan_here(log_table, version, RECORD_COLUMNS, take, where=wanted, from_stats=from_stats) is not None:
        return by_itself
    rows = log_table.read(version).where(to_sql(wanted))
    newer = (newer_rows(rows, folded) if key is None else rows.where(after(folded.get(key, {})))).select(*FOLD_COLUMNS)
    if (found := few(newer)) is not None:
        fold.add(map(received, as_ack_columns(found)))
        return fold
    for one in gathered_by_tasks(fold.cluster, newer):
        fold.join(one.key, one.state, {Refusal(reason): count for reason, count in one.refused.items()})
    return fold
