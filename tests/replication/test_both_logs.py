"""Where a link begins, what it lost and what its source lost are the same with Spark and without."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from random import Random
from typing import Any

import pytest
from pyspark.sql import SparkSession

from geo.ids import LedgerId
from geo.log.topics import create_topic
from geo.now import now_us
from geo.replication.both_logs import BothLogs, Floors
from geo.replication.rule import Rule
from geo.tables import native
from geo.tables.arrow_rows import rows_table
from geo.tables.cluster import connect_later
from geo.tables.driver import Reads
from geo.times import from_us
from schemas import TOPIC_LOG
from tests.world import TOPIC, World

pytestmark = pytest.mark.spark

SEED = 3
"""One is enough each time; of others the same held when this was written."""

LEDGERS = [LedgerId(origin, number) for number in (1, 2) for origin in ("us", "asia", "eu")]


def _row(random: Random, ledger: LedgerId, entry: int) -> dict[str, Any]:
    old = timedelta(hours=random.choice([0, 0, 2, -48]))
    return {
        "origin": ledger.origin,
        "ledger_id": ledger.ledger_id,
        "entry_id": entry,
        "publish_time": from_us(now_us()) - old,
        "producer": "w",
        "replicate_to": random.choice([None, None, None, [], ["eu"], ["asia"]]),
        "payload": b"x",
        "marker": random.choice([None, None, None, None, "SNAPSHOT", "SNAPSHOT_REQUEST"]),
        "publish_date": from_us(now_us()).date(),
    }


def _write(world: World, cluster: str, random: Random, ledgers: dict[LedgerId, range]) -> None:
    """A file of each ledger's first half, and among them one of all second halves."""
    create_topic(world.tables(cluster), TOPIC)
    halves = [(ledger, entries[: len(entries) // 2], entries[len(entries) // 2 :]) for ledger, entries in ledgers.items()]
    parts = [[(ledger, entry) for entry in first] for ledger, first, _ in halves]
    parts.insert(len(parts) // 2, [(ledger, entry) for ledger, _, second in halves for entry in second])
    for part in parts:
        rows = [_row(random, ledger, entry) for ledger, entry in part]
        random.shuffle(rows)
        if rows:
            world.log(cluster).append_rows(rows_table(TOPIC_LOG.types, rows))


def _logs(world: World, rule: Rule, reads: Reads, start: Callable[[], SparkSession]) -> BothLogs:
    source, target = (
        connect_later(start, world.config.cluster(cluster), reads=reads).log(TOPIC) for cluster in (rule.source, rule.target)
    )
    return BothLogs(source, target, rule, f"{rule.source}->{rule.target}")


def _no_spark() -> SparkSession:
    raise AssertionError("Spark is asked")


def test_what_a_link_finds_is_the_same_with_and_without_spark(world: World) -> None:
    """One ledger began to come, two have yet to, one lost its beginning in the source, and of one the target has more."""
    random = Random(SEED)
    _write(world, "us", random, {ledger: range(3 if ledger == LEDGERS[1] else 0, 12) for ledger in LEDGERS[:5]})
    _write(world, "eu", random, {LEDGERS[0]: range(2), LEDGERS[3]: range(15), LEDGERS[5]: range(3)})
    version = world.log("us").latest_version()
    floors: list[Floors | None] = [None, {str(ledger): random.randrange(6) for ledger in LEDGERS}]
    lost = list[str]()
    for origins, ttl_s in [({"us"}, None), ({"us", "asia"}, None), ({"us", "asia"}, 3600)]:
        rule = Rule("us", "eu", frozenset(origins), ttl_s)
        # Whether a loss is for sure, where there is a TTL, is asked of Spark.
        alone = _logs(world, rule, Reads.LITTLE, _no_spark if ttl_s is None else lambda: world.spark)
        by_spark = _logs(world, rule, Reads.NONE, lambda: world.spark)
        for one in floors:
            assert alone.lost(version, one) == by_spark.lost(version, one)
            lost += alone.lost(version, one)
        assert alone.gone_from_source() == by_spark.gone_from_source()
        assert alone.floors("latest", version) == by_spark.floors("latest", version)
    assert lost, "else nothing was compared"


def test_a_file_whose_entries_the_target_has_is_not_read(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for cluster in ("us", "eu"):
        _write(world, cluster, Random(1), {LEDGERS[0]: range(10)})
    monkeypatch.setattr(native, "LITTLE_ROWS", 0)
    logs = _logs(world, Rule("us", "eu", frozenset({"us"})), Reads.LITTLE, _no_spark)
    assert logs.lost(world.log("us").latest_version(), None) == []
    assert logs.gone_from_source() == []
