"""The verbs of brokers that share a cluster, on real tables of one that does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from geo.cli import brokers, running
from geo.cli.main import main
from geo.delta.driver import Driver
from geo.delta.process import Process
from geo.fleet import load_reports
from geo.fleet.assignments import read_bundles
from geo.fleet.load_reports import UP, append_report, read_reports
from geo.fleet.placement.bundles import bundle_hash, bundle_of
from geo.fleet.placement_requests import read_policies
from geo.journal.cluster import ClusterTables
from geo.log.topics import create_topic
from geo.names import Topic
from geo.now import now_us
from geo.version import program_version
from tests.cli.of_us import as_json, no_spark, output_of
from tests.members import Alone
from tests.world import World

pytestmark = pytest.mark.spark

TOPICS = [Topic.parse(f"persistent://shop/web/t{number}") for number in range(6)]


@pytest.fixture(scope="module")
def shared(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[World, Alone]]:
    """A cluster whose only broker has all topics."""
    world = World(tmp_path_factory.mktemp("shared"), spark=spark)
    world.configure("placement: {bundles: 2}\n")
    alone = Alone(world, TOPICS)
    alone.until(lambda: True)
    yield world, alone
    alone.member.close()


def test_brokers_and_their_bundles_are_told(
    shared: tuple[World, Alone], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    world, _ = shared
    (broker,) = as_json(capsys, world, "brokers", "list")
    assert (broker["broker"], broker["state"], broker["leads"], broker["bundles"]) == ("a", "up", True, 2)
    assert "a       up     yes" in output_of(capsys, world, "brokers")
    bundles = as_json(capsys, world, "bundles", "list")
    assert [(one["owner"], one["assigned"], one["moves"]) for one in bundles] == [("a", "a", False)] * 2
    assert as_json(capsys, world, "bundles", "list", "--namespace", "shop/app") == []
    found = as_json(capsys, world, "bundles", "lookup", "--topic", str(TOPICS[0]))
    assert (found["bundle"], found["owner"]) == (bundle_of(str(TOPICS[0]), read_bundles(world.tables("us"))), "a")
    assert "no bundles in us yet" in output_of(capsys, world, "bundles", "lookup", "--topic", "persistent://shop/app/t", code=2)
    reports = tmp_path / "reports.json"
    reports.write_text(output_of(capsys, world, "brokers", "report", "-o", "json"))
    assert main(["balance", "simulate", "--reports", str(reports), "--minutes", "2"]) == 0
    assert "us has no broker 'z'; there are: a" in output_of(capsys, world, "brokers", "report", "--broker", "z", code=2)


def test_a_bundle_is_split_as_a_person_asks(shared: tuple[World, Alone], capsys: pytest.CaptureFixture[str]) -> None:
    world, alone = shared
    us = world.tables("us")
    bundle = bundle_of(str(TOPICS[0]), read_bundles(us))
    ask = ("bundles", "split", "--bundle", bundle)
    assert as_json(capsys, world, *ask, "--dry-run")["dry_run"] is True
    assert "cannot be split so" in output_of(capsys, world, *ask, "--positions", "0", code=2)
    assert len(read_bundles(us)["shop/web"].ranges) == 2
    assert "the leader follows within seconds" in output_of(capsys, world, *ask, "--wait", "0")
    alone.until(lambda: len(read_bundles(us)["shop/web"].ranges) == 3)
    assert f"there is no bundle {bundle}; its range lies in" in output_of(capsys, world, *ask, code=2)
    part = bundle_of(str(TOPICS[0]), read_bundles(us))
    assert "no other broker is up" in output_of(capsys, world, "bundles", "unload", "--bundle", part, code=2)
    assert "broker 'b' is not up" in output_of(capsys, world, "bundles", "transfer", "--bundle", part, "--broker", "b", code=2)


def test_policies_are_set_listed_and_removed(shared: tuple[World, Alone], capsys: pytest.CaptureFixture[str]) -> None:
    world, _ = shared
    us = world.tables("us")
    isolation = ("isolation", "set", "of b", "--namespaces", "shop/.*", "--primary", "b")
    said = output_of(capsys, world, *isolation, "--dry-run")
    assert "would be set: namespaces shop/.*; primary b; min limit 1" in said
    assert "may be owned by no broker that is up, so it stays" in said
    assert read_policies(us) == {}
    output_of(capsys, world, *isolation)
    output_of(capsys, world, "domains", "set", "north", "--brokers", "a,b")
    output_of(capsys, world, "anti-affinity", "set", "shop/web", "--group", "g")
    assert read_policies(us)["domain", "north"] == {"brokers": ["a", "b"]}
    output_of(capsys, world, "anti-affinity", "set", "shop/app", "--group", "h")
    web = {"name": "shop/web", "group": "g", "brokers": ["a"]}
    assert as_json(capsys, world, "anti-affinity", "list") == [web, {"name": "shop/app", "group": "h", "brokers": []}]
    assert as_json(capsys, world, "anti-affinity", "namespaces", "--group", "g") == [web]
    assert "shop/web: group g. Now: on a" in output_of(capsys, world, "anti-affinity", "namespaces", "--group", "g")
    assert "us has none in group 'i'" in output_of(capsys, world, "anti-affinity", "namespaces", "--group", "i")
    output_of(capsys, world, "anti-affinity", "remove", "shop/app")
    listed = output_of(capsys, world, "isolation", "list")
    assert "of b: min limit 1; namespaces shop/.*; primary b" in listed
    assert "Now: nobody that is up may own shop/web" in listed
    assert "us has no isolation of c; there are: of b" in output_of(capsys, world, "isolation", "remove", "of c", code=2)
    for noun, name in (("isolation", "of b"), ("domains", "north"), ("anti-affinity", "shop/web")):
        output_of(capsys, world, noun, "remove", name)
    assert read_policies(us) == {}
    assert "is no regular expression" in output_of(capsys, world, *isolation[:-1], "[", code=2)
    assert "namespace 'shop' is not of the form tenant/namespace" in output_of(
        capsys, world, "anti-affinity", "set", "shop", "--group", "g", code=2
    )


def test_verbs_that_look_refuse_or_rehearse_start_no_spark_and_count_topics_that_links_are_to_bring(
    shared: tuple[World, Alone], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    world, _ = shared
    create_topic(world.tables("eu"), Topic.parse("persistent://shop/web/of-eu-alone"))

    monkeypatch.setattr(running, "start_spark", no_spark)
    for looks in (
        ("brokers", "list"),
        ("brokers", "report"),
        ("bundles", "list"),
        ("bundles", "lookup", "--topic", str(TOPICS[0])),
        ("isolation",),
        ("domains",),
        ("anti-affinity",),
    ):
        output_of(capsys, world, *looks, "--engine", "native")
    bundle = bundle_of(str(TOPICS[0]), read_bundles(world.tables("us")))
    for refused in (("bundles", "unload", "--bundle", bundle), ("isolation", "remove", "x")):
        output_of(capsys, world, *refused, code=2)
    for rehearsed in (("bundles", "split", "--bundle", bundle), ("anti-affinity", "set", "shop/web", "--group", "g")):
        output_of(capsys, world, *rehearsed, "--dry-run")
    assert sum(one["topics"] for one in as_json(capsys, world, "bundles", "list")) == 1
    assert as_json(capsys, world, "bundles", "lookup", "--topic", "persistent://shop/web/of-eu-alone")["known"]
    assert not as_json(capsys, world, "bundles", "lookup", "--topic", "persistent://shop/web/of-nobody")["known"]
    eu = world.path.parent / "eu"
    eu.rename(eu.with_name("away"))
    eu.write_text("no folder")
    assert "eu cannot be read, so topics that it alone has are not counted" in output_of(capsys, world, "bundles", "list")


@pytest.fixture(scope="module")
def two(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A cluster that brokers a and b share, and run."""
    world = World(tmp_path_factory.mktemp("two"), spark=spark)
    world.configure("placement: {bundles: 1}\n")
    elsewhere = Process("another-host", 1, "1", system="another")
    of_b = ClusterTables(Driver(lambda: spark, lambda: elsewhere), world.config.cluster("us"))
    a, b = Alone(world, TOPICS), Alone(world, TOPICS, "b", of_b)
    a.until(lambda: True)
    b.member.round(b.now)
    b.has_all()
    for one in (a, b):
        one.member.start()
    yield world
    for one in (b, a):
        one.member.close()


