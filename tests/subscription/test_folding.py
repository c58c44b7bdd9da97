"""The folding query: cursors are what the records say, whatever happens to it, and nothing needs it."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from pyspark.sql import Row
from pyspark.sql import functions as F

from geo import crash
from geo.crash import CrashPoint, InjectedCrash
from geo.log.frames import rows_frame
from geo.log.message_id import MessageId
from geo.log.publisher import Publisher
from geo.ops.maintain import maintain
from geo.subscription.acks import read_known
from geo.subscription.admin import reset
from geo.subscription.folding import Folded, Folding
from geo.subscription.record import decode, key_of
from geo.subscription.state import State
from schemas import CURSORS
from tests.subscription.test_failover import ACKS, NAME, consume, entries, state
from tests.test_crash_points import FOLD_POINTS
from tests.world import TOPIC, World

pytestmark = pytest.mark.spark

KEY = key_of(TOPIC, NAME)


def fold(world: World, cluster: str = "eu") -> Folded:
    return Folding(world.spark, world.config, cluster).run()


def cursor(world: World, cluster: str = "eu") -> Row:
    (row,) = world.tables(cluster).journal(CURSORS).newest()
    return row


def forget_records(world: World, cluster: str = "eu") -> None:
    """As if all records of `__acks` had expired."""
    world.tables(cluster).log(TOPIC.acks).delta().delete()


def test_a_cursor_is_the_state_and_a_consumer_needs_no_record_that_is_in_it(linked: World) -> None:
    consume(linked, "eu", leave=lambda one: one == ("eu", 5))
    before = state(linked, "eu")
    assert fold(linked) == Folded(cursors=1, compacted=1)
    row = cursor(linked)
    assert decode(bytes(row["state"])) == before
    assert (row["acknowledged"], row["ranges"], row["mark_delete"]) == (39, 3, {"eu:1": 4, "us:1": 19})
    fold(linked)  # takes in the compact record, which says nothing new
    assert cursor(linked)["sequence"] == 2
    forget_records(linked)
    assert state(linked, "eu") == before
    linked.write("eu", 20, 30)
    assert consume(linked, "eu") == [("eu", 5), *entries("eu", 20, 30)], "cursor and newer records"


def test_a_cluster_that_joins_late_lacks_nothing_once_only_compact_records_are_left(linked: World) -> None:
    consume(linked, "eu", leave=lambda one: one == ("eu", 5))
    fold(linked)
    records = linked.tables("eu").log(TOPIC.acks)
    records.delta().delete(F.col("producer") != "fold")
    linked.replicate("us")
    assert consume(linked, "us") == [("eu", 5)]


@pytest.mark.parametrize("point", FOLD_POINTS, ids=lambda point: point.value)
def test_a_fold_that_stops_here_ends_with_the_same_cursor(linked: World, point: CrashPoint) -> None:
    consume(linked, "eu", leave=lambda one: one[1] >= 10)
    crash.arm(f"{point.value}:raise")
    with pytest.raises(InjectedCrash):
        fold(linked)
    crash.arm(None)
    assert len(consume(linked, "eu", leave=lambda one: one == ("eu", 15))) == 20
    expected = state(linked, "eu")
    fold(linked)
    assert decode(bytes(cursor(linked)["state"])) == expected
    forget_records(linked)
    assert consume(linked, "eu") == [("eu", 15)]


def test_a_reset_is_folded_and_old_acknowledgements_after_it_are_counted(linked: World) -> None:
    consume(linked, "eu", leave=lambda one: one[1] >= 10)
    linked.replicate("us", topics=ACKS)
    consume(linked, "eu")
    reset(linked.spark, linked.config, "us", TOPIC, NAME, MessageId("eu", 1, 5))
    fold(linked, "us")
    linked.replicate("us", topics=ACKS)
    fold(linked, "us")
    row = cursor(linked, "us")
    assert (row["epoch"], row["epoch_cluster"], row["acknowledged"]) == (1, "us", 0)
    assert row["refused"]["older epoch"] >= 1


def test_bad_records_are_counted_with_their_reason_and_what_is_no_subscription_leaves_nothing(linked: World) -> None:
    consume(linked, "eu")
    rows: list[Mapping[str, object]] = [
        {"key": KEY, "payload": b"\x09"},
        {"key": KEY, "payload": None},
        {"key": "nonsense", "payload": b"\x01"},
        {"key": None, "payload": b""},
    ]
    publisher = Publisher(linked.tables("eu"), linked.config, TOPIC.acks, "forger")
    publisher.open(rows_frame(linked.spark, {"key": "STRING", "payload": "BINARY"}, []))
    publisher.publish_rows(rows)
    publisher.close()
    before = state(linked, "eu")
    fold(linked)
    row = cursor(linked)
    assert row["refused"] == {"newer encoding": 1, "malformed": 1}
    assert decode(bytes(row["state"])) == before
    assert read_known(linked.tables("eu"), linked.config, TOPIC).states == {KEY: before}


def test_records_expire_only_once_they_are_in_younger_compact_records(linked: World) -> None:
    consume(linked, "eu")
    before: State = state(linked, "eu")
    log = linked.tables("eu").log(TOPIC.acks)
    old = log.read().withColumn("publish_time", F.expr("publish_time - INTERVAL 20 DAYS"))
    old = old.withColumn("publish_date", F.to_date("publish_time")).withColumn("ledger_id", F.lit(77).cast("bigint"))
    log.append(old.cache())
    with linked.path.open("a") as file:
        file.write('topics:\n  - {match: "persistent://*/*/__acks", message_ttl: 10 days}\n')
    linked.reload()
    linked.replicate("us")
    (held, *_) = maintain(linked.spark, linked.config, "eu", ACKS)
    assert [(one.link, len(one.days)) for one in held.held] == [("the folding query", 1)]
    assert not held.expired
    fold(linked)
    (gone, *_) = maintain(linked.spark, linked.config, "eu", ACKS)
    assert len(gone.expired) == 1
    assert not gone.held
    assert state(linked, "eu") == before
