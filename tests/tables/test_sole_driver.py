"""Of two drivers of a cluster whose storage takes one, the later one is refused by name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from geo.config.model import Cluster
from geo.errors import AlreadyOwnedError
from geo.tables import sole_driver
from geo.tables.cluster import ClusterTables, connect
from geo.tables.process import Process, this_process
from geo.tables.sole_driver import Seen, be_sole_driver, others

MINUTE_US = 60_000_000
ME = this_process(0)
ELSEWHERE = Process("other-host", 7, "1")
DEAD = replace(ME, pid=2**22, started="1")


@pytest.mark.parametrize(
    ("process", "age_us", "lives"),
    [
        (ME, 0, True),
        (ME, 60 * MINUTE_US, True),
        (DEAD, 0, False),
        (ELSEWHERE, 0, True),
        (ELSEWHERE, 5 * MINUTE_US, True),
        (ELSEWHERE, 5 * MINUTE_US + 1, False),
        (ELSEWHERE, -MINUTE_US, True),
    ],
)
def test_one_of_this_host_is_asked_for_another_is_believed_for_the_timeout(process: Process, age_us: int, lives: bool) -> None:
    now_us = 1_000 * MINUTE_US
    files = {"other": Seen(process, now_us - age_us).encode(), "mine": Seen(ME, now_us).encode(), "foreign": "?", "empty": ""}
    assert [seen.process for seen in others(files, "mine", now_us, 300.0)] == ([process] if lives else [])


@pytest.fixture
def tables(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ClusterTables:
    """Of a cluster on a mount that hosts share, written by one driver."""
    monkeypatch.setattr("geo.tables.cluster.mount_type", lambda path: "nfs4")
    monkeypatch.setattr(sole_driver, "_held", {})
    return connect(spark, Cluster("eu", root=str(tmp_path / "eu"), single_driver=True))


@pytest.mark.spark
def test_the_first_is_the_driver_until_it_ends(tables: ClusterTables) -> None:
    folder = tables.checkpoint("driver")
    be_sole_driver(tables)
    be_sole_driver(tables)
    (mine,) = tables.files.names(folder)
    (sign,) = sole_driver._held.values()
    sign.take_down()
    assert tables.files.names(folder) == []
    assert "other" not in mine


@pytest.mark.spark
def test_a_second_one_is_refused_and_leaves_nothing_and_a_dead_one_is_forgotten(tables: ClusterTables) -> None:
    folder = tables.checkpoint("driver")
    now_us = Seen(ME, 0).renewed_us + 4_000_000_000_000_000
    tables.files.replace(f"{folder}/other", [Seen(ELSEWHERE, now_us).encode()])
    with pytest.raises(AlreadyOwnedError, match="is written by process 7 on other-host"):
        be_sole_driver(tables)
    assert tables.files.names(folder) == ["other"]
    tables.files.replace(f"{folder}/other", [Seen(DEAD, now_us).encode()])
    be_sole_driver(tables)
    assert len(tables.files.names(folder)) == 1
    assert tables.files.names(folder) != ["other"]
    (sign,) = sole_driver._held.values()
    sign.take_down()


@pytest.mark.spark
def test_where_two_may_write_nothing_is_put_up(spark: SparkSession, tmp_path: Path) -> None:
    tables = connect(spark, Cluster("eu", root=str(tmp_path / "eu"), single_driver=True))
    be_sole_driver(tables)
    assert tables.files.names(tables.checkpoint("driver")) == []
