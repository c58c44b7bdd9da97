"""Consuming a topic: what is delivered when, in one cluster, after a failover, in two clusters at once, and after any stop."""

from __future__ import annotations

import time
from datetime import datetime, timezone
from typing import Any

import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from geo import crash
from geo.crash import CrashPoint, InjectedCrash
from geo.errors import AlreadyOwnedError, FencedError, GeoError, InvalidNameError, SchemaError, UsageError
from geo.log.message_id import MessageId
from geo.log.names import Topic
from geo.log.publish import publish
from geo.log.topics import create_partitions, registered_topics
from geo.subscription.consumer import Consumed
from geo.subscription.message_set import MessageSet
from geo.subscription.state import State
from tests.running import running
from tests.subscription.consuming import (
    ALL,
    DEAD_LETTERS,
    LIMIT_S,
    NAME,
    NONE,
    Given,
    consume,
    consuming,
    ids,
    known,
    letters,
    subscription,
)
from tests.world import TOPIC, World

pytestmark = pytest.mark.spark

CONSUME_POINTS = {
    CrashPoint.CONSUME_CREATED: 1,
    CrashPoint.CONSUME_PROCESSED: 1,
    CrashPoint.CONSUME_DEAD_LETTERED: 1,
    CrashPoint.ACKS_BEFORE_FLUSH: 2,
    CrashPoint.ACKS_AFTER_FLUSH: 2,
}
"""And which time they are passed: the first record of a subscription is that it was created."""


# -- what is delivered -----------------------------------------------------------------------------------------------------


def test_a_subscription_begins_at_the_earliest_message_at_the_latest_or_at_a_time(world: World) -> None:
    world.write("eu", 0, 10)
    assert consume(world, "eu", name="early").ids == ids("eu", 0, 10)
    assert consume(world, "eu", name="late", start="latest").ids == []
    moment = datetime.now(timezone.utc)
    world.write("eu", 10, 20)
    world.log("eu").append(world.entries("us", 0, 5))
    news = [*ids("eu", 10, 20), *ids("us", 0, 5)]
    assert consume(world, "eu", name="early").ids == news
    assert consume(world, "eu", name="late", start="latest").ids == news
    assert consume(world, "eu", name="since", start=moment).ids == news
    assert consume(world, "eu", name="since", start="earliest").ids == [], "the start is where it was begun, once"


def test_messages_come_in_publish_order_without_our_columns_and_without_markers(world: World) -> None:
    world.write("eu", 0, 5)
    log = world.log("eu")
    log.append(world.entries("us", 0, 5))
    log.append(world.entries("eu", 5, 7).withColumn("marker", F.lit("SNAPSHOT_REQUEST")))
    log.append(world.entries("eu", 7, 10))
    given = consume(world, "eu")
    assert given.ids == [*ids("eu", 0, 5), *ids("us", 0, 5), *ids("eu", 7, 10)]
    ours = [name for name in log.read().columns if name not in ("marker", "publish_date")]
    assert given.columns == [*ours, "redelivery_count"]
    assert given.consumed == Consumed(delivered=13, acknowledged=13)


def test_a_message_that_is_in_the_log_twice_is_delivered_once(world: World) -> None:
    world.write("eu", 0, 10)
    world.log("eu").append(world.entries("eu", 0, 10))
    assert sorted(consume(world, "eu", name="at-once").ids) == ids("eu", 0, 10)
    given = consume(world, "eu", batch_rows=3)
    assert sorted(given.ids) == ids("eu", 0, 10)
    assert max(map(len, given.batches)) <= 3
    world.log("eu").append(world.entries("eu", 5, 12))
    assert consume(world, "eu").ids == ids("eu", 10, 12)


def test_a_backlog_is_delivered_in_publish_order_in_batches_of_at_most_so_many(world: World) -> None:
    world.write("eu", 10, 20)
    world.log("eu").append(world.entries("eu", 0, 10))  # published later
    given = consume(world, "eu", batch_rows=7)
    assert given.ids == [*ids("eu", 10, 20), *ids("eu", 0, 10)]
    assert [len(batch) for batch in given.batches] == [7, 7, 6]


