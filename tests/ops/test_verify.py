"""Verify, on logs written by hand: what is wrong is found and named, and nothing else is.

Most tests look at one mesh in which every topic has its own fault; it is verified once. Nothing here publishes or
replicates.
"""

from __future__ import annotations

import itertools
import shutil
import threading
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from geo.config.cluster import Cluster
from geo.config.model import Config, Link, TopicPolicy
from geo.delta.appending import append_rows
from geo.delta.ddl import create_table
from geo.delta.driver import Driver
from geo.delta.table import Table
from geo.errors import UsageError
from geo.journal.cluster import connect
from geo.names import Topic
from geo.ops.verify.report import Category, LinkResult, VerifyReport
from geo.ops.verify.verify import verify
from geo.schemas import LINKS, TOPIC_LOG, TOPICS

pytestmark = pytest.mark.spark

EVER = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=timezone.utc)
NOW = datetime.now(timezone.utc)
OLD = NOW - timedelta(days=30)
TTL_S = 7 * 86_400
USER = "amount DECIMAL(10,2), tags MAP<STRING, ARRAY<STRING>>, seen STRUCT<at: TIMESTAMP, by: STRING>"

MISSING, UNEXPECTED, DIFFERENT, DUPLICATES, HOLES, IMPOSSIBLE, IN_FLIGHT, EXPIRED = Category

Message = dict[str, Any]


def row(origin: str, ledger_id: int, entry_id: int, **given: object) -> Message:
    """A message as its origin wrote it; what is not given is the same for all."""
    at = given.get("publish_time", EVER)
    assert isinstance(at, datetime)
    fixed = {"origin": origin, "ledger_id": ledger_id, "entry_id": entry_id, "publish_date": at.date()}
    usual = {"publish_time": at, "event_time": EVER, "producer": "till", "key": "k", "payload": b"\x00\xff"}
    return {**usual, **fixed, **given}


def rows(origin: str, ledger_id: int, entries: Iterable[int], **given: object) -> list[Message]:
    return [row(origin, ledger_id, entry, **given) for entry in entries]


class Mesh:
    """Clusters whose tables a test writes itself; topics and links are registered by `record`."""

    def __init__(self, spark: SparkSession, root: Path, links: Sequence[Link], policies: Sequence[TopicPolicy] = ()) -> None:
        self.root = root
        names = sorted({name for link in links for name in (link.source, link.target)})
        clusters = {name: Cluster(name, root=str(root / name)) for name in names}
        self.spark = spark
        self.config = Config("mesh.yaml", clusters, tuple(links), tuple(policies))
        self.tables = {name: connect(spark, cluster) for name, cluster in clusters.items()}
        self._unregistered: dict[str, set[Topic]] = {name: set() for name in names}
        self._ends: dict[str, list[dict[str, object]]] = {name: [] for name in names}
        self._table_ids: dict[str, str] = {}
        self._sequence = 0

    def log(self, cluster: str, name: str) -> Table:
        return self.tables[cluster].log(topic(name))

    def write(self, cluster: str, name: str, messages: Iterable[Message], user: str = "") -> None:
        """One commit of `messages`, which may be none, to a log that is created by the first."""
        table, extra = self.log(cluster, name), StructType.fromDDL(user) if user else StructType()
        assert isinstance(extra, StructType)
        if not Path(table.name).exists():
            self._create(table, extra)
            self._unregistered[cluster].add(topic(name))
        envelope = StructType.fromDDL(TOPIC_LOG.ddl)
        assert isinstance(envelope, StructType)
        schema = to_arrow_schema(StructType([*envelope, *extra]), timezone="UTC")
        maps = [column.name for column in schema if pa.types.is_map(column.type)]
        values = [{**one, **{name: list(one[name].items()) for name in maps if one.get(name)}} for one in messages]
        if values:
            append_rows(table, pa.Table.from_pylist(values, schema))

    def version(self, cluster: str, name: str) -> int:
        """Newest version of a log, found without Spark."""
        return len(list(Path(self.log(cluster, name).name, "_delta_log").glob("*.json"))) - 1

    def end(self, source: str, target: str, name: str, **given: object) -> None:
        """What the link records: all of the source as it is now has crossed."""
        self._sequence += 1
        usual: dict[str, object] = {
            "source": source,
            "topic": str(topic(name)),
            "state": "RUNNING",
            "generation": 1,
            "source_table_id": self._table_ids[self.log(source, name).name],
            "source_version": self.version(source, name),
            "target_table_id": "t",
            "target_version": 0,
            "origins": [source],
            "expired": 0,
            "sequence": self._sequence,
            "updated_at": EVER,
        }
        self._ends[target].append({**usual, **given})

    def record(self) -> None:
        """Append what `end` was told and which topics are new."""
        for name in self.tables:
            there = [{"topic": str(one), "created_at": EVER, "typed": False, "sequence": 1} for one in self._unregistered[name]]
            for schema, rows in ((TOPICS, there), (LINKS, self._ends[name])):
                if rows:
                    self.tables[name].journal(schema).append(rows)
            self._unregistered[name], self._ends[name] = set(), []

    def _create(self, table: Table, extra: StructType) -> None:
        """As `create_table`, which is called once for each schema: copies of an empty table cost no second each."""
        name = str(self.root / f"empty-{len(extra)}")
        if name not in self._table_ids:
            empty = Table(Driver.of(self.spark), name, by_path=True, lock=None)
            create_table(empty, TOPIC_LOG, extra.fields)
            self._table_ids[name] = empty.table_id()
        shutil.copytree(name, table.name)
        self._table_ids[table.name] = self._table_ids[name]


