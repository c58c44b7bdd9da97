"""PIP-33 on real tables: where a consumer of versions may go on in another cluster, and that each marker is written once."""

from __future__ import annotations

import shutil
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime, timedelta, timezone
from itertools import permutations
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from deltalake import DeltaTable
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from geo import crash
from geo.coordination.claiming import claim
from geo.coordination.runners import version_sync_runner
from geo.crash import CrashPoint
from geo.delta.appending import append_frame
from geo.delta.frames import read_added
from geo.errors import AlreadyOwnedError, RetryableError
from geo.log.partitioned import create_single
from geo.names import Topic
from geo.ops.delete_topic import delete_topics
from geo.schemas import MARKERS, VERSION_STARTS
from geo.streams import timetable
from geo.subscription.pip33 import marker_journal
from geo.subscription.pip33.controller_query import REPLAYS
from geo.subscription.pip33.controller_rows import Tick
from geo.subscription.pip33.markers import SnapshotRequest, decode
from geo.subscription.pip33.reordering import out_of_order
from geo.subscription.pip33.version_sync import Synced, VersionSync
from geo.subscription.versions.version_starts import VersionStart, read_starts
from geo.subscription.versions.version_status import VersionStanding, version_standings
from geo.subscription.versions.version_subscriptions import create, delete, finish
from geo.testing import dies_at
from tests.running import Running
from tests.subscription.consuming import consume
from tests.subscription.streams_of_others import DeltaStream
from tests.test_crash_points import SYNC_POINTS
from tests.version_checks import MessageId, violations
from tests.waiting import InThread
from tests.world import TOPIC, World

pytestmark = pytest.mark.spark

NAME, LATE = "reports", ("monthly", "yearly")
TRIGGER = "250 ms"
_LIMIT_S = 180.0
SNAPSHOTS = "snapshots: {{frequency: 1 seconds, timeout: {timeout_s} seconds}}\n"
"""As often as can be. On a busy machine the answers of three clusters take more than the default: one snapshot after another is given up then,
and clusters that never answer in time are asked ever more rarely. Of two, a test waits until one is given up."""


@pytest.fixture
def synced(linked: World) -> World:
    """Two regions whose consumer in us has finished all that is there; snapshots as often as can be."""
    linked.configure(SNAPSHOTS.format(timeout_s=20))
    create(linked.tables("us"), TOPIC, NAME)
    return linked


def sync(world: World, *clusters: str) -> None:
    """A pass of these clusters' version syncs: of the tail, and of the controllers over what it has told by then."""
    for cluster in clusters or world.config.clusters:
        assert VersionSync(world.spark, world.config, cluster).run().unfinished == {}


def _syncs(world: World, cluster: str) -> InThread[Synced]:
    versions = VersionSync(world.spark, world.config, cluster, trigger=TRIGGER)
    return InThread(versions.run, versions.stop)


@contextmanager
def syncing(world: World) -> Iterator[InThread[Any]]:
    """All links and version syncs of a world, running in threads."""
    with (  # intervals only: so that nobody waits ten seconds for nothing
        mock.patch.object(timetable, "DISCOVERY_S", 0.5),
        mock.patch.object(timetable, "MARKERS_PEERS_LOOK_S", 0.5),
        ExitStack() as runs,
    ):
        every = [run for one in world.config.clusters for run in (Running(world, one), _syncs(world, one))]
        for run in every:
            runs.enter_context(run)
        for run in every:  # all are told to end before one is waited for
            runs.callback(run.stop)
        every[0].beside = every[1:]
        yield every[0]


SENT = Topic.parse("persistent://shop/sent/clicks")
"""A topic with a link from us to eu, and none back."""


def three(spark: SparkSession, folder: Path) -> World:
    """Three clusters that all send each other `TOPIC`, of which ap may be `away`; snapshots as often as can be."""
    clusters, web, sent = ("ap", "eu", "us"), str(TOPIC), str(SENT)
    links = [
        {"source": one, "target": other, "topics": [web, sent] if (one, other) == ("us", "eu") else [web]}
        for one, other in permutations(clusters, 2)
    ]
    world = World(folder, clusters, links, spark=spark)
    world.configure(SNAPSHOTS.format(timeout_s=90))
    (folder / "storage").mkdir()
    (folder / "ap").symlink_to("storage")
    return world