def test_a_limit_is_met_exactly_and_the_next_run_goes_on_there(world: World) -> None:
    world.write("eu", 10, 20)
    world.log("eu").append(world.entries("eu", 0, 10))
    order = [*ids("eu", 10, 20), *ids("eu", 0, 10)]
    assert consume(world, "eu", limit=4).ids == order[:4]
    assert consume(world, "eu", limit=9, batch_rows=6).ids == order[4:13]
    assert consume(world, "eu", limit=100).ids == order[13:]


def test_a_limit_counts_redeliveries_too(world: World) -> None:
    world.write("eu", 0, 3)
    given = consume(world, "eu", NONE, trigger="100 ms", limit=5, redelivery_delay_s=0.1)
    assert given.consumed.delivered == len(given.ids) == 5


def test_redeliveries_come_in_batches_of_at_most_so_many(world: World) -> None:
    world.write("eu", 0, 20)
    given = consume(world, "eu", "redelivery_count > 0", trigger="100 ms", limit=40, batch_rows=7, redelivery_delay_s=0.1)
    assert sorted(given.ids) == sorted([*ids("eu", 0, 20), *ids("eu", 0, 20)])
    assert max(map(len, given.batches)) <= 7


# -- what is acknowledged --------------------------------------------------------------------------------------------------


def test_what_the_function_does_not_return_comes_in_the_next_run_and_is_counted(world: World) -> None:
    world.write("eu", 0, 200)  # so many holes are looked up in another way than a few
    odd = ids("eu", 0, 200)[1::2]
    first = consume(world, "eu", "entry_id % 2 = 0")
    assert first.consumed == Consumed(delivered=200, acknowledged=100)
    assert set(map(tuple, first.counts.values())) == {(0,)}
    second = consume(world, "eu", NONE)
    assert second.ids == odd
    assert set(map(tuple, second.counts.values())) == {(1,)}
    assert second.consumed == Consumed(delivered=100, redelivered=100)
    third = consume(world, "eu", ALL)
    assert third.ids == odd
    assert set(map(tuple, third.counts.values())) == {(2,)}
    assert third.consumed == Consumed(delivered=100, redelivered=100, acknowledged=100)
    assert consume(world, "eu").consumed == Consumed()


def test_an_error_of_the_function_ends_the_run_as_it_is_and_nothing_of_the_batch_counts(world: World) -> None:
    world.write("eu", 0, 5)
    mine = ValueError("mine")

    def fails(messages: DataFrame) -> DataFrame:
        raise mine

    def queries(messages: DataFrame) -> DataFrame:
        messages.select("nonsense").collect()
        return messages

    def fails_later(messages: DataFrame) -> DataFrame:
        return messages.where(F.expr("raise_error('mine later') IS NULL"))

    with pytest.raises(ValueError, match="mine") as raised:
        consume(world, "eu", fails)
    assert raised.value is mine
    with pytest.raises(AnalysisException, match="nonsense"):
        consume(world, "eu", queries)
    with pytest.raises(PySparkException, match="mine later"):
        consume(world, "eu", fails_later)
    assert known(world, "eu") == State(base=known(world, "eu").base), "acknowledged nothing, counted nothing"
    given = consume(world, "eu")
    assert given.ids == ids("eu", 0, 5)
    assert set(map(tuple, given.counts.values())) == {(0,)}


def test_a_function_that_returns_something_else_acknowledges_nothing(world: World) -> None:
    world.write("eu", 0, 5)
    with pytest.raises(UsageError, match=r"the function returned int; expected: .* Nothing of this batch is acknowledged"):
        consume(world, "eu", lambda messages: 42)  # type: ignore[arg-type, return-value]  # what mypy would have told
    with pytest.raises(UsageError, match="with the columns origin, ledger_id, entry_id"):
        consume(world, "eu", lambda messages: messages.select("entry_id"))
    given = consume(world, "eu")
    assert given.ids == ids("eu", 0, 5)
    assert set(map(tuple, given.counts.values())) == {(0,)}


