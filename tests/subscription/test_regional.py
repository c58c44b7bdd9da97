"""Subscriptions of one region only, on real tables: what leaves the region, what comes in, and what the switch changes."""

from __future__ import annotations

import logging
import shutil
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

import pytest

from geo.config.model import TopicPolicy
from geo.errors import UnsafeError, UsageError
from geo.schemas import CURSORS, MARKERS, VERSION_SUBSCRIPTIONS
from geo.streams.trigger import AVAILABLE_NOW
from geo.subscription.acks.acks_topic import read_known
from geo.subscription.acks.message_set import MessageSet
from geo.subscription.acks.namespace_folds import Folding
from geo.subscription.acks.record import is_newer
from geo.subscription.changes import create, delete, reset, switch
from geo.subscription.failover import failover, failover_all
from geo.subscription.pip33.version_sync import VersionSync
from geo.subscription.status import standings, subscriptions_in
from geo.subscription.versions.version_status import start_elsewhere, version_standings
from geo.subscription.versions.version_subscriptions import create as create_version
from geo.subscription.versions.version_subscriptions import finish, version_subscription
from geo.subscription.versions.version_subscriptions import switch as switch_version
from tests.delta.logs import commit_of
from tests.subscription.consuming import NAME, NONE, consume, consuming, ids, known
from tests.world import TOPIC, World

pytestmark = pytest.mark.spark

EU, US = ids("eu", 0, 20), ids("us", 0, 20)


def own(world: World, cluster: str = "us", done: str = "entry_id < 5") -> None:
    """A consumer in one cluster whose subscription is of that region only, and that acknowledges some."""
    consume(world, cluster, done, replicate_subscription_state=False)


def turn(world: World, cluster: str, *, replicated: bool) -> None:
    switch(world.spark, world.config, cluster, TOPIC, NAME, replicated=replicated)


def names(world: World, cluster: str) -> set[str]:
    return {one.subscription for one in subscriptions_in(world.tables(cluster))}


def records(world: World, cluster: str) -> int:
    """How many records of subscriptions a cluster holds."""
    log = world.log(cluster, TOPIC.acks)
    return log.read().count() if log.exists() else 0


def test_one_of_us_only_is_unknown_in_eu_until_it_is_switched_on_and_then_goes_on_there_exactly(
    linked: World, caplog: pytest.LogCaptureFixture
) -> None:
    own(linked)
    linked.replicate("eu")
    assert records(linked, "us") > 0
    assert records(linked, "eu") == 0, "nothing of it crossed"
    assert names(linked, "eu") == set()
    with pytest.raises(
        UsageError, match=f"of that region only.*--cluster us .*--subscription {NAME} --replicate-subscription-state true"
    ):
        failover(linked.spark, TOPIC, NAME, linked.config, "us", "eu")
    assert failover_all(linked.spark, linked.config, str(TOPIC), "*", "us", "eu")[1].keys() == {(TOPIC, NAME)}
    turn(linked, "us", replicated=True)
    linked.replicate("eu")
    assert known(linked, "eu") == known(linked, "us")
    assert known(linked, "eu").acked == MessageSet.of([*EU[:5], *US[:5]])
    assert set(consume(linked, "eu").ids) == {*EU[5:], *US[5:]}
    linked.replicate("us")
    assert consume(linked, "us").ids == [], "and what eu acknowledges counts in us"
    linked.assert_clean(TOPIC.acks)


def test_the_same_name_in_another_region_is_another_subscription(linked: World) -> None:
    own(linked)
    linked.replicate("eu")
    assert set(consume(linked, "eu").ids) == {*EU, *US}, "it begins anew"
    reset(linked.spark, linked.config, "eu", TOPIC, NAME, "latest")
    linked.replicate("us")
    assert set(consume(linked, "us", NONE).ids) == {*EU[5:], *US[5:]}, "whatever is done with that one"
    with pytest.raises(UsageError, match=r"us has a subscription .* of its own, of that region only"):
        failover(linked.spark, TOPIC, NAME, linked.config, "eu", "us")
    before = known(linked, "eu")
    turn(linked, "us", replicated=True)
    linked.replicate("eu")
    assert known(linked, "eu") == known(linked, "us") != before
    assert set(consume(linked, "eu", NONE).ids) == {*EU[5:], *US[5:]}, "exactly as us has it: the other one is replaced"


def test_nobody_waits_for_peers_of_one_that_is_of_one_region_only(linked: World, caplog: pytest.LogCaptureFixture) -> None:
    own(linked)
    consume(linked, "us", name="shared")
    consume(linked, "eu", name="other")
    log = linked.log("eu", TOPIC.acks)
    commit_of(log, log.latest_version() + 1).write_text("{ no commit\n")
    with caplog.at_level(logging.WARNING):
        own(linked)
        assert "what eu knows of it comes later" not in caplog.text
        consume(linked, "us", name="shared")
        assert "what eu knows of it comes later" in caplog.text