@contextmanager
def away(world: World, cluster: str) -> Iterator[None]:
    """Nobody can read or write the storage of a cluster, whose root is a link: another that leads nowhere takes its place at once."""
    root, other = Path(str(world.config.cluster(cluster).root)), world.folder / "other"
    storage = root.readlink()

    def leads_to(place: Path) -> None:
        other.symlink_to(place)
        other.replace(root)

    leads_to(root)
    try:
        yield
    finally:
        leads_to(storage)


def finish_all(world: World, cluster: str) -> int:
    version = world.log(cluster).latest_version()
    finish(world.tables(cluster), TOPIC, NAME, version)
    return version


def start(world: World, cluster: str, told_in: str) -> VersionStart | None:
    """Where one may start in a cluster, by what another one says."""
    return read_starts(world.tables(told_in), TOPIC).starts.get((NAME, cluster))


def first_version(world: World, cluster: str, told_in: str) -> int:
    """As `start`, which is known."""
    found = start(world, cluster, told_in)
    assert found is not None
    assert found.start is not None
    return found.start


def is_told(world: World, since: datetime) -> bool:
    """Whether both know where one may start in eu by a snapshot that was begun since."""
    found = [start(world, "eu", told_in) for told_in in ("us", "eu")]
    return all(one is not None and one.taken_at is not None and one.taken_at >= since for one in found)


def _rows(world: World, cluster: str, topic: Topic, version: int | None = None) -> list[dict[str, Any]]:
    """What a log holds, read without Spark, which is asked often and takes the cores from what is waited for."""
    table = DeltaTable(world.log(cluster, topic).name, version)
    found: list[dict[str, Any]] = table.to_pyarrow_table(
        columns=["origin", "ledger_id", "entry_id", "marker", "payload"]
    ).to_pylist()
    return found


def markers(world: World, cluster: str, topic: Topic = TOPIC, *, kind: str | None = None) -> list[dict[str, Any]]:
    """Those in a log, of one kind or all."""
    return [row for row in _rows(world, cluster, topic) if row["marker"] is not None and kind in (None, row["marker"])]


def own_markers(world: World, cluster: str) -> list[tuple[str, bytes]]:
    """Kind and payload of those that a cluster has written."""
    return [(row["marker"], row["payload"]) for row in markers(world, cluster) if row["origin"] == cluster]


def asked_at(world: World, cluster: str) -> list[int]:
    """When each snapshot of a cluster was begun, in microseconds since 1970."""
    return [one.started_us for row in own_markers(world, cluster) if isinstance(one := decode(*row), SnapshotRequest)]


def ticks(world: World, cluster: str, topic: Topic = TOPIC) -> list[Tick]:
    """What its controller was told of the time and of the other clusters, in that order."""
    rows = DeltaTable(str(world.tables(cluster).journal(MARKERS))).to_pyarrow_table(columns=["topic", "seq", "fact"]).to_pylist()
    told = sorted((row["seq"], row["fact"]) for row in rows if row["topic"] == str(topic))
    return [one for seq, fact in told if isinstance(one := marker_journal.decode(seq, fact), Tick)]


def standings(world: World, topic: Topic) -> list[VersionStanding]:
    """What `geo subscriptions status` says."""
    return version_standings({name: world.tables(name) for name in world.config.clusters}, world.config, topic, NAME)


def there(world: World, cluster: str, version: int | None = None) -> set[MessageId]:
    """The messages that a log holds."""
    rows = _rows(world, cluster, TOPIC, version)
    return {(row["origin"], row["ledger_id"], row["entry_id"]) for row in rows if row["marker"] is None}


def ids(rows: DataFrame) -> set[MessageId]:
    return {(row[0], row[1], row[2]) for row in rows.where("marker IS NULL").select("origin", "ledger_id", "entry_id").collect()}