def test_bundles_move_and_split_as_people_ask_who_wait_for_it(two: World, capsys: pytest.CaptureFixture[str]) -> None:
    us, bundle = two.tables("us"), "shop/web/0x00000000_0xffffffff"
    moved = as_json(capsys, two, "bundles", "transfer", "--bundle", bundle, "--broker", "b")
    assert (moved["owner"], moved["done"], moved["became"]) == ("a", True, "b owns it, a person asked for it")
    assert as_json(capsys, two, "bundles", "lookup", "--topic", str(TOPICS[0]))["owner"] == "b"
    assert f"broker b owns {bundle} already" in output_of(
        capsys, two, "bundles", "transfer", "--bundle", bundle, "--broker", "b", code=2
    )
    assert f"asked to unload bundle {bundle}: a owns it, a person asked b" in output_of(
        capsys, two, "bundles", "unload", "--bundle", bundle
    )
    dry = ("isolation", "set", "of b", "--namespaces", "shop/.*", "--primary", "b", "--dry-run")
    assert as_json(capsys, two, *dry)["moves"] == {bundle: ["b"]}
    assert "By isolation 1 bundle then has to move" in output_of(capsys, two, *dry)
    split = ("bundles", "split", "--bundle", bundle, "--algorithm", "topic_count_equally_divide")
    assert "cannot be split so: no position lies inside it; it has 0 topics" in output_of(capsys, two, *split, code=2)
    for topic in TOPICS:
        create_topic(two.tables("eu"), topic)  # a link is to bring them
    done = as_json(capsys, two, *split)
    (position,) = done["positions"]
    assert (done["done"], sum(bundle_hash(str(topic)) < position for topic in TOPICS)) == (True, 3)
    assert done["became"].startswith("it was split into shop/web/0x00000000_")
    parts = as_json(capsys, two, "bundles", "list", "--namespace", "shop/web")
    assert [(one["topics"], one["owner"] in ("a", "b"), one["moves"]) for one in parts] == [(3, True, False)] * 2
    assert len(read_bundles(us)["shop/web"].ranges) == 2
    output_of(capsys, two, "domains", "set", "north", "--brokers", "a")
    assert "broker a is in domain north already" in output_of(capsys, two, "domains", "set", "south", "--brokers", "a,b", code=2)