def test_switched_off_under_a_running_consumer_it_goes_on_as_it_is_and_the_others_keep_what_they_were_told(linked: World) -> None:
    with consuming(linked, "us") as us:
        us.until_given(*EU, *US)
        us.until(lambda: known(linked, "us").acked.size == 40)
        linked.replicate("eu")
        told = known(linked, "eu")
        turn(linked, "us", replicated=False)
        linked.write("us", 20, 30)
        us.until(lambda: known(linked, "us").acked.size == 50)
        linked.replicate("eu")
        assert known(linked, "eu") == told
        assert set(consume(linked, "eu", NONE).ids) == set(ids("us", 20, 30)), "a copy that is not kept up to date"
        turn(linked, "us", replicated=True)
        linked.write("us", 30, 40)
        us.until(lambda: known(linked, "us").acked.size == 60)
        linked.replicate("eu")
        assert known(linked, "eu") == known(linked, "us")
    assert len(us.given.ids) == len(set(us.given.ids)) == 60, "each came once, through both switches"


def test_switched_on_under_a_running_consumer_nothing_comes_again(linked: World) -> None:
    with consuming(linked, "us", "entry_id <> 3", replicate_subscription_state=False) as us:
        us.until_given(*EU, *US)
        us.until(lambda: known(linked, "us").acked.size == 38)
        turn(linked, "us", replicated=True)
        linked.write("us", 20, 30)
        us.until(lambda: known(linked, "us").acked.size == 48)
        linked.replicate("eu")
        assert known(linked, "eu") == known(linked, "us")
    assert len(us.given.ids) == len(set(us.given.ids)) == 50
    assert set(consume(linked, "eu").ids) == {EU[3], US[3]}


def test_folding_keeps_both_and_publishes_each_where_it_belongs(linked: World) -> None:
    consume(linked, "eu", "origin = 'eu'")
    linked.replicate("us")
    turn(linked, "us", replicated=False)
    consume(linked, "us", "entry_id < 5")
    before = read_known(linked.tables("us"), TOPIC, NAME).all_of(TOPIC, NAME)
    assert before.is_regional
    Folding(linked.spark, linked.config, "us").run()
    (row,) = linked.tables("us").journal(CURSORS).newest()
    assert (row["replicated"], row["acknowledged"]) == (False, 25)
    assert read_known(linked.tables("us"), TOPIC, NAME).all_of(TOPIC, NAME) == before
    payloads = [(row["replicate_to"], bytes(row["payload"])[0]) for row in linked.log("us", TOPIC.acks).read().collect()]
    assert {(to is None, version) for to, version in payloads} == {(True, 1), (False, 2)}
    assert not any(is_newer(bytes([version])) for _, version in payloads)
    linked.replicate("eu")
    assert known(linked, "eu").acked == MessageSet.of(EU)
    assert {row["origin"] for row in linked.log("eu", TOPIC.acks).read().where("replicate_to IS NOT NULL").collect()} == set()
    # As if all records but the compact ones had expired, and then the cursors were lost.
    linked.log("us", TOPIC.acks).delta().delete("producer <> 'fold'")
    assert read_known(linked.tables("us"), TOPIC, NAME).all_of(TOPIC, NAME) == before
    shutil.rmtree(Path(linked.tables("us").cluster.root or "") / "system" / "cursors")
    assert read_known(linked.tables("us"), TOPIC, NAME).all_of(TOPIC, NAME) == before


def test_it_is_created_deleted_and_created_again_in_its_region_alone(linked: World) -> None:
    made = create(linked.spark, linked.config, "us", TOPIC, NAME, "latest", replicated=False)
    assert made.is_regional
    with pytest.raises(UsageError, match="is there already"):
        create(linked.spark, linked.config, "us", TOPIC, NAME, "latest", replicated=False)
    consume(linked, "eu")
    linked.replicate("us")
    delete(linked.spark, linked.config, "us", TOPIC, NAME)
    linked.replicate("eu")
    assert not known(linked, "eu").deleted
    with pytest.raises(UnsafeError, match="was deleted"):
        consume(linked, "us")
    with pytest.raises(
        UsageError, match=r"The others have it, and us had one of its own\. To take part in theirs: geo subscriptions set"
    ):
        create(linked.spark, linked.config, "us", TOPIC, NAME, "earliest", replicated=True)
    create(linked.spark, linked.config, "us", TOPIC, NAME, "earliest", replicated=False)
    assert len(consume(linked, "us", NONE).ids) == 40
    delete(linked.spark, linked.config, "us", TOPIC, NAME)
    turn(linked, "us", replicated=True)
    assert consume(linked, "us").ids == [], "it is the one that eu has consumed"
    with pytest.raises(UsageError, match="knows no subscription"):
        switch(linked.spark, linked.config, "us", TOPIC, "nothing", replicated=True)


