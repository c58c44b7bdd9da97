"""What is refused: records that cannot be read, ids and times that no message has. Nothing is skipped because of it, and nobody
stops."""

from __future__ import annotations

import time
from datetime import datetime, timezone

import pytest
from pyspark.sql import functions as F

from geo.delta.appending import append_frame, append_rows
from geo.delta.arrow_rows import rows_table
from geo.errors import UnsafeError
from geo.log.topics import create_topic
from geo.now import now_us
from geo.schemas import CURSORS, TOPIC_LOG
from geo.subscription.acks.ack_publisher import AckPublisher
from geo.subscription.acks.ack_state import AckState, Epoch
from geo.subscription.acks.acks_topic import ADMIN, read_known
from geo.subscription.acks.cursor import parse_ends
from geo.subscription.acks.message_set import MessageSet
from geo.subscription.acks.namespace_folds import Folding
from geo.subscription.acks.record import RecordRefusal, encode, key_of
from geo.subscription.acks.start_position import base_at
from geo.subscription.changes import create, delete, reset
from geo.subscription.consumer import Subscription
from geo.subscription.failover import failover
from geo.times import LAST_US, from_us
from tests.subscription.consuming import NAME, NONE, consume, consuming, ids, known, letters
from tests.world import TOPIC, World

pytestmark = pytest.mark.spark

NEWER, MALFORMED = b"\x09", b"\x01\xff"
LEFT = ids("eu", 5, 6)
"""What nobody has acknowledged in `consumed`."""


def forge(world: World, entry: int, payload: bytes, *, origin: str = "us", name: str = NAME) -> None:
    """A record in the log of eu, as a link would bring it."""
    log, now = world.log("eu", TOPIC.acks), from_us(now_us())
    if not log.exists():
        create_topic(world.tables("eu"), TOPIC.acks)
    row = {
        "origin": origin, "ledger_id": 5, "entry_id": entry, "publish_time": now, "producer": "forger", "key": key_of(TOPIC, name),
        "payload": payload, "publish_date": now.date(),
    }  # fmt: skip
    append_rows(log, rows_table(TOPIC_LOG.types, [row]))


def test_a_start_is_refused_where_a_record_is_of_a_newer_program_and_nothing_is_written(consumed: World) -> None:
    forge(consumed, 0, NEWER)
    before = consumed.log("eu", TOPIC.acks).read().count()
    changing = consumed.spark, consumed.config, "eu", TOPIC, NAME
    for refused in (
        lambda: consume(consumed, "eu"),
        lambda: reset(*changing, "earliest"),
        lambda: delete(*changing),
        lambda: failover(consumed.spark, TOPIC, NAME, consumed.config, "eu", "us"),
    ):
        with pytest.raises(UnsafeError, match=r"records in .*/__acks cannot be read \(1 newer encoding\). Run the delta-geo"):
            refused()
    assert consumed.log("eu", TOPIC.acks).read().count() == before
    assert consume(consumed, "eu", ignore_unreadable=True).ids == LEFT


def test_a_subscription_of_which_no_record_can_be_read_is_not_begun_anew_in_silence(linked: World) -> None:
    forge(linked, 0, MALFORMED)
    with pytest.raises(UnsafeError, match=r"\(1 malformed\)"):
        consume(linked, "eu", start="latest")
    create(linked.spark, linked.config, "eu", TOPIC, NAME, "earliest")
    assert len(consume(linked, "eu").ids) == 40


def test_a_cluster_that_was_lost_and_left_the_configuration_is_still_heard(consumed: World) -> None:
    consumed.replicate("us")
    consumed.rewrite(("us",), [])
    assert consume(consumed, "us", start="latest").ids == LEFT


def test_a_fold_never_passes_a_record_that_a_newer_program_can_read(consumed: World) -> None:
    def folded() -> int:
        Folding(consumed.spark, consumed.config, "eu").run()
        (row,) = consumed.tables("eu").journal(CURSORS).newest()
        return {str(ledger): end for ledger, end in parse_ends(row["folded"]).items()}["us:5"]

    good = encode(AckState(acked=MessageSet.of(LEFT)))
    for entry, payload in enumerate([good, MALFORMED, NEWER, good]):
        forge(consumed, entry, payload)
    assert folded() == 1, "what nobody will ever read is passed"
    forge(consumed, 4, good)
    assert folded() == 1
    assert known(consumed, "eu").acked.size == 40
    assert read_known(consumed.tables("eu"), TOPIC, NAME).refused == {key_of(TOPIC, NAME): {RecordRefusal.NEWER_ENCODING: 1}}


def test_a_record_of_a_newer_program_that_came_first_is_not_passed_either(linked: World) -> None:
    def fold() -> dict[str, int]:
        Folding(linked.spark, linked.config, "eu").run()
        rows = linked.tables("eu").journal(CURSORS).newest()
        return {name: end for row in rows for name, end in row["folded"].items()}

    forge(linked, 0, NEWER)
    assert fold() == {}
    forge(linked, 1, encode(AckState(acked=MessageSet.of(LEFT))))
    assert fold()["us:5"] == -1


