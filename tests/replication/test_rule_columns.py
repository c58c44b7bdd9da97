"""The routing rule has two forms, a function and a Spark column: they say the same of every row. So do what is made of each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from geo.ids import LEDGER_ID_LIMIT
from geo.replication.rule import AHEAD_US, CROSSING_MARKERS, MICROSECONDS, LeftOut, RoutedRow, Rule, Verdict, verdict

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
ENTRIES = st.sampled_from([0, 1, 9, 2**63 - 1] * 4 + [-1, None])
ROWS = st.builds(RoutedRow, CLUSTERS, st.none() | st.lists(CLUSTERS, max_size=3), st.none() | MARKERS, TIMES, LEDGERS, ENTRIES)


def _rows() -> list[RoutedRow]:
    """Rows of hypothesis, for one DataFrame: a Spark job for each row would take an hour."""
    rows = []

    @settings(max_examples=1500, phases=[Phase.generate], derandomize=True, database=None)
    @given(ROWS)
    def collect(row: RoutedRow) -> None:
        rows.append(row)

    collect()
    return rows


@pytest.mark.spark
def test_the_column_and_the_function_agree_on_every_row(spark: SparkSession) -> None:
    from pyspark.sql import functions as F

    from geo.replication.rule_columns import impossible_column, routing_column, verdict_column

    rows = _rows()
    schema = "n INT, origin STRING, replicate_to ARRAY<STRING>, marker STRING, publish_time_us BIGINT, ledger_id BIGINT, entry_id BIGINT"
    log = spark.createDataFrame(
        [
            (n, row.origin, row.replicate_to, row.marker, row.publish_time_us, row.ledger_id, row.entry_id)
            for n, row in enumerate(rows)
        ],
        schema,
    ).withColumn("publish_time", F.timestamp_micros("publish_time_us"))
    columns = [
        column
        for n, rule in enumerate(RULES)
        for column in (
            routing_column(rule, NOW_US).alias(f"crosses_{n}"),
            verdict_column(rule, NOW_US).alias(f"verdict_{n}"),
            impossible_column(rule, NOW_US).alias(f"impossible_{n}"),
        )
    ]
    found = {row["n"]: row for row in log.select("n", *columns).collect()}

    for n, rule in enumerate(RULES):
        expected = [verdict(rule, row, NOW_US) for row in rows]
        assert set(Verdict) - set(expected) <= {Verdict.EXPIRED}, "rows too alike to show a difference"
        assert (Verdict.EXPIRED in expected) == (rule.message_ttl_s is not None)
        for at, (row, one) in enumerate(zip(rows, expected, strict=True)):
            assert found[at][f"verdict_{n}"] == one.value, (rule, row)
            assert found[at][f"crosses_{n}"] is (one is Verdict.REPLICATE), (rule, row)
            assert found[at][f"impossible_{n}"] is (one is Verdict.IMPOSSIBLE), (rule, row)


@pytest.mark.spark
@pytest.mark.parametrize("floors", [None, {}, {"us:1": 500, "us:2": 0, "eu:3": 10_000}])
def test_the_same_rows_cross_whoever_reads_them(spark: SparkSession, floors: dict[str, int] | None) -> None:
    from geo.delta.arrow_rows import rows_table
    from geo.replication.missing_rows import wanted
    from geo.replication.rule_columns import verdict_column
    from geo.replication.rule_rows import crossing
    from geo.times import from_us

    types = {
        "origin": "STRING", "ledger_id": "BIGINT", "entry_id": "BIGINT", "replicate_to": "ARRAY<STRING>", "marker": "STRING",
        "publish_time": "TIMESTAMP",
    }  # fmt: skip
    rows = rows_table(
        types,
        (
            {
                "origin": row.origin,
                "ledger_id": row.ledger_id if number % 7 == 0 else number % 4,
                "entry_id": number,
                "replicate_to": row.replicate_to,
                "marker": row.marker,
                "publish_time": None if row.publish_time_us is None else from_us(row.publish_time_us),
            }
            for number, row in enumerate(_rows())
        ),
    )
    log = spark.createDataFrame(rows).cache()
    for rule in RULES:
        cross, left_out = crossing(rule, floors, rows, NOW_US)
        expected = log.where(wanted(rule, floors, NOW_US)).select("entry_id").toArrow()["entry_id"].to_pylist()
        assert cross["entry_id"].to_pylist() == sorted(expected)
        verdicts = log.groupBy(verdict_column(rule, NOW_US).alias("verdict")).count().collect()
        assert left_out == LeftOut.of({Verdict(row["verdict"]): row["count"] for row in verdicts})
        assert left_out.impossible
    log.unpersist()