def test_rows_without_an_id_that_the_function_returns_are_named_in_an_error(world: World) -> None:
    world.write("eu", 0, 5)

    def outer_joined(messages: DataFrame) -> DataFrame:
        nobody = messages.sparkSession.sql("SELECT CAST(NULL AS STRING), CAST(NULL AS BIGINT), CAST(NULL AS BIGINT)")
        return messages.select("origin", "ledger_id", "entry_id").union(nobody)

    with pytest.raises(UsageError, match=r"null|NULL"):
        consume(world, "eu", outer_joined)
    assert consume(world, "eu").ids == ids("eu", 0, 5)


def test_what_earlier_batches_acknowledged_stays_so_when_a_later_one_fails(world: World) -> None:
    world.write("eu", 0, 20)

    def fails_at_last(messages: DataFrame) -> DataFrame:
        if len(given.batches) == 3:
            raise ValueError("the third")
        return messages

    given = Given(fails_at_last)
    with pytest.raises(ValueError, match="the third"):
        consume(world, "eu", given, batch_rows=7)
    assert given.ids == ids("eu", 0, 20)
    assert consume(world, "eu").ids == ids("eu", 14, 20)


def test_an_error_in_a_stream_ends_it_as_it_is_and_what_came_before_stays_acknowledged(world: World) -> None:
    world.write("eu", 0, 5)
    mine = ValueError("mine")

    def fails_later(messages: DataFrame) -> DataFrame:
        if len(given.batches) == 2:
            raise mine
        world.write("eu", 5, 8)
        return messages

    given = Given(fails_later)
    with pytest.raises(ValueError, match="mine") as raised:
        consume(world, "eu", given, trigger="100 ms")
    assert raised.value is mine
    assert given.ids == ids("eu", 0, 8)
    after = consume(world, "eu")
    assert after.ids == ids("eu", 5, 8)
    assert set(map(tuple, after.counts.values())) == {(0,)}


def test_messages_are_acknowledged_by_id_and_only_those_that_exist(world: World) -> None:
    world.write("eu", 0, 10)
    consumer = subscription(world, "eu")

    def by_id(messages: DataFrame) -> None:
        assert consumer.acknowledge([*ids("eu", 2, 4), *ids("eu", 10, 13), MessageId("us", 9, 0)]) == 2
        assert consumer.acknowledge(ids("eu", 3, 5)) == 2, "one that is acknowledged is no news and no fault"

    given = Given(by_id)
    done = consumer.run(given, trigger="available-now")
    assert done == Consumed(delivered=10, acknowledged=3, refused=4)
    assert known(world, "eu").acked == MessageSet.of(ids("eu", 2, 5))
    world.write("eu", 10, 13)
    rest = consume(world, "eu")
    assert rest.ids == [*ids("eu", 0, 2), *ids("eu", 5, 13)]
    assert [rest.counts[one] for one in rest.ids] == [[1]] * 7 + [[0]] * 3


def test_a_function_may_return_messages_that_came_before_and_no_others(world: World) -> None:
    world.write("eu", 0, 10)
    spark = world.spark

    def all_but_this(messages: DataFrame) -> DataFrame:
        return spark.sql("SELECT 'eu' AS origin, 1L AS ledger_id, id AS entry_id FROM range(0, 4) UNION SELECT 'eu', 1L, 99L")

    consume(world, "eu", NONE, limit=4)
    given = consume(world, "eu", all_but_this, limit=4)
    assert given.consumed == Consumed(delivered=4, redelivered=4, acknowledged=4, refused=1)
    world.write("eu", 99, 100)
    assert consume(world, "eu").ids == [*ids("eu", 4, 10), *ids("eu", 99, 100)]


def test_an_acknowledgement_while_nothing_runs_is_refused_or_kept_but_never_lost(world: World) -> None:
    world.write("eu", 0, 5)
    consumer = subscription(world, "eu")
    consumer.run(Given(NONE), trigger="available-now")
    try:
        kept = consumer.acknowledge(ids("eu", 0, 2))
    except GeoError:
        kept = 0
    assert consume(world, "eu").ids == ids("eu", kept, 5)


