"""What the routing rule makes of many rows, at hand and by Spark, is what it says of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import functions as F

from geo.delta.predicate import to_sql
from geo.delta.scan import keep_where
from geo.ids import LEDGER_ID_LIMIT
from geo.replication.routing import crossing, verdict_column
from geo.replication.rule import AHEAD_US, CROSSING_MARKERS, MICROSECONDS, LeftOut, Rule, Verdict, crosses, impossible
from tests.routed import RoutedRow, verdict

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOW_US = 1_700_000_000 * MICROSECONDS + 123_457  # a fraction no rounding to milliseconds would keep
TTL_S = 3600
RULES = [
    Rule("us", "eu", frozenset({"us"})),
    Rule("us", "eu", frozenset({"us", "asia"}), TTL_S),
    Rule("eu", "us", frozenset({"eu"}), 53 * 365 * 86_400),  # almost since 1970, before which no message can be
]
# Twice what passes a filter, so that enough rows come to the filters behind it.
CLUSTERS = st.sampled_from(["eu", "us", "eu", "us", "asia", "EU", "us ", "", None])
MARKERS = st.sampled_from([None, *sorted(CROSSING_MARKERS), "SNAPSHOT", "TXN_COMMIT", "", "snapshot_request"])
HORIZONS = [NOW_US, *(NOW_US - rule.message_ttl_s * MICROSECONDS for rule in RULES if rule.message_ttl_s)]
AGES = st.sampled_from([-1_000, -1, 0, 1, 999])
TIMES = st.none() | st.builds(int.__add__, st.sampled_from([*HORIZONS, *HORIZONS, 0, NOW_US + AHEAD_US]), AGES)
# Mostly ids that a message can have.
LEDGERS = st.sampled_from([1, 2, 7, LEDGER_ID_LIMIT - 1] * 4 + [0, -1, LEDGER_ID_LIMIT, None])
FLOORS: list[dict[str, int] | None] = [None, {}, {"us:1": 5, "us:2": 0, "eu:7": 2}]
ENTRIES = st.sampled_from([0, 1, 9, 2**63 - 1] * 4 + [-1, None])
ROWS = st.builds(RoutedRow, CLUSTERS, st.none() | st.lists(CLUSTERS, max_size=3), st.none() | MARKERS, TIMES, LEDGERS, ENTRIES)


def _table(rows: Sequence[RoutedRow]) -> pa.Table:
    """As a topic log has them; the row's place among them as `at`."""
    columns = {
        "at": pa.array(range(len(rows)), pa.int64()),
        "origin": pa.array([row.origin for row in rows], pa.string()),
        "ledger_id": pa.array([row.ledger_id for row in rows], pa.int64()),
        "entry_id": pa.array([row.entry_id for row in rows], pa.int64()),
        "replicate_to": pa.array([row.replicate_to for row in rows], pa.list_(pa.string())),
        "marker": pa.array([row.marker for row in rows], pa.string()),
        "publish_time": pa.array([row.publish_time_us for row in rows], pa.int64()).cast(pa.timestamp("us", "UTC")),
    }
    return pa.table(columns)


def _expected(rule: Rule, floors: Mapping[str, int] | None, rows: Sequence[RoutedRow]) -> tuple[list[int], LeftOut]:
    verdicts = [verdict(rule, row, NOW_US) for row in rows]
    crossing = [at for at, (row, one) in enumerate(zip(rows, verdicts, strict=True)) if one is Verdict.REPLICATE]
    above = [
        at for at in crossing if (rows[at].entry_id or 0) >= (floors or {}).get(f"{rows[at].origin}:{rows[at].ledger_id}", 0)
    ]
    return above, LeftOut.of(Counter(verdicts))


@given(st.lists(ROWS, max_size=12), st.sampled_from(RULES), st.sampled_from(FLOORS))
def test_the_rows_at_hand_that_cross_are_those_that_the_rule_says(
    rows: list[RoutedRow], rule: Rule, floors: dict[str, int] | None
) -> None:
    crossed, left_out = crossing(rule, floors, _table(rows), NOW_US)
    assert (crossed["at"].to_pylist(), left_out) == _expected(rule, floors, rows)


@pytest.mark.spark
def test_spark_finds_the_same(spark: SparkSession) -> None:
    rows: list[RoutedRow] = []

    @settings(max_examples=1500, phases=[Phase.generate], derandomize=True, database=None)
    @given(ROWS)
    def collect(row: RoutedRow) -> None:
        rows.append(row)

    collect()
    log = spark.createDataFrame(_table(rows)).cache()
    for rule in RULES:
        for floors in FLOORS:
            crossed, left_out = _expected(rule, floors, rows)
            assert sorted(row["at"] for row in keep_where(log, crosses(rule, floors, NOW_US)).collect()) == crossed
        is_impossible = F.expr(f"coalesce({to_sql(impossible(rule, NOW_US))}, false)").alias("impossible")
        found = log.select("at", verdict_column(rule, NOW_US).alias("verdict"), is_impossible).orderBy("at").collect()
        expected = [verdict(rule, row, NOW_US) for row in rows]
        assert [row["verdict"] for row in found] == [one.value for one in expected]
        assert [row["impossible"] for row in found] == [one is Verdict.IMPOSSIBLE for one in expected]
        assert set(Verdict) - set(expected) <= {Verdict.EXPIRED}, "rows too alike to show a difference"
        assert (left_out.expired > 0) == (rule.message_ttl_s is not None)
    log.unpersist()
