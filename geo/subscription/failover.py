"""Moving a subscription's consumer to another cluster: nothing that was acknowledged is repeated if it can still be had.

Acknowledgements are a set of message ids, so the move needs no translation: what both clusters know is united and recorded
in the target. It works when the source is gone; then the target goes on with what has come, and this says what that may repeat.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from geo.asking import ask_all
from geo.config import read
from geo.config.model import Config
from geo.config.yaml_nodes import suggestion
from geo.delta.driver import Reads
from geo.delta.engine import Scan
from geo.delta.predicate import Among
from geo.delta.scan import scan
from geo.errors import GeoError, UnsafeError, UsageError
from geo.faults import FAULTS
from geo.journal.cluster import ClusterTables, StartSpark, connect
from geo.log.housekeeping import open_for_writing
from geo.names import Topic, check_subscription, check_topic_glob
from geo.remedies import how_to_share
from geo.shown import Sections, Shown, row_of
from geo.subscription.acks.ack_publisher import Told, publish_once
from geo.subscription.acks.ack_state import AckState, merged
from geo.subscription.acks.acks_topic import MOVED, Known, read_known
from geo.subscription.acks.consumers import ConsumerState, consumers_in
from geo.subscription.acks.message_set import MessageSet
from geo.subscription.acks.record import key_of
from geo.subscription.acks.start_position import split_at
from geo.subscription.acks.subscription_state import SubscriptionState
from geo.subscription.status import Subscribed, matching, subscriptions_in
from geo.text import first_line

WAIT_S = 30.0
"""For a consumer that is being stopped: its last batch, and its last acknowledgements."""

ANSWER_S = 30.0
"""Seconds that each look at the source may take, beside waiting for its consumer. One that does not answer counts as gone."""

_POLL_S = 0.5

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")


@dataclass(frozen=True, slots=True, repr=False)
class Failover(Shown):
    """Result of a failover. Messages are those in the target's log; `ids` as `origin:ledger:first-last`, at most 100 ranges."""

    topic: str
    subscription: str
    source: str
    target: str
    source_unreadable: str | None
    consumer: str
    """In the source: as ConsumerState, or `unknown` (the source cannot be read)."""
    brought: int
    """Messages acknowledged in the source of which the target did not know."""
    acknowledged: int
    to_deliver: int
    """Messages that the target's consumer gets now."""
    repeated: int
    """Those of them that were delivered before and not acknowledged."""
    repeated_ids: str
    at_most_repeated: int
    """With a consumer that may have processed more than it could tell: `repeated` and what else it may have had."""
    last_acknowledged: datetime | None
    """The time when the source wrote its newest record, as far as could be read."""
    recorded: bool

    def __repr__(self) -> str:
        done = "moved" if self.recorded else "would move"
        return (
            f"<Failover {self.subscription} of {self.topic} {done} from {self.source} to {self.target}: {self.to_deliver:,} to deliver, "
            f"at most {self.at_most_repeated:,} of them again>"
        )

    def sections(self) -> Sections:
        return {"": [{"": name, "found": value} for name, value in row_of(self).items()]}


def failover(
    spark: SparkSession | StartSpark,
    topic: str | Topic,
    subscription: str,
    config: Config | str | Path,
    source: str,
    target: str,
    *,
    dry_run: bool = False,
    wait_s: float = WAIT_S,
    source_gone: bool = False,
) -> Failover:
    """Take over what `source` acknowledged, say what will be repeated, and record the move in `target`.

    Waits up to `wait_s` for a consumer that still runs in the source. Reads the source's own tables if each look at them takes ANSWER_S at most, so
    that nothing depends on a link. With `source_gone` they are not looked at. (Whoever publishes, as the record of the move, asks all clusters for
    its ledgers, a minute at most.)

    Raises UsageError if neither cluster knows the subscription, UnsafeError if records of it cannot be read.
    """
    one = Topic.of(topic), check_subscription(subscription)
    done, refused = _Move(spark, read(config), source, target, wait_s, dry_run=dry_run, source_gone=source_gone).of([one])
    if refused:
        raise refused[one]
    return done[0]