def test_one_that_never_ran_says_so_when_it_is_to_acknowledge(world: World) -> None:
    world.write("eu", 0, 5)
    try:
        kept = subscription(world, "eu").acknowledge(ids("eu", 0, 2))
    except GeoError:
        kept = 0
    assert consume(world, "eu").ids == ids("eu", kept, 5)


def test_the_same_object_runs_again_after_a_run_and_after_an_error(world: World) -> None:
    world.write("eu", 0, 10)
    consumer = subscription(world, "eu")
    assert consumer.run(Given(), trigger="available-now", limit=4).delivered == 4
    assert consumer.run(Given(), trigger="available-now", limit=4) == Consumed(delivered=4, acknowledged=4), "of this run"

    def fails(messages: DataFrame) -> DataFrame:
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        consumer.run(fails, trigger="available-now")
    given = Given()
    consumer.run(given, trigger="available-now")
    assert given.ids == ids("eu", 8, 10)


# -- failover ----------------------------------------------------------------------------------------------------------------


def test_after_a_failover_exactly_what_was_not_acknowledged_comes_and_so_it_does_back_again(linked: World) -> None:
    hole = MessageId("us", 1, 7)
    given = consume(linked, "eu", "NOT (origin = 'us' AND entry_id = 7)")
    assert sorted(given.ids) == [*ids("eu", 0, 20), *ids("us", 0, 20)]
    linked.replicate("us")
    assert consume(linked, "us", NONE).counts == {hole: [1]}
    for cluster in ("eu", "us"):
        linked.write(cluster, 20, 25)
    linked.replicate("eu")
    linked.replicate("us")
    back = consume(linked, "eu")
    assert sorted(back.ids) == sorted([hole, *ids("eu", 20, 25), *ids("us", 20, 25)])
    assert back.counts.pop(hole) == [2]
    assert set(map(tuple, back.counts.values())) == {(0,)}


def test_a_failover_skips_nothing_that_only_the_other_cluster_received(linked: World) -> None:
    linked.write("us", 20, 25)
    assert len(consume(linked, "eu").ids) == 40
    linked.write("eu", 20, 25)  # and what eu received after, and did not process, crosses
    linked.replicate("us")
    assert sorted(consume(linked, "us").ids) == [*ids("eu", 20, 25), *ids("us", 20, 25)]


def test_messages_that_another_cluster_does_not_get_hold_nothing_up_there(world: World) -> None:
    def publish_to(end: int) -> None:
        rows = world.rows(0, end).withColumn("replicate_to", F.expr("IF(number % 2 = 0, array(), NULL)"))
        publish(rows, TOPIC, config=world.config, cluster="eu", order_by="number")

    def entries(given: Given) -> list[int]:
        return [one.entry_id for one in given.ids]

    publish_to(20)
    assert entries(consume(world, "eu", "entry_id < 10")) == list(range(20))
    world.replicate("us")
    assert entries(consume(world, "us", "entry_id < 16")) == [11, 13, 15, 17, 19]
    publish_to(24)
    world.replicate("us")
    assert entries(consume(world, "us")) == [17, 19, 21, 23]
    world.replicate("eu")
    assert entries(consume(world, "eu")) == [10, 12, 14, 16, 18, 20, 22]


def test_acknowledgements_that_arrive_before_their_messages_and_again_after_are_kept(world: World) -> None:
    world.write("eu", 0, 20)
    consume(world, "eu", "entry_id <> 7")
    acks = str(TOPIC.acks)
    world.replicate("us", topics=acks)
    assert not world.log("us").exists()
    world.replicate("us")
    assert consume(world, "us", NONE).ids == ids("eu", 7, 8)
    state, version = known(world, "us"), world.log("us", TOPIC.acks).latest_version()
    world.replicate("us", topics=acks)
    assert world.log("us", TOPIC.acks).latest_version() == version, "they are there"
    again = world.log("us", TOPIC.acks).read()
    world.log("us", TOPIC.acks).append(world.spark.createDataFrame(again.toArrow().to_pylist(), again.schema))
    assert known(world, "us") == state, "a record that comes twice says what it said"
    assert consume(world, "us").counts == {MessageId("eu", 1, 7): [2]}


