"""A producer of a Kafka topic that goes on in another region, with a real broker: from the other's offsets, or from what arrived."""

from __future__ import annotations

import logging
import shutil
from collections import Counter
from datetime import datetime, timezone
from typing import Any

import pytest

from geo.config.publication import Publication
from geo.crash import CrashPoint
from geo.errors import SourceChangedError, UsageError
from geo.fleet.backfill import Backfill, backfill
from geo.log.failing_over import By
from geo.log.other_producer import OtherProducer, other_producer
from geo.log.publish_stream import SourceStream
from geo.log.sources.kafka import KafkaReader
from geo.log.sources.kafka_arrived import KafkaMessages
from geo.log.sources.kafka_topic import KafkaTopic
from geo.names import DEFAULT_PRODUCER
from geo.replication.repair import reconcile_links
from geo.testing import dies_at
from tests.kafka_broker import Broker
from tests.world import TOPIC, World

pytestmark = [pytest.mark.spark, pytest.mark.crash]


def _produce(broker: Broker, topic: str, first: int, end: int) -> None:
    """Records of two partitions, the number of each in its payload."""
    broker.produce(topic, [(n % 2, f"k{n}".encode(), str(n).encode(), [("h", b"1")]) for n in range(first, end)])


def _produce_all(broker: Broker, topic: str, first: int, end: int) -> None:
    """Records of one partition."""
    broker.produce(topic, [(0, f"k{n}".encode(), str(n).encode(), []) for n in range(first, end)])


def _publish(world: World, broker: Broker, topic: str, cluster: str, other: str | None = None, **more: Any) -> SourceStream:
    """`more`: of the publication."""
    what = Publication(cluster, TOPIC, kafka=broker.bootstrap, kafka_topic=topic, **more)
    return world.published(what, continue_from=other)


def _numbers(world: World, cluster: str, origin: str) -> list[int]:
    return sorted(int(row["payload"]) for one, row in world.messages(cluster).items() if one[0] == origin)


def _published(world: World, broker: Broker, topic: str) -> None:
    """Of 200 records that eu published 150 have arrived in us; then come 100 more."""
    broker.create(topic, 2)
    _produce(broker, topic, 0, 150)
    _publish(world, broker, topic, "eu")
    world.replicate("us")
    _produce(broker, topic, 150, 200)
    _publish(world, broker, topic, "eu")
    _produce(broker, topic, 200, 300)


