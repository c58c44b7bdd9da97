"""Which columns a table can have, and what it needs for others. Those with Spark hold the answers against Delta's own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql.types import (
    ArrayType,
    ByteType,
    DataType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimeType,
)

from geo.delta.columns import NO_NAME, OF_FEED, folded, growth, sql_type, why_not
from geo.faults import SPARK_ERRORS
from geo.schemas import TOPIC_LOG
from geo.sql_text import identifier
from tests.examples import examples

_NAMES = st.text("aAkK.`'\"\\%/*[]-_ıİſé\u212a$#:1 ,;{}()\n\t=", max_size=5) | st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=8
)


def _columns(names: Sequence[str], kind: DataType | None = None) -> list[StructField]:
    return [StructField(name, IntegerType() if kind is None else kind) for name in names]


@given(st.lists(_NAMES, max_size=6))
def test_a_name_is_refused_if_and_only_if_it_is_empty_has_such_a_character_is_the_feeds_or_there_already(
    names: list[str],
) -> None:
    bad = [
        at
        for at, name in enumerate(names)
        if not name or set(name) & set(NO_NAME) or folded(name) in OF_FEED or folded(name) in map(folded, names[:at])
    ]
    assert len(why_not(_columns(names))) == len(bad)
    inside = why_not([StructField("s", ArrayType(StructType(_columns(names))))])
    assert len(inside) == bool(not names or [at for at in bad if folded(names[at]) not in OF_FEED])


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        (NullType(), "has no type"),
        (ArrayType(NullType()), "has no type"),
        (DayTimeIntervalType(), "is interval day to second"),
        (MapType(StringType(), TimeType()), "is time"),
        (StringType("UTF8_LCASE"), "is string collate UTF8_LCASE"),
        (StructType(), "a struct without fields"),
        (
            StructType([StructField("a", StructType(_columns(["x y"])))]),
            "has a field 'a', which has a field 'x y', which has a space",
        ),
        (StructType(_columns(["a", "A"])), "fields 'a' and 'A', one name"),
    ],
)
def test_a_type_that_delta_does_not_have_is_refused_by_name(kind: DataType, why: str) -> None:
    (told,) = why_not(_columns(["of"], kind))
    assert told.startswith("column 'of' ")
    assert why in told


_A, _B = StructField("a", IntegerType()), StructField("b", StringType())


def test_columns_are_added_and_made_wider_and_narrower_ones_go_with_what_is_there() -> None:
    given = [
        StructField("a", LongType()),
        StructField("n", TimestampNTZType()),
        StructField("d", TimestampNTZType()),
        StructField("l", ByteType()),
        StructField("m", DecimalType(12, 4)),
    ]
    there = StructType(
        [_A, _B, StructField("d", DateType()), StructField("l", DoubleType()), StructField("m", DecimalType(10, 2))]
    )
    needed = growth(there, given)
    assert ([one.name for one in needed.added], [one.name for one in needed.widened], needed.clashes) == (
        ["n"],
        ["a", "d", "m"],
        (),
    )
    assert needed.told == "`n` timestamp_ntz, `a` bigint, `d` timestamp_ntz, `m` decimal(12,4)", "it can be typed"
    assert growth(there, _columns(["gate`no", "a\x1b"])).told == "`gate``no` int, 'a\\x1b' int", (
        "a terminal takes it for no order"
    )
    assert not growth(there, [_B])


def test_another_type_and_another_case_clash_and_both_columns_are_named() -> None:
    clashes = growth(StructType([_A, _B]), [StructField("A", IntegerType()), StructField("b", IntegerType())]).clashes
    assert [one.told("in us", "in eu") for one in clashes] == [
        "the columns 'A' in us and 'a' in eu differ in case only, and to Delta are one",
        "column 'b' is int in us and string in eu",
    ]
    inside = [StructType([StructField("x", kind)]) for kind in (IntegerType(), LongType())]
    assert growth(StructType([StructField("s", inside[0])]), [StructField("s", inside[1])]).clashes, "only a whole column widens"


def test_what_a_type_says_of_values_that_are_required_makes_no_other_type() -> None:
    required = StructType([StructField("x", IntegerType(), nullable=False)])
    assert not growth(StructType([StructField("s", StructType(_columns(["x"])))]), [StructField("s", required)])


# -- what Delta says -----------------------------------------------------------------------------------------------------


def _made(spark: SparkSession, place: Path, columns: Sequence[StructField]) -> None:
    listed = ", ".join(f"{identifier(one.name)} {sql_type(one.dataType)}" for one in columns)
    feed = f"TBLPROPERTIES ('delta.enableChangeDataFeed' = '{TOPIC_LOG.properties['delta.enableChangeDataFeed']}')"
    spark.sql(f"CREATE TABLE delta.`{place}` (origin INT, {listed}) USING delta {feed}")


@pytest.mark.spark
@settings(max_examples=examples(0.1))
@given(names=st.lists(_NAMES, min_size=20, max_size=40))
def test_delta_takes_the_names_that_pass_and_a_row_of_them_comes_back(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, names: list[str]
) -> None:
    place = tmp_path_factory.mktemp("names") / "table"
    fine: list[StructField] = []
    for name in names:
        if folded(name) != "origin" and not why_not([*fine, *_columns([name])]):
            fine += _columns([name])
    inner = (
        StructField("inner_", StructType([*fine, StructField("_change_type", StringType())]))
        if fine
        else StructField("x", StringType())
    )
    _made(spark, place, [*fine, inner])
    values = ", ".join(map(str, range(len(fine))))
    fields = ", ".join(f"{at} AS {identifier(one.name)}" for at, one in enumerate(fine))
    if not fine:
        return
    spark.sql(f"INSERT INTO delta.`{place}` SELECT 0, {values}, struct({fields}, 'c')")
    (row,) = spark.read.format("delta").load(str(place)).collect()
    assert list(row)[1:-1] == list(range(len(fine))) == list(row["inner_"])[:-1]


@pytest.mark.spark
@pytest.mark.parametrize(
    "column",
    [
        *_columns(["a b", "a=b", "s(", "_change_type", "_commit_version"]),
        StructField("s", StructType(_columns(["a,b"]))),
        StructField("i", DayTimeIntervalType()),
        StructField("c", StringType("UTF8_LCASE")),
        StructField("t", TimeType()),
        StructField("s", StructType(_columns(["a", "A"]))),
        StructField("Origin", IntegerType()),
    ],
    ids=lambda one: one.name,
)
def test_delta_refuses_what_is_refused(spark: SparkSession, tmp_path: Path, column: StructField) -> None:
    assert why_not([StructField("origin", IntegerType()), column])
    with pytest.raises(SPARK_ERRORS):
        _made(spark, tmp_path / "table", [column])
