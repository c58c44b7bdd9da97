"""Deleting a topic in one cluster: with what hangs on it, through every crash, and what links and producers do about it."""

from __future__ import annotations

import shutil
from contextlib import closing
from pathlib import Path

import pytest

from geo import crash
from geo.crash import CrashPoint
from geo.delta.ddl import create_table
from geo.disk import local_path
from geo.errors import AlreadyOwnedError, RetryableError, UnsafeError, UsageError
from geo.journal.journal import Journal
from geo.log.partitioned import create_partitions, create_single
from geo.log.publisher import Publisher
from geo.log.topics import Unended, create_topic, deleted_topics, registered_topics, set_deleted
from geo.names import ALL_TOPICS, Topic
from geo.ops.delete_topic import Deleted, delete_topics
from geo.ops.doctor import examine
from geo.ops.regions import Regions
from geo.ops.remove_cluster import remove_cluster
from geo.replication.link_requests import Action
from geo.replication.link_status import link_statuses
from geo.replication.link_table import read_links
from geo.replication.rebuild import rebuild
from geo.replication.repair import reconcile_links
from geo.replication.replicator_work import ReplicatorWork
from geo.replication.request_table import ask
from geo.schemas import LEDGERS, LINKS, MARKERS, OWNERS, REQUESTS, TOPIC_LOG, TOPICS, VERSION_STARTS, VERSION_SUBSCRIPTIONS
from geo.streams.life import State, Why
from geo.subscription import changes
from geo.subscription.status import subscriptions_in
from geo.subscription.versions.version_subscriptions import create, version_subscriptions
from geo.testing import crash_points, dies_at
from tests.running import TRIGGER, running
from tests.version_starts import found_start, read_up_to
from tests.world import TOPIC, World

pytestmark = pytest.mark.spark


def _delete(world: World, cluster: str = "eu", *, lose: bool = False, dry_run: bool = False) -> Deleted:
    (done,) = delete_topics(world.spark, world.config, cluster, str(TOPIC), lose=lose, dry_run=dry_run)
    return done


@pytest.fixture(scope="module")
def _published_once(_linked_once: World, tmp_path_factory: pytest.TempPathFactory) -> World:
    world = _linked_once.copy(tmp_path_factory.mktemp("published"))
    world.publish("eu", 5)
    world.replicate("us")
    return world


@pytest.fixture
def published(_published_once: World, tmp_path: Path) -> World:
    """As `linked`; a producer of eu has published another five, which us has too. A copy for this test alone."""
    return _published_once.copy(tmp_path)


_TABLES = (TOPICS, OWNERS, LINKS, REQUESTS, VERSION_SUBSCRIPTIONS, VERSION_STARTS, MARKERS)


def _versions(world: World, cluster: str) -> list[int | None]:
    journals: list[Journal] = [world.tables(cluster).journal(schema) for schema in _TABLES]
    return [journal.table.latest_version() if journal.exists() else None for journal in journals]