def topic(name: str) -> Topic:
    return Topic("shop", "t", name)


def found(report: VerifyReport, name: str) -> dict[tuple[str, Category], tuple[int, tuple[str, ...]]]:
    """All that was found in a topic: (where, category) to (count, examples)."""
    there = ((where, finding) for one, where, finding in report.findings() if one == str(topic(name)))
    return {(where, finding.category): (finding.count, finding.examples) for where, finding in there}


def link(report: VerifyReport, name: str, link_name: str) -> LinkResult:
    return next(r for r in report.links if (r.topic, r.link) == (str(topic(name)), link_name))


def notes(report: VerifyReport, name: str) -> list[str]:
    return [note for note in report.notes if note.startswith(f"{topic(name)}:")]


SCENARIOS: list[Callable[[Mesh, str], None]] = []


def scenario(write: Callable[[Mesh, str], None]) -> Callable[[Mesh, str], None]:
    """A topic of the mesh of `report`, named as the function that writes it."""
    SCENARIOS.append(write)
    return write


@pytest.fixture(scope="module")
def mesh(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Mesh:
    """Every topic has its own fault, or none. Which links carry it is in its name."""

    def only(prefix: str) -> str:
        return f"persistent://shop/t/{prefix}_*"

    links = [
        Link("eu", "us"),
        Link("us", "eu", topics=(only("both"), only("three"))),
        *(Link("ap", other, topics=(only("three"),)) for other in ("eu", "us")),
        *(Link(other, "ap", topics=(only("three"),)) for other in ("eu", "us")),
        Link("us", "far", topics=(only("hub"),), origins=("us", "eu")),
    ]
    mesh = Mesh(spark, tmp_path_factory.mktemp("mesh"), links, [TopicPolicy(only("ttl"), TTL_S)])
    for write in SCENARIOS:
        write(mesh, write.__name__)
    mesh.record()
    return mesh


@pytest.fixture(scope="module")
def report(mesh: Mesh) -> VerifyReport:
    return verify(mesh.spark, mesh.config)


# -- nothing wrong -----------------------------------------------------------------------------------------------------


@scenario
def both_clean(mesh: Mesh, name: str) -> None:
    eu = [*rows("eu", 1, range(3)), *rows("eu", 2, range(2), replicate_to=["us", "mars"])]
    us = rows("us", 3, range(4), properties={"a": "1", "b": None, "c": "3"})
    kept = rows("eu", 4, range(2), replicate_to=[]) + rows("eu", 5, range(2), replicate_to=["mars"])
    markers = rows("eu", 6, range(2), marker="SNAPSHOT") + rows("eu", 7, range(2), marker="SNAPSHOT_REQUEST")
    mesh.write("eu", name, eu + kept + markers)
    mesh.write("us", name, us)
    mesh.write("us", name, [*eu, row("eu", 7, 1, marker="SNAPSHOT_REQUEST")])
    mesh.write("eu", name, [{**one, "properties": {"c": "3", "b": None, "a": "1"}} for one in us])
    mesh.end("eu", "us", name)
    mesh.end("us", "eu", name)


def test_logs_that_hold_the_same_are_clean_whatever_stayed_at_home_and_whichever_markers_crossed(report: VerifyReport) -> None:
    assert found(report, "both_clean") == {}
    assert link(report, "both_clean", "eu->us").compared == 6  # 5 messages and the marker that crossed
    assert link(report, "both_clean", "us->eu").compared == 4


# -- missing, in flight, holes -----------------------------------------------------------------------------------------


@scenario
def behind(mesh: Mesh, name: str) -> None:
    mesh.write("eu", name, rows("eu", 1, range(8)))
    mesh.write("us", name, [row("eu", 1, 0)])
    mesh.end("eu", "us", name, sequence=100, updated_at=EVER, state="FAILED", reason="the disk is full")
    mesh.write("eu", name, rows("eu", 1, range(8, 10)))
    mesh.end("eu", "us", name, sequence=99, updated_at=NOW)


def test_what_the_target_lacks_is_missing_up_to_the_end_of_the_link_and_in_flight_after(report: VerifyReport) -> None:
    assert found(report, "behind") == {
        ("eu->us", MISSING): (7, ("eu:1:1", "eu:1:2", "eu:1:3", "eu:1:4", "eu:1:5")),
        ("eu->us", IN_FLIGHT): (2, ("eu:1:8", "eu:1:9")),
    }


def test_the_row_of_a_link_with_the_highest_sequence_counts_whatever_its_time(report: VerifyReport) -> None:
    assert link(report, "behind", "eu->us").end == 1
    assert link(report, "behind", "eu->us").state == "FAILED"


def test_a_link_that_failed_is_a_fault_with_its_reason_and_so_is_what_is_in_flight_for_years(report: VerifyReport) -> None:
    others = [fault for fault in report.faults if "in flight since before" not in fault]
    assert others == [f"{topic('behind')}: eu->us is FAILED: the disk is full"]
    assert any(fault.startswith(f"{topic('not_started')}: eu->us: 2 messages in flight") for fault in report.faults)


@scenario
def not_started(mesh: Mesh, name: str) -> None:
    mesh.write("eu", name, rows("eu", 1, range(2)))


def test_everything_is_in_flight_while_the_link_has_no_row_and_the_target_no_log(report: VerifyReport) -> None:
    assert found(report, "not_started") == {("eu->us", IN_FLIGHT): (2, ("eu:1:0", "eu:1:1"))}
    assert link(report, "not_started", "eu->us").state is None


@scenario
def torn(mesh: Mesh, name: str) -> None:
    mesh.write("eu", name, [])
    mesh.end("eu", "us", name)
    mesh.write("eu", name, rows("eu", 1, range(9)) + rows("eu", 2, [1, 4]))
    mesh.write("us", name, rows("eu", 1, [0, 1, 4, 6]) + rows("eu", 2, [1, 4]))


def test_what_is_below_a_later_entry_in_the_target_is_a_hole_and_never_in_flight(report: VerifyReport) -> None:
    assert found(report, "torn")["us", HOLES] == (6, ("eu:1:2", "eu:1:5", "eu:2:0", "eu:2:2"))
    assert found(report, "torn")["eu->us", IN_FLIGHT] == (2, ("eu:1:7", "eu:1:8"))


def test_a_hole_that_the_origin_has_too_is_found_in_both_logs_and_nothing_is_missing(report: VerifyReport) -> None:
    assert found(report, "torn")["eu", HOLES] == (3, ("eu:2:0", "eu:2:2"))
    assert ("eu->us", MISSING) not in found(report, "torn")


@scenario
def with_floors(mesh: Mesh, name: str) -> None:
    mesh.write("eu", name, rows("eu", 1, range(5)) + rows("eu", 2, range(2)) + rows("eu", 3, range(4)))
    mesh.write("us", name, rows("eu", 1, [2, 3, 4]) + rows("eu", 2, [1]) + rows("eu", 3, [3]))
    mesh.end("eu", "us", name, floors={"eu:1": 2, "eu:3": 1})


def test_what_is_below_the_floors_of_a_link_is_not_expected_and_what_is_above_is(report: VerifyReport) -> None:
    assert found(report, "with_floors") == {
        ("eu->us", MISSING): (3, ("eu:2:0", "eu:3:1", "eu:3:2")),
        ("us", HOLES): (3, ("eu:2:0", "eu:3:1")),
    }


# -- unexpected, duplicates, different ---------------------------------------------------------------------------------


@scenario
def foreign(mesh: Mesh, name: str) -> None:
    kept = [row("eu", 1, 0, replicate_to=[]), row("eu", 2, 0, replicate_to=["mars"])]
    kept += [row("eu", 3, 0, marker="SNAPSHOT"), row("eu", 4, 0, marker="NEW_KIND")]
    allowed = [row("eu", 5, 0, replicate_to=["us"]), row("eu", 6, 0, marker="SUBSCRIPTION_UPDATE"), row("us", 7, 0)]
    mesh.write("eu", name, kept + allowed)
    mesh.write("us", name, [*kept, *allowed, row("eu", 8, 0), row("mars", 9, 0)])
    mesh.end("eu", "us", name)


def test_what_is_not_addressed_to_a_cluster_or_not_known_to_its_origin_is_unexpected(report: VerifyReport) -> None:
    examples = ("eu:1:0", "eu:2:0", "eu:3:0", "eu:4:0", "eu:8:0")
    assert found(report, "foreign")["eu->us", UNEXPECTED] == (5, examples)


def test_messages_of_an_origin_that_no_link_brings_are_unexpected(report: VerifyReport) -> None:
    assert found(report, "foreign")["us", UNEXPECTED] == (1, ("mars:9:0",))
    assert found(report, "foreign")["eu", UNEXPECTED] == (1, ("us:7:0",))
    assert len(found(report, "foreign")) == 3


@scenario
def both_doubled(mesh: Mesh, name: str) -> None:
    for cluster in ("eu", "us"):
        mesh.write(cluster, name, rows("eu", 1, range(3)) + rows("us", 2, range(2)))
    mesh.write("us", name, rows("eu", 1, [1]))
    mesh.write("eu", name, rows("eu", 1, [2]) * 2)
    mesh.end("eu", "us", name)
    mesh.end("us", "eu", name)


def test_a_message_id_twice_in_a_log_is_a_duplicate_there_a_replica_or_not(report: VerifyReport) -> None:
    assert found(report, "both_doubled") == {("us", DUPLICATES): (1, ("eu:1:1",)), ("eu", DUPLICATES): (1, ("eu:1:2",))}


MICROSECOND = timedelta(microseconds=1)
CHANGES: list[dict[str, object]] = [
    {"payload": b"\x00\xfe"},
    {"payload": b""},
    {"payload": None},
    {"event_time": EVER + MICROSECOND},
    {"publish_time": EVER + MICROSECOND},
    {"publish_date": EVER.date() + timedelta(days=1)},
    {"producer": "Till"},
    {"key": None},
    {"properties": {"a": "1", "b": "3"}},
    {"properties": {"a": "1"}},
    {"properties": {"a": "1", "b": "2", "c": None}},
    {"properties": None},
    {"replicate_to": ["us"]},
    {"marker": "SNAPSHOT_REQUEST"},
    {"amount": Decimal("1.11")},
    {"amount": None},
    {"tags": {"a": ["x", "z"], "b": None}},
    {"tags": {"a": ["x", "y"]}},
    {"seen": {"at": EVER + MICROSECOND, "by": "me"}},
    {"seen": {"at": EVER, "by": None}},
    {"seen": None},
]


@scenario
def typed(mesh: Mesh, name: str) -> None:
    tags, reordered = {"a": ["x", "y"], "b": None}, {"b": None, "a": ["x", "y"]}
    typed = {"amount": Decimal("1.10"), "tags": tags, "seen": {"at": EVER, "by": "me"}, "properties": {"a": "1", "b": "2"}}
    written = [row("eu", 1 + i, 0, **typed) for i in range(len(CHANGES))]
    changed = [{**one, **change} for one, change in zip(written, CHANGES, strict=True)]
    same = rows("eu", 100, range(2), **typed)
    mesh.write("eu", name, written + same, f"not_yet STRING, {USER}")
    mesh.write("us", name, changed + [{**one, "tags": reordered} for one in same], USER)
    mesh.end("eu", "us", name)


def test_a_change_of_any_column_however_small_is_a_difference(report: VerifyReport) -> None:
    examples = tuple(f"eu:{1 + i}:0" for i in range(5))
    assert found(report, "typed")["eu->us", DIFFERENT] == (len(CHANGES), examples)


def test_the_order_of_a_map_and_a_column_that_is_null_or_not_there_yet_are_no_difference(report: VerifyReport) -> None:
    assert set(found(report, "typed")) == {("eu->us", DIFFERENT)}
    assert link(report, "typed", "eu->us").compared == len(CHANGES) + 2


# -- time to live ------------------------------------------------------------------------------------------------------


@scenario
def ttl_kept(mesh: Mesh, name: str) -> None:
    eu_1 = [*rows("eu", 1, range(2, 5), publish_time=OLD), *rows("eu", 1, [5, 6], publish_time=NOW)]
    mesh.write("eu", name, [*eu_1, *rows("eu", 3, range(3), publish_time=NOW)])
    mesh.end("eu", "us", name)
    mesh.write("eu", name, rows("eu", 4, range(4), publish_time=NOW))
    expired = [*rows("eu", 2, range(3), publish_time=OLD), row("us", 5, 7, publish_time=OLD)]
    fresh = [*rows("eu", 4, [1, 3], publish_time=NOW), row("eu", 6, 0, publish_time=NOW)]
    mesh.write("us", name, [*eu_1[3:], *expired, *fresh])


def test_messages_that_have_expired_may_be_absent_from_either_log(report: VerifyReport) -> None:
    assert found(report, "ttl_kept")["eu->us", EXPIRED] == (3, ("eu:1:2", "eu:1:3", "eu:1:4"))
    assert found(report, "ttl_kept")["eu->us", UNEXPECTED] == (1, ("eu:6:0",))  # and none of ledger 2
    assert ("eu", HOLES) not in found(report, "ttl_kept")


def test_a_time_to_live_excuses_nothing_that_is_younger(report: VerifyReport) -> None:
    assert found(report, "ttl_kept")["eu->us", MISSING] == (3, ("eu:3:0", "eu:3:1", "eu:3:2"))
    assert found(report, "ttl_kept")["us", HOLES] == (2, ("eu:4:0", "eu:4:2"))
    assert ("eu->us", IN_FLIGHT) not in found(report, "ttl_kept")


# -- ends that say nothing any more, and notes -------------------------------------------------------------------------


@scenario
def put_back(mesh: Mesh, name: str) -> None:
    mesh.write("eu", name, rows("eu", 1, range(2)))
    mesh.write("us", name, rows("eu", 1, [0]))
    mesh.end("eu", "us", name, source_version=40)


@scenario
def created_again(mesh: Mesh, name: str) -> None:
    mesh.write("eu", name, [])
    mesh.end("eu", "us", name, source_table_id="another")
    mesh.write("eu", name, rows("eu", 1, range(2)))
    mesh.write("us", name, rows("eu", 1, [0]))


@scenario
def cleaned_log(mesh: Mesh, name: str) -> None:
    mesh.write("eu", name, rows("eu", 1, range(2)))
    mesh.write("us", name, rows("eu", 1, [0]))
    mesh.end("eu", "us", name, source_version=-1)  # before the earliest: what Delta finds when the log was cleaned


@scenario
def vacuumed(mesh: Mesh, name: str) -> None:
    mesh.write("eu", name, rows("eu", 1, range(2)))
    mesh.write("us", name, rows("eu", 1, [0]))
    mesh.end("eu", "us", name)
    log = mesh.log("eu", name)
    before = log.read().inputFiles()
    log.read().write.format("delta").mode("overwrite").save(log.name)
    for file in before:
        Path(unquote(urlparse(file).path)).unlink()


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("put_back", "an older copy was put back"),
        ("created_again", "was dropped and created again"),
        ("cleaned_log", "cannot be read any more"),
        ("vacuumed", "are gone"),
    ],
)
def test_an_end_that_cannot_be_checked_lets_nothing_pass_as_in_flight(report: VerifyReport, name: str, why: str) -> None:
    assert found(report, name) == {("eu->us", MISSING): (1, ("eu:1:1",))}
    assert any(why in note for note in notes(report, name))