def failover_all(
    spark: SparkSession | StartSpark,
    config: Config,
    topics: str,
    subscriptions: str,
    source: str,
    target: str,
    *,
    dry_run: bool = False,
    wait_s: float = WAIT_S,
    source_gone: bool = False,
    none_is_fine: bool = False,
) -> tuple[list[Failover], dict[Subscribed, GeoError]]:
    """Moves as `failover` all subscriptions that match both globs and that one of the clusters knows, in one commit a namespace. Returns what was
    moved, and why others were not. Raises UsageError if there are none, unless that is fine.
    """
    move = _Move(spark, config, source, target, wait_s, dry_run=dry_run, source_gone=source_gone)
    found = move.matching(check_topic_glob(topics), subscriptions)
    if found:
        return move.of(found)
    if not none_is_fine:
        raise UsageError(f"neither {source} nor {target} knows a subscription {subscriptions} of {topics}.")
    return [], {}


class _Move:
    """Subscriptions of which the consumers move from one cluster to another."""

    def __init__(
        self,
        spark: SparkSession | StartSpark,
        config: Config,
        source: str,
        target: str,
        wait_s: float,
        *,
        dry_run: bool,
        source_gone: bool,
    ) -> None:
        if source == target:
            raise UsageError(f"--from and --to are both {source}.")
        config.cluster(source)
        self._spark, self._config, self._source, self._target = spark, config, source, target
        self._wait_s, self._dry_run = wait_s, dry_run
        self._here = open_for_writing(connect(spark, config.cluster(target), reads=Reads.ALL), config, rehearsal=dry_run)
        self._unreadable = "not looked at: it is said to be gone" if source_gone else None
        """The reason why the source is not read."""

    def matching(self, topics: str, subscriptions: str) -> list[Subscribed]:
        """The subscriptions that one of the clusters knows."""
        listed = subscriptions_in(self._here, topics)
        if self._unreadable is None:
            try:
                listed += self._ask(lambda there: subscriptions_in(there, topics))
            except FAULTS as error:
                self._unreadable = first_line(error)
        return matching(listed, subscriptions)

    def of(self, wanted: Sequence[Subscribed]) -> tuple[list[Failover], dict[Subscribed, GeoError]]:
        """Move these. Returns what was moved, and why others were not."""
        consumers, theirs, last = self._look_at_source(wanted)
        ours = _known(self._here, wanted)
        states: dict[Subscribed, AckState] = {}
        refused: dict[Subscribed, GeoError] = {}
        for one in wanted:
            here, there = ours[one], theirs.get(one)
            try:
                self._refuse_regional(one, here, there)
                found = [known.state_of(*one) for known in (here, there) if known is not None]
            except (UnsafeError, UsageError) as error:
                refused[one] = error
                continue
            state = merged(known for known in found if known is not None)
            if state.deleted or not any(found):
                near = suggestion(one[1], [name for _, name in self.matching(str(one[0]), "*")]) or "."
                why = f"neither {self._source} nor {self._target} knows a subscription {one[1]} of {one[0]}{near}"
                refused[one] = UsageError(why)
                continue
            states[one] = state
        if not consumers and states:
            last = _last_records(self._here, self._source, list(states))
        told = [
            self._report(one, consumers.get(one), ours[one], theirs.get(one), state, last.get(one))
            for one, state in states.items()
        ]
        if not self._dry_run:
            of_namespace: dict[Topic, list[Told]] = {}
            for (topic, name), state in states.items():
                of_namespace.setdefault(topic.acks, []).append((topic, name, SubscriptionState(state)))
            for namespace, moved in of_namespace.items():
                publish_once(self._here, self._config, namespace, moved.copy, {MOVED: f"{self._source}->{self._target}"})
        return told, refused

    def _refuse_regional(self, one: Subscribed, ours: Known, theirs: Known | None) -> None:
        """Raises UsageError for a subscription that is of one region only in one of the clusters: it is not the other one's."""
        (topic, name), source, target = one, self._source, self._target
        if theirs is not None and theirs.all_of(*one).is_regional:
            raise UsageError(
                f"subscription {name} of {topic} in {source} is of that region only, so it does not move. To let the other regions have it "
                f"exactly as it is there, and then move it: {how_to_share(source, topic, name)}"
            )
        if ours.all_of(*one).is_regional:
            raise UsageError(
                f"{target} has a subscription {name} of {topic} of its own, of that region only, so that of {source} does not move there. If its own "
                f"is not needed any more, delete it there, and then: {how_to_share(target, topic, name)}"
            )

    def _ask(self, question: Callable[[ClusterTables], T], more_s: float = 0.0) -> T:
        """Asks the source. Raises what it does, RetryableError if the source does not answer within ANSWER_S and `more_s`."""
        source = self._config.cluster(self._source)
        asked = ask_all({self._source: lambda: question(connect(self._spark, source, reads=Reads.ALL))}, ANSWER_S + more_s)
        return asked[self._source].result()

    def _look_at_source(
        self, wanted: Sequence[Subscribed]
    ) -> tuple[dict[Subscribed, ConsumerState], dict[Subscribed, Known], dict[Subscribed, datetime]]:
        """States of the consumers there, once those that run have ended or the wait is over. What is known there, and when it wrote its newest
        records. Nothing where it cannot be read.
        """
        if self._unreadable is not None:
            return {}, {}, {}
        wait_s = 0.0 if self._dry_run else self._wait_s
        try:
            self._ask(lambda there: _refuse_empty(there, wanted))
            consumers = self._ask(lambda there: _consumers(there, wanted, wait_s), wait_s)
            known = self._ask(lambda there: _known(there, wanted))
        except FAULTS as error:
            self._unreadable = first_line(error)
            return {}, {}, {}
        last: dict[Subscribed, datetime] = {}
        with suppress(*FAULTS):  # a line of the report; what counts is known
            last = self._ask(lambda there: _last_records(there, self._source, wanted))
        return consumers, known, last

    def _report(
        self,
        one: Subscribed,
        consumer: ConsumerState | None,
        ours: Known,
        theirs: Known | None,
        state: AckState,
        last: datetime | None,
    ) -> Failover:
        topic, subscription = one
        here, there = (AckState() if known is None else known.all_of(*one).here or AckState() for known in (ours, theirs))
        log = self._here.log(topic)
        present, before = split_at(state.base, log, log.latest_version()) if log.exists() else (MessageSet(), MessageSet())
        left = present - state.acked - before
        again = left & state.in_vain()
        sure = consumer is ConsumerState.STOPPED
        return Failover(
            str(topic), subscription, self._source, self._target, self._unreadable, "unknown" if consumer is None else consumer.value,
            (there.acked - here.acked).size, state.acked.size, left.size,
            again.size, again.shown(), again.size if sure else left.size, last, not self._dry_run,
        )  # fmt: skip


