"""Moving a subscription between clusters: what was acknowledged is not repeated, what was not is not skipped, in every
topology."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from geo.errors import UnsafeError, UsageError
from geo.ids import LedgerId, MessageId
from geo.log import peers
from geo.names import Topic
from geo.subscription import failover as failover_module
from geo.subscription.acks.ack_state import AckState
from geo.subscription.acks.acks_topic import read_known
from geo.subscription.acks.consumers import ConsumerState
from geo.subscription.acks.message_set import MessageSet
from geo.subscription.changes import create, delete, reset
from geo.subscription.consumer import Subscription
from geo.subscription.failover import Failover, failover, failover_all
from geo.subscription.status import status, subscriptions_in
from geo.testing.world import Link
from tests.delta.logs import checksum_of
from tests.running import running
from tests.subscription.consuming import NAME, NONE, Given, consume, consumer_in, consuming, ids, known, subscription, tell
from tests.world import SHAPES, TOPIC, World

pytestmark = pytest.mark.spark

ACKS = "persistent://shop/web/__acks"


def moved(world: World, source: str, target: str, **options: float) -> Failover:
    return failover(world.spark, TOPIC, NAME, world.config, source, target, **options)  # type: ignore[arg-type]


ONE_WAY_AND_BACK: tuple[Sequence[str], Sequence[Link]] = (
    ("a", "c"),
    [("a", "c"), {"source": "c", "target": "a", "carry": "acks"}],
)


@pytest.mark.parametrize(("shape", "target"), [(SHAPES["one-way"], "b"), (ONE_WAY_AND_BACK, "c"), (SHAPES["inlong"], "c")])
def test_one_message_in_the_middle_is_all_that_is_repeated_elsewhere_and_the_topic_may_be_idle(
    spark: SparkSession, tmp_path: Path, shape: tuple[Sequence[str], Sequence[Link]], target: str
) -> None:
    clusters, links = shape
    world = World(tmp_path, clusters, links, spark=spark)
    world.write("a", 0, 30)
    assert consume(world, "a", "entry_id <> 12").ids == ids("a", 0, 30)
    world.replicate(target)
    assert consume(world, target).ids == ids("a", 12, 13)
    if shape is ONE_WAY_AND_BACK:
        world.replicate("a")
        assert consume(world, "a").ids == [], "failing back: acknowledged in c"
        assert not world.log("a").read().where("origin = 'c'").count()


def test_at_full_rate_nothing_acknowledged_and_synced_is_repeated_and_nothing_is_skipped(linked: World) -> None:
    world, (hole,) = linked, ids("eu", 7, 8)
    here, there = Given("NOT (origin = 'eu' AND entry_id = 7)"), Given("NOT (origin = 'eu' AND entry_id = 7)")
    with running(world, "eu") as into_eu, running(world, "us"):
        first, second = subscription(world, "eu"), subscription(world, "us")
        first.start(here)
        for n in range(20, 60, 10):
            for cluster in ("eu", "us"):
                world.write(cluster, n, n + 10)
        into_eu.until(lambda: first.done.acknowledged >= 100)
        first.stop()
        for n in range(60, 80, 10):
            world.write("us", n, n + 10)
        assert first.await_termination(60)
        into_eu.until(lambda: set(first.state.acked) <= set(known(world, "us").acked))
        done = moved(world, "eu", "us")
        assert (done.consumer, done.repeated_ids, done.at_most_repeated) == ("stopped", "eu:1:7", 1)
        second.start(there)
        world.write("us", 80, 90)
        world.write("eu", 60, 90)
        into_eu.until(lambda: second.state.acked.size >= 179)
        second.stop()
        assert second.await_termination(60)
    assert {*here.ids, *there.ids} == {*ids("eu", 0, 90), *ids("us", 0, 90)}
    assert all(len(one.ids) == len(set(one.ids)) for one in (here, there))
    assert set(here.ids) & set(there.ids) == {hole}, "the one that was never acknowledged"


def test_a_failover_takes_what_no_link_has_brought(consumed: World) -> None:
    before = consumed.log("us", Topic.parse(ACKS)).exists()
    dry = moved(consumed, "eu", "us", dry_run=True)
    assert consumed.log("us", Topic.parse(ACKS)).exists() == before, "a dry run writes nothing"
    assert (dry.recorded, dry.brought, dry.to_deliver, dry.repeated, dry.repeated_ids) == (False, 39, 1, 1, "eu:1:5")
    done = moved(consumed, "eu", "us")
    assert (done.recorded, done.consumer, done.at_most_repeated) == (True, "stopped", 1)
    (standing,) = [one for one in status(consumed.spark, TOPIC, NAME, consumed.config) if one.cluster == "us"]
    assert standing.moved is not None
    assert standing.moved.startswith("eu->us at ")
    assert consume(consumed, "us").ids == ids("eu", 5, 6)


def test_a_failover_works_when_the_first_cluster_is_gone_and_says_what_may_be_repeated(linked: World) -> None:
    consume(linked, "eu")
    linked.replicate("us")
    linked.write("us", 20, 30)
    shutil.rmtree(linked.folder / "eu")
    done = moved(linked, "eu", "us")
    assert done.source_unreadable is not None
    assert (done.consumer, done.acknowledged, done.to_deliver, done.repeated, done.at_most_repeated) == ("unknown", 40, 10, 0, 10)
    assert done.last_acknowledged is not None
    assert consume(linked, "us").ids == ids("us", 20, 30)


def test_a_source_that_does_not_answer_counts_as_gone_and_one_that_is_gone_is_not_asked(
    linked: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file of its log that can be opened once somebody writes to it, as storage of which nothing comes back."""
    monkeypatch.setattr(failover_module, "ANSWER_S", 1.0)
    monkeypatch.setattr(peers, "WAIT_S", 1.0)
    consume(linked, "eu")
    linked.replicate("us")
    acks = linked.log("eu", TOPIC.acks)
    hangs = checksum_of(acks, acks.latest_version())
    hangs.unlink()
    os.mkfifo(hangs)
    try:
        silent = moved(linked, "eu", "us", wait_s=0.0)
        gone = moved(linked, "eu", "us", source_gone=True)
    finally:
        os.close(os.open(hangs, os.O_WRONLY | os.O_NONBLOCK))
        hangs.unlink()
    assert silent.source_unreadable == "eu has not answered for 1 s"
    assert gone.source_unreadable == "not looked at: it is said to be gone"
    for done in (silent, gone):
        assert (done.recorded, done.consumer, done.acknowledged, done.to_deliver) == (True, "unknown", 40, 0)
        assert done.last_acknowledged is not None