def test_a_topic_goes_with_what_hangs_on_it_and_comes_again_when_somebody_makes_it(published: World) -> None:
    world = published
    eu = world.tables("eu")
    ask(eu, "us", str(TOPIC), Action.PAUSE)
    ask(eu, "us", "persistent://shop/*/*", Action.RESUME)
    changes.create(world.spark, world.config, "eu", TOPIC, "billing", "earliest")
    create(eu, TOPIC, "reports")
    found_start(world, "eu", "reports", "us", 1)
    found_start(world, "eu", "others", "eu", 2, sender="us")
    read_up_to(world, "eu", 1)
    before, ledgers = _versions(world, "eu"), {ledger for origin, ledger, _ in world.messages("eu") if origin == "eu"}

    dry = _delete(world, dry_run=True)
    assert (dry.refused, dry.facts.messages, dry.facts.only.messages) == (None, 45, 0)
    assert (dry.facts.links, dry.facts.requests, dry.facts.producers) == (("us->eu",), 1, ("p",))
    assert dry.facts.subscriptions == ("billing",)
    assert _versions(world, "eu") == before
    assert len(world.messages("eu")) == 45

    (stale,) = eu.journal(LEDGERS).newest(topic=str(TOPIC))
    assert _delete(world).stays == ()
    eu.journal(LEDGERS).append([{**stale, "sequence": stale["sequence"] + 100}])
    assert eu.journal(LEDGERS).newest()[0]["closed"] == "the topic was deleted", (
        "what a stale producer still records is of no account"
    )
    assert not world.log("eu").exists()
    assert deleted_topics(world.tables("eu")) == {TOPIC}
    assert ("us", str(TOPIC)) not in read_links(eu)
    assert [row["topics"] for row in eu.journal(REQUESTS).newest()] == ["persistent://shop/*/*"]
    assert (version_subscriptions(eu), eu.journal(VERSION_STARTS).newest(topic=str(TOPIC))) == ([], [])
    assert len(eu.journal(MARKERS).newest()) == 1, "by it the topic that is made again is found to be another table"
    for kind in ("publish", "held"):
        assert not (local_path(eu.checkpoint(kind)) or world.folder).joinpath(TOPIC.path).exists()
    assert [one.subscription for name in ("eu", "us") for one in subscriptions_in(world.tables(name), str(TOPIC))] == ["billing"]
    with pytest.raises(UsageError, match=f"eu has no topic {TOPIC}"):
        _delete(world)

    assert [r for r in world.replicate("eu") if r.topic == str(TOPIC)] == []
    assert [r for r in world.replicate("us") if r.topic == str(TOPIC)] == []
    assert not world.log("eu").exists()
    assert len(world.messages("us")) == 45
    assert world.verify().clean
    clusters = {name: world.tables(name) for name in world.config.clusters}
    statuses = [one for tables in clusters.values() for one in link_statuses(tables, clusters, world.config, ALL_TOPICS)]
    assert [one.topic for one in statuses if one.topic == TOPIC] == []
    with pytest.raises(UsageError, match="was deleted in eu; `geo topics create` makes it again"):
        reconcile_links(world.spark, world.config, "us", "eu", topics=str(TOPIC))
    with pytest.raises(UsageError, match="was not deleted in eu"):
        rebuild(world.spark, world.config, "eu", "us", str(TOPIC))

    assert world.publish("eu", 5).rows == 5, "the producer begins anew"
    mine = {ledger for origin, ledger, _ in world.messages("eu") if origin == "eu"}
    assert mine.isdisjoint(ledgers), "an id is never used for other data"
    (report,) = [r for r in world.replicate("eu") if r.topic == str(TOPIC)]
    assert (report.state, report.replicated) == (State.STOPPED, 20)
    (report,) = [r for r in world.replicate("us") if r.topic == str(TOPIC)]
    assert report.state is State.FAILED
    assert "dropped and created again" in (report.reason or "")
    reconcile_links(world.spark, world.config, "eu", "us", topics=str(TOPIC))
    assert [r.state for r in world.replicate("us") if r.topic == str(TOPIC)] == [State.STOPPED]
    assert len(world.messages("us")) == 50


def test_what_no_other_cluster_holds_is_not_lost_unless_that_was_said(linked: World) -> None:
    linked.write("eu", 20, 25)
    with pytest.raises(UnsafeError, match=r"45 messages, 5 of them in no other cluster \(eu:1:20-24\)"):
        _delete(linked)
    assert "to lose them, say --lose-what-only-it-has" in (_delete(linked, dry_run=True).refused or "")
    assert [one.topic for one in registered_topics(linked.tables("eu"))] == [TOPIC]
    assert len(linked.messages("eu")) == 45

    (linked.folder / "us").rename(linked.folder / "elsewhere")
    (linked.folder / "us").write_text("no folder")
    with pytest.raises(UnsafeError, match=r"45 of them in no other cluster that can be read .* us cannot be read, and may hold"):
        _delete(linked)
    assert _delete(linked, lose=True).facts.only.messages == 45
    assert not linked.log("eu").exists()