def _refuse_empty(there: ClusterTables, wanted: Sequence[Subscribed]) -> None:
    """Raises UsageError if nothing of the topics is there."""
    if not any(there.log(topic.acks).exists() or there.log(topic).exists() for topic, _ in wanted):
        raise UsageError("it has neither the topic nor its acknowledgements")


def _consumers(there: ClusterTables, wanted: Sequence[Subscribed], wait_s: float) -> dict[Subscribed, ConsumerState]:
    """States of the consumers, once none of them runs or the wait is over."""
    deadline = time.monotonic() + wait_s
    while True:
        found = consumers_in(there, wanted)
        if ConsumerState.RUNNING not in found.values() or time.monotonic() >= deadline:
            return found
        time.sleep(_POLL_S)


def _known(tables: ClusterTables, wanted: Sequence[Subscribed]) -> dict[Subscribed, Known]:
    """Knowledge of a cluster about them; of several in a namespace it is read once."""
    if len(wanted) == 1:
        return {wanted[0]: read_known(tables, *wanted[0])}
    namespaces = {acks: read_known(tables, acks) for acks in {topic.acks for topic, _ in wanted}}
    return {one: namespaces[one[0].acks] for one in wanted}


def _last_records(tables: ClusterTables, source: str, wanted: Sequence[Subscribed]) -> dict[Subscribed, datetime]:
    """Tells when `source` wrote its newest record of each of them, as far as a cluster has them."""
    found: dict[Subscribed, datetime] = {}
    for acks in {topic.acks for topic, _ in wanted}:
        log, keys = tables.log(acks), {key_of(*one): one for one in wanted if one[0].acks == acks}
        if not log.exists():
            continue
        theirs = Among("key", frozenset(keys)) & Among("origin", frozenset({source}))
        for part in scan(log, log.latest_version(), Scan(["key", "publish_time"], _last_by_key, theirs)):
            for key, at in part.items():
                found[keys[key]] = max(at, found.get(keys[key], at))
    return found


def _last_by_key(rows: pa.Table) -> dict[str, datetime]:
    found = rows.group_by("key").aggregate([("publish_time", "max")])
    return dict(zip(found["key"].to_pylist(), found["publish_time_max"].to_pylist(), strict=True))
