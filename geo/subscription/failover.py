"""Moving a subscription's consumer to another cluster: nothing that was acknowledged is repeated if it can still be had.

Acknowledgements are a set of message ids, so the move needs no translation: what both clusters know is united and recorded
in the target. It works when the source is gone; then the target goes on with what has come, and this says what that may repeat.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from geo.asking import ask_all
from geo.config.model import Config
from geo.errors import UsageError
from geo.faults import FAULTS
from geo.log.housekeeping import open_for_writing
from geo.log.topic_log import open_log
from geo.names import Topic, check_subscription
from geo.subscription.acks.ack_publisher import MOVED, ConsumerState, consumer_in, publish_once
from geo.subscription.acks.ack_state import AckState
from geo.subscription.acks.acks_topic import read_known
from geo.subscription.acks.message_set import MessageSet
from geo.subscription.acks.record import key_of
from geo.subscription.acks.start_position import split_at
from geo.tables.cluster import ClusterTables, connect
from geo.text import first_line
from geo.times import utc

WAIT_S = 30.0
"""For a consumer that is being stopped: its last batch, and its last acknowledgements."""

ANSWER_S = 30.0
"""How long each look at the source may take, beside waiting for its consumer. One that does not answer counts as gone."""

_POLL_S = 0.5

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Failover:
    """What a failover found. Messages are those in the target's log; `ids` as `origin:ledger:first-last`, at most 100 ranges."""

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
    """Of these, those that were delivered before and not acknowledged."""
    repeated_ids: str
    at_most_repeated: int
    """With a consumer that may have processed more than it could tell: `repeated` and what else it may have had."""
    last_acknowledged: datetime | None
    """When the source wrote its newest record, as far as could be read."""
    recorded: bool


def failover(
    spark: SparkSession,
    config: Config,
    topic: Topic,
    subscription: str,
    source: str,
    target: str,
    *,
    dry_run: bool = False,
    wait_s: float = WAIT_S,
    source_gone: bool = False,
) -> Failover:
    """Take over what `source` acknowledged, say what will be repeated, and record the move in `target`.

    Waits up to `wait_s` for a consumer that still runs in the source. Reads the source's own tables if each look at them takes
    ANSWER_S at most, so that nothing depends on a link; with `source_gone` they are not looked at. (Whoever publishes, as the record
    of the move, asks all clusters for its ledgers, a minute at most.) Raises UsageError if neither cluster knows
    the subscription, UnsafeError if records of it cannot be read.
    """
    check_subscription(subscription)
    if source == target:
        raise UsageError(f"--from and --to are both {source}.")
    config.cluster(source)
    here = connect(spark, config.cluster(target))
    open_for_writing(here, config)

    def ask(question: Callable[[ClusterTables], T], more_s: float = 0.0) -> T:
        """Raises what it does, RetryableError if the source does not answer within ANSWER_S and `more_s`."""
        asked = ask_all({source: lambda: question(connect(spark, config.cluster(source)))}, ANSWER_S + more_s)
        return asked[source].result()

    consumer, known, unreadable = None, None, "not asked: --source-gone" if source_gone else None
    if not source_gone:
        try:
            consumer = ask(lambda there: _consumer(there, topic, subscription))
            if consumer is ConsumerState.RUNNING and not dry_run:
                consumer = ask(lambda there: _after_its_end(there, topic, subscription, wait_s), wait_s)
            known = ask(lambda there: read_known(there, topic, subscription))
        except FAULTS as error:
            consumer, unreadable = None, first_line(error)
    theirs = None if known is None else known.state_of(topic, subscription)
    ours = read_known(here, topic, subscription).state_of(topic, subscription)
    state = ours | theirs if ours and theirs else ours or theirs
    if state is None or state.deleted:
        raise UsageError(f"neither {source} nor {target} knows a subscription {subscription} of {topic}.")
    present, before = split_at(state.base, open_log(here, topic)[0])
    left = present - state.acked - before
    again = left & state.in_vain()
    sure = consumer is ConsumerState.STOPPED
    key, last = key_of(topic, subscription), None
    if known is None:
        last = _last_record(here, source, key, topic)
    else:
        with suppress(*FAULTS):
            last = ask(lambda there: _last_record(there, source, key, topic))
    if not dry_run:
        publish_once(here, config, topic, subscription, lambda: state, {MOVED: f"{source}->{target}"})
    return Failover(
        str(topic), subscription, source, target, unreadable, consumer.value if consumer is not None else "unknown",
        ((theirs or AckState()).acked - (ours or AckState()).acked).size, state.acked.size, left.size,
        again.size, _shown(again), again.size if sure else left.size, last, not dry_run,
    )  # fmt: skip


def _consumer(there: ClusterTables, topic: Topic, subscription: str) -> ConsumerState:
    """As `consumer_in`. Raises UsageError if nothing of the topic is there."""
    if not there.log(topic.acks).exists() and not there.log(topic).exists():
        raise UsageError("it has neither the topic nor its acknowledgements")
    return consumer_in(there, topic, subscription)


def _after_its_end(there: ClusterTables, topic: Topic, subscription: str, wait_s: float) -> ConsumerState:
    deadline = time.monotonic() + wait_s
    while (found := consumer_in(there, topic, subscription)) is ConsumerState.RUNNING and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    return found


def _last_record(tables: ClusterTables, source: str, key: str, topic: Topic) -> datetime | None:
    log = tables.log(topic.acks)
    if not log.exists():
        return None
    theirs = (F.col("key") == key) & (F.col("origin") == source)
    found = log.read().where(theirs).agg(F.max("publish_time").alias("last")).collect()[0]["last"]
    return None if found is None else utc(found)


def _shown(messages: MessageSet) -> str:
    shown = str(messages).split(" ")
    return " ".join(shown[:100]) + (f" and {len(shown) - 100} ranges more" if len(shown) > 100 else "")