def test_all_that_match_move_at_once_and_one_that_is_refused_holds_up_no_other(linked: World) -> None:
    other = Topic.parse("persistent://shop/web/orders")
    linked.write("eu", 0, 5, topic=other)
    for topic, name in ((TOPIC, "bills"), (TOPIC, "stock"), (other, "bills"), (TOPIC, "unreadable")):
        named = Subscription(linked.spark, topic, name, linked.config, "eu")
        named.run(lambda messages: messages.where("entry_id < 3"), trigger="available-now")
    tell(linked, "eu", AckState(), name="unreadable", producer="newer")
    linked.log("eu", TOPIC.acks).delta().update("producer = 'newer'", {"payload": "X'0F00'"})
    done, refused = failover_all(linked.spark, linked.config, "persistent://shop/web/*", "*", "eu", "us")
    moved = {(one.topic, one.subscription): (one.consumer, one.acknowledged, one.to_deliver) for one in done}
    assert moved == {
        (str(TOPIC), "bills"): ("stopped", 6, 34),
        (str(TOPIC), "stock"): ("stopped", 6, 34),
        (str(other), "bills"): ("stopped", 3, 0),
    }
    assert list(refused) == [(TOPIC, "unreadable")]
    assert isinstance(refused[TOPIC, "unreadable"], UnsafeError)
    known = read_known(linked.tables("us"), TOPIC).states
    assert known.keys() == {f"{TOPIC}/bills", f"{TOPIC}/stock", f"{other}/bills"}
    only, _ = failover_all(linked.spark, linked.config, "persistent://shop/web/*", "st?ck", "eu", "us", source_gone=True)
    assert [one.subscription for one in only] == ["stock"]
    with pytest.raises(UsageError, match=r"neither eu nor us knows a subscription x\* of"):
        failover_all(linked.spark, linked.config, "persistent://shop/*/*", "x*", "eu", "us")


def test_a_failover_of_what_nobody_knows_is_refused(linked: World) -> None:
    with pytest.raises(UsageError, match="neither eu nor us knows a subscription billing"):
        moved(linked, "eu", "us")


def test_a_failover_waits_for_a_consumer_that_still_runs(linked: World) -> None:
    with consuming(linked, "eu") as first, running(linked, "us"):
        first.until(lambda: first.subscription.done.delivered == 40)
        assert moved(linked, "eu", "us", wait_s=0).consumer == "running"
        first.subscription.stop()
        assert moved(linked, "eu", "us", wait_s=60).consumer == "stopped"