def test_what_a_policy_says_holds_for_those_that_are_created_and_status_shows_it(linked: World) -> None:
    linked.path.write_text(
        linked.path.read_text() + 'topics: [{match: "persistent://shop/web/*", replicate_subscription_state: false}]\n'
    )
    linked.reload()
    assert linked.config.policies == (TopicPolicy("persistent://shop/web/*", replicate_subscription_state=False),)
    consume(linked, "us")
    consume(linked, "us", name="shared", replicate_subscription_state=True)
    create(linked.spark, linked.config, "us", TOPIC, "made", "earliest")
    listed = {one.subscription: one.replicated for one in subscriptions_in(linked.tables("us"))}
    assert listed == {NAME: False, "shared": True, "made": False}
    clusters = {name: linked.tables(name) for name in ("eu", "us")}
    eu, us = standings(clusters, linked.config, TOPIC, NAME)
    assert (us.replicated, us.peers, us.acknowledged) == (False, (), 40)
    assert eu.replicated
    assert [peer.behind for peer in eu.peers] == [None], "us has nothing to tell it"
    eu, us = standings(clusters, linked.config, TOPIC, "shared")
    assert "its newest" in str(eu.peers[0].behind)


def test_a_table_of_before_the_switch_and_a_record_of_before_mean_replicated(linked: World) -> None:
    consume(linked, "us")
    Folding(linked.spark, linked.config, "us").run()
    assert {bytes(row["state"])[0] for row in linked.tables("us").journal(CURSORS).newest()} == {1}, "as it always was"
    old = replace(VERSION_SUBSCRIPTIONS, columns=VERSION_SUBSCRIPTIONS.columns[:-1])
    at = datetime(2026, 11, 1, tzinfo=timezone.utc)
    row = {"topic": str(TOPIC), "subscription": "reports", "deleted": False, "table_id": linked.log("us").table_id(), "finished": None,
           "checkpoint": None, "query_id": None, "created_at": at, "by": "somebody", "sequence": 1, "updated_at": at}  # fmt: skip
    linked.tables("us").journal(old).append([row])
    found = version_subscription(linked.tables("us"), TOPIC, "reports")
    assert found is not None
    assert found.replicated
    assert switch_version(linked.tables("us"), TOPIC, "reports", replicated=False)
    changed = version_subscription(linked.tables("us"), TOPIC, "reports")
    assert changed == replace(found, replicated=False)


def test_a_version_subscription_of_one_region_only_gets_no_markers_and_does_not_move(linked: World) -> None:
    linked.configure("snapshots: {frequency: 1 seconds}\n")
    create_version(linked.tables("us"), TOPIC, "reports", replicated=False)
    finish(linked.tables("us"), TOPIC, "reports", linked.log("us").latest_version())
    assert _sync(linked) == 0
    assert not linked.tables("us").journal(MARKERS).exists(), "nothing was begun"
    assert linked.log("us").read().where("marker IS NOT NULL").count() == 0
    clusters = {name: linked.tables(name) for name in ("eu", "us")}
    with pytest.raises(UsageError, match=r"is of that region only.*geo subscriptions set --cluster us .*--subscription reports"):
        start_elsewhere(clusters, linked.config, TOPIC, "reports", "us", "eu", source_gone=False)
    standing = next(one for one in version_standings(clusters, linked.config, TOPIC, "reports") if one.cluster == "us")
    assert (standing.replicated, standing.elsewhere, standing.not_run, standing.unread) == (False, (), None, None)
    with pytest.raises(UsageError, match="is there already, and is of this region only"):
        create_version(linked.tables("us"), TOPIC, "reports", replicated=True)
    assert switch_version(linked.tables("us"), TOPIC, "reports", replicated=True)
    assert not switch_version(linked.tables("us"), TOPIC, "reports", replicated=True)
    assert _sync(linked) > 0
    assert switch_version(linked.tables("us"), TOPIC, "reports", replicated=False)
    markers = [linked.log(cluster).read().where("marker IS NOT NULL").count() for cluster in clusters]
    linked.write("us", 20, 30)
    assert _sync(linked) == 0, "the round that was begun is not gone on with"
    assert [linked.log(cluster).read().where("marker IS NOT NULL").count() for cluster in clusters] == markers


def _sync(world: World) -> int:
    """Two passes of us's version sync, since its controllers hear in one what its tail has told in the one before. Returns how many markers
    were written."""
    return sum(VersionSync(world.spark, world.config, "us", trigger=AVAILABLE_NOW).run().markers for _ in range(2))