def test_whoever_goes_on_at_the_version_misses_nothing(synced: World) -> None:
    with syncing(synced) as runs:
        runs.until(lambda: bool(markers(synced, "us", kind="SNAPSHOT")))
        synced.write("eu", 20, 30)
        runs.until(lambda: len(there(synced, "us")) == 50)
        began = datetime.now(timezone.utc)
        synced.write("us", 20, 21)
        finished = 0

        def consumed() -> bool:
            nonlocal finished
            if synced.log("us").latest_version() != finished:
                finished = finish_all(synced, "us")
            return is_told(synced, began)

        runs.until(consumed)
    seen = there(synced, "us", finished)
    assert [one and one.told_by for one in (start(synced, "eu", "us"), start(synced, "eu", "eu"))] == ["us", "us"]
    synced.write("us", 21, 25)
    synced.replicate("eu")
    rest = ids(read_added(synced.log("eu"), first_version(synced, "eu", "eu"), synced.log("eu").latest_version()))
    wanted = {("eu", 1, entry) for entry in range(30)} | {("us", 1, entry) for entry in range(25)}
    assert seen | rest == there(synced, "eu") == wanted
    assert seen & rest <= {("us", 1, 20)}, "at most what came since the snapshot was begun"
    assert {kind for kind, _ in own_markers(synced, "eu")} == {"SNAPSHOT_RESPONSE"}, "nobody has a version subscription in eu"
    assert synced.verify().clean


def at_rest(world: World) -> dict[str, int]:
    """The versions once all is told and nothing comes any more, whoever runs once more: in two rounds without news the controllers heard in
    the second what the tails had told in the first."""
    quiet = 0
    for _ in range(24):
        before = world.versions()
        for cluster in world.config.clusters:
            world.replicate(cluster)
            sync(world, cluster)
        quiet = quiet + 1 if world.versions() == before else 0
        if quiet == 2:
            return before
    raise AssertionError(f"markers without an end: {world.versions()}")


def test_each_marker_is_written_once_whatever_stops_a_topic_at_rest_gets_none_and_the_state_is_built_anew(synced: World) -> None:
    """One world, all crash points in a chain; then the query's state is lost, just after a batch with two rows that led to markers."""
    wrong = {"marker": F.lit("SNAPSHOT"), "payload": F.lit(b"no marker"), "ledger_id": F.lit(9).cast("bigint")}
    us = synced.tables("us")
    for name in LATE:
        create(us, TOPIC, name)
    sync(synced)
    append_frame(synced.log("us"), synced.entries("us", 0, 1).withColumns(wrong))
    for at, point in enumerate(SYNC_POINTS):
        synced.write("us", 20 + at, 21 + at)
        finish_all(synced, "us")
        with dies_at(point):
            for _ in range(3):
                sync(synced, "us")
    synced.write("us", 20 + len(SYNC_POINTS), 21 + len(SYNC_POINTS))
    finish_all(synced, "us")
    with an_update_is_not_written(synced) as lost, syncing(synced) as runs:
        runs.until(lambda: bool(lost) and is_told(synced, lost[-1] + timedelta(microseconds=1)))
    for name in LATE:
        finish(us, TOPIC, name, synced.log("us").latest_version())
    before, known = at_rest(synced), start(synced, "eu", "us")
    assert read_starts(synced.tables("us"), TOPIC).refused["malformed"] == 1
    for cluster in ("us", "eu"):
        place = Path(synced.tables(cluster).checkpoint("markers"))
        of_states = next(place.glob("*/*")).relative_to(place)
        shutil.rmtree(place)
        (place / of_states / "state" / "0").mkdir(parents=True)  # as a store does that is tidied up behind that
    sync(synced)
    assert synced.versions() == before, "what was written before is not written again"
    assert start(synced, "eu", "us") == known
    assert read_starts(synced.tables("us"), TOPIC).refused["malformed"] == 1, "it is counted anew"
    for cluster in ("us", "eu"):
        twice = [one for one, count in Counter(own_markers(synced, cluster)).items() if count > 1]
        assert twice == []
    assert synced.verify().clean
    both_begin_again_after_a_fault_and_the_topic_is_deleted_and_made_again_meanwhile(synced)
    a_pass_ends_though_its_controllers_fail_again_and_again(synced)
    assert said_by_a_pass(synced, "us") == ["version sync of us: STOPPED"]
    delete(synced.tables("us"), TOPIC, NAME)
    assert said_by_a_pass(synced, "us") == [
        "version subscriptions in us: no cluster that can be read has one that regions share, so there is nothing to do"
    ]


