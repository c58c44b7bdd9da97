"""What the consumers of a process share, and what they hear of their peers before a link brings it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from geo.coordination.claiming import claim
from geo.coordination.ownership import release
from geo.coordination.runners import consumer_runner
from geo.crash import CrashPoint
from geo.delta.appending import append_frame
from geo.errors import AlreadyOwnedError, FencedError, UnsafeError, UsageError
from geo.ids import LedgerId
from geo.replication.link_state import LinkState
from geo.replication.link_table import append_links, read_links
from geo.streams.life import State
from geo.subscription.acks.ack_publisher import AckPublisher
from geo.subscription.acks.ack_state import AckState, Base, Epoch
from geo.subscription.acks.consumers import ConsumerState
from geo.subscription.acks.fold import Received
from geo.subscription.acks.message_set import MessageSet
from geo.subscription.acks.record import encode
from geo.subscription.acks.subscription_state import SubscriptionState
from geo.subscription.changes import create, delete, reset
from geo.subscription.consumer.ack_exchange import ConsumerPart
from geo.subscription.consumer.acknowledgements import Acknowledgements
from geo.testing import dies_at
from tests.delta.logs import commit_of
from tests.subscription.consuming import (
    LIMIT_S,
    NAME,
    NONE,
    Given,
    consume,
    consumer_in,
    consuming,
    ids,
    kill_at,
    known,
    letters,
    subscription,
)
from tests.world import TOPIC, World

pytestmark = pytest.mark.spark

BOTH = {*ids("eu", 0, 20), *ids("us", 0, 20)}
"""What both clusters hold in `linked`."""

ACKS = "persistent://shop/web/__acks"


# -- peers -----------------------------------------------------------------------------------------------------------------


def test_what_a_peer_knows_counts_before_its_link_has_brought_it_and_is_told_here_as_far_as_it_is_a_beginning(
    linked: World,
) -> None:
    consume(linked, "eu", "entry_id < 15", start="earliest")
    assert {one.entry_id for one in consume(linked, "us", NONE, start="latest").ids} == {15, 16, 17, 18, 19}
    assert known(linked, "us").beginning == AckState(base=Base()), "eu began it at the earliest message, so us does"
    assert not known(linked, "us").acked, "that is for the link to bring"


def test_what_a_peer_knows_is_not_created_here_once_more(linked: World) -> None:
    consume(linked, "eu", NONE)
    with pytest.raises(UsageError, match=r"is there already\. A peer of us has it, and its link brings it here"):
        create(linked.spark, linked.config, "us", TOPIC, NAME, "latest")
    delete(linked.spark, linked.config, "eu", TOPIC, NAME)
    created = create(linked.spark, linked.config, "us", TOPIC, NAME, "earliest").replicated
    assert created == AckState(Epoch(2, ""), Base()), "nobody's, so that others who do the same merge with it"


def test_a_running_consumer_hears_what_its_peer_acknowledges_and_what_it_resets(linked: World) -> None:
    with consuming(linked, "us", NONE) as us:
        us.until_given(*BOTH)
        consume(linked, "eu", "origin = 'eu'")
        us.until(lambda: us.subscription.state.acked == MessageSet.of(ids("eu", 0, 20)))
        reset(linked.spark, linked.config, "eu", TOPIC, NAME, "earliest")
        us.until(lambda: us.subscription.state.epoch.counter == 1)
        us.given.done = "true"
        us.until(lambda: known(linked, "us").acked == MessageSet.of(BOTH))
    assert known(linked, "us").beginning == us.subscription.state.beginning, "and tells the new epoch here with it"


@pytest.mark.parametrize("state", [State.PAUSED, State.FAILED])
def test_a_peer_whose_link_is_held_up_is_not_read(linked: World, state: State) -> None:
    linked.replicate("us", topics=ACKS)
    consume(linked, "eu")
    append_links(linked.tables("us"), [_held_up(linked, state)])
    assert set(consume(linked, "us", NONE).ids) == BOTH


def _held_up(world: World, state: State) -> LinkState:
    now = read_links(world.tables("us")).get(("eu", ACKS))
    if now is None:
        messages = read_links(world.tables("us"))["eu", str(TOPIC)]
        now = replace(messages, topic=ACKS, cursor=None, target=None)
    return replace(now, state=state, reason="a test", sequence=now.sequence + 1)


def test_a_link_that_carries_messages_alone_tells_of_no_acknowledgements(linked: World) -> None:
    linked.rewrite(("eu", "us"), [("us", "eu"), {"source": "eu", "target": "us", "carry": "messages"}])
    consume(linked, "eu")
    assert set(consume(linked, "us", NONE).ids) == BOTH


def test_a_peer_whose_log_has_lost_the_links_place_is_read_whole(linked: World) -> None:
    consume(linked, "eu", "entry_id < 5")
    linked.replicate("us", topics=ACKS)
    cursor = read_links(linked.tables("us"))["eu", ACKS].cursor
    assert cursor is not None
    consume(linked, "eu", "entry_id < 10")
    log = linked.log("eu", TOPIC.acks)
    DeltaTable(log.name).create_checkpoint()
    for version in range(cursor.version + 1):
        commit_of(log, version).unlink()
    assert {one.entry_id for one in consume(linked, "us", NONE).ids} == set(range(10, 20))


def test_what_was_not_addressed_to_this_cluster_is_not_taken_from_a_peer(linked: World) -> None:
    """The rule of the link holds for a look as for what it brings."""
    consume(linked, "eu")
    log = linked.log("eu", TOPIC.acks)
    log.delta().update(F.col("key").isNotNull(), {"replicate_to": F.array(F.lit("de"))})
    assert set(consume(linked, "us", NONE).ids) == BOTH


def test_a_peer_whose_log_is_damaged_or_full_of_nonsense_holds_up_nobody(linked: World, caplog: pytest.LogCaptureFixture) -> None:
    consume(linked, "eu")
    log = linked.log("eu", TOPIC.acks)
    nonsense = log.read().limit(1)
    for name, value in (
        ("payload", "X'0F00'"),
        ("publish_time", "TIMESTAMP '1066-10-14 00:00:00'"),
        ("payload", "CAST('x' AS BINARY)"),
        ("key", "'no key'"),
    ):
        append_frame(log, nonsense.withColumn(name, F.expr(value)))
    with consuming(linked, "us", NONE) as us:
        us.until(lambda: us.subscription.state.acked == MessageSet.of(BOTH))
        commit_of(log, log.latest_version() + 1).write_text("{ no commit\n")
        us.until(lambda: "what it tells comes with the link" in caplog.text)
        linked.write("us", 20, 25)
        us.until_given(*ids("us", 20, 25))
    assert not us.given.counts.keys() & BOTH


def test_a_subscription_that_was_deleted_at_a_peer_is_not_begun_here(linked: World) -> None:
    consume(linked, "eu")
    delete(linked.spark, linked.config, "eu", TOPIC, NAME)
    with pytest.raises(UnsafeError, match="was deleted"):
        consume(linked, "us")
    assert known(linked, "us").deleted, "told here, too"


# -- one process -----------------------------------------------------------------------------------------------------------


def test_what_a_peer_tells_from_before_a_reset_is_not_told_here_though_it_is_heard_first(world: World) -> None:
    settings = subscription(world, "us")._settings
    resets: list[int] = []
    consumer = Acknowledgements(settings, lambda: None, lambda: resets.append(1))
    own = claim(settings.tables, [[consumer_runner(settings.tables, TOPIC, NAME, "")]])[0]
    member = ConsumerPart(settings, own, consumer, 0.0)
    before, after = AckState(base=Base()), AckState(epoch=Epoch(1, "us"), base=Base())
    member.handle([_of_eu(member, before)], elsewhere=True)
    member.begin(SubscriptionState(after))
    assert consumer.state == after
    assert consumer.take_unpublished() is None
    assert consumer.done.refused == 0
    member.handle([_of_eu(member, replace(after, epoch=Epoch(2, "eu")))], elsewhere=True)
    assert consumer.take_unpublished() == SubscriptionState(consumer.state.beginning)
    assert consumer.state.epoch.counter == 2
    assert len(resets) == 2, "where it begins at the start, and the later one"
    release([own])


def _of_eu(member: ConsumerPart, state: AckState) -> Received:
    return Received(LedgerId("eu", 1), 0, member.key, encode(state), 1_800_000_000 * 10**6)


def test_consumers_of_a_process_publish_as_one_producer_and_another_process_as_another(linked: World) -> None:
    other = AckPublisher(linked.tables("eu"), linked.config, TOPIC, "acks-1")  # whoever it is lives
    with consuming(linked, "eu") as one, consuming(linked, "eu", name="other") as two:
        for each in (one, two):
            each.until_given(*BOTH)
        one.until(lambda: known(linked, "eu").acked == known(linked, "eu", "other").acked == MessageSet.of(BOTH))
    other.close()
    producers = {row["producer"] for row in linked.log("eu", TOPIC.acks).read().select("producer").collect()}
    assert producers == {"acks-2"}
    consume(linked, "eu", name="third")
    producers = {row["producer"] for row in linked.log("eu", TOPIC.acks).read().select("producer").collect()}
    assert producers == {"acks-1", "acks-2"}


def test_a_consumer_that_another_one_replaced_ends_though_it_has_nothing_to_tell(
    linked: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("geo.streams.timetable.CONSUMER_LOOK_S", 0.0)
    monkeypatch.setattr("geo.streams.timetable.COUNTS_S", 0.2)
    first = subscription(linked, "eu")
    given = Given()
    first.start(given)
    with consuming(linked, "eu", name="other") as other:
        other.until(lambda: set(given.ids) == BOTH)
        with consuming(linked, "eu", take_over=True), pytest.raises(FencedError, match="another runner took over"):
            assert first.await_termination(LIMIT_S), "it goes on"


# -- shares of the keys ----------------------------------------------------------------------------------------------------


def test_each_message_comes_to_the_one_consumer_of_its_share_and_all_of_a_key_to_the_same(linked: World) -> None:
    with consuming(linked, "eu", key_range=(0, 2)) as first, consuming(linked, "eu", key_range=(1, 2)) as second:
        first.until(lambda: {*first.given.ids, *second.given.ids} == BOTH)
        linked.write("eu", 20, 30)
        first.until(lambda: {*first.given.ids, *second.given.ids} == {*BOTH, *ids("eu", 20, 30)})
        first.until(lambda: first.subscription.state.acked == second.subscription.state.acked)
        with pytest.raises(AlreadyOwnedError, match=r"keys [01] of 2: already run by"):
            consume(linked, "eu")
        with pytest.raises(AlreadyOwnedError, match="of 2: already run by"):
            consume(linked, "eu", key_range=(2, 3))
        with pytest.raises(AlreadyOwnedError):
            consume(linked, "eu", key_range=(1, 2))
        log = linked.log("eu")
        append_frame(log, linked.entries("eu", 30, 40).withColumn("key", F.lit(None).cast("string")))
        without = set(ids("eu", 30, 40))
        first.until(lambda: without <= {*first.given.ids, *second.given.ids})
    assert len(first.given.ids) + len(second.given.ids) == 60, "each once"
    assert set(first.given.keys) & set(second.given.keys) <= {None}
    assert first.given.ids
    assert second.given.ids
    assert consume(linked, "eu").ids == []


def test_a_share_is_refused_while_somebody_consumes_all_keys(linked: World) -> None:
    with consuming(linked, "eu") as whole:
        whole.until_given(*BOTH)
        with pytest.raises(AlreadyOwnedError, match="already run by"):
            consume(linked, "eu", key_range=(0, 2))


@pytest.mark.crash
def test_a_share_whose_consumer_died_is_taken_over_with_its_letters_and_what_it_died_on(linked: World) -> None:
    """Each share has a note of its attempt and a producer of dead letters of its own."""

    def fails(messages: DataFrame) -> DataFrame:
        if messages.where("key = 'k7'").count():
            raise ValueError("a bad one")
        return messages

    options: dict[str, Any] = {"max_redeliveries": 0, "redelivery_delay_s": 0.1}
    with consuming(linked, "eu", fails, key_range=(0, 2), **options) as other:
        kill_at(linked, "eu", CrashPoint.CONSUME_ATTEMPTED, key_range=(1, 2), batch_rows=4, **options)
        with consuming(linked, "eu", fails, key_range=(1, 2), **options) as again:
            for consumer in (other, again):
                consumer.until(lambda one=consumer: {*one.subscription.state.acked} == BOTH)  # type: ignore[misc]
    assert [len(batch) for batch in again.given.batches[:2]] == [2, 2], "halves of the four it died on come first"
    assert [row["key"] for row in letters(linked, "eu")] == ["k7", "k7"], "of eu and of us, once each"


def test_a_group_of_another_size_fences_what_is_left_of_the_one_before(linked: World) -> None:
    with dies_at(CrashPoint.CONSUME_PROCESSED):
        consume(linked, "eu", key_range=(0, 2))
    assert consumer_in(linked, "eu") is not ConsumerState.STOPPED
    for share in range(3):
        consume(linked, "eu", key_range=(share, 3))
    assert known(linked, "eu").acked == MessageSet.of(BOTH)
    assert consumer_in(linked, "eu") is ConsumerState.STOPPED
    old = subscription(linked, "eu", key_range=(0, 2))
    old.start(Given())
    with consuming(linked, "eu", name="other") as other:
        other.until(lambda: old.has_begun)
        assert consume(linked, "eu", take_over=True).ids == []
        linked.write("eu", 40, 60)
        with pytest.raises(FencedError, match="another runner took over"):
            other.until(lambda: old.await_termination(0.05))