def test_a_producer_goes_on_at_the_offsets_of_a_region_that_can_be_read(
    world: World, broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    _published(world, broker, "readable")
    with caplog.at_level(logging.INFO, "geo"):
        stream = _publish(world, broker, "readable", "us", "eu", kafka_start="latest")
    assert _numbers(world, "us", "us") == list(range(200, 300))
    assert [(one.source, one.place[0], one.by, one.may_repeat) for one in stream.continued] == [
        ("kafka:readable:0", 100, By.RECORDED, False),
        ("kafka:readable:1", 100, By.RECORDED, False),
    ]
    assert (
        "goes on where it stood in eu: partition 0 from offset 100 (by the records of eu), partition 1 from offset 100 "
        "(by the records of eu). Nothing is published again. What eu holds and us has not got yet comes by the link from eu"
    ) in caplog.text
    assert _publish(world, broker, "readable", "us", "eu").published.rows == 0
    for target in ("us", "eu"):
        world.replicate(target)
    world.assert_clean()
    assert sorted(int(row["payload"]) for row in world.messages("us").values()) == list(range(300))
    broker.delete("readable")
    broker.create("readable", 2)
    _produce(broker, "readable", 0, 400)
    with pytest.raises(SourceChangedError, match="deleted and made anew"):
        _publish(world, broker, "readable", "us", "eu")


def test_a_producer_goes_on_behind_what_arrived_of_a_region_that_is_away(
    world: World, broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    _published(world, broker, "away")
    (world.folder / "eu").rename(world.folder / "away")
    with caplog.at_level(logging.INFO, "geo"):
        stream = _publish(world, broker, "away", "us", "eu")
    assert _numbers(world, "us", "us") == list(range(150, 300)), "what did not arrive is published again, and nothing else"
    assert [(one.source, one.place[0], one.by, one.may_repeat) for one in stream.continued] == [
        ("kafka:away:0", 75, By.ARRIVED, True),
        ("kafka:away:1", 75, By.ARRIVED, True),
    ]
    assert "partition 0 from offset 75 (behind what arrived in us)" in caplog.text
    assert "what eu published from there on is published again here" in caplog.text
    _produce(broker, "away", 300, 310)
    assert _publish(world, broker, "away", "us", "eu").published.rows == 10, "later starts go on from the own records"
    (world.folder / "away").rename(world.folder / "eu")
    world.replicate("us")
    twice = {number for number, times in Counter(int(r["payload"]) for r in world.messages("us").values()).items() if times > 1}
    assert twice == set(range(150, 200)), "just what was said to be published again"
    # Back to eu, which has an older record of its own.
    _produce(broker, "away", 310, 320)
    assert _publish(world, broker, "away", "eu", "us").published.rows == 10
    assert _numbers(world, "eu", "eu") == [*range(200), *range(310, 320)]


def test_what_arrived_counts_where_the_other_records_need_not_say_all(world: World, broker: Broker) -> None:
    broker.create("gone", 2)
    _produce(broker, "gone", 0, 100)
    _publish(world, broker, "gone", "eu")
    _produce(broker, "gone", 100, 150)
    with dies_at(CrashPoint.PUBLISH_AFTER_APPEND):
        _publish(world, broker, "gone", "eu")
    world.replicate("us")
    world.clean_up("eu")
    _produce(broker, "gone", 150, 200)
    stream = _publish(world, broker, "gone", "us", "eu")
    assert [(one.place[0], one.by, one.may_repeat) for one in stream.continued] == [(75, By.ARRIVED, True)] * 2
    assert _numbers(world, "us", "us") == list(range(150, 200))


def test_a_partition_of_which_nothing_is_sure_is_named_and_not_published_again(world: World, broker: Broker) -> None:
    """The log has been changed since the link recorded that all is there; or the link never recorded it."""
    _published(world, broker, "holed")
    (world.folder / "eu").rename(world.folder / "away")
    world.log("us").delta().delete("properties['kafka.partition'] = '1' AND properties['kafka.offset'] = '20'")
    with pytest.raises(
        UsageError, match=r"messages of kafka:holed:0, kafka:holed:1 are here, .* is a DELETE by .*`geo reconcile`"
    ):
        _publish(world, broker, "holed", "us", "eu")
    shutil.rmtree(world.folder / "us" / "system" / "links")
    with pytest.raises(UsageError, match=r"messages of kafka:holed:0, kafka:holed:1 are here, .* \(it has never run"):
        _publish(world, broker, "holed", "us", "eu")
    assert _numbers(world, "us", "us") == []


def test_what_a_backfill_brought_below_the_beginning_of_a_link_is_no_hole(world: World, broker: Broker) -> None:
    world.rewrite(("eu", "us"), [{"source": "eu", "target": "us", "start": "latest"}])
    broker.create("floors", 1)
    _produce_all(broker, "floors", 0, 30)
    _publish(world, broker, "floors", "eu")
    middle = datetime.now(timezone.utc)
    _produce_all(broker, "floors", 30, 60)
    _publish(world, broker, "floors", "eu")
    world.replicate("us")
    _produce_all(broker, "floors", 60, 80)
    _publish(world, broker, "floors", "eu")
    world.replicate("us")
    done, not_done = backfill(world.spark, world.config, "eu", "us", what=Backfill(until=middle))
    assert ([one.messages for one in done], not_done) == ([30], {})
    world.replicate("us")
    assert _numbers(world, "us", "eu") == [*range(30), *range(60, 80)]
    (world.folder / "eu").rename(world.folder / "away")
    _produce_all(broker, "floors", 80, 90)
    stream = _publish(world, broker, "floors", "us", "eu")
    assert _numbers(world, "us", "us") == list(range(80, 90))
    assert [(one.place[0], one.by) for one in stream.continued] == [(80, By.ARRIVED)]


def test_what_a_comparison_brought_that_was_killed_does_not_count(
    world: World, broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    broker.create("compared", 2)
    _produce(broker, "compared", 0, 100)
    _publish(world, broker, "compared", "eu")
    world.replicate("us")
    _produce(broker, "compared", 100, 150)
    _publish(world, broker, "compared", "eu")
    with dies_at(CrashPoint.LINK_AFTER_RECONCILE_APPEND):
        reconcile_links(world.spark, world.config, "eu", "us")
    assert _numbers(world, "us", "eu") == list(range(150)), "it was killed before it recorded that all is there"
    (world.folder / "eu").rename(world.folder / "away")
    stream = _publish(world, broker, "compared", "us", "eu")
    assert [(one.place[0], one.by, one.may_repeat) for one in stream.continued] == [(50, By.ARRIVED, True)] * 2
    assert "and what a comparison of both logs brought since version" in caplog.text
    assert _numbers(world, "us", "us") == list(range(100, 150))


def test_of_a_region_that_was_put_back_from_a_backup_what_arrived_counts(
    world: World, broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    broker.create("backup", 2)
    _produce(broker, "backup", 0, 100)
    _publish(world, broker, "backup", "eu")
    shutil.copytree(world.folder / "eu", world.folder / "backup")
    _produce(broker, "backup", 100, 150)
    _publish(world, broker, "backup", "eu")
    world.replicate("us")
    shutil.rmtree(world.folder / "eu")
    (world.folder / "backup").rename(world.folder / "eu")
    _produce(broker, "backup", 150, 160)
    stream = _publish(world, broker, "backup", "us", "eu")
    assert _numbers(world, "us", "us") == list(range(150, 160))
    assert [(one.place[0], one.by, one.may_repeat) for one in stream.continued] == [(75, By.ARRIVED, True)] * 2
    assert "ends at entry 49 there and ends at entry 74 here: it was put back from a backup" in caplog.text


def test_without_an_id_of_the_topic_the_other_regions_last_messages_are_compared(world: World, broker: Broker) -> None:
    """Brokers that are too old to have ids."""
    broker.create("old", 2)
    _produce(broker, "old", 0, 100)
    _publish(world, broker, "old", "eu")

    def asked(topic_id: str) -> OtherProducer:
        reader = KafkaReader(KafkaTopic({"bootstrap_servers": broker.bootstrap}, "old"))
        try:
            messages = KafkaMessages(reader, "old", topic_id)
            return other_producer(world.tables("us"), world.config, TOPIC, DEFAULT_PRODUCER, "eu", reader, messages)
        finally:
            reader.close()

    assert {place[0] for place in asked("").recorded.values()} == {50}
    broker.delete("old")
    broker.create("old", 2)
    _produce(broker, "old", 1_000, 1_200)
    assert asked("one").why is None, "by ids, which are compared elsewhere"
    with pytest.raises(SourceChangedError, match="partition 0: the record at offset 49 is another one than the message"):
        asked("")


def test_offsets_of_another_kafka_topic_are_not_taken_for_those_that_arrived(world: World, broker: Broker) -> None:
    _published(world, broker, "other")
    (world.folder / "eu").rename(world.folder / "away")
    broker.delete("other")
    broker.create("other", 2)
    _produce(broker, "other", 1_000, 1_100)
    with pytest.raises(SourceChangedError, match=r"partition 0: ends at 50, read up to 74"):
        _publish(world, broker, "other", "us", "eu")
    _produce(broker, "other", 1_100, 1_400)
    with pytest.raises(SourceChangedError, match="partition 0: the record at offset 74 is another one than the message"):
        _publish(world, broker, "other", "us", "eu")
    broker.create("never", 1)
    with pytest.raises(UsageError, match="and nothing of it arrived here that says where it comes from"):
        _publish(world, broker, "never", "us", "eu", producer="q")
    assert _numbers(world, "us", "us") == []
