"""Of two drivers of a cluster whose storage takes one, the later one is refused by name."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from geo.config.model import Cluster, Config
from geo.coordination import sole_driver, storage_clock
from geo.coordination.ownership import broker_runner, claim
from geo.coordination.sole_driver import Seen, be_sole_driver, others, take_all_down
from geo.delta.process import Process, this_process
from geo.errors import AlreadyOwnedError, WrongClockError
from geo.journal.cluster import ClusterTables, connect
from geo.log.housekeeping import open_for_writing
from geo.now import now_us
from tests.clock_off import clock_off

MINUTE_US = 60_000_000
ME = this_process(0)
ELSEWHERE = Process("other-host", 7, "1")
DEAD = replace(ME, pid=2**22, started="1")
HERE = replace(ME, pid=1, started="")
"""Another process of this host, which lives."""


@pytest.mark.parametrize(
    ("process", "age_us", "lives"),
    [
        (HERE, 0, True),
        (HERE, 60 * MINUTE_US, True),
        (DEAD, 0, False),
        (ELSEWHERE, 0, True),
        (ELSEWHERE, 10 * MINUTE_US, True),
        (ELSEWHERE, 10 * MINUTE_US + 1, False),
        (ELSEWHERE, -5 * MINUTE_US, True),
        (ELSEWHERE, -5 * MINUTE_US - 1, False),
    ],
)
def test_one_of_this_host_is_asked_for_another_is_believed_for_its_timeout(process: Process, age_us: int, lives: bool) -> None:
    at_us = 1_000 * MINUTE_US
    files = {
        "other-0": Seen(process, at_us - age_us, 300).encode(),
        "mine-0": Seen(ME, at_us, 300).encode(),
        "foreign": "?",
        "empty": "",
    }
    living, gone = others(files, ME, at_us)
    assert [seen.process for seen in living] == ([process] if lives else [])
    assert list(gone) == ([] if lives else ["other-0"])


@pytest.mark.spark
@pytest.mark.parametrize("off_s", [-2 * 86_400, 600])
def test_a_host_whose_clock_is_off_takes_nobody_for_gone_and_leaves_no_sign(
    tables: ClusterTables, monkeypatch: pytest.MonkeyPatch, off_s: int
) -> None:
    monkeypatch.setattr(storage_clock, "_held", {})
    monkeypatch.setattr(ClusterTables, "lock_folder", None)  # as on a store
    put_up(tables, ELSEWHERE)
    with clock_off(off_s), pytest.raises(WrongClockError, match="is not written with a clock"):
        be_sole_driver(tables)
    assert tables.files.names(folder(tables)) == ["other-0"]


@pytest.mark.spark
def test_signs_of_a_driver_have_the_storages_time(tables: ClusterTables, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage_clock, "_held", {})
    monkeypatch.setattr(ClusterTables, "lock_folder", None)
    with clock_off(-299):
        be_sole_driver(tables)
    lines = [line for name in tables.files.names(folder(tables)) for line in tables.files.lines(f"{folder(tables)}/{name}")]
    newest = max(seen.renewed_us for line in lines if (seen := Seen.decode(line)) is not None)
    assert abs(now_us() - newest) < 60_000_000
    take_all_down()


def test_a_driver_lives_by_its_newest_sign() -> None:
    at_us = 1_000 * MINUTE_US
    files = {f"other-{n}": Seen(ELSEWHERE, at_us - age * MINUTE_US, 300).encode() for n, age in enumerate((60, 1))}
    assert others(files, ME, at_us)[1] == {}


@pytest.fixture
def tables(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ClusterTables:
    """Of a cluster on a mount that hosts share, written by one driver."""
    monkeypatch.setattr("geo.journal.cluster.mount_type", lambda path: "nfs4")
    monkeypatch.setattr(sole_driver, "_signs", {})
    return connect(spark, Cluster("eu", root=str(tmp_path / "eu"), single_driver=True))


def put_up(tables: ClusterTables, process: Process) -> None:
    tables.files.replace(f"{folder(tables)}/other-0", [Seen(process, now_us(), 300).encode()])


def folder(tables: ClusterTables) -> str:
    return f"{tables.cluster.root}/driver"


@pytest.mark.spark
def test_the_first_is_the_driver_until_it_ends(tables: ClusterTables) -> None:
    be_sole_driver(tables)
    be_sole_driver(tables)
    assert len(tables.files.names(folder(tables))) == 1
    (sign,) = sole_driver._signs.values()
    sign.renew()
    sign.renew()
    assert len(tables.files.names(folder(tables))) == 2, "one stands while the other is made anew"
    take_all_down()
    assert tables.files.names(folder(tables)) == []


@pytest.mark.spark
def test_whatever_would_write_beside_another_driver_is_refused_and_leaves_no_sign(tables: ClusterTables) -> None:
    put_up(tables, ELSEWHERE)
    config = Config("geo.yaml", {"eu": tables.cluster})
    for write in (lambda: open_for_writing(tables, config), lambda: claim(tables, [[broker_runner(tables)]])):
        with pytest.raises(AlreadyOwnedError, match="is written by process 7 on other-host"):
            write()
    assert tables.files.names(folder(tables)) == ["other-0"]
    assert not (Path(str(tables.cluster.root)) / "system").exists()


@pytest.mark.spark
def test_one_that_comes_between_the_two_looks_is_seen(tables: ClusterTables, monkeypatch: pytest.MonkeyPatch) -> None:
    renew = sole_driver._Sign.renew

    def beside_another(sign: sole_driver._Sign) -> None:
        put_up(tables, ELSEWHERE)
        renew(sign)

    monkeypatch.setattr(sole_driver._Sign, "renew", beside_another)
    with pytest.raises(AlreadyOwnedError):
        be_sole_driver(tables)
    assert tables.files.names(folder(tables)) == ["other-0"]


@pytest.mark.spark
def test_a_dead_one_is_forgotten(tables: ClusterTables) -> None:
    put_up(tables, DEAD)
    be_sole_driver(tables)
    assert "other-0" not in tables.files.names(folder(tables))
    take_all_down()


@pytest.mark.spark
def test_one_that_was_replaced_while_its_sign_was_old_claims_nothing_more(tables: ClusterTables) -> None:
    be_sole_driver(tables)
    put_up(tables, ELSEWHERE)
    be_sole_driver(tables)  # its sign is fresh: whoever came since was refused, so nobody is asked for
    (sign,) = sole_driver._signs.values()
    sign._renewed_at = -math.inf
    with pytest.raises(AlreadyOwnedError):
        be_sole_driver(tables)
    take_all_down()


@pytest.mark.spark
def test_where_two_may_write_nothing_is_put_up(spark: SparkSession, tmp_path: Path) -> None:
    tables = connect(spark, Cluster("eu", root=str(tmp_path / "eu"), single_driver=True))
    be_sole_driver(tables)
    assert tables.files.names(folder(tables)) == []