@pytest.mark.parametrize("first", ["reset", "acknowledgements"])
def test_a_reset_wins_over_acknowledgements_of_before_whichever_comes_first(consumed: World, first: str) -> None:
    world = consumed
    world.replicate("us", topics=ACKS)
    consume(world, "eu")  # acknowledges the rest; still on its way when us resets
    if first == "acknowledgements":
        world.replicate("us", topics=ACKS)
    told = reset(world.spark, world.config, "us", TOPIC, NAME, MessageId("eu", 1, 5), dry_run=True)
    assert told.epoch == 1
    assert known(world, "us").epoch.counter == 0, "a dry run changes nothing"
    done = reset(world.spark, world.config, "us", TOPIC, NAME, MessageId("eu", 1, 5))
    assert (done.repeated, done.skipped) == (told.repeated, told.skipped)
    world.replicate("us", topics=ACKS)
    world.replicate("eu", topics=ACKS)
    assert known(world, "eu") == known(world, "us")
    assert known(world, "eu").acked == MessageSet()
    assert [one for one in consume(world, "eu").ids if one.origin == "eu"] == ids("eu", 5, 20)


def test_two_resets_at_once_converge_and_a_running_consumer_follows(consumed: World) -> None:
    world = consumed
    world.replicate("us", topics=ACKS)
    reset(world.spark, world.config, "eu", TOPIC, NAME, MessageId("eu", 1, 15))
    reset(world.spark, world.config, "us", TOPIC, NAME, "earliest")
    with consuming(world, "eu") as consumer, running(world, "eu") as into_eu, running(world, "us"):
        into_eu.until(lambda: known(world, "eu") == known(world, "us") and known(world, "eu").epoch.counter == 1)
        assert known(world, "eu").epoch.cluster == "us", "the cluster decides"
        eu = consumer.subscription
        into_eu.until(lambda: eu.state.acked.size == 40 and eu.state.epoch.cluster == "us")
    assert set(consumer.given.ids) == {*ids("eu", 0, 20), *ids("us", 0, 20)}


def test_a_deleted_subscription_does_not_come_back_until_somebody_creates_it(consumed: World) -> None:
    world = consumed
    world.replicate("us", topics=ACKS)
    consume(world, "eu")  # acknowledgements that are on their way when us deletes
    delete(world.spark, world.config, "us", TOPIC, NAME)
    for target in ("us", "eu", "us"):
        world.replicate(target, topics=ACKS)
    assert known(world, "us").deleted
    assert known(world, "eu").deleted
    assert [one.deleted for name in ("eu", "us") for one in subscriptions_in(world.tables(name))] == [True, True]
    with pytest.raises(UnsafeError, match="was deleted"):
        consume(world, "eu")
    assert consumer_in(world, "eu") is ConsumerState.STOPPED
    create(world.spark, world.config, "eu", TOPIC, NAME, "earliest")
    with pytest.raises(UsageError, match="is there already"):
        create(world.spark, world.config, "eu", TOPIC, NAME, "earliest")
    world.rewrite(("eu", "us"), [])  # neither can read the other
    create(world.spark, world.config, "us", TOPIC, NAME, "latest")
    world.rewrite(("eu", "us"))
    for target in ("us", "eu"):
        world.replicate(target, topics=ACKS)
    assert known(world, "eu") == known(world, "us")
    assert len(consume(world, "eu").ids) == 40, "nothing is left out that one of them wants"


def test_the_status_says_how_far_each_cluster_is_and_why_one_is_behind(consumed: World) -> None:
    world = consumed
    eu, us = status(world.spark, TOPIC, NAME, world.config)
    assert (eu.backlog, eu.acknowledged, eu.mark_delete, eu.ranges_beyond) == (1, 39, {"eu:1": 4, "us:1": 19}, {"eu:1": 1})
    assert (us.backlog, us.acknowledged, us.runs) == (40, 0, False)
    (peer,) = us.peers
    assert peer.newest_here is None
    assert peer.behind is not None
    assert f"link eu->us has not run for {ACKS} yet" in peer.behind
    world.replicate("us")
    _, us = status(world.spark, TOPIC, NAME, world.config)
    assert (us.backlog, us.peers[0].behind) == (1, None)
    shutil.rmtree(world.folder / "eu" / "topics")
    _, us = status(world.spark, TOPIC, NAME, world.config)
    assert us.backlog == 1


def test_a_record_that_names_more_than_can_exist_is_counted_and_changes_nothing(linked: World) -> None:
    consume(linked, "us", NONE)
    tell(linked, "eu", AckState(acked=MessageSet({LedgerId("us", 1_800_000_000 << 20): ((0, 2**62),)})))
    linked.replicate("us")
    assert len(consume(linked, "us").ids) == 40
    _, us = status(linked.spark, TOPIC, NAME, linked.config)
    assert us.refused == {"too large": 1}