def test_a_topic_that_no_link_carries_out_of_its_cluster_is_noted(report: VerifyReport) -> None:
    assert notes(report, "torn") == [f"{topic('torn')}: no link carries it out of us"]
    assert notes(report, "both_clean") == []


def test_no_topic_that_matches_is_an_error_that_says_which_there_are(mesh: Mesh) -> None:
    with pytest.raises(UsageError, match=r"no topic matches persistent://shop/t/bills;.* persistent://shop/t/torn"):
        verify(mesh.spark, mesh.config, "persistent://shop/t/bills")


# -- three clusters, and logs that move --------------------------------------------------------------------------------


@scenario
def three_same(mesh: Mesh, name: str) -> None:
    everything = [message for origin in ("ap", "eu", "us") for message in rows(origin, 1, range(3))]
    to_ap = rows("eu", 2, range(2), replicate_to=["ap"])
    lost = row("us", 1, 2)
    for cluster, log in {"ap": everything + to_ap, "eu": everything + to_ap, "us": everything}.items():
        mesh.write(cluster, name, [message for message in log if cluster != "ap" or message != lost])
    for source, target in itertools.permutations(("ap", "eu", "us"), 2):
        mesh.end(source, target, name)


def test_of_three_clusters_a_loss_is_blamed_on_the_link_that_had_to_bring_it_and_no_other(report: VerifyReport) -> None:
    assert found(report, "three_same") == {("us->ap", MISSING): (1, ("us:1:2",))}
    assert {r.link: r.compared for r in report.links if r.topic == str(topic("three_same"))} == {
        "eu->us": 3, "us->eu": 3, "ap->eu": 3, "ap->us": 3, "eu->ap": 5, "us->ap": 2,
    }  # fmt: skip