# -- redelivery and dead letters -----------------------------------------------------------------------------------------------


def test_a_message_comes_back_after_its_delay_until_it_is_acknowledged(world: World) -> None:
    world.write("eu", 0, 3)
    given = consume(world, "eu", "redelivery_count = 2", trigger="100 ms", limit=9, redelivery_delay_s=0.5)
    assert given.counts == {one: [0, 1, 2] for one in ids("eu", 0, 3)}
    for first, second, third in given.times.values():
        assert second - first >= 0.5
        assert third - second >= 0.5
    assert given.consumed == Consumed(delivered=9, redelivered=6, acknowledged=3)
    assert consume(world, "eu").ids == []


def test_a_message_delivered_in_vain_often_enough_becomes_one_dead_letter_while_the_others_go_on(world: World) -> None:
    world.write("eu", 0, 5)
    one = MessageId("eu", 1, 3)
    options: dict[str, Any] = {"redelivery_delay_s": 0.2, "max_redeliveries": 1}
    with consuming(world, "eu", "entry_id <> 3", **options) as consumer:
        consumer.until(lambda: consumer.subscription.done.dead_lettered == 1)
        world.write("eu", 5, 8)
        consumer.until_given(*ids("eu", 5, 8))
    assert consumer.given.counts.pop(one) == [0, 1]
    assert consumer.given.counts == {other: [0] for other in [*ids("eu", 0, 3), *ids("eu", 4, 8)]}
    assert consumer.subscription.done == Consumed(delivered=9, redelivered=1, acknowledged=9, dead_lettered=1)
    assert consume(world, "eu", **options).ids == []
    row = world.log("eu", DEAD_LETTERS).read().select("key", "payload", "producer", "properties", "replicate_to").collect()
    assert [(r["key"], bytes(r["payload"]), r["replicate_to"]) for r in row] == [("k3", b"payload 3", None)]
    assert letters(world, "eu") == [
        {
            "REAL_TOPIC": str(TOPIC),
            "REAL_SUBSCRIPTION": NAME,
            "ORIGIN_MESSAGE_ID": str(one),
            "geo.dead_letter_reason": "delivered 2 times and not acknowledged",
        }
    ]


def test_deliveries_are_counted_over_runs_and_clusters_until_a_message_is_a_dead_letter(world: World) -> None:
    rows = world.rows(0, 4).selectExpr("*", "number * 1.5D AS amount", "map('REAL_TOPIC', 'mine', 'a', 'b') AS properties")
    publish(
        rows.withColumn("replicate_to", F.expr("IF(number = 0, array('us'), NULL)")),
        TOPIC, config=world.config, cluster="eu", order_by="number",
    )  # fmt: skip
    assert [one.entry_id for one in consume(world, "eu", "entry_id > 1", max_redeliveries=1).ids] == [0, 1, 2, 3]
    world.replicate("us")
    second = consume(world, "us", NONE, max_redeliveries=1)
    assert [(one.entry_id, second.counts[one]) for one in second.ids] == [(0, [1]), (1, [1])]
    last = consume(world, "us", max_redeliveries=1)
    assert last.consumed == Consumed(acknowledged=2, dead_lettered=2)
    assert last.ids == []
    found = world.log("us", DEAD_LETTERS).read().orderBy("amount").collect()
    assert [(row["key"], row["amount"], row["replicate_to"]) for row in found] == [("k0", 0.0, []), ("k1", 1.5, None)]
    assert [row["properties"]["REAL_TOPIC"] for row in found] == [str(TOPIC)] * 2
    assert {row["properties"]["a"] for row in found} == {"b"}, "the message's own are kept"
    world.replicate("eu")
    assert consume(world, "eu", max_redeliveries=1).consumed == Consumed()
    assert [found["ORIGIN_MESSAGE_ID"].rpartition(":")[2] for found in letters(world, "eu")] == ["1"], "one was for us only"