def test_rows_that_no_producer_can_have_written_stop_no_link_and_no_consumer_and_are_counted(linked: World) -> None:
    late = F.timestamp_micros(F.lit(LAST_US + 1))
    for cluster in ("eu", "us"):
        rows = linked.entries(cluster, 20, 24).withColumns({
            "entry_id": F.expr("IF(entry_id = 20, -1L, entry_id)"), "ledger_id": F.expr("IF(entry_id = 21, 0L, ledger_id)"),
            "publish_time": F.expr("IF(entry_id = 22, TIMESTAMP'2200-01-01', publish_time)"),
        })  # fmt: skip
        append_frame(linked.log(cluster), rows)
    (report,) = linked.replicate("us")
    assert (report.replicated, report.impossible) == (1, 3)
    linked.write("us", 24, 25)
    (report,) = linked.replicate("eu")
    assert (report.replicated, report.impossible) == (2, 3), "another commit beside it, both brought by Spark"
    append_frame(linked.log("eu"), linked.entries("eu", 25, 26).withColumn("publish_time", late))
    forge_late = linked.entries("us", 0, 1).withColumns({
        "publish_time": late, "key": F.lit(key_of(TOPIC, NAME)), "payload": F.lit(encode(AckState(acked=MessageSet.of(LEFT)))),
    })  # fmt: skip
    create_topic(linked.tables("eu"), TOPIC.acks)
    append_frame(linked.log("eu", TOPIC.acks), forge_late)
    create(linked.spark, linked.config, "eu", TOPIC, NAME, "earliest")
    given = consume(linked, "eu")
    here = [*ids("eu", 0, 20), *ids("us", 0, 20), *ids("eu", 22, 24), *ids("us", 23, 25)]
    assert sorted(given.ids) == sorted(here), "the late one of eu's own is no message of a year that a link would not let pass"
    assert given.consumed.refused == 3
    assert consume(linked, "eu").ids == []


def test_a_subscription_begins_at_the_earliest_message_by_itself(linked: World) -> None:
    got: list[int] = []
    consumer = Subscription(linked.spark, TOPIC, "fresh", linked.config, "eu")
    consumer.run(lambda messages: got.append(messages.count()), trigger="available-now")
    assert sum(got) == 40


def test_only_messages_of_the_given_origins_are_delivered_and_the_others_do_not_count(linked: World) -> None:
    options = {"origins": ["us"], "max_redeliveries": 0, "redelivery_delay_s": 0.1}
    given = consume(linked, "eu", NONE, trigger="100 ms", limit=20, **options)
    assert given.ids == ids("us", 0, 20)
    assert known(linked, "eu").in_vain() == MessageSet.of(ids("us", 0, 20))
    assert consume(linked, "eu", origins=["eu"]).ids == ids("eu", 0, 20)
    assert letters(linked, "eu") == []


def test_a_message_that_fails_again_after_a_reset_becomes_another_dead_letter(linked: World) -> None:
    def fail_all_but_us() -> None:
        with consuming(linked, "eu", "origin = 'us' OR entry_id <> 3", redelivery_delay_s=0.1, max_redeliveries=0) as consumer:
            consumer.until(lambda: consumer.subscription.done.dead_lettered == 1)

    fail_all_but_us()
    reset(linked.spark, linked.config, "eu", TOPIC, NAME, "earliest")
    fail_all_but_us()
    assert {one["properties"]["geo.subscription_epoch"] for one in letters(linked, "eu")} == {"0", "1.eu"}


def test_an_operator_who_was_killed_holds_up_no_other(consumed: World) -> None:
    AckPublisher(consumed.tables("eu"), consumed.config, TOPIC, ADMIN)  # and never closed
    assert reset(consumed.spark, consumed.config, "eu", TOPIC, NAME, "latest").epoch == 1
    assert reset(consumed.spark, consumed.config, "eu", TOPIC, NAME, "earliest").epoch == 2


def test_a_record_cannot_freeze_a_subscription_in_a_last_epoch(consumed: World) -> None:
    forge(consumed, 0, encode(AckState(Epoch(2**32 - 1, "zz"), deleted=True)))
    assert consume(consumed, "eu").ids == LEFT
    assert reset(consumed.spark, consumed.config, "eu", TOPIC, NAME, "latest").epoch == 1


def test_a_time_without_a_zone_is_utc_wherever_the_program_runs(monkeypatch: pytest.MonkeyPatch, linked: World) -> None:
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    try:
        naive = base_at(datetime(2026, 1, 1), linked.log("eu"))
    finally:
        monkeypatch.undo()
        time.tzset()
    assert naive == base_at(datetime(2026, 1, 1, tzinfo=timezone.utc), linked.log("eu"))