def test_who_lives_is_named_and_nothing_is_deleted(linked: World) -> None:
    publisher = Publisher(linked.tables("eu"), linked.config, TOPIC, "p").open(linked.rows(0, 1).schema, {"number"})
    with closing(publisher), pytest.raises(UnsafeError, match=r"producer p of .* in eu: already run by this process"):
        _delete(linked)
    with running(linked, "eu") as links:
        links.until(lambda: links.last(TOPIC)[0] is State.RUNNING)
        assert (_delete(linked, dry_run=True).refused or "").startswith(
            f"origin us of {TOPIC} into eu: already run by this process"
        )
        with pytest.raises(UnsafeError, match="Nothing was deleted"):
            _delete(linked)
    assert len(linked.messages("eu")) == 40


@pytest.mark.parametrize("point", crash_points("claim-", "delete-", "folder-"), ids=lambda p: p.value)
def test_a_delete_that_stops_here_is_ended_by_another_one_and_nobody_takes_half_a_topic_for_a_new_one(
    published: World, point: CrashPoint
) -> None:
    world = published
    with dies_at(point):
        _delete(world)
    is_deleted = TOPIC in deleted_topics(world.tables("eu"))
    if is_deleted:
        assert world.replicate("eu") == world.replicate("us") == []
        left = r"its log .* is still there" if world.log("eu").exists() else "that has not ended"
        for producer in ("p", "new"):
            with pytest.raises(UnsafeError, match=f"was deleted in eu, and {left}"):
                world.publish("eu", 9, producer=producer)
        with pytest.raises(UnsafeError, match=left):
            create_single(world.tables("eu"), TOPIC)
        symptoms = [one.what for one in examine(None, world.config, Regions({"eu": world.tables("eu")}))]
        assert sum(what.startswith("it was deleted, and ") for what in symptoms) == 1
    else:
        assert len(world.messages("eu")) == 45
    _delete(world)
    assert not world.log("eu").exists()
    assert not list(world.folder.rglob(".*.removed"))
    assert read_links(world.tables("eu")) == {}
    assert world.publish("eu", 5).rows == 5
    world.replicate("eu")
    assert len(world.messages("eu")) == 25


@pytest.mark.parametrize("point", [CrashPoint.DELETE_REGISTERED, CrashPoint.DELETE_FOLDERS_GONE], ids=lambda p: p.value)
def test_a_copy_that_is_being_deleted_is_no_copy_and_a_delete_that_has_only_begun_is_taken_back(
    linked: World, point: CrashPoint
) -> None:
    with dies_at(point):
        _delete(linked)
    for lost in (lambda: _delete(linked, "us"), lambda: remove_cluster(linked.spark, linked.config, "us")):
        with pytest.raises(UnsafeError, match=r"40 of them in no other cluster \("):
            lost()
    _delete(linked, "us", lose=True)
    begun = point is CrashPoint.DELETE_REGISTERED
    advice = "run the links out of eu, which carry it again" if begun else "its log can still be read"
    assert advice in (_delete(linked, dry_run=True).refused or "")
    assert deleted_topics(linked.tables("eu")) == {TOPIC}
    with pytest.raises(UnsafeError, match=advice):
        _delete(linked)
    assert (TOPIC in deleted_topics(linked.tables("eu"))) is not begun
    create_single(linked.tables("us"), TOPIC)
    assert sum(report.replicated for report in linked.replicate("us")) == (20 if begun else 0), "what eu wrote"


def test_of_two_deletes_at_once_one_sees_the_other(linked: World) -> None:
    us = linked.tables("us")

    def both(point: CrashPoint) -> None:
        if point is CrashPoint.DELETE_REGISTERED:
            set_deleted(us, TOPIC, deleted=True, unended=Unended.BEGUN)

    with crash.watched(both), pytest.raises(UnsafeError, match="40 of them in no other cluster"):
        _delete(linked)
    assert deleted_topics(linked.tables("eu")) == set(), "it is taken back"
    with pytest.raises(UnsafeError, match="Nothing was deleted"):
        _delete(linked)
    assert len(linked.messages("eu")) == 40


