"""Rows of a source as a target has them, of rows at hand. No Spark; that of DataFrames is in log/test_columns_that_grow.py."""

from __future__ import annotations

from datetime import date, datetime

import pyarrow as pa
import pytest
from pyspark.sql.types import DoubleType, LongType, StringType, StructField, StructType, TimestampNTZType, VariantType

from geo.delta.driver import Driver
from geo.delta.table import Table
from geo.errors import NoSparkError, RetryableError
from geo.replication.shape import Shape


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
        ("more", pa.int32(), "'more' int"),
        ("n", pa.decimal128(30, 0), "'n' decimal(30,0)"),
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
