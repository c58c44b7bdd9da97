"""Where a link begins, what it lost and what its source lost, by the rows of both logs; with Spark and without."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import timedelta
from random import Random
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from geo.delta.appending import append_frame, append_rows
from geo.delta.arrow_rows import rows_table
from geo.delta.driver import Reads
from geo.delta.engines.native import engine as native
from geo.ids import LedgerId
from geo.journal.cluster import connect_later
from geo.log.topics import create_topic
from geo.now import now_us
from geo.replication.both_logs import BothLogs
from geo.replication.rule import Floors, Rule, Verdict
from geo.schemas import TOPIC_LOG
from geo.times import from_us, in_us
from tests.routed import RoutedRow, verdict
from tests.world import TOPIC, World

pytestmark = pytest.mark.spark

SEED = 3
US_1, US_2, ASIA_1, ASIA_2, EU_1, EU_2 = (LedgerId(origin, number) for origin in ("us", "asia", "eu") for number in (1, 2))


def _row(random: Random, ledger: LedgerId, entry: int) -> dict[str, Any]:
    """A row of any kind: also too old for a TTL of an hour, and of a time that is too far ahead to be one."""
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


def _write(world: World, cluster: str, random: Random, ledgers: dict[LedgerId, range]) -> list[dict[str, Any]]:
    """A file of each ledger's first half, and among them one of all second halves. Returns the rows."""
    create_topic(world.tables(cluster), TOPIC)
    halves = [(ledger, entries[: len(entries) // 2], entries[len(entries) // 2 :]) for ledger, entries in ledgers.items()]
    parts = [[(ledger, entry) for entry in first] for ledger, first, _ in halves]
    parts.insert(len(parts) // 2, [(ledger, entry) for ledger, _, second in halves for entry in second])
    written = []
    for part in parts:
        rows = [_row(random, ledger, entry) for ledger, entry in part]
        random.shuffle(rows)
        written += rows
        if rows:
            append_rows(world.log(cluster), rows_table(TOPIC_LOG.types, rows))
    return written


def _ends(rows: list[dict[str, Any]], origins: frozenset[str], since_us: float = -math.inf) -> dict[LedgerId, int]:
    of = [row for row in rows if row["origin"] in origins and in_us(row["publish_time"]) >= since_us]
    return {LedgerId(row["origin"], row["ledger_id"]): row["entry_id"] for row in sorted(of, key=lambda row: row["entry_id"])}


def _lost(rule: Rule, floors: Floors | None, there: list[dict[str, Any]], here: list[dict[str, Any]]) -> list[str]:
    """What lies before the first message of each ledger that the source has behind the target's end, and that crosses; where the TTL may
    have taken it, only if the target's last one is younger."""
    ends, first = _ends(here, rule.origins), dict[LedgerId, int]()
    living = _ends(here, rule.origins, rule.expired_before_us(now_us()) or -math.inf)
    for row in sorted(there, key=lambda row: -row["entry_id"]):
        ledger, entry = LedgerId(row["origin"], row["ledger_id"]), row["entry_id"]
        routed = RoutedRow(row["origin"], row["replicate_to"], row["marker"], in_us(row["publish_time"]), row["ledger_id"], entry)
        crosses = row["marker"] is None and verdict(rule, routed, now_us()) is Verdict.REPLICATE
        if crosses and entry >= (floors or {}).get(str(ledger), 0) and entry > ends.get(ledger, -1):
            first[ledger] = entry
    due = {ledger: max(ends.get(ledger, -1) + 1, (floors or {}).get(str(ledger), 0)) for ledger in first}
    known = first.keys() if rule.message_ttl_s is None else {one for one in ends if living.get(one) == ends[one]}
    return [f"{one}:{due[one]}-{first[one] - 1}" for one in sorted(first) if first[one] > due[one] and one in known]


def _logs(world: World, rule: Rule, reads: Reads, start: Callable[[], SparkSession]) -> BothLogs:
    source, target = (
        connect_later(start, world.config.cluster(cluster), reads=reads).log(TOPIC) for cluster in (rule.source, rule.target)
    )
    return BothLogs(source, target, rule, f"{rule.source}->{rule.target}", now_us)


def _no_spark() -> SparkSession:
    raise AssertionError("Spark is asked")


def test_what_a_link_finds_is_the_same_with_and_without_spark(world: World) -> None:
    """us:1 began to come, us:2 is there and its end is gone in the source, asia:1 lost its beginning there, asia:2 is new. A row has
    no entry, as in a table that somebody copied. And all goes on behind the version at which it is looked."""
    random = Random(SEED)
    ledgers = {ledger: range(3 if ledger == ASIA_1 else 0, 12) for ledger in (US_1, ASIA_1, EU_1, US_2, ASIA_2)}
    there = _write(world, "us", random, ledgers)
    here = _write(world, "eu", random, {US_1: range(2), US_2: range(15), EU_2: range(3)})
    source = world.log("us")
    world.spark.sql(f"ALTER TABLE {source.sql} ALTER COLUMN entry_id DROP NOT NULL")
    append_frame(source, world.entries("us", 0, 1).withColumn("entry_id", F.expr("CAST(NULL AS BIGINT)")))
    version = source.latest_version()
    append_frame(source, world.entries("us", 12, 14).withColumn("ledger_id", F.expr("explode(array(1L, 2L, 3L))")).coalesce(1))
    floors: list[Floors | None] = [None, {str(ledger): random.randrange(6) for ledger in (US_1, ASIA_1, US_2, ASIA_2)}]
    lost = []
    for origins, ttl_s in [({"us"}, None), ({"us", "asia"}, None), ({"us", "asia"}, 3600)]:
        rule = Rule("us", "eu", frozenset(origins), ttl_s)
        alone, by_spark = (_logs(world, rule, *how) for how in ((Reads.LITTLE, _no_spark), (Reads.NONE, lambda: world.spark)))
        for one in floors:
            lost.append(alone.lost(version, one))
            assert lost[-1] == by_spark.lost(version, one) == _lost(rule, one, there, here)
        assert alone.gone_from_source() == by_spark.gone_from_source() == ["us:2:14-14"]
        hour_ago = from_us(now_us()) - timedelta(hours=1)
        for begin in (hour_ago, hour_ago.astimezone().replace(tzinfo=None)):  # without a zone it is this process's
            later = alone.floors(begin, version) or {}
            assert later == by_spark.floors(begin, version)
            assert set(later.values()) - {12}, "some were published since"
        begins = alone.floors("latest", version)
        assert begins == by_spark.floors("latest", version)
        assert begins == {f"{origin}:{number}": 12 for origin in origins for number in (1, 2)}
    assert {ranges.split(":")[0] for each in lost for ranges in each} == {"us", "asia"}


def test_a_file_whose_entries_the_target_has_is_not_read(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for cluster in ("us", "eu"):
        _write(world, cluster, Random(SEED), {US_1: range(10)})
    monkeypatch.setattr(native, "LITTLE_ROWS", 0)
    logs = _logs(world, Rule("us", "eu", frozenset({"us"})), Reads.LITTLE, _no_spark)
    assert logs.lost(world.log("us").latest_version(), None) == []
    assert logs.gone_from_source() == []
