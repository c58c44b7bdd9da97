"""Folding: cursors are what the records say, whatever happens to it, and nothing needs it."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from pyspark.sql import functions as F

from geo import crash
from geo.crash import CrashPoint
from geo.delta.appending import append_frame
from geo.delta.arrow_rows import collected, rows_frame
from geo.delta.driver import Reads
from geo.delta.engines.native.engine import NativeEngine
from geo.ids import LedgerId, MessageId
from geo.journal import upkeep
from geo.journal.cluster import connect_later
from geo.journal.rows import Row
from geo.log.publisher import Publisher
from geo.now import now_us
from geo.ops.maintain import maintain
from geo.replication.repair import reconcile_links
from geo.schemas import CURSORS
from geo.streams import timetable
from geo.subscription.acks import folding
from geo.subscription.acks.ack_state import AckState
from geo.subscription.acks.acks_topic import read_known
from geo.subscription.acks.folding import Folded
from geo.subscription.acks.forgetting import DAY_US, MARGIN_DAYS, named, without
from geo.subscription.acks.namespace_folds import Folding
from geo.subscription.acks.record import decode, encode, key_of
from geo.subscription.changes import reset
from geo.testing import dies_at
from geo.times import in_us
from tests.delta.engines import refuses
from tests.subscription.consuming import NAME, consume, ids, known
from tests.subscription.test_failover import ACKS
from tests.subscription.test_refused import MALFORMED, NEWER, forge
from tests.test_crash_points import FOLD_POINTS
from tests.waiting import InThread
from tests.world import TOPIC, World

pytestmark = pytest.mark.spark

KEY = key_of(TOPIC, NAME)
OTHERS = ("ledger", "mail")


def fold(world: World, cluster: str = "eu") -> Folded:
    return Folding(world.spark, world.config, cluster).run()


def cursor(world: World, cluster: str = "eu") -> Row:
    (row,) = world.tables(cluster).journal(CURSORS).newest()
    return row


def forget_records(world: World, cluster: str = "eu") -> None:
    """As if all records of `__acks` had expired."""
    world.tables(cluster).log(TOPIC.acks).delta().delete()


def test_a_cursor_is_the_state_and_a_consumer_needs_no_record_that_is_in_it(consumed: World) -> None:
    before = known(consumed, "eu")
    assert fold(consumed) == Folded(cursors=1, compacted=1)
    row = cursor(consumed)
    assert decode(bytes(row["state"])) == before
    assert (row["acknowledged"], row["ranges"], row["mark_delete"]) == (39, 3, {"eu:1": 4, "us:1": 19})
    fold(consumed)  # takes in the compact record, which says nothing new
    assert cursor(consumed)["sequence"] == 2
    forget_records(consumed)
    assert known(consumed, "eu") == before
    consumed.write("eu", 20, 30)
    assert consume(consumed, "eu").ids == [*ids("eu", 5, 6), *ids("eu", 20, 30)], "cursor and newer records"


def test_a_cluster_that_joins_late_lacks_nothing_once_only_compact_records_are_left(consumed: World) -> None:
    fold(consumed)
    records = consumed.tables("eu").log(TOPIC.acks)
    records.delta().delete(F.col("producer") != "fold")
    # Nobody's expiry took them, so a person says that they may be gone.
    reconcile_links(consumed.spark, consumed.config, "eu", "us", topics=str(TOPIC.acks))
    consumed.replicate("us")
    assert consume(consumed, "us").ids == ids("eu", 5, 6)


@pytest.mark.parametrize("point", FOLD_POINTS, ids=lambda point: point.value)
def test_a_fold_that_stops_here_ends_with_the_same_cursor(consumed: World, point: CrashPoint) -> None:
    with dies_at(point):
        fold(consumed)
    consumed.write("eu", 20, 30)
    assert consume(consumed, "eu", "entry_id <> 25").ids == [*ids("eu", 5, 6), *ids("eu", 20, 30)]
    expected = known(consumed, "eu")
    fold(consumed)
    assert decode(bytes(cursor(consumed)["state"])) == expected
    forget_records(consumed)
    assert consume(consumed, "eu").ids == ids("eu", 25, 26)


def test_a_reset_is_folded_and_old_acknowledgements_after_it_are_counted(consumed: World) -> None:
    consumed.replicate("us", topics=ACKS)
    consume(consumed, "eu")
    reset(consumed.spark, consumed.config, "us", TOPIC, NAME, MessageId("eu", 1, 5))
    fold(consumed, "us")
    consumed.replicate("us", topics=ACKS)
    fold(consumed, "us")
    row = cursor(consumed, "us")
    assert (row["epoch"], row["epoch_cluster"], row["acknowledged"]) == (1, "us", 0)
    assert row["refused"]["older epoch"] >= 1


@pytest.fixture(params=["this process", "tasks"])
def by(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who gathers what records tell: tasks those of a log that Spark is to read, and of commits that add many."""
    if request.param == "tasks":
        monkeypatch.setattr(NativeEngine, "scan", refuses)
        monkeypatch.setattr(NativeEngine, "few_added", refuses)


