"""Consuming a topic: what is delivered when, in one cluster, after a failover, in two clusters at once, and after any stop."""

from __future__ import annotations

import logging
import shutil
import threading
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField

from geo import crash
from geo.coordination.runners import producer_runner
from geo.crash import CrashPoint
from geo.delta import tail
from geo.delta.appending import append_frame
from geo.delta.ddl import add_columns
from geo.delta.history import LOOK_BACK
from geo.errors import AlreadyOwnedError, FencedError, InvalidNameError, RetryableError, SchemaError, UsageError
from geo.ids import MessageId
from geo.log.admission import MAX_HEADER_BYTES
from geo.log.partitioned import create_partitions
from geo.log.publish import publish
from geo.log.topics import registered_topics
from geo.names import Topic
from geo.streams import timetable
from geo.subscription.acks.ack_state import AckState, Base
from geo.subscription.acks.consumers import ConsumerState
from geo.subscription.acks.message_set import MessageSet
from geo.subscription.changes import reset
from geo.subscription.consumer.consumed import Consumed
from geo.subscription.consumer.settings import dead_letter_topic
from geo.testing import dies_at
from tests.running import running
from tests.subscription.consuming import (
    ALL,
    LIMIT_S,
    NAME,
    NONE,
    Given,
    consume,
    consumer_in,
    consuming,
    ids,
    known,
    letters,
    subscription,
    tell,
)
from tests.test_crash_points import CONSUME_POINTS
from tests.waiting import until
from tests.world import TOPIC, World

pytestmark = pytest.mark.spark

EU = ids("eu", 0, 20)
"""What eu has written in `backlog`, in order."""