def test_a_producer_that_begins_meanwhile_is_seen_and_the_topic_stays(linked: World) -> None:
    begun = list[Publisher]()

    def begin(point: CrashPoint) -> None:
        if point is CrashPoint.DELETE_CLAIMED and not begun:
            publisher = Publisher(linked.tables("eu"), linked.config, TOPIC, "new")
            begun.append(publisher.open(linked.rows(0, 1).schema, {"number"}))

    with crash.watched(begin), pytest.raises(AlreadyOwnedError, match=r"producer new of .* Nothing was deleted"):
        _delete(linked)
    begun[0].close()
    assert registered_topics(linked.tables("eu"))[0].topic == TOPIC
    assert linked.publish("eu", 5, producer="new").rows == 5

    def write(point: CrashPoint) -> None:
        if point is CrashPoint.DELETE_REGISTERED:
            linked.write("eu", 20, 25)

    linked.replicate("us")
    with crash.watched(write), pytest.raises(RetryableError, match=r"committed to .* meanwhile"):
        _delete(linked)
    assert registered_topics(linked.tables("eu"))[0].topic == TOPIC


def test_a_producer_that_comes_and_goes_meanwhile_is_seen_also_where_there_was_no_log(world: World) -> None:
    with dies_at(CrashPoint.TOPIC_REGISTERED):
        create_single(world.tables("eu"), TOPIC)

    def come_and_go(point: CrashPoint) -> None:
        """It has asked the registry before."""
        if point is CrashPoint.DELETE_REGISTERED:
            create_table(world.log("eu"), TOPIC_LOG)
            world.write("eu", 0, 5)

    with crash.watched(come_and_go), pytest.raises(RetryableError, match=r"committed to .* meanwhile"):
        _delete(world)
    assert len(world.messages("eu")) == 5
    assert registered_topics(world.tables("eu"))[0].topic == TOPIC


def test_who_is_refused_late_is_told_what_was_deleted_before(world: World) -> None:
    eu = world.tables("eu")
    first, second = create_partitions(eu, TOPIC, 2)

    def write(point: CrashPoint) -> None:
        if point is CrashPoint.DELETE_REGISTERED and second in deleted_topics(eu):
            world.write("eu", 0, 5, topic=second)

    with crash.watched(write), pytest.raises(RetryableError) as refused:
        delete_topics(world.spark, world.config, "eu", str(TOPIC))
    assert "Nothing was deleted" not in str(refused.value)
    assert str(refused.value).endswith(f"It was not deleted. Run it again. Before it were deleted: {first}.")
    assert [one.topic for one in registered_topics(eu)] == [second]


def test_a_link_that_runs_lets_go_of_a_topic_that_was_deleted_in_its_source(linked: World) -> None:
    with running(linked, "us") as links:
        links.until(lambda: links.last(TOPIC)[0] is State.RUNNING)
        _delete(linked, "eu")
        links.until(lambda: links.last(TOPIC) == (State.PAUSED, "it was deleted in eu"))
    with pytest.raises(UsageError, match="eu has no such topic"):  # its region is there, and all of its topics were deleted
        reconcile_links(linked.spark, linked.config, "eu", "us")
    assert linked.link_state("us", "eu").state in (State.PAUSED, State.STOPPED)
    assert len(linked.messages("us")) == 40


