"""Columns that differ in case only, which Delta's readers refuse, come into no table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from pyspark.sql.types import DecimalType, IntegerType, LongType, NullType, StringType, StructField, StructType

from geo.config.cluster import Cluster
from geo.crash import CrashPoint, watched
from geo.delta.columns import folded, twins
from geo.delta.create import make_first
from geo.delta.ddl import add_columns, find_columns
from geo.delta.definition import columns_of
from geo.delta.disk_store import on_disk
from geo.errors import SchemaError, UsageError
from geo.journal.cluster import without_spark
from geo.log.admission import as_named, growth_of, new_topic_columns, own_columns
from geo.log.partitioned import create_partitions, grow_topic
from geo.log.topics import create_topic
from geo.names import Topic
from geo.schemas import TOPIC_LOG, TOPICS

TOPIC = Topic.parse("persistent://shop/web/orders")


def _columns(*names: str) -> list[StructField]:
    return [StructField(name, LongType()) for name in names]


def test_names_are_one_if_they_differ_in_case_only() -> None:
    assert twins(["id", "key", "ID", "Key", "ids", "iD"]) == [None, None, "id", "key", None, "id"]
    assert len({*map(folded, ("É", "é"))}) == 1
    assert folded("ß") != folded("SS")


@pytest.mark.parametrize(
    ("given", "there", "why"),
    [
        (["Key"], ["id"], "column 'key' is bigint, the envelope's is string"),
        (["Origin"], ["id"], "column 'origin' is filled by delta-geo"),
        (["id", "ID"], [], "column 'ID' and 'id' are one name to Delta"),
        (["id", "ID"], ["id"], "column 'id' is given twice"),
        (["n", "N"], ["id"], "column 'N' is given twice"),
        (["id", "Payload"], ["id"], "column 'payload' is bigint"),
    ],
)
@pytest.mark.parametrize("grow", [False, True])
def test_what_a_producer_hands_in_is_refused(given: Sequence[str], there: Sequence[str], why: str, *, grow: bool) -> None:
    with pytest.raises(UsageError) as error:
        _taken(StructType(_columns(*given)), there, grow=grow)
    assert why in str(error.value)


def test_only_who_brings_a_wider_type_is_told_that_the_topic_can_grow() -> None:
    for kind, grows in ((DecimalType(5, 0), False), (StringType(), False), (LongType(), True)):
        columns = StructType([*columns_of(TOPIC_LOG), StructField("n", IntegerType())])
        with pytest.raises(UsageError, match=r"column 'n' is .*, the topic's is int; cast it") as error:
            growth_of(StructType([StructField("n", kind)]), columns, (), TOPIC, grow=False)
        assert ("--add-columns" in str(error.value)) is grows


def test_what_goes_together_is_taken_by_the_names_of_the_log() -> None:
    columns = StructType([StructField("KEY", StringType()), *_columns("ID", "ids")])
    assert _taken(columns, []) == ["ID", "ids"]
    assert _taken(columns, ["id", "Ids"]) == ["id", "Ids"]


def _taken(given: StructType, there: Sequence[str], *, grow: bool = False) -> list[str]:
    """The columns of a topic, which has those that are `there` or is to be made, once these are published to it."""
    named = as_named(given, [*TOPIC_LOG.types, *there])
    own = _columns(*there) if there else new_topic_columns(named, (), TOPIC)
    needed = growth_of(named, StructType(columns_of(TOPIC_LOG) + own), (), TOPIC, grow=grow)
    return [one.name for one in (*own, *needed.added)]


@pytest.mark.parametrize("ddl", ["id INT, ID INT", "Key INT"])
def test_so_are_columns_from_sql(ddl: str) -> None:
    with pytest.raises(UsageError):
        own_columns(ddl, lambda: None)


@pytest.mark.parametrize("names", [("id", "ID"), ("Origin",)])
def test_a_topic_is_neither_registered_nor_made_with_them(names: tuple[str, ...], tmp_path: Path) -> None:
    tables = without_spark(Cluster("eu", root=str(tmp_path)))
    with pytest.raises(UsageError, match="are one name to Delta"):
        create_topic(tables, TOPIC, _columns(*names))
    assert not tables.journal(TOPICS).table.exists()
    assert not tables.log(TOPIC).exists()


def test_nor_does_one_that_is_there_get_them_or_another_type_than_somebody_gave_it(tmp_path: Path) -> None:
    tables = without_spark(Cluster("eu", root=str(tmp_path)))
    log = tables.log(TOPIC)
    assert make_first(on_disk(tmp_path) / "topics/shop/web/orders/_delta_log", TOPIC_LOG, _columns("id"), {})
    for given, told in (
        (_columns("ID"), "the columns 'ID' as asked for and 'id' there"),
        (_columns("n", "N"), "the columns 'N' as asked for and 'n' there"),
        ([StructField("id", StringType())], "column 'id' is string as asked for and bigint there"),
        (_columns("a b"), "column 'a b' has a space in its name"),
        (_columns("_change_type"), "column '_change_type' has a name of Delta's change feed"),
        ([StructField("void", NullType())], "column 'void' has no type"),
    ):
        with pytest.raises(SchemaError, match=told):
            add_columns(log, given)
        with pytest.raises(UsageError, match=told.replace("there", "in orders")) as error:
            grow_topic(tables, TOPIC, given)
        assert "Nothing was changed" in str(error.value)
    assert log.latest_version() == 0
    add_columns(log, _columns("id", "n"))
    assert log.latest_version() == 1


def test_who_lost_against_somebody_who_gave_other_columns_at_the_same_time_is_told_which_topic(tmp_path: Path) -> None:
    tables = without_spark(Cluster("eu", root=str(tmp_path)))
    first, second = create_partitions(tables, TOPIC, 2, _columns("id"))

    def others(point: CrashPoint) -> None:
        if point is CrashPoint.COLUMNS_ADDED:
            add_columns(tables.log(second), [StructField("n", StringType())])

    with watched(others), pytest.raises(UsageError, match="orders: somebody gave orders-partition-1 other columns") as error:
        grow_topic(tables, TOPIC, _columns("n"))
    assert "column 'n' is bigint as asked for and string there" in str(error.value)
    seen = [find_columns(tables.log(one), TOPIC_LOG) for one in (first, second)]
    assert [one and one["n"].dataType for one in seen] == [LongType(), StringType()]