@pytest.mark.usefixtures("by")
def test_bad_records_are_counted_with_their_reason_and_what_is_no_subscription_leaves_nothing(
    consumed: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In slices of one subscription."""
    monkeypatch.setattr(folding, "SLICE", 1)
    monkeypatch.setattr(folding, "SLICE_BYTES", 20)
    before = known(consumed, "eu")
    rows: list[Mapping[str, object]] = [
        *({"key": key_of(TOPIC, name), "payload": encode(before)} for name in OTHERS),
        {"key": KEY, "payload": b"\x09"},
        {"key": KEY, "payload": None},
        {"key": "nonsense", "payload": b"\x01"},
        {"key": None, "payload": b""},
    ]
    publisher = Publisher(consumed.tables("eu"), consumed.config, TOPIC.acks, "forger")
    publisher.open(rows_frame(consumed.spark, {"key": "STRING", "payload": "BINARY"}, []).schema)
    publisher.publish_rows(rows)
    publisher.close()
    assert fold(consumed) == Folded(cursors=3, compacted=3)
    cursors = consumed.tables("eu").journal(CURSORS)
    assert cursors.table.latest_version() == 3, "one commit a slice"
    told = {row["subscription"]: row for row in cursors.newest(topic=[str(TOPIC), "another"])}
    assert {name: row["refused"] for name, row in told.items() if row["refused"]} == {NAME: {"newer encoding": 1, "malformed": 1}}
    assert {name: decode(bytes(row["state"])) for name, row in told.items()} == dict.fromkeys([NAME, *OTHERS], before)
    found = read_known(consumed.tables("eu"), TOPIC)
    assert found.states == {key_of(TOPIC, name): before for name in told}
    by_spark = connect_later(lambda: consumed.spark, consumed.config.cluster("eu"), reads=Reads.NONE)
    same = read_known(by_spark, TOPIC)
    assert (same.states, same.refused) == (found.states, found.refused)


@pytest.mark.usefixtures("by")
def test_records_that_are_all_refused_are_folded_once(consumed: World) -> None:
    fold(consumed)
    for entry in range(3):
        forge(consumed, entry, MALFORMED)
    for _ in range(2):
        fold(consumed)
        row = cursor(consumed)
        assert (row["folded"]["us:5"], row["refused"]) == (2, {"malformed": 3})
    assert fold(consumed) == Folded(), "all is in it"


def test_records_expire_only_once_they_are_in_younger_compact_records(consumed: World) -> None:
    before: AckState = known(consumed, "eu")
    log = consumed.tables("eu").log(TOPIC.acks)
    old = log.read().withColumn("publish_time", F.expr("publish_time - INTERVAL 20 DAYS"))
    old = old.withColumn("publish_date", F.to_date("publish_time")).withColumn("ledger_id", F.lit(77).cast("bigint"))
    append_frame(log, old.cache())
    with consumed.path.open("a") as file:
        file.write('topics:\n  - {match: "persistent://*/*/__acks", message_ttl: 10 days}\n')
    consumed.reload()
    consumed.replicate("us")
    (held, *_) = maintain(consumed.spark, consumed.config, "eu", ACKS)
    assert [(one.link, len(one.days)) for one in held.held] == [("the fold", 1)]
    assert not held.expired
    fold(consumed)
    (gone, *_) = maintain(consumed.spark, consumed.config, "eu", ACKS)
    assert len(gone.expired) == 1
    assert not gone.held
    assert known(consumed, "eu") == before


def test_what_has_expired_is_forgotten_in_each_cluster_and_what_a_log_still_holds_is_not(
    consumed: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of what was acknowledged 20 days ago eu's log has dropped the ledger eu:1 and still holds us:1."""
    monkeypatch.setattr(timetable, "COMPACT_S", 0.0)
    with consumed.path.open("a") as file:
        file.write('topics:\n  - {match: "persistent://*/*/*", message_ttl: 10 days}\n')
    consumed.reload()
    before = known(consumed, "eu")
    assert named(before) == {LedgerId("eu", 1), LedgerId("us", 1)}
    records = consumed.tables("eu").log(TOPIC.acks)
    old = records.read().withColumn("publish_time", F.expr("publish_time - INTERVAL 20 DAYS"))
    old = (
        old.withColumn("publish_date", F.to_date("publish_time"))
        .withColumn("ledger_id", F.lit(77).cast("bigint"))
        .localCheckpoint()
    )
    records.delta().delete()
    append_frame(records, old)
    consumed.log("eu").delta().delete("origin = 'eu'")
    consumed.publish("eu", 5)
    assert len(consume(consumed, "eu").ids) == 5, "a ledger of now"
    (young,) = named(known(consumed, "eu")) - named(before)
    assert fold(consumed) == Folded(cursors=1, compacted=1)
    row, now = cursor(consumed), known(consumed, "eu")
    today = now_us() // DAY_US
    assert decode(bytes(row["state"])) == now == without(before | now, {LedgerId("eu", 1)})
    assert set(row["named_on"]) == {"us:1", str(young)}
    assert (row["named_on"]["us:1"], row["named_on"][str(young)] >= today - 1) == (today - 20, True)
    compact = records.read().where("producer = 'fold'").orderBy("entry_id")
    told = [(decode(one["payload"]), one["event_time"] and in_us(one["event_time"]) // DAY_US) for one in collected(compact)]
    assert [(set(named(one)), day) for one, day in told] == [({young}, None), ({LedgerId("us", 1)}, today - 10 - MARGIN_DAYS - 1)]
    assert consume(consumed, "eu").ids == []

    consumed.log("eu").delta().delete("origin = 'us'")
    consumed.publish("eu", 6)
    assert len(consume(consumed, "eu").ids) == 1
    fold(consumed)
    left = named(known(consumed, "eu"))
    assert young in left
    assert not {one for one in left if one.ledger_id == 1}
    assert consume(consumed, "eu").ids == []


def test_a_cursor_that_was_lost_is_made_anew_from_the_records_though_the_fold_goes_on(consumed: World) -> None:
    fold(consumed)
    consumed.write("eu", 20, 25)
    assert consume(consumed, "eu").ids == [*ids("eu", 5, 6), *ids("eu", 20, 25)]
    fold(consumed)
    expected = known(consumed, "eu")
    cursors = consumed.tables("eu").journal(CURSORS).table
    for lost in ("sequence > 1", "true"):  # an older copy was put back; all of it is gone
        cursors.delta().delete(lost)
        consumed.write("eu", (end := expected.acked.size - 20), end + 5)
        assert consume(consumed, "eu").ids == ids("eu", end, end + 5)
        expected = known(consumed, "eu")
        fold(consumed)
        assert decode(bytes(cursor(consumed)["state"])) == expected


def test_a_fold_that_runs_follows_the_log_and_makes_cursors_whole_that_were_put_back(
    consumed: World, caplog: pytest.LogCaptureFixture
) -> None:
    folds = Folding(consumed.spark, consumed.config, "eu", trigger="100 ms")
    cursors = consumed.tables("eu").journal(CURSORS)
    with InThread(folds.run, folds.stop) as running:

        def until_folded() -> None:
            expected = known(consumed, "eu")
            running.until(lambda: [decode(bytes(row["state"])) for row in cursors.newest()] == [expected])

        until_folded()
        consumed.write("eu", 20, 25)
        assert consume(consumed, "eu").ids == [*ids("eu", 5, 6), *ids("eu", 20, 25)]
        until_folded()
        assert upkeep.clean(cursors) > 0, "as whoever keeps house does"
        consumed.write("eu", 30, 31)
        assert consume(consumed, "eu").ids == ids("eu", 30, 31)
        until_folded()
        assert "looks again" not in caplog.text
        cursors.table.delta().delete("sequence > 1")
        consumed.write("eu", 25, 30)
        assert consume(consumed, "eu").ids == ids("eu", 25, 30)
        until_folded()
        assert caplog.text.count("looks again at all that is in no cursor") == 1
        forge(consumed, 0, NEWER)
        for entry in (1, 2):
            folded_to = cursor(consumed)["sequence"]
            forge(consumed, entry, encode(known(consumed, "eu")))
            running.until(lambda before=folded_to: cursor(consumed)["sequence"] > before)  # type: ignore[misc]
        assert cursor(consumed)["folded"]["us:5"] == -1, "nothing behind what a newer program can read"


def test_a_fold_that_another_one_took_over_from_writes_no_cursor(consumed: World) -> None:
    fold(consumed)
    consumed.write("eu", 20, 25)  # what is acknowledged of these is not to be told in compact records now
    assert consume(consumed, "eu").ids == [*ids("eu", 5, 6), *ids("eu", 20, 25)]
    taken_over: list[Folded] = []

    def take_over(point: CrashPoint) -> None:
        if point is CrashPoint.FOLD_FOLDED and not taken_over:
            taken_over.append(Folded())
            taken_over.append(Folding(consumed.spark, consumed.config, "eu", take_over=True).run())

    with crash.watched(take_over):
        done = fold(consumed)
    assert (taken_over[1].cursors, taken_over[1].compacted, taken_over[1].unfinished) == (1, 0, {})
    assert "another runner took over" in done.unfinished[str(TOPIC.acks)]
    assert (done.cursors, cursor(consumed)["sequence"]) == (0, 2)
