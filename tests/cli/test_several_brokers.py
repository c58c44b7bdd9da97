"""What verbs of placement say of a cluster in which brokers of other hosts live, leave, have left and are silent: rows of its tables, written as
brokers do; no broker runs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from threading import Thread

import pytest

from geo.cli import running
from geo.cli.main import main
from geo.coordination.claiming import claim
from geo.coordination.ownership import Ownership, release
from geo.coordination.runners import broker_runner
from geo.delta.driver import Driver
from geo.fleet import load_reports
from geo.fleet.assignments import bundle_runner, leader_runner, read_owners, write_orders
from geo.fleet.load_reports import LEAVING, LEFT, UP, append_report
from geo.fleet.placement.bundles import bundle_name, even
from geo.fleet.placement.handover import Assigned
from geo.fleet.placement.leading import NOBODY, SPLIT, TRANSFER, UNLOAD, BundleRequest, Orders
from geo.fleet.placement.load_data import BrokerLoad, BundleLoad, Usage
from geo.fleet.placement_requests import read_policies, read_requests
from geo.journal.cluster import ClusterTables
from geo.log.topics import create_topic
from geo.names import Topic
from geo.times import in_us
from tests.cli.of_us import as_json, no_spark, output_of
from tests.waiting import until
from tests.world import World

pytestmark = pytest.mark.spark

TOPICS = [Topic.parse(f"persistent://shop/web/t{number}") for number in range(6)]


def _started(what: Callable[[], None]) -> Thread:
    thread = Thread(target=what, daemon=True)
    thread.start()
    return thread


@dataclass
class Broker:
    """What a broker of this name on another host writes."""

    name: str
    tables: ClusterTables

    @classmethod
    def of(cls, world: World, name: str) -> Broker:
        me = replace(world.tables("us").me, host=f"host-{name}", pid=7, system="another")
        return cls(name, ClusterTables(Driver(lambda: world.spark, lambda: me), world.config.cluster("us")))

    def report(self, state: str, *bundles: str) -> None:
        load = {bundle: BundleLoad(100.0, 0.0, 3 * 1024.0**2, 0.0, 2) for bundle in bundles}
        resources = (Usage(50.0, 200.0), Usage(1.0, 4.0), Usage(3e6, 1e8), Usage(0.0, 1e8))
        append_report(self.tables, self.name, state, BrokerLoad(*resources, load), datetime.now(timezone.utc))

    def claim(self, *bundles: str) -> list[Ownership]:
        return claim(self.tables, [[bundle_runner(self.tables, bundle)] for bundle in bundles])


class Several:
    """Brokers a (which leads), b, c that leaves, d that left, e that is silent, and who owns what: two bundles of a, one of b, one that nobody
    has begun yet."""

    def __init__(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        world.configure("placement: {bundles: 4, broker_timeout: 1 hour}\n")
        self.world, self.us = world, world.tables("us")
        self.bundles = [bundle_name("shop/web", part) for part in even(4).ranges]
        first, second, third, fourth = self.bundles
        for topic in TOPICS:
            create_topic(self.us, topic)
        self.a, self.b, c, d, e = (Broker.of(world, name) for name in "abcde")
        (self.leader,) = claim(self.a.tables, [[broker_runner(self.us), leader_runner(self.us)]])
        self.number = 0
        self.order(Orders({first: self.said("a"), second: self.said("a"), third: self.said("b"), fourth: self.said("b")},
                          {"shop/web": (even(4), "its first topic was found")}))  # fmt: skip
        self.owned = dict(zip(self.bundles, [*self.a.claim(first, second), *self.b.claim(third)], strict=False))
        self.a.report(UP, first, second, third)  # the third moved since
        self.b.report(UP, third)
        c.report(LEAVING)
        d.report(LEFT, fourth)
        long_ago = datetime.now(timezone.utc) - timedelta(hours=2)
        with monkeypatch.context() as then:
            then.setattr(load_reports, "storage_now_us", lambda _: in_us(long_ago))
            append_report(e.tables, "e", UP, BrokerLoad(*(Usage(0.0, 1.0),) * 4, {}), long_ago)

    def said(self, broker: str, request: int = 0) -> Assigned:
        self.number += 1
        return Assigned(
            broker, self.leader.generation, self.number, 1_900_000_000.0, None, f"for the test, {self.number}", request
        )

    def order(self, orders: Orders) -> None:
        write_orders(self.a.tables, self.leader, orders)

    def moves(self, bundle: str, broker: Broker, request: int) -> None:
        """The leader follows a request, and brokers do."""
        self.order(Orders({bundle: self.said(broker.name, request)}))
        release([self.owned[bundle]])
        (self.owned[bundle],) = broker.claim(bundle)

    def close(self) -> None:
        for ownership in [self.leader, *self.owned.values()]:
            ownership.abandon()


@pytest.fixture
def several(world: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[Several]:
    with ExitStack() as ends:
        made = Several(world, monkeypatch)
        ends.callback(made.close)
        yield made


def test_what_several_brokers_have_is_told_without_spark(
    several: Several, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    world = several.world
    first, second, third, fourth = several.bundles

    monkeypatch.setattr(running, "start_spark", no_spark)
    rows = {row["broker"]: row for row in as_json(capsys, world, "brokers")}
    assert {name: (row["state"], row["leads"], row["bundles"]) for name, row in rows.items()} == {
        "a": ("up", True, 2), "b": ("up", False, 1), "c": ("leaving", False, 0), "d": ("left", False, 0), "e": ("silent", False, 0)
    }  # fmt: skip
    assert (rows["a"]["host"], rows["a"]["pid"], rows["a"]["topics"], rows["a"]["messages_per_second"]) == ("host-a", 7, 6, 300.0)
    assert (rows["a"]["bytes_per_second"], rows["a"]["cpu"]) == (9 * 1024**2, 0.25)
    text = output_of(capsys, world, "brokers")
    assert "silent for 7,2" in text
    left = next(line for line in text.splitlines() if line.startswith("d "))
    assert left.split() == ["d", "left", "7", "on", "host-d", "0"], "what it had when it left is not what it has"

    views = {one["bundle"]: one for one in as_json(capsys, world, "bundles")}
    assert [(views[name]["owner"], views[name]["assigned"], views[name]["moves"]) for name in several.bundles] == [
        ("a", "a", False), ("a", "a", False), ("b", "b", False), (None, "b", True)
    ]  # fmt: skip
    assert sum(one["topics"] for one in views.values()) == len(TOPICS)
    assert views[first]["assigned_since"] == "2030-03-17T17:46:40Z"
    assert {one["bundle"] for one in as_json(capsys, world, "bundles", "list", "--broker", "b")} == {third, fourth}
    begins = output_of(capsys, world, "bundles", "list", "--broker", "b").splitlines()[2]
    assert begins.split()[:4] == [fourth, "nobody", str(views[fourth]["topics"]), "b"]
    for topic in TOPICS:
        found = as_json(capsys, world, "bundles", "lookup", "--topic", str(topic))
        assert found == {"topic": str(topic), "known": True, **views[found["bundle"]]}
    assert "for the test" in output_of(capsys, world, "bundles", "lookup", "--topic", str(TOPICS[0]))

    file = tmp_path / "reports.json"
    assert f"geo balance simulate --reports {file}" in output_of(capsys, world, "brokers", "report", "--out", str(file))
    reports = json.loads(file.read_text())
    assert reports == as_json(capsys, world, "brokers", "report")
    assert {name: list(load["bundles"]) for name, load in reports.items()} == {"a": [first, second], "b": [third], "c": []}
    assert reports["a"]["cpu"] == [50.0, 200.0]
    assert main(["balance", "simulate", "--reports", str(file), "--minutes", "2", "-o", "json"]) == 0
    simulated = json.loads(capsys.readouterr().out)
    assert (simulated["brokers"], simulated["bundles"], simulated["topics"]) == (3, 3, 6)
    assert list(as_json(capsys, world, "brokers", "report", "--broker", "d")["d"]["bundles"]) == [fourth]

    ask = ("bundles", "transfer", "--bundle", first, "--broker")
    for broker, says in (("a", "already"), ("c", "is not up; those that are: a, b"), ("e", "is not up"), ("f", "is not up")):
        assert says in output_of(capsys, world, *ask, broker, code=2)
    assert "shop/web/0xc0000000_0xffffffff is on its way to b already" in output_of(
        capsys, world, "bundles", "transfer", "--bundle", fourth, "--broker", "b", code=2
    )
    assert "would ask to transfer bundle" in output_of(capsys, world, *ask, "b", "--dry-run")
    assert "- it may go to b\n" in output_of(capsys, world, "bundles", "unload", "--bundle", first, "--dry-run")
    halves = output_of(capsys, world, "bundles", "split", "--bundle", first, "--dry-run")
    assert "at 0x20000000, which a owns; nothing was written" in halves
    assert "- shop/web/0x00000000_0x20000000: " in halves
    flow = ("bundles", "split", "--bundle", first, "--algorithm", "flow_or_qps_equally_divide")
    assert "needs the load of each topic" in output_of(capsys, world, *flow, code=2)
    assert "us has no broker 'z'; there are: a, b, c, d, e" in output_of(
        capsys, world, "bundles", "list", "--broker", "z", code=2
    )
    assert "namespace 'shop' is not of the form" in output_of(capsys, world, "bundles", "list", "--namespace", "shop", code=2)
    assert "--out '/' cannot be written" in output_of(capsys, world, "brokers", "report", "--out", "/", code=2)
    isolation = ("isolation", "set", "x", "--namespaces", "shop/.*", "--primary", "b", "--secondary", "a", "--dry-run")
    assert as_json(capsys, world, *isolation)["moves"] == {first: ["b"], second: ["b"]}
    assert as_json(capsys, world, *isolation, "--min-limit", "2")["moves"] == {}
    assert read_requests(several.us) == []
    assert read_policies(several.us) == {}


def test_a_person_asks_waits_and_is_told_what_became_of_it(several: Several, capsys: pytest.CaptureFixture[str]) -> None:
    world, first, second = several.world, several.bundles[0], several.bundles[1]
    wait = ("--wait", "120")

    def follow(request: BundleRequest, to: Broker) -> Thread:
        """What the leader and brokers do once it is asked."""

        def run() -> None:
            until(lambda: request in read_requests(several.us))
            several.moves(request.bundle, to, request.number)

        return _started(run)

    following = follow(BundleRequest(first, TRANSFER, 1, "b"), several.b)
    told = as_json(capsys, world, "bundles", "transfer", "--bundle", first, "--broker", "b", *wait)
    following.join()
    assert (told["owner"], told["done"]) == ("a", True)
    assert told["became"].startswith("b owns it, for the test")
    following = follow(BundleRequest(second, UNLOAD, 2), several.b)
    assert ": b owns it, for the test" in output_of(capsys, world, "bundles", "unload", "--bundle", second, *wait)
    following.join()
    following = follow(BundleRequest(second, TRANSFER, 3, "a"), several.b)  # a is gone when the leader looks
    assert "b owns it: a was not up when the leader looked, or it has moved again since" in output_of(
        capsys, world, "bundles", "transfer", "--bundle", second, "--broker", "a", *wait, code=1
    )
    following.join()
    several.order(Orders({first: several.said(NOBODY)}))
    assert "is about to be split" in output_of(capsys, world, "bundles", "unload", "--bundle", first, code=2)
    assert as_json(capsys, world, "bundles")[0]["splits"] is True
    release([several.leader])
    said = output_of(capsys, world, "bundles", "split", "--bundle", second, "--positions", "0x50000000,0x60000000", "--wait", "0")
    assert "nobody leads now, and whoever does next follows" in said
    assert BundleRequest(second, SPLIT, 4, "", (0x50000000, 0x60000000)) in read_requests(several.us)
    assert "no broker leads now, so nothing is placed anew" in output_of(capsys, world, "brokers", code=1)
    assert not read_owners(several.us).lead.is_owned  # type: ignore[union-attr]


def test_isolation_is_obeyed_by_what_people_ask(several: Several, capsys: pytest.CaptureFixture[str]) -> None:
    world, third = several.world, several.bundles[2]
    output_of(capsys, world, "isolation", "set", "x", "--namespaces", "shop/.*", "--primary", "b")
    (one,) = as_json(capsys, world, "isolation")
    assert (one["name"], one["secondary"], one["may_own"]) == ("x", [], {"shop/web": ["b"]})
    assert "isolation does not let broker a own" in output_of(
        capsys, world, "bundles", "transfer", "--bundle", third, "--broker", "a", code=2
    )
    assert "isolation lets b own" in output_of(capsys, world, "bundles", "unload", "--bundle", third, code=2)
