"""Columns that differ in case only, which Delta's readers refuse, come into no table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

from geo.config.model import Cluster
from geo.delta.columns import folded, twins
from geo.delta.create import make_first
from geo.delta.definition import columns_of
from geo.delta.delta_state import require_state
from geo.delta.disk_store import on_disk
from geo.delta.metadata import commit_columns
from geo.errors import SchemaError, UsageError
from geo.journal.cluster import without_spark
from geo.log.admission import check_columns, new_topic_columns, own_columns
from geo.log.topics import create_topic, grow
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
    ("given", "there", "said"),
    [
        (["Key"], [], ["'Key' is 'key'"]),
        (["Origin"], [], ["'Origin' is 'origin'"]),
        (["id", "ID"], [], ["'ID' is 'id'"]),
        (["ID"], ["id"], ["'ID' is 'id'"]),
        (["id", "Payload"], ["id"], ["'Payload' is 'payload'"]),
    ],
)
def test_what_a_producer_hands_in_is_refused(given: Sequence[str], there: Sequence[str], said: Sequence[str]) -> None:
    columns = StructType(_columns(*given))
    own = _columns(*there) + [one for one in new_topic_columns(columns, ()) if one.name not in there]
    with pytest.raises(UsageError) as error:
        check_columns(columns, StructType(columns_of(TOPIC_LOG) + own), (), TOPIC)
    assert [one in str(error.value) for one in said] == [True]
    assert str(error.value).count("\n- ") == len(said)


def test_what_goes_together_is_taken() -> None:
    columns = StructType([StructField("key", StringType()), *_columns("id", "ids")])
    check_columns(columns, StructType(columns_of(TOPIC_LOG) + new_topic_columns(columns, ())), (), TOPIC)


@pytest.mark.parametrize("ddl", ["id INT, ID INT", "Key INT"])
def test_so_are_columns_from_sql(ddl: str) -> None:
    with pytest.raises(UsageError):
        own_columns(ddl, lambda: None)


@pytest.mark.parametrize("names", [("id", "ID"), ("Origin",)])
def test_a_topic_is_neither_registered_nor_made_with_them(names: tuple[str, ...], tmp_path: Path) -> None:
    tables = without_spark(Cluster("eu", root=str(tmp_path)))
    with pytest.raises(UsageError, match="one name each to Delta"):
        create_topic(tables, TOPIC, _columns(*names))
    assert not tables.journal(TOPICS).table.exists()
    assert not tables.log(TOPIC).exists()


def test_no_table_is_made_with_them_nor_gets_them(tmp_path: Path) -> None:
    folder = on_disk(tmp_path) / "_delta_log"
    with pytest.raises(UsageError, match="'id' and 'ID'"):
        make_first(folder, TOPIC_LOG, _columns("id", "ID"), {})
    assert make_first(folder, TOPIC_LOG, _columns("id"), {}), "nothing was there"
    for names in ("ID", "KEY"):
        with pytest.raises(UsageError, match="one name each to Delta"):
            commit_columns(folder, require_state(folder), _columns(names))
    assert require_state(folder).version == 0


def test_a_link_s_log_does_not_grow_by_them(tmp_path: Path) -> None:
    log = without_spark(Cluster("eu", root=str(tmp_path))).log(TOPIC)
    with pytest.raises(SchemaError, match="column ID of the source is id in another case"):
        grow(log, StructType(_columns("id")), _columns("ID"), "link")
    with pytest.raises(SchemaError, match="column ID of the source is id in another case"):
        grow(log, StructType(_columns("n")), _columns("id", "ID"), "link")