# -- a log that changes under a running consumer -------------------------------------------------------------------------------


def _restore(world: World, version: int) -> None:
    world.spark.sql(f"RESTORE TABLE {world.log('eu').sql} TO VERSION AS OF {version}").collect()


def test_a_running_consumer_goes_on_after_its_log_was_restored_and_delivers_nothing_twice(world: World) -> None:
    world.write("eu", 0, 10)
    older = world.log("eu").latest_version()
    world.write("eu", 10, 20)
    newer = world.log("eu").latest_version()
    with consuming(world, "eu") as consumer:
        consumer.until_given(*ids("eu", 0, 20))
        _restore(world, older)  # files go
        world.write("eu", 20, 30)
        consumer.until_given(*ids("eu", 20, 30))
        _restore(world, newer)  # some come back, others go: what a stream of Delta's cannot read
        world.write("eu", 30, 40)
        consumer.until_given(*ids("eu", 30, 40))
    assert sorted(consumer.given.ids) == ids("eu", 0, 40), "each once"
    assert consume(world, "eu").ids == []


def test_what_a_restore_takes_away_while_it_waits_for_its_redelivery_is_not_acknowledged_for_it(world: World) -> None:
    world.write("eu", 0, 10)
    older = world.log("eu").latest_version()
    world.write("eu", 10, 12)

    def not_at_first(messages: DataFrame) -> DataFrame:
        if len(given.batches) == 1:
            _restore(world, older)
            return messages.where("entry_id < 9")
        return messages

    given = Given(not_at_first)
    consume(world, "eu", given, trigger="100 ms", limit=13, redelivery_delay_s=0.2)
    assert MessageSet.of(ids("eu", 10, 12)) & known(world, "eu").acked == MessageSet(), "nobody processed them"
    world.write("eu", 10, 12)  # as a link brings them back
    assert consume(world, "eu").ids == ids("eu", 10, 12)


# -- several consumers -----------------------------------------------------------------------------------------------------


def test_consumers_in_two_clusters_at_once_process_everything_and_know_of_each_other(world: World) -> None:
    for cluster in ("eu", "us"):
        world.write(cluster, 0, 3)
    world.replicate("eu")
    world.replicate("us")
    everything = {*ids("eu", 0, 12), *ids("us", 0, 12)}
    with (
        running(world, "eu"),
        running(world, "us"),
        consuming(world, "eu") as eu,
        consuming(world, "us", "origin = 'us'") as us,
    ):
        us.until_given(*ids("us", 0, 3))
        for first in range(3, 12, 3):
            for cluster in ("eu", "us"):
                world.write(cluster, first, first + 3)
            eu.until_given(*ids("us", first, first + 3))
        us.until(lambda: everything == set(us.subscription.state.acked))
        eu.until(lambda: everything == set(eu.subscription.state.acked))
        last = MessageId("eu", 1, 11)
        assert last in us.subscription.state.acked, "which us itself never acknowledges"
    assert eu.given.counts.keys() | us.given.counts.keys() == everything
    assert sorted(eu.given.ids) == sorted(set(eu.given.ids)), "none twice in one cluster"
    world.replicate("us")
    world.replicate("eu")
    assert known(world, "eu") == known(world, "us")
    assert consume(world, "us").ids == []
    assert consume(world, "eu").ids == []


