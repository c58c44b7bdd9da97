"""Rows of a source as a target has them, of rows at hand, and what is exact of them. That of DataFrames is in log/test_columns_that_grow.py."""

from __future__ import annotations

from datetime import date, datetime

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    DoubleType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    VariantType,
)

from geo.delta.columns import Clash, sql_type
from geo.delta.ddl import create_table
from geo.delta.driver import Driver
from geo.delta.table import Table
from geo.errors import NoSparkError, RetryableError, SchemaError
from geo.ops.verify.columns import _digest, differing
from geo.reasons import Reason
from geo.replication.shape import ACCEPTED_PROPERTY, Shape, inexact, shape_for
from geo.schemas import TOPIC_LOG
from tests.delta.on_s3 import opened_on
from tests.object_store import ObjectStore as S3


def _no_spark() -> None:
    raise NoSparkError("rows at hand need none")


_TARGET = Table(Driver(_no_spark, lambda: "me"), "nowhere", by_path=True, lock=None)  # type: ignore[arg-type, return-value]
_COLUMNS = StructType(
    [
        StructField("key", StringType()),
        StructField("n", LongType()),
        StructField("d", DoubleType()),
        StructField("at", TimestampNTZType()),
    ]
)
_SHAPE = Shape(_TARGET, _COLUMNS, "us->eu")


def test_values_of_narrower_types_are_those_of_the_targets_and_no_column_has_to_be_there() -> None:
    rows = pa.table({"n": pa.array([7, None], pa.int16()), "at": [date(2026, 1, 2), None], "d": pa.array([1, 2], pa.int32())})
    found = _SHAPE.of(rows)
    assert isinstance(found, pa.Table)
    assert found.schema.types == [pa.int64(), pa.timestamp("us"), pa.float64()]
    assert found.to_pylist()[0] == {"n": 7, "at": datetime(2026, 1, 2), "d": 1.0}
    as_there = pa.table({"key": ["k"], "n": pa.array([1], pa.int64())})
    assert _SHAPE.of(as_there) is as_there


@pytest.mark.parametrize(
    ("name", "kind", "told"),
    [
        ("more", pa.int32(), "`more` int"),
        ("n", pa.decimal128(30, 0), "`n` decimal(30,0)"),
        ("n", pa.string(), "column 'n' is string in the source and bigint in the target"),
        ("N", pa.int64(), "the columns 'N' in the source and 'n' in the target differ in case only"),
    ],
)
def test_what_the_source_got_meanwhile_is_left_to_the_next_start(name: str, kind: pa.DataType, told: str) -> None:
    with pytest.raises(RetryableError) as refused:
        _SHAPE.of(pa.table({name: pa.nulls(1, kind)}))
    assert told in str(refused.value)


def test_a_target_with_a_column_that_arrow_does_not_have_takes_rows_at_hand() -> None:
    shape = Shape(_TARGET, StructType([*_COLUMNS, StructField("v", VariantType())]), "us->eu")
    rows = pa.table({"key": ["k"], "n": pa.array([1], pa.int16())})
    found = shape.of(rows)
    assert isinstance(found, pa.Table)
    assert found.schema.types == [pa.string(), pa.int64()]


def _place(*names: str) -> StructField:
    return StructField("p", StructType([StructField(name, DoubleType()) for name in names]))


def test_each_sources_types_are_accepted_for_themselves_and_none_that_spark_casts_by_place_or_without_a_text(s3: S3) -> None:
    target = opened_on(s3)
    there = StructType([StructField("n", LongType()), _place("lon", "lat"), StructField("b", StringType())])
    create_table(target, TOPIC_LOG, there)
    for kind, source in ((StringType(), "us"), (DoubleType(), "asia")):
        shape_for(target, there, [StructField("n", kind)], "a link", source, accept=True)
    kept = {name: text for name, text in target.properties().items() if name.startswith(ACCEPTED_PROPERTY)}
    assert kept == {"geo.types.accepted.us": '{"n": "string"}', "geo.types.accepted.asia": '{"n": "double"}'}
    for column in (_place("lat", "lon"), StructField("b", BinaryType()), StructField("n", BooleanType())):
        with pytest.raises(SchemaError, match=f"not the types of '{column.name}'. publish under another name") as refused:
            shape_for(target, there, [column], "a link", "us", accept=True)
        assert refused.value.code is Reason.COLUMNS_APART


_EXACT = [
    ("'12'", "STRING", "INT", True),
    ("'012'", "STRING", "INT", False),
    ("9007199254740992", "BIGINT", "DOUBLE", True),
    ("9007199254740993", "BIGINT", "DOUBLE", False),
    ("9223372036854775807", "BIGINT", "DOUBLE", False),
    ("9223372036854775807", "BIGINT", "FLOAT", False),
    ("-9223372036854775808", "BIGINT", "DOUBLE", True),
    ("9223372036854775808", "DOUBLE", "BIGINT", False),
    ("9223372036854775808", "FLOAT", "BIGINT", False),
    ("2147483647", "INT", "FLOAT", False),
    ("2147483648", "FLOAT", "INT", False),
    ("16777216", "INT", "FLOAT", True),
    ("'NaN'", "DOUBLE", "FLOAT", True),
    ("'NaN'", "DOUBLE", "INT", False),
    ("'-0.0'", "DOUBLE", "INT", False),
    ("'-0.0'", "DOUBLE", "STRING", True),
    ("0.1", "DOUBLE", "FLOAT", False),
    ("'true'", "STRING", "BOOLEAN", True),
    ("'yes'", "STRING", "BOOLEAN", False),
    ("'2026-01-02'", "TIMESTAMP", "DATE", True),
    ("'2026-01-02 03:04:05'", "TIMESTAMP", "DATE", False),
    ("0.1", "FLOAT", "DECIMAL(10,2)", True),
    ("0.10", "DECIMAL(10,2)", "DOUBLE", True),
    ("0.1", "FLOAT", "STRING", True),
    ("'2026-01-02 03:04:05'", "TIMESTAMP_NTZ", "TIMESTAMP", True),
    ("NULL", "STRING", "INT", True),
]


@pytest.mark.spark
def test_a_value_is_exact_only_if_it_is_one_of_the_other_type_and_none_ends_the_query(spark: SparkSession) -> None:
    made = ", ".join(f"CAST({value} AS {kind}) AS c{at}" for at, (value, kind, _, _) in enumerate(_EXACT))
    asked = [
        Clash(*(StructField(f"c{at}", DataType.fromDDL(one)) for one in (kind, other)))
        for at, (_, kind, other, _) in enumerate(_EXACT)
    ]
    assert all(clash.may_be_accepted for clash in asked)
    rows = spark.sql(f"SELECT {made}")
    (row,) = rows.selectExpr(*(f"NOT ({inexact(clash)})" for clash in asked)).collect()
    assert [(*given[:3], is_exact) for given, is_exact in zip(_EXACT, row, strict=True)] == _EXACT
    exact = [clash for clash, is_exact in zip(asked, row, strict=True) if is_exact]
    there = rows.selectExpr(*(f"CAST({one.given.name} AS {sql_type(one.there.dataType)}) AS {one.there.name}" for one in exact))
    here = rows.select(*there.columns)
    kinds = differing((here.schema, there.schema))
    assert here.select(_digest(here.schema, kinds)).collect() == there.select(_digest(there.schema, kinds)).collect(), (
        "so does verify"
    )