def test_what_is_no_bundle_is_refused_before_spark_starts(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    world.path.write_text(world.path.read_text() + "placement: {}\n")
    assert "is not of the form tenant/namespace/0x" in output_of(capsys, world, "bundles", "unload", "--bundle", "shop", code=2)


def test_without_placement_it_says_how_to_have_it(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    assert "To let several share its topics add: placement: {}" in output_of(capsys, world, "brokers", "report", code=2)
    assert "nobody runs us now" in output_of(capsys, world, "brokers")


def test_versions_that_differ_and_a_broker_that_is_dead_are_told(
    shared: tuple[World, Alone], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    world, _ = shared
    elsewhere = Process("another-host", 2, "1", system="another")
    of_c = ClusterTables(Driver(lambda: world.spark, lambda: elsewhere), world.config.cluster("us"))
    a = read_reports(of_c)["a"]
    append_report(world.tables("us"), "a", UP, a.load, a.loaded_at, after=a.sequence)
    with monkeypatch.context() as of_later:
        of_later.setattr(load_reports, "program_version", lambda: "99.0")
        append_report(of_c, "c", UP, a.load, a.loaded_at)
    assert f"their versions differ: a {program_version()}, c 99.0" in output_of(capsys, world, "brokers", "list")
    monkeypatch.setattr(brokers, "storage_now_us", lambda *_, **__: now_us() + 3_600_000_000)
    assert "a is not up and has what others wait for" in output_of(capsys, world, "brokers", "list", code=1)