@pytest.fixture(scope="module")
def _backlog_once(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> World:
    world = World(tmp_path_factory.mktemp("backlog"), spark=spark)
    world.write("eu", 0, 20)
    consume(world, "eu", name="other")
    tell(world, "eu", AckState(base=Base(), redelivered=(MessageSet.of(EU[7:8]),)), name="worn")
    return world


@pytest.fixture
def backlog(_backlog_once: World, tmp_path: Path) -> World:
    """Two clusters, eu and us, linked both ways. eu wrote 20 messages. There the subscription `other` has consumed them, and to
    `worn` one was delivered in vain. us has nothing yet. A copy for this test alone."""
    return _backlog_once.copy(tmp_path)


# -- what is delivered -----------------------------------------------------------------------------------------------------


def test_a_subscription_begins_at_the_earliest_message_at_the_latest_or_at_a_time(backlog: World) -> None:
    assert consume(backlog, "eu", name="late", start="latest").ids == []
    moment = datetime.now(timezone.utc)
    backlog.write("eu", 20, 30)
    append_frame(backlog.log("eu"), backlog.entries("us", 0, 5))
    news = [*ids("eu", 20, 30), *ids("us", 0, 5)]
    assert consume(backlog, "eu", name="early").ids == [*EU, *news]
    assert consume(backlog, "eu", name="late", start="earliest").ids == news, "it begins where it was begun, once"
    assert consume(backlog, "eu", name="since", start=moment).ids == news


def test_what_was_published_elsewhere_before_a_subscription_began_at_the_latest_is_left_out_when_it_comes(backlog: World) -> None:
    reset(backlog.spark, backlog.config, "eu", TOPIC, "worn", "latest")
    hour_ago = F.expr("current_timestamp() - INTERVAL 1 HOUR")
    append_frame(backlog.log("eu"), backlog.entries("de", 0, 5).withColumn("publish_time", hour_ago))
    append_frame(backlog.log("eu"), backlog.entries("de", 5, 8))
    append_frame(backlog.log("eu"), backlog.entries("eu", 20, 22).withColumn("publish_time", hour_ago))
    assert consume(backlog, "eu", name="worn").ids == [*ids("eu", 20, 22), *ids("de", 5, 8)]
    with consuming(backlog, "eu", name="worn") as worn:
        append_frame(backlog.log("eu"), backlog.entries("de", 8, 9))
        worn.until_given(*ids("de", 8, 9))
        append_frame(backlog.log("eu"), backlog.entries("us", 0, 5).withColumn("publish_time", hour_ago))
        append_frame(backlog.log("eu"), backlog.entries("us", 5, 6))
        worn.until_given(*ids("us", 5, 6))
    assert worn.given.ids == [*ids("de", 8, 9), *ids("us", 5, 6)]


def test_messages_come_in_publish_order_without_our_columns_and_without_markers(backlog: World) -> None:
    log = backlog.log("eu")
    append_frame(log, backlog.entries("us", 0, 5))
    append_frame(log, backlog.entries("eu", 20, 22).withColumn("marker", F.lit("SNAPSHOT_REQUEST")))
    append_frame(log, backlog.entries("eu", 22, 25))
    given = consume(backlog, "eu")
    assert given.ids == [*EU, *ids("us", 0, 5), *ids("eu", 22, 25)]
    ours = [name for name in log.read().columns if name not in ("marker", "publish_date")]
    assert given.columns == [*ours, "redelivery_count"]
    assert given.consumed == Consumed(delivered=28, acknowledged=28)


def test_a_message_that_is_in_the_log_twice_is_delivered_once(backlog: World) -> None:
    log = backlog.log("eu")
    append_frame(log, backlog.entries("eu", 0, 20))
    given = consume(backlog, "eu")
    assert sorted(given.ids) == EU, "in one batch"
    assert len(given.batches) == 1
    append_frame(log, backlog.entries("eu", 10, 26))
    append_frame(log, backlog.entries("eu", 22, 30))
    given = consume(backlog, "eu", batch_rows=3)
    assert sorted(given.ids) == ids("eu", 20, 30), "over batches and runs"
    assert max(map(len, given.batches)) <= 3


def test_a_backlog_comes_in_batches_of_at_most_so_many_and_up_to_a_limit_in_publish_order(backlog: World) -> None:
    append_frame(backlog.log("eu"), backlog.entries("de", 0, 5))
    given = consume(backlog, "eu", batch_rows=7, limit=16)
    assert given.ids == EU[:16]
    assert [len(batch) for batch in given.batches] == [7, 7, 2]
    given = consume(backlog, "eu", batch_rows=7)
    assert given.ids == [*EU[16:], *ids("de", 0, 5)]
    assert max(map(len, given.batches)) <= 7


def test_a_limit_counts_redeliveries_too(backlog: World) -> None:
    given = consume(backlog, "eu", NONE, trigger="100 ms", limit=25, redelivery_delay_s=0.1)
    assert len(given.ids) == 25
    assert given.consumed == Consumed(delivered=25, redelivered=5)


def test_redeliveries_come_in_batches_of_at_most_so_many(backlog: World) -> None:
    done = "redelivery_count > 0"
    given = consume(backlog, "eu", done, trigger="100 ms", limit=40, batch_rows=7, redelivery_delay_s=0.1)
    assert given.counts == {one: [0, 1] for one in EU}
    assert max(map(len, given.batches)) <= 7


# -- what is acknowledged --------------------------------------------------------------------------------------------------


def test_what_the_function_does_not_return_comes_in_the_next_run_and_is_counted(backlog: World) -> None:
    backlog.write("eu", 20, 200)  # so many holes are looked up in another way than a few
    odd = ids("eu", 0, 200)[1::2]
    first = consume(backlog, "eu", "entry_id % 2 = 0")
    assert first.counts == {one: [0] for one in ids("eu", 0, 200)}
    assert first.consumed == Consumed(delivered=200, acknowledged=100)
    second = consume(backlog, "eu", NONE)
    assert second.ids == odd
    assert second.counts == {one: [1] for one in odd}
    assert second.consumed == Consumed(delivered=100, redelivered=100)
    third = consume(backlog, "eu", ALL)
    assert third.counts == {one: [2] for one in odd}
    assert third.consumed == Consumed(delivered=100, redelivered=100, acknowledged=100)
    assert known(backlog, "eu") == AckState(base=Base(), acked=MessageSet.of(ids("eu", 0, 200)))


def test_an_error_of_the_function_ends_the_run_as_it_is_and_nothing_of_the_batch_counts(backlog: World) -> None:
    mine = ValueError("mine")

    def fails(messages: DataFrame) -> DataFrame:
        raise mine

    def queries(messages: DataFrame) -> DataFrame:
        messages.select("nonsense").collect()
        return messages

    def fails_later(messages: DataFrame) -> DataFrame:
        return messages.where(F.expr("raise_error('mine later') IS NULL"))

    with pytest.raises(ValueError, match="mine") as raised:
        consume(backlog, "eu", fails)
    assert raised.value is mine
    with pytest.raises(AnalysisException, match="nonsense"):
        consume(backlog, "eu", queries)
    with pytest.raises(PySparkException, match="mine later"):
        consume(backlog, "eu", fails_later)
    assert known(backlog, "eu") == AckState(base=Base())


def test_a_function_that_returns_something_else_acknowledges_nothing(backlog: World) -> None:
    def outer_joined(messages: DataFrame) -> DataFrame:
        nobody = messages.sparkSession.sql("SELECT CAST(NULL AS STRING), CAST(NULL AS BIGINT), CAST(NULL AS BIGINT)")
        return messages.select("origin", "ledger_id", "entry_id").union(nobody)

    with pytest.raises(UsageError, match=r"the function returned int; expected: .* Nothing of this batch is acknowledged"):
        consume(backlog, "eu", lambda messages: 42)  # type: ignore[arg-type, return-value]  # what mypy would have told
    with pytest.raises(UsageError, match="with the columns origin, ledger_id, entry_id"):
        consume(backlog, "eu", lambda messages: messages.select("entry_id"))
    with pytest.raises(UsageError, match="rows without a message id"):
        consume(backlog, "eu", outer_joined)
    with pytest.raises(UsageError, match="Redeliver_After as int"):
        consume(backlog, "eu", lambda messages: messages.withColumn("Redeliver_After", F.lit(5)))
    assert known(backlog, "eu") == AckState(base=Base())


def test_what_earlier_batches_acknowledged_stays_so_when_a_later_one_fails(backlog: World) -> None:
    def fails_at_last(messages: DataFrame) -> DataFrame:
        if len(given.batches) == 3:
            raise ValueError("the third")
        return messages

    given = Given(fails_at_last)
    with pytest.raises(ValueError, match="the third"):
        consume(backlog, "eu", given, batch_rows=7)
    assert given.ids == EU
    assert known(backlog, "eu") == AckState(base=Base(), acked=MessageSet.of(EU[:14]))


def test_an_error_in_a_stream_ends_it_as_it_is_and_nothing_of_the_batch_counts(backlog: World) -> None:
    mine = ValueError("mine")

    def fails_later(messages: DataFrame) -> DataFrame:
        if len(given.batches) == 2:
            raise mine
        backlog.write("eu", 20, 25)
        return messages

    given = Given(fails_later)
    with pytest.raises(ValueError, match="mine") as raised:
        consume(backlog, "eu", given, trigger="100 ms")
    assert raised.value is mine
    assert given.ids == ids("eu", 0, 25)
    assert known(backlog, "eu") == AckState(base=Base(), acked=MessageSet.of(EU))


def test_messages_are_acknowledged_by_id_and_only_those_that_exist(backlog: World) -> None:
    consumer = subscription(backlog, "eu")

    def by_id(messages: DataFrame) -> None:
        assert consumer.acknowledge([*ids("eu", 2, 4), *ids("eu", 20, 23), MessageId("us", 9, 0)]) == 2
        assert consumer.acknowledge(ids("eu", 3, 5)) == 2, "one that is acknowledged is no news and no fault"

    done = consumer.run(Given(by_id), trigger="available-now")
    assert done == Consumed(delivered=20, acknowledged=3, refused=4)
    assert known(backlog, "eu").acked == MessageSet.of(EU[2:5])


def test_a_function_may_return_messages_that_came_before_and_no_others(backlog: World) -> None:
    spark = backlog.spark

    def others(messages: DataFrame) -> DataFrame | None:
        ids = "SELECT 'eu' AS origin, 1L AS ledger_id, id AS entry_id FROM range(2, 6) UNION SELECT 'eu', 1L, 99L"
        return spark.sql(ids) if len(given.batches) == 2 else None

    given = Given(others)
    consume(backlog, "eu", given, limit=8, batch_rows=4)
    assert given.ids == EU[:8]
    assert given.consumed == Consumed(delivered=8, acknowledged=4, refused=1)
    state = known(backlog, "eu")
    assert state.acked == MessageSet.of(EU[2:6])
    assert state.redelivered == (MessageSet.of([*EU[:2], *EU[6:8]]),)


def test_a_stop_lets_the_running_batch_end_and_publishes_what_it_acknowledged(backlog: World) -> None:
    consumer = subscription(backlog, "eu", batch_rows=7)

    def stops(messages: DataFrame) -> DataFrame:
        if len(given.batches) == 2:
            consumer.stop()
        return messages

    given = Given(stops)
    assert consumer.run(given, trigger="available-now") == Consumed(delivered=14, acknowledged=14)
    assert known(backlog, "eu") == AckState(base=Base(), acked=MessageSet.of(EU[:14]))


def test_a_batch_has_no_more_bytes_than_it_may_and_a_larger_message_comes_alone(backlog: World) -> None:
    large = backlog.entries("eu", 20, 21).withColumn("payload", F.expr("CAST(repeat('x', 1000) AS BINARY)"))
    append_frame(backlog.log("eu"), large)
    backlog.write("eu", 21, 23)
    each = len(b"euwk0payload 0") + 5 * 8  # numbers and times; and from the eleventh on two more
    consumer = subscription(backlog, "eu", max_batch_bytes=5 * each)

    def stops(messages: DataFrame) -> DataFrame:
        if len(given.batches) == 2:
            consumer.stop()
        return messages

    given = Given(stops)
    assert consumer.run(given, trigger="available-now") == Consumed(delivered=10, acknowledged=10)
    assert [len(batch) for batch in given.batches] == [5, 5]
    given = Given()
    consumer.run(given, trigger="available-now")
    assert given.ids == [*ids("eu", 10, 23)], "what was left is wanted as before"
    assert [len(batch) for batch in given.batches] == [4, 4, 2, 1, 2]


def test_a_commit_of_more_bytes_than_a_batch_may_have_comes_in_parts_while_the_consumer_runs(backlog: World) -> None:
    large = backlog.entries("eu", 20, 80).withColumn("payload", F.expr("CAST(repeat('x', 1000000) AS BINARY)"))
    with consuming(backlog, "eu") as eu:
        eu.until_given(*EU)
        eu.given.batches.clear()
        append_frame(backlog.log("eu"), large.coalesce(1))
        eu.until_given(*ids("eu", 20, 80))
    assert [len(batch) for batch in eu.given.batches] == [52, 8], "50 MiB"


def test_what_is_acknowledged_while_a_part_before_it_is_delivered_does_not_come(backlog: World) -> None:
    consumer = subscription(backlog, "eu", max_batch_bytes=60)

    def acknowledges(messages: DataFrame) -> DataFrame:
        if len(given.batches) == 1:
            assert consumer.acknowledge(EU[5:10]) == 5
        return messages

    given = Given(acknowledges)
    assert consumer.run(given, trigger="available-now") == Consumed(delivered=15, acknowledged=20)
    assert given.ids == [*EU[:5], *EU[10:]]


def test_an_acknowledgement_while_nothing_runs_is_refused(backlog: World) -> None:
    consumer = subscription(backlog, "eu")
    with pytest.raises(UsageError, match="works only during a run"):
        consumer.acknowledge(EU[:2])
    consumer.run(Given(NONE), trigger="available-now")
    with pytest.raises(UsageError, match="works only during a run"):
        consumer.acknowledge(EU[:2])
    assert known(backlog, "eu").acked == MessageSet()


def test_the_same_object_runs_again_after_an_error_too_and_tells_of_each_run(backlog: World) -> None:
    def fails(messages: DataFrame) -> DataFrame:
        raise ValueError("mine")

    consumer = subscription(backlog, "eu")
    with pytest.raises(ValueError, match="mine"):
        consumer.run(fails, trigger="available-now")
    for at in (0, 4):
        given = Given()
        done = consumer.run(given, trigger="available-now", limit=4)
        assert given.ids == EU[at : at + 4]
        assert done == Consumed(delivered=4, acknowledged=4)


def test_what_was_delivered_before_a_reset_is_not_acknowledged_after_it(backlog: World) -> None:
    with consuming(backlog, "eu", NONE) as consumer:
        consumer.until_given(*EU)
        assert consumer.subscription.acknowledge(EU[:2]) == 2
        consumer.until(lambda: known(backlog, "eu").acked == MessageSet.of(EU[:2]))
        reset(backlog.spark, backlog.config, "eu", TOPIC, NAME, "latest")
        consumer.until(lambda: consumer.subscription.state.epoch.counter == 1)
        assert consumer.subscription.acknowledge(EU[2:5]) == 0
    assert consumer.subscription.done.refused == 3
    assert known(backlog, "eu").acked == MessageSet()


def test_a_reset_that_is_heard_in_a_run_over_what_is_there_is_followed(backlog: World) -> None:
    def resets(messages: DataFrame) -> DataFrame:
        if len(given.batches) == 1:
            reset(backlog.spark, backlog.config, "eu", TOPIC, NAME, "earliest")
            until(lambda: consumer.state.epoch.counter > 0, lambda: "was not heard")
        return messages

    given, consumer = Given(resets), subscription(backlog, "eu", batch_rows=5)
    consumer.run(given, trigger="available-now")
    assert given.ids == [*EU[:5], *EU]
    assert known(backlog, "eu").acked == MessageSet.of(EU)


def test_an_error_of_ours_that_may_pass_is_nobodys_fault_in_the_function(backlog: World) -> None:
    def away(messages: DataFrame) -> DataFrame:
        if len(given.batches) < 3:
            raise RetryableError("the sink is away")
        return messages

    given = Given(away)
    with consuming(backlog, "eu", given) as consumer:
        consumer.until(lambda: consumer.subscription.state.acked == MessageSet.of(EU))
    assert given.batches == [EU, EU, EU]
    assert set(given.counts[EU[0]]) == {0}, "it counts for no message"


def test_after_a_record_that_may_or_may_not_be_there_nothing_more_is_published_and_the_next_start_finds_out(
    backlog: World,
) -> None:
    in_second = threading.Event()

    def waits(point: CrashPoint) -> None:
        """What the first batch acknowledged is published while the function has the second."""
        if point is CrashPoint.ACKS_BEFORE_FLUSH and given.batches:
            assert in_second.wait(LIMIT_S)

    def fails_later(messages: DataFrame) -> DataFrame:
        if len(given.batches) == 2:
            in_second.set()
            flush = f"geo-acks-{TOPIC.namespace}-flush"
            until(lambda: all(thread.name != flush for thread in threading.enumerate()), lambda: "the flush goes on")
            raise ValueError("mine")
        return messages

    given = Given(fails_later)
    # The first record creates the subscription. The second lands, and whoever wrote it is not told.
    crash.arm(f"{CrashPoint.ACKS_AFTER_FLUSH.value}:raise:2")
    with crash.watched(waits), pytest.raises(ValueError, match="mine"):
        consume(backlog, "eu", given, batch_rows=7)
    crash.arm(None)
    assert consumer_in(backlog, "eu") is ConsumerState.KILLED, "it could not tell all"
    assert consume(backlog, "eu").ids == EU[7:]
    records = backlog.log("eu", TOPIC.acks).read().where(F.col("producer") == "acks-1")
    entries = [row["entry_id"] for row in records.orderBy("entry_id").collect()]
    assert entries == list(range(len(entries))), "no entry was given twice"


# -- failover ----------------------------------------------------------------------------------------------------------------


def test_a_failover_skips_nothing_that_only_the_other_cluster_received(linked: World) -> None:
    linked.write("us", 20, 25)
    assert len(consume(linked, "eu").ids) == 40
    linked.write("eu", 20, 25)  # what eu received, and did not process
    linked.replicate("us")
    assert sorted(consume(linked, "us").ids) == [*ids("eu", 20, 25), *ids("us", 20, 25)]


def test_messages_that_another_cluster_does_not_get_hold_nothing_up_there(world: World) -> None:
    def keys(*numbers: int) -> list[str]:
        return sorted(f"k{number}" for number in numbers)

    nowhere = F.expr("IF(number % 2 = 0, CAST(array() AS ARRAY<STRING>), NULL)")
    rows = world.rows(0, 20).withColumn("replicate_to", nowhere)
    publish(rows, TOPIC, world.config, "eu", order_by="number")
    assert sorted(consume(world, "eu", "int(substr(key, 2)) < 10").keys) == keys(*range(20))
    world.replicate("us")
    assert sorted(consume(world, "us").keys) == keys(11, 13, 15, 17, 19)


def test_acknowledgements_that_arrive_before_their_messages_and_again_after_are_kept(backlog: World) -> None:
    consume(backlog, "eu", "entry_id <> 7")
    acks, log = str(TOPIC.acks), backlog.log("us", TOPIC.acks)
    backlog.replicate("us", topics=acks)
    assert not backlog.log("us").exists()
    backlog.replicate("us")
    state, version = known(backlog, "us"), log.latest_version()
    assert state == known(backlog, "eu")
    backlog.replicate("us", topics=acks)
    assert log.latest_version() == version, "they are there"
    records = log.read()
    append_frame(log, backlog.spark.createDataFrame(records.toArrow()).select(*records.columns))
    assert known(backlog, "us") == state, "a record that comes twice says what it said"
    assert consume(backlog, "us").counts == {EU[7]: [1]}


# -- redelivery and dead letters -----------------------------------------------------------------------------------------------


def test_a_message_comes_back_after_its_delay_until_it_is_acknowledged(backlog: World) -> None:
    given = consume(backlog, "eu", "redelivery_count = 2", trigger="100 ms", limit=60, redelivery_delay_s=0.5)
    assert given.counts == {one: [0, 1, 2] for one in EU}
    for first, second, third in given.times.values():
        assert second - first >= 0.5
        assert third - second >= 0.5
    assert given.consumed == Consumed(delivered=60, redelivered=40, acknowledged=20)
    assert known(backlog, "eu") == AckState(base=Base(), acked=MessageSet.of(EU))


def test_a_message_delivered_in_vain_often_enough_becomes_one_dead_letter_while_the_others_go_on(backlog: World) -> None:
    with consuming(backlog, "eu", "entry_id <> 3", redelivery_delay_s=0.2, max_redeliveries=1) as consumer:
        consumer.until(lambda: consumer.subscription.done.dead_lettered == 1)
        backlog.write("eu", 20, 25)
        consumer.until_given(*ids("eu", 20, 25))
    others = [one for one in ids("eu", 0, 25) if one != EU[3]]
    assert consumer.given.counts == {EU[3]: [0, 1]} | {one: [0] for one in others}
    assert consumer.subscription.done == Consumed(delivered=26, redelivered=1, acknowledged=25, dead_lettered=1)
    assert known(backlog, "eu") == AckState(base=Base(), acked=MessageSet.of(ids("eu", 0, 25)))
    (letter,) = letters(backlog, "eu")
    assert (letter["key"], bytes(letter["payload"]), letter["replicate_to"]) == ("k3", b"payload 3", None)
    assert letter["properties"] == {
        "REAL_TOPIC": str(TOPIC),
        "REAL_SUBSCRIPTION": NAME,
        "ORIGIN_MESSAGE_ID": str(EU[3]),
        "geo.dead_letter_reason": "delivered 2 times and not acknowledged",
        "geo.subscription_epoch": "0",
    }


def test_a_letter_that_is_older_than_its_message_is_found(world: World) -> None:
    """By a clock that is ahead, as far as a link lets one be."""
    ahead = F.current_timestamp() + F.expr("INTERVAL 23 HOURS")
    world.write("eu", 0, 1)
    append_frame(
        world.log("eu"), world.entries("eu", 1, 2).withColumns({"publish_time": ahead, "publish_date": F.to_date(ahead)})
    )
    consume(world, "eu", "entry_id = 0", max_redeliveries=0)
    with dies_at(CrashPoint.CONSUME_DEAD_LETTERED):
        consume(world, "eu", NONE, max_redeliveries=0)
    assert consume(world, "eu", NONE, max_redeliveries=0).consumed.dead_lettered == 1
    assert [row["key"] for row in letters(world, "eu")] == ["k1"], "once"


def test_deliveries_are_counted_over_runs_and_clusters_until_a_message_is_a_dead_letter(world: World) -> None:
    rows = world.rows(0, 4).selectExpr("*", "number * 1.5D AS amount", "map('REAL_TOPIC', 'mine', 'a', 'b') AS properties")
    to_us = rows.withColumn("replicate_to", F.expr("IF(number = 0, array('us'), NULL)"))
    publish(to_us, TOPIC, world.config, "eu", order_by="number")
    assert sorted(consume(world, "eu", "amount > 2", max_redeliveries=1).keys) == ["k0", "k1", "k2", "k3"]
    world.replicate("us")
    second = consume(world, "us", NONE, max_redeliveries=1)
    assert sorted(second.keys) == ["k0", "k1"]
    assert list(second.counts.values()) == [[1], [1]]
    last = consume(world, "us", max_redeliveries=1)
    assert last.consumed == Consumed(acknowledged=2, dead_lettered=2)
    found = letters(world, "us")
    assert sorted((row["key"], row["amount"], row["replicate_to"]) for row in found) == [("k0", 0.0, []), ("k1", 1.5, None)]
    for row in found:
        assert (row["properties"]["REAL_TOPIC"], row["properties"]["a"]) == (str(TOPIC), "b"), "the message's own are kept"
    world.replicate("eu", topics=str(TOPIC.acks))
    assert known(world, "eu").acked.size == 4


def test_a_dead_letter_topic_gets_the_columns_that_its_topic_got(backlog: World) -> None:
    log = backlog.log("eu")
    add_columns(log, [StructField("kind", StringType())])
    with consuming(backlog, "eu", "entry_id NOT IN (3, 22)", redelivery_delay_s=0.2, max_redeliveries=0) as consumer:
        consumer.until(lambda: consumer.subscription.done.dead_lettered == 1)
        add_columns(log, [StructField("note", StringType())])
        append_frame(log, backlog.entries("eu", 20, 25).selectExpr("*", "'k' AS kind", "concat('n', entry_id) AS note"))
        consumer.until(lambda: consumer.subscription.done.dead_lettered == 2)
    assert [(row["key"], row["note"]) for row in letters(backlog, "eu")] == [("k22", "n22"), ("k3", None)]


def test_a_letter_that_would_be_too_large_loses_its_own_properties_and_says_so(world: World) -> None:
    large = world.rows(0, 1).withColumn("properties", F.expr(f"map('a', repeat('x', {MAX_HEADER_BYTES - 100}))"))
    publish(large, TOPIC, world.config, "eu", order_by="number")
    consume(world, "eu", NONE, max_redeliveries=0)
    assert consume(world, "eu", NONE, max_redeliveries=0).consumed.dead_lettered == 1
    (letter,) = letters(world, "eu")
    assert "a" not in letter["properties"]
    assert letter["properties"]["geo.dead_letter_reason"].endswith("original properties dropped: header would exceed 1 MiB")


def test_what_a_batch_acknowledged_stays_so_when_its_dead_letters_cannot_be_published(backlog: World) -> None:
    foreign = backlog.log("eu", dead_letter_topic(TOPIC, "worn"))
    backlog.spark.range(3).write.format("delta").save(foreign.name)
    with pytest.raises(SchemaError, match="is not a topic-log of delta-geo"):
        consume(backlog, "eu", name="worn", max_redeliveries=0)
    assert known(backlog, "eu", "worn").acked == MessageSet.of(EU) - MessageSet.of(EU[7:8])
    assert consumer_in(backlog, "eu", "worn") is ConsumerState.STOPPED, "it ended well"


# -- a log that changes under a running consumer -------------------------------------------------------------------------------


def _restore(world: World, version: int) -> None:
    world.spark.sql(f"RESTORE TABLE {world.log('eu').sql} TO VERSION AS OF {version}").collect()


def test_a_running_consumer_goes_on_after_its_log_was_restored_and_delivers_nothing_twice(backlog: World) -> None:
    older = backlog.log("eu").latest_version()
    backlog.write("eu", 20, 30)
    newer = backlog.log("eu").latest_version()
    with consuming(backlog, "eu") as consumer:
        consumer.until_given(*ids("eu", 0, 30))
        _restore(backlog, older)  # files go
        backlog.write("eu", 30, 40)
        consumer.until_given(*ids("eu", 30, 40))
        _restore(backlog, newer)  # some come back, others go: what a stream of Delta's cannot read
        backlog.write("eu", 40, 50)
        consumer.until_given(*ids("eu", 40, 50))
    assert sorted(consumer.given.ids) == ids("eu", 0, 50), "each once"
    assert known(backlog, "eu") == AckState(base=Base(), acked=MessageSet.of(ids("eu", 0, 50)))


def test_a_column_that_is_added_while_a_consumer_runs_comes_with_the_messages(backlog: World) -> None:
    log = backlog.log("eu")
    with consuming(backlog, "eu") as consumer:
        consumer.until_given(*EU)
        consumer.given.done = "note['a'] = 23"
        backlog.spark.sql(f"ALTER TABLE {log.sql} ADD COLUMNS (note MAP<STRING, BIGINT>)")
        append_frame(log, backlog.entries("eu", 20, 25).withColumn("note", F.expr("map('a', entry_id)")))
        consumer.until_given(*ids("eu", 20, 25))
    assert consumer.given.columns[-2:] == ["note", "redelivery_count"]
    assert known(backlog, "eu").acked == MessageSet.of([*EU, MessageId("eu", 1, 23)])


def test_acknowledgements_that_could_not_be_published_are_published_again(
    backlog: World, caplog: pytest.LogCaptureFixture
) -> None:
    """The fence cannot be found, as where its storage is away for a moment: the append is refused, and the run goes on."""
    tables = backlog.tables("eu")
    runner = producer_runner(tables, TOPIC.acks, "acks-1")
    with consuming(backlog, "eu") as consumer:
        consumer.until_given(*EU)
        consumer.until(lambda: not MessageSet.of(EU) - known(backlog, "eu").acked)
        shutil.rmtree(tables.checkpoint("fences", runner.path))
        backlog.write("eu", 20, 25)
        consumer.until(lambda: not MessageSet.of(ids("eu", 20, 25)) - known(backlog, "eu").acked)
    assert "acknowledgements could not be published, again in" in caplog.text
    assert consumer.given.ids == ids("eu", 0, 25)


def test_the_function_says_when_a_message_comes_again_and_a_null_is_done(backlog: World) -> None:
    """eu:1:3 after a quarter of a second, which is rounded up; eu:1:4 is named twice and is not done; the usual delay is a
    minute."""

    def later(messages: DataFrame) -> DataFrame:
        first = (F.col("entry_id") == 3) & (F.col("redelivery_count") == 0)
        delay = F.when(first, F.expr("INTERVAL '0.25' SECOND")).when(F.col("entry_id") == 4, F.expr("INTERVAL '1' HOUR"))
        twice = messages.where("entry_id = 4").withColumn("redeliver_after", F.lit(None).cast("interval day to second"))
        return messages.withColumn("redeliver_after", delay).unionByName(twice)

    with consuming(backlog, "eu", later) as consumer:
        consumer.until(lambda: len(consumer.given.counts.get(EU[3], [])) == 2)
    assert consumer.given.counts[EU[3]] == [0, 1]
    assert 1 <= consumer.given.times[EU[3]][1] - consumer.given.times[EU[3]][0] < 60
    assert MessageSet.of(EU) - known(backlog, "eu").acked == MessageSet.of([EU[4]])


def test_a_delay_of_a_message_that_was_not_given_changes_nothing_and_is_counted(backlog: World) -> None:
    other = "SELECT 'us' AS origin, 1L AS ledger_id, 5L AS entry_id, INTERVAL '1' HOUR AS redeliver_after"
    given = consume(backlog, "eu", lambda messages: messages.sparkSession.sql(other))
    assert given.consumed == Consumed(delivered=20, refused=1)


def test_a_standby_waits_for_the_consumer_that_runs_and_goes_on_with_what_that_has_left(
    backlog: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "geo")
    with consuming(backlog, "eu") as first:
        first.until_given(*EU)
        with consuming(backlog, "eu", standby=True) as second:
            second.until(lambda: "standing by: " in caplog.text)
            first.stop()
            backlog.write("eu", 20, 25)
            second.until_given(*ids("eu", 20, 25))
    assert first.given.ids == EU
    assert second.given.ids == ids("eu", 20, 25)


def test_a_standby_ends_when_it_is_stopped_or_its_time_is_over_and_has_done_nothing(backlog: World) -> None:
    with consuming(backlog, "eu") as first:
        first.until_given(*EU)
        with consuming(backlog, "eu", standby=True) as second:
            pass
        late = subscription(backlog, "eu", standby=True).run(Given(), for_s=0.5)
    assert second.subscription.done == late == Consumed()


def test_a_consumer_goes_on_after_a_commit_that_changed_rows_when_it_began(backlog: World) -> None:
    backlog.log("eu").delta().update("entry_id = 3", {"key": "'corrected'"})
    with consuming(backlog, "eu", NONE, redelivery_delay_s=0.2) as consumer:
        consumer.until(lambda: len(consumer.given.counts.get(EU[0], [])) > 5)
        backlog.write("eu", 20, 25)
        consumer.until_given(*ids("eu", 20, 25))
    assert consumer.given.counts.keys() == set(ids("eu", 0, 25))


def test_of_a_file_that_somebody_adds_again_long_after_comes_what_is_not_acknowledged_and_nothing_is_skipped(
    backlog: World,
) -> None:
    """Its own commit is too far back for a consumer to know it."""
    log = backlog.log("eu")
    folder = Path(log.name) / "_delta_log"
    commits = [(folder / f"{version:020}.json").read_text().splitlines() for version in range(log.latest_version() + 1)]
    (added,) = [line for lines in commits for line in lines if line.startswith('{"add"')]
    with consuming(backlog, "eu", "entry_id <> 3", redelivery_delay_s=600.0) as consumer:
        consumer.until_given(*EU)
        for entry in range(20, 20 + LOOK_BACK + 1):
            backlog.write("eu", entry, entry + 1)
            consumer.until_given(*ids("eu", entry, entry + 1))
        again = '{"commitInfo": {"operation": "WRITE"}}\n' + added
        (folder / f"{log.latest_version() + 1:020}.json").write_text(again)
        backlog.write("eu", entry + 1, entry + 5)
        consumer.until_given(*ids("eu", entry + 1, entry + 5))
    assert consumer.given.ids == ids("eu", 0, entry + 5), "nothing twice: what was not acknowledged waits for its time"
    assert consume(backlog, "eu").ids == ids("eu", 3, 4)


def test_a_consumer_notices_that_its_log_was_replaced_by_an_older_copy(
    backlog: World, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copy has no commit after the one that was read last."""
    monkeypatch.setattr(tail, "FULL_LOOK_S", 0.2)
    log, aside = Path(backlog.log("eu").name), tmp_path_factory.mktemp("aside")
    shutil.copytree(log, aside / "copy")
    for first in range(20, 30, 2):
        backlog.write("eu", first, first + 2)
    with consuming(backlog, "eu") as consumer:
        consumer.until_given(*ids("eu", 0, 30))
        log.rename(aside / "replaced")
        (aside / "copy").rename(log)
        append_frame(backlog.log("eu"), backlog.entries("us", 0, 3))
        consumer.until_given(*ids("us", 0, 3))
    assert len(consumer.given.ids) == 33, "nothing came twice"


def test_what_a_restore_takes_away_while_it_waits_for_its_redelivery_is_not_acknowledged_unseen(backlog: World) -> None:
    older = backlog.log("eu").latest_version()
    backlog.write("eu", 20, 22)

    def not_at_first(messages: DataFrame) -> DataFrame:
        if len(given.batches) > 1:
            return messages
        _restore(backlog, older)
        return messages.where("entry_id < 19")

    given = Given(not_at_first)
    with consuming(backlog, "eu", given, redelivery_delay_s=0.2) as consumer:
        consumer.until(lambda: given.counts.get(EU[19]) == [0, 1])
    # A stream that began before the restore may still bring what it took away.
    again = {one for one, counts in given.counts.items() if counts == [0, 1]}
    assert known(backlog, "eu").acked == MessageSet.of([*EU, *again])
    backlog.write("eu", 20, 22)  # as a link brings them back
    assert consume(backlog, "eu").ids == [one for one in ids("eu", 20, 22) if one not in again]


# -- several consumers -----------------------------------------------------------------------------------------------------


def test_consumers_in_two_clusters_at_once_process_everything_and_know_of_each_other(linked: World) -> None:
    everything = {*ids("eu", 0, 29), *ids("us", 0, 29)}
    with (
        running(linked, "eu"),
        running(linked, "us"),
        consuming(linked, "eu") as eu,
        consuming(linked, "us", "origin = 'us'") as us,
    ):
        us.until_given(*EU)
        for first in range(20, 29, 3):
            for cluster in ("eu", "us"):
                linked.write(cluster, first, first + 3)
            # What us has acknowledged may be known in eu before it is delivered there, and then rightly is not.
            news = set(ids("us", first, first + 3))
            eu.until(lambda news=news: news <= eu.given.counts.keys() | set(eu.subscription.state.acked))  # type: ignore[misc]
        us.until(lambda: everything == set(us.subscription.state.acked))  # half of it us itself never acknowledges
        eu.until(lambda: everything == set(eu.subscription.state.acked))
        # A look at a peer tells before its link has brought it for keeps.
        for cluster in ("eu", "us"):
            eu.until(lambda name=cluster: known(linked, name).acked == MessageSet.of(everything))  # type: ignore[misc]
    assert eu.given.counts.keys() | us.given.counts.keys() == everything
    for consumer in (eu, us):
        assert len(consumer.given.ids) == len(set(consumer.given.ids)), "none twice in one cluster"
    assert known(linked, "eu") == known(linked, "us") == AckState(base=Base(), acked=MessageSet.of(everything))


def test_one_consumer_at_a_time_and_one_that_takes_over_fences_the_other(backlog: World) -> None:
    first, given = subscription(backlog, "eu"), Given()
    first.start(given, trigger="100 ms")
    until(lambda: given.ids == EU and bool(known(backlog, "eu").acked), goes_on=lambda: not first.await_termination(0))
    with pytest.raises(AlreadyOwnedError, match="already run by"):
        consume(backlog, "eu")
    with consuming(backlog, "eu", take_over=True) as second:
        second.until(lambda: bool(second.subscription.state.acked))
        backlog.write("eu", 20, 25)
        second.until_given(*ids("eu", 20, 25))
        with pytest.raises(FencedError, match="another runner took over"):
            assert first.await_termination(LIMIT_S), "was not fenced"
        backlog.write("eu", 25, 30)
        second.until_given(*ids("eu", 25, 30))
    assert second.given.ids == ids("eu", 20, 30), "what the first one acknowledged does not come again"
    assert known(backlog, "eu").acked == MessageSet.of(ids("eu", 0, 30))


def test_a_second_start_of_a_consumer_that_runs_is_refused_and_the_run_goes_on(backlog: World) -> None:
    with consuming(backlog, "eu") as consumer:
        consumer.until_given(*EU)
        with pytest.raises(UsageError, match="already running"):
            consumer.subscription.start(Given())
        with pytest.raises(UsageError, match="now and then"):
            consumer.subscription.start(Given(), trigger="now and then")
        backlog.write("eu", 20, 25)
        consumer.until_given(*ids("eu", 20, 25))


# -- stops -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("point", CONSUME_POINTS, ids=lambda point: point.value)
def test_after_a_stop_anywhere_comes_exactly_what_the_records_do_not_tell_acknowledged(backlog: World, point: CrashPoint) -> None:
    before, given_up = Given(), EU[7:8]
    with dies_at(point):
        consume(backlog, "eu", before, name="worn", max_redeliveries=0)
    told = known(backlog, "eu", "worn").acked
    after = consume(backlog, "eu", name="worn", max_redeliveries=0)
    assert MessageSet.of(after.ids) == MessageSet.of(EU) - told - MessageSet.of(given_up)
    assert {*before.ids, *after.ids, *given_up} == set(EU), "nothing is skipped"
    assert [row["properties"]["ORIGIN_MESSAGE_ID"] for row in letters(backlog, "eu", "worn")] == list(map(str, given_up))
    assert known(backlog, "eu", "worn") == AckState(base=Base(), acked=MessageSet.of(EU))


def test_a_subscription_whose_creation_was_told_begins_there_whenever_it_is_first_consumed(backlog: World) -> None:
    with dies_at(CrashPoint.CONSUME_CREATED):
        consume(backlog, "eu", start="latest")
    backlog.write("eu", 20, 25)
    assert consume(backlog, "eu", start="latest").ids == ids("eu", 20, 25)


# -- refused -----------------------------------------------------------------------------------------------------------------


def test_a_topic_that_is_not_there_or_is_partitioned_or_ours_is_refused_and_nothing_is_created(world: World) -> None:
    def registered() -> list[str]:
        return [str(found.topic) for found in registered_topics(world.tables("eu"))]

    with pytest.raises(UsageError, match="persistent://shop/web/clicks: has no log in cluster eu"):
        consume(world, "eu")
    assert registered() == []
    create_partitions(world.tables("eu"), TOPIC, 2)
    with pytest.raises(
        UsageError, match=r"clicks is partitioned: consume .*clicks-partition-0 to clicks-partition-1 with Subscriptions"
    ):
        consume(world, "eu")
    with pytest.raises(UsageError, match="names that start with __ are for what delta-geo itself writes"):
        publish(world.rows(0, 1), TOPIC.acks, world.config, "eu", order_by="number")
    with pytest.raises(UsageError, match="names that start with __ are for what delta-geo itself writes"):
        consume(world, "eu", topic=TOPIC.acks)  # each of its acknowledgements would be a message to it
    assert registered() == [f"{TOPIC}-partition-{number}" for number in (0, 1)]


@pytest.mark.parametrize(
    "option",
    [
        {"start": "yesterday"}, {"batch_rows": 0}, {"max_redeliveries": -1}, {"max_redeliveries": 255},
        {"key_range": (2, 2)}, {"key_range": (-1, 2)}, {"key_range": (0, 0)},
    ],
    ids=str,
)  # fmt: skip
def test_an_option_that_means_nothing_is_refused(backlog: World, option: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=f"{next(iter(option))} is "):
        consume(backlog, "eu", NONE, **option)


def test_a_topic_whose_dead_letter_topic_would_have_too_long_a_name_is_refused_each_time_alike(backlog: World) -> None:
    topic = Topic("shop", "web", "c" * 80)
    backlog.write("eu", 0, 1, topic=topic)
    for _ in range(2):
        with pytest.raises(InvalidNameError, match="-DLQ"):
            consume(backlog, "eu", topic=topic, max_redeliveries=1)


def test_a_consumer_that_comes_further_between_faults_of_its_log_is_never_given_up(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that is slower than its log is cut: each look at the whole log delivers something."""
    monkeypatch.setattr(timetable, "PATIENCE_S", 0.0)
    world.write("eu", 0, 4)

    def process(messages: DataFrame) -> DataFrame:
        if (calls := len(given.batches)) <= 3:
            world.write("eu", calls + 3, calls + 4)
            world.spark.sql(f"DELETE FROM {world.log('eu').sql} WHERE entry_id = {calls - 1}")
        return messages

    given = Given(process)
    with consuming(world, "eu", given) as consumer:
        consumer.until(lambda: consumer.subscription.done.acknowledged == 7)
    assert given.batches == [ids("eu", 0, 4), *(ids("eu", entry, entry + 1) for entry in (4, 5, 6))]