def test_one_consumer_at_a_time_and_one_that_takes_over_fences_the_other(world: World) -> None:
    world.write("eu", 0, 5)
    first, given = subscription(world, "eu"), Given()
    first.start(given, trigger="100 ms")
    deadline = time.monotonic() + LIMIT_S
    while set(given.ids) != set(ids("eu", 0, 5)) or not known(world, "eu").acked:
        assert not first.await_termination(0.05), "ended early"
        assert time.monotonic() < deadline
    with pytest.raises(AlreadyOwnedError, match="already run by"):
        consume(world, "eu")
    with consuming(world, "eu", take_over=True) as second:
        second.until(lambda: bool(second.subscription.state.acked))
        world.write("eu", 5, 8)
        second.until_given(*ids("eu", 5, 8))
        with pytest.raises(FencedError, match="another runner took over"):
            first.await_termination(LIMIT_S)
        world.write("eu", 8, 10)
        second.until_given(*ids("eu", 8, 10))
    assert second.given.ids == ids("eu", 5, 10), "what the first one acknowledged does not come again"
    assert consume(world, "eu").ids == []


# -- stops -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("point", CONSUME_POINTS, ids=lambda point: point.value)
def test_after_a_stop_anywhere_comes_exactly_what_the_records_do_not_tell_acknowledged(world: World, point: CrashPoint) -> None:
    world.write("eu", 0, 20)
    options: dict[str, Any] = {"done": "entry_id <> 7", "max_redeliveries": 0}
    if point is CrashPoint.CONSUME_DEAD_LETTERED:
        consume(world, "eu", **options)
    before = Given(options["done"])
    crash.arm(f"{point.value}:raise:{CONSUME_POINTS[point]}")
    with pytest.raises(InjectedCrash, match=point.value):
        consume(world, "eu", **{**options, "done": before})
    crash.arm(None)
    told = known(world, "eu")
    in_vain = told.redelivered[0] if told.redelivered else MessageSet()
    after = consume(world, "eu", **options)
    assert sorted(after.ids) == list(MessageSet.of(ids("eu", 0, 20)) - told.acked - in_vain)
    if point is not CrashPoint.CONSUME_DEAD_LETTERED:
        assert {*before.ids, *after.ids} == set(ids("eu", 0, 20))
    assert consume(world, "eu", **options).ids == []
    assert [found["ORIGIN_MESSAGE_ID"] for found in letters(world, "eu")] == ["eu:1:7"]
    assert known(world, "eu").acked == MessageSet.of(ids("eu", 0, 20))


def test_a_subscription_whose_creation_was_told_begins_there_whenever_it_is_first_consumed(world: World) -> None:
    world.write("eu", 0, 5)
    crash.arm(f"{CrashPoint.CONSUME_CREATED.value}:raise")
    with pytest.raises(InjectedCrash):
        consume(world, "eu", start="latest")
    crash.arm(None)
    world.write("eu", 5, 10)
    assert consume(world, "eu", start="latest").ids == ids("eu", 5, 10)


# -- refused -----------------------------------------------------------------------------------------------------------------


def _registered(world: World) -> list[str]:
    return [str(found.topic) for found in registered_topics(world.tables("eu"))]


def test_a_topic_that_is_not_there_or_is_partitioned_or_ours_is_refused_and_nothing_is_created(world: World) -> None:
    with pytest.raises((SchemaError, UsageError), match=r"persistent://shop/web/clicks: has no log in cluster eu"):
        consume(world, "eu")
    assert _registered(world) == []
    create_partitions(world.tables("eu"), TOPIC, 2)
    with pytest.raises(UsageError, match=r"clicks is partitioned: consume .*clicks-partition-0 to clicks-partition-1 one by one"):
        consume(world, "eu")
    assert _registered(world) == [f"{TOPIC}-partition-{number}" for number in (0, 1)]
    with pytest.raises(UsageError, match=r"names that start with __ are for what delta-geo itself writes"):
        publish(world.rows(0, 1), TOPIC.acks, config=world.config, cluster="eu", order_by="number")
    assert not world.log("eu", TOPIC.acks).exists()


def test_a_topic_whose_dead_letter_topic_would_have_too_long_a_name_is_refused_each_time_alike(world: World) -> None:
    topic = Topic("shop", "web", "c" * 80)
    world.write("eu", 0, 1, topic=topic)
    for _ in range(2):
        with pytest.raises(InvalidNameError, match="-DLQ"):
            consume(world, "eu", topic=topic)