@contextmanager
def an_update_is_not_written(world: World) -> Iterator[list[datetime]]:
    """The next update of us is refused until it is left out; then nobody comes by. Gives when the snapshot was taken that it is of, as often
    as it was refused."""
    began, refused = datetime.now(timezone.utc), list[datetime]()

    def refuse(point: CrashPoint) -> None:
        of_us = threading.current_thread().name.startswith("geo-markers-us")
        if of_us and point is CrashPoint.PUBLISH_BEFORE_APPEND and len(refused) < REPLAYS:
            known = start(world, "eu", "us")  # written just before the update
            if known is not None and known.taken_at is not None and known.taken_at >= began:
                refused.append(known.taken_at)
                raise RetryableError("the log takes nothing on purpose")

    with crash.watched(refuse):
        yield refused
    assert len(refused) == REPLAYS
    assert len(set(refused)) == 1


def both_begin_again_after_a_fault_and_the_topic_is_deleted_and_made_again_meanwhile(world: World) -> None:
    us, began = world.tables("us"), world.log("us").table_id()
    failed: list[CrashPoint] = []

    def fail_once(point: CrashPoint) -> None:
        if point is CrashPoint.MARKERS_READ and not failed:
            failed.append(point)
            raise RetryableError("the tail fails on purpose")

    with _syncs(world, "us") as running:
        newest = world.log("us").latest_version()
        with crash.watched(fail_once):
            world.write("us", 50, 51)
            running.until(lambda: world.log("us").latest_version() > newest + 1)  # it asks for a snapshot
        assert failed == [CrashPoint.MARKERS_READ]
        with pytest.raises(AlreadyOwnedError, match="version sync of us: already run by"):
            claim(us, [[version_sync_runner(us)]])
        delete_topics(world.spark, world.config, "us", str(TOPIC), lose=True)
        assert not world.log("us").exists()
        create_single(us, TOPIC)
        world.write("us", 60, 61)
        world.replicate("us")
        create(us, TOPIC, NAME)
        running.until(lambda: bool(markers(world, "us", kind="SNAPSHOT_REQUEST")))
        assert world.log("us").table_id() != began


def a_pass_ends_though_its_controllers_fail_again_and_again(world: World) -> None:
    def fail(point: CrashPoint) -> None:
        if point is CrashPoint.CONTROLLERS_HEARD:
            raise RetryableError("the controllers fail on purpose")

    world.write("us", 70, 71)
    sync(world, "us")
    with crash.watched(fail):
        done = VersionSync(world.spark, world.config, "us").run()
    assert "fail on purpose" in done.unfinished["version sync of us"]


def said_by_a_pass(world: World, cluster: str) -> list[str]:
    said: list[str] = []
    VersionSync(world.spark, world.config, cluster, say=said.append).run()
    return sorted(said)