@scenario
def hub_forwards(mesh: Mesh, name: str) -> None:
    mesh.write("eu", name, [*rows("eu", 1, range(5)), row("eu", 3, 0)])
    mesh.write("us", name, rows("eu", 1, range(4)) + rows("us", 2, range(2)))
    mesh.write("far", name, [*rows("eu", 1, range(3)), *rows("us", 2, range(2)), row("eu", 3, 0), row("eu", 4, 0)])
    mesh.end("eu", "us", name)
    mesh.end("us", "far", name)


def test_a_forwarded_origin_is_compared_with_the_hub_and_known_by_its_own_log(report: VerifyReport) -> None:
    assert found(report, "hub_forwards") == {
        ("eu->us", MISSING): (2, ("eu:1:4", "eu:3:0")),
        ("us->far", MISSING): (1, ("eu:1:3",)),
        ("us->far", UNEXPECTED): (1, ("eu:4:0",)),
    }


def test_producers_and_links_that_go_on_at_every_pin_cause_no_alarm(mesh: Mesh, monkeypatch: pytest.MonkeyPatch) -> None:
    """At every look at a log's version each cluster publishes, both links replicate, and their ends are recorded."""
    latest_version, published, one_at_a_time = Table.latest_version, 0, threading.Lock()

    def go_on() -> None:
        nonlocal published
        for cluster in ("eu", "us"):
            mesh.write(cluster, "both_live", [row(origin, 1, published, publish_time=NOW) for origin in ("eu", "us")])
        mesh.end("eu", "us", "both_live", updated_at=datetime.now(timezone.utc))
        mesh.end("us", "eu", "both_live", updated_at=datetime.now(timezone.utc))
        mesh.record()
        published += 1

    def look(table: Table) -> int:
        with one_at_a_time:
            version = latest_version(table)
            go_on()
        return version

    go_on()
    monkeypatch.setattr(Table, "latest_version", look)
    report = verify(mesh.spark, mesh.config, str(topic("both_live")))
    assert published == 5  # two pins of two logs
    assert report.clean
    assert sorted((result.compared, len(result.findings)) for result in report.links) == [(3, 0), (3, 1)]
    assert report.total(IN_FLIGHT) == 1  # the log that was pinned last is a message ahead