def test_a_link_that_meets_the_end_of_its_source_before_it_hears_of_it_records_that_it_was_deleted(linked: World) -> None:
    link = linked.topic_replicator("eu", "us")
    work = ReplicatorWork(link, TRIGGER)
    work.own(lambda: False)
    assert work.lease.held is not None
    work.start(work.lease.held, lambda: False)
    _delete(linked, "eu")
    with pytest.raises(RetryableError) as met:
        link.running.check_source()
    owned = work.lease.lose(met.value)
    assert owned is not None
    work.give_up(owned, State.DELAYED, Why(str(met.value), met.value.code))
    state = linked.link_state("us", "eu")
    assert (state.state, state.reason) == (State.PAUSED, "it was deleted in eu")


def test_a_partitioned_topic_goes_with_its_partitions_and_what_a_glob_names_goes_but_for_acknowledgements(world: World) -> None:
    eu = world.tables("eu")
    create_partitions(eu, TOPIC, 2)
    other = Topic.parse("persistent://shop/web/orders")
    create_topic(eu, other)
    changes.create(world.spark, world.config, "eu", other, "billing", "earliest")
    done = delete_topics(world.spark, world.config, "eu", str(TOPIC))
    assert [one.facts.topic for one in done] == [f"{TOPIC}-partition-0", f"{TOPIC}-partition-1"]
    assert len(create_partitions(eu, TOPIC, 1)) == 1, "they can be made again, and fewer"
    done = delete_topics(world.spark, world.config, "eu", "persistent://shop/*/*")
    assert [one.facts.topic for one in done] == [f"{TOPIC}-partition-0", str(other)]
    assert [one.topic for one in registered_topics(eu)] == [other.acks]
    with pytest.raises(UsageError, match="is a system topic"):
        delete_topics(world.spark, world.config, "eu", str(other.acks))
    with pytest.raises(UsageError, match=r"eu has no topic that matches persistent://shop/\*/\*"):
        delete_topics(world.spark, world.config, "eu", "persistent://shop/*/*")


def _configured(world: World, eu: str) -> None:
    """Another eu."""
    links = "links: [{source: us, target: eu}, {source: eu, target: us}]"
    world.path.write_text(f"version: 1\nclusters:\n  eu: {{{eu}}}\n  us: {{root: us}}\n{links}\n")
    world.reload()


def test_in_a_catalog_the_table_is_dropped(world: World) -> None:
    world.spark.sql(f"CREATE SCHEMA geo_eu LOCATION '{world.folder}/geo_eu'")
    try:
        _configured(world, f"catalog: spark_catalog, schema: geo_eu, checkpoints: {world.folder}/checkpoints")
        world.publish("eu", 5)
        world.replicate("us")
        assert _delete(world).stays == ()
        assert not world.log("eu").exists()
        assert not (world.folder / "geo_eu" / TOPIC.table_name).exists()
        assert world.publish("eu", 7).rows == 7
    finally:
        world.spark.sql("DROP SCHEMA geo_eu CASCADE")


def test_what_cannot_be_removed_from_here_is_named_and_until_it_is_gone_the_topic_is_not_made_again(world: World) -> None:
    """A storage that Spark reaches and this process does not."""
    place = world.folder / "elsewhere"
    place.mkdir()
    world.spark.conf.set("fs.viewfs.mounttable.default.link./elsewhere", place.as_uri())
    _configured(world, "root: eu, checkpoints: viewfs:///elsewhere")
    eu = world.tables("eu")
    world.publish("eu", 5)
    world.replicate("us")
    note = eu.checkpoint("publish", TOPIC.path)
    eu.files.replace(f"{note}/p/position.json", ["{}"])

    assert _delete(world).stays == (note, str(world.log("eu")))
    assert len(world.messages("eu")) == 5
    with pytest.raises(UnsafeError, match="is still there"):
        world.publish("eu", 7)
    assert world.replicate("us") == []
    shutil.rmtree(world.folder / "eu" / world.log("eu").name.rpartition("/eu/")[2])
    with pytest.raises(UnsafeError, match="was deleted in eu, and that has not ended"):
        create_single(eu, TOPIC)
    shutil.rmtree(place / "publish")
    assert _delete(world).stays == ()
    assert world.publish("eu", 7).rows == 7