def test_of_three_clusters_one_goes_and_comes_back_and_a_delta_stream_that_is_stopped_in_a_batch_goes_on_in_each(
    spark: SparkSession, tmp_path: Path
) -> None:
    world = three(spark, tmp_path)
    clusters = list(world.config.clusters)
    for cluster in clusters:
        world.write(cluster, 0, 3)
    world.write("us", 0, 3, topic=SENT)
    for cluster in clusters:
        world.replicate(cluster)
    stream = DeltaStream(world)
    stream.run()
    create(world.tables("eu"), TOPIC, NAME, stream.checkpoint)
    for cluster in ("us", "eu"):
        create(world.tables(cluster), SENT, NAME)
    with syncing(world) as runs:
        has_read = -1

        def goes_on_since(began: datetime) -> bool:
            nonlocal has_read
            if (newest := world.log("eu").latest_version()) != has_read:
                stream.run()
                has_read = newest
            told = [start(world, target, told_in) for target in ("ap", "us") for told_in in ("eu", target)]
            return all(one is not None and one.taken_at is not None and one.taken_at >= began for one in told)

        runs.until(lambda: goes_on_since(datetime.fromtimestamp(0, timezone.utc)))
        for cluster in clusters:
            world.write(cluster, 3, 6)
        runs.until(lambda: all(len(there(world, cluster)) == 18 for cluster in clusters))
        before = first_version(world, "ap", "eu")
        with away(world, "ap"):
            world.write("eu", 6, 7)
            runs.until(lambda: list(read_starts(world.tables("eu"), TOPIC).waits_for) == ["ap"])
            named = time.time()
            (status,) = (one for one in standings(world, TOPIC) if one.cluster == "eu")
            assert list(status.waits_for or ()) == ["ap"], "by its link or by itself, as whichever is seen first"
            world.write("eu", 7, 8)
            world.write("us", 3, 5, topic=SENT)
            runs.until(lambda: ticks(world, "eu")[-1].now > named)
            runs.until(lambda: len(there(world, "us")) == 20)
            assert len(consume(world, "us").ids) == 20
            assert consume(world, "eu").ids == [], "acknowledgements need no answer of anybody"
            back = time.time()
        began = datetime.now(timezone.utc)
        world.write("eu", 8, 9)
        runs.until(lambda: goes_on_since(began))
        runs.until(lambda: all(time.time() - ticks(world, cluster, SENT)[-1].now > 5 for cluster in ("us", "eu")))
    meanwhile = [one for one in ticks(world, "eu") if named < one.now < back]
    assert meanwhile
    assert all(list(one.unable) == ["ap"] for one in meanwhile)
    assert [at for at in asked_at(world, "eu") if named < at / 1e6 < back] == []
    assert first_version(world, "ap", "eu") > before
    done = {(row["origin"], row["ledger_id"], row["entry_id"]) for row in stream.read if row["marker"] is None}
    world.write("eu", 9, 11)
    stream.stops_in_batch = len(stream.finished_meanwhile)
    with pytest.raises(StreamingQueryException, match="stopped on purpose"):
        stream.run()
    for target in ("ap", "us"):
        world.replicate(target)
        log = world.log(target)
        rest = ids(read_added(log, first_version(world, target, "eu"), log.latest_version()))
        assert done | rest == there(world, target) == {(c, 1, n) for c in clusters for n in range(11 if c == "eu" else 6)}
        assert done & rest <= {("eu", 1, 8)}, "at most what came since the snapshot was begun comes again"
    tables = {name: world.tables(name) for name in clusters}
    assert list(violations(tables, TOPIC)) == []
    costs_nothing_one_way(world)
    journal = tables["eu"].journal(VERSION_STARTS)
    (row,) = (row for row in journal.newest(subscription=NAME, cluster="us"))
    journal.append([{**row, "start": world.log("us").latest_version() + 1, "sequence": row["sequence"] + 1}])
    (said,) = violations(tables, TOPIC)
    assert said.endswith("which skips ('eu', 1, 9)"), "what is checked is seen"


def costs_nothing_one_way(world: World) -> None:
    """Both ends of `SENT` have a version subscription, and nobody could answer: in rounds without number nobody was asked."""
    for cluster, other in (("us", "eu"), ("eu", "us")):
        assert markers(world, cluster, SENT) == []
        (status,) = (one for one in standings(world, SENT) if one.cluster == cluster)
        (why_not,) = (one.why_not for one in status.elsewhere if one.target == other)
        assert why_not == f"no links lead from {cluster} to {other} and back, by which one asks and is answered"


def test_a_comparison_of_both_logs_is_out_of_order_and_makes_snapshots_void(linked: World) -> None:
    log = linked.log("eu")
    found = [out_of_order(commit) for commit in log.commits(0, log.latest_version())]
    assert "comparison of us->eu" in found
    linked.write("us", 20, 21)
    linked.replicate("eu")
    (newest,) = log.commits(log.latest_version(), log.latest_version())
    assert out_of_order(newest) is None
