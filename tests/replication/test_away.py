"""Three regions, one of them away, in each of the ways in which regions are: the others notice nothing, and it comes back by itself."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from geo.replication.link_topics import LinkReport
from geo.streams.life import State
from tests.running import Running, running
from tests.world import TOPIC, World

pytestmark = pytest.mark.spark

CLUSTERS = ("ap", "eu", "us")


@pytest.fixture(scope="module")
def mesh(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> World:
    """A full mesh in which each region holds what the others wrote."""
    world = World(tmp_path_factory.mktemp("mesh"), CLUSTERS, spark=spark)
    for cluster in CLUSTERS:
        world.write(cluster, 0, 10)
    for cluster in CLUSTERS:
        assert {report.state for report in world.replicate(cluster)} == {State.STOPPED}
    return world


def _instead(put: Callable[[Path], object], root: Path) -> Callable[[], None]:
    """The region is elsewhere, and this in its place."""
    away = root.rename(root.with_name("elsewhere"))
    put(root)

    def heal() -> None:
        root.unlink(missing_ok=True)
        away.rename(root)

    return heal


def _newest_commit_of_the_registry(root: Path) -> Path:
    return max((root / "system" / "topics" / "_delta_log").glob("*.json"))


def _torn(path: Path) -> Callable[[], None]:
    text = path.read_bytes()
    path.write_bytes(text[: len(text) // 2])
    checksum = path.with_name(f".{path.name}.crc")
    crc = checksum.read_bytes() if checksum.exists() else None
    checksum.unlink(missing_ok=True)

    def heal() -> None:
        path.write_bytes(text)
        if crc is not None:
            checksum.write_bytes(crc)

    return heal


WAYS: dict[str, Callable[[Path], Callable[[], None]]] = {
    "no route": partial(_instead, lambda root: None),
    # A loop of links, since a user that may do everything is refused nothing: an error of the same kind.
    "no permission": partial(_instead, lambda root: root.symlink_to(root)),
    "a broken file": lambda root: _torn(_newest_commit_of_the_registry(root)),
    "no folder": partial(_instead, lambda root: root.write_text("not a folder")),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_region_that_is_away_delays_its_own_link(mesh: World, way: str) -> None:
    heal = WAYS[way](Path(str(mesh.config.cluster("ap").root)))
    try:
        ended = {report.link: report for report in mesh.replicate("eu")}
    finally:
        heal()
    assert ended["us->eu"].state is State.STOPPED
    assert ended["ap->eu"].state is State.DELAYED
    assert ended["ap->eu"].reason


@pytest.mark.parametrize("way", ["no route", "a broken file"])
def test_a_region_that_is_away_holds_up_nobody_else_and_comes_back(mesh: World, way: str) -> None:
    before = _next(mesh, "us")
    heal = WAYS[way](Path(str(mesh.config.cluster("ap").root)))
    try:
        with running(mesh, "eu") as links:
            mesh.write("us", before, before + 5)
            mesh.publish("eu", before, producer=way.replace(" ", "-"))  # a producer starts and publishes, too
            links.until(lambda: _counts_of(mesh, "us") == before + 5)
            links.until(lambda: _state_of_link(links, "ap->eu") is State.DELAYED)
            heal()
            heal = _nothing
            mesh.write("ap", _next(mesh, "ap"), _next(mesh, "ap") + 3)
            links.until(lambda: _state_of_link(links, "ap->eu") is not State.DELAYED)
            links.until(lambda: _counts_of(mesh, "ap") == _next(mesh, "ap"))
    finally:
        heal()
    assert not any(report.state is State.DELAYED for report in links.reports if report.link == "us->eu")


def test_a_topic_whose_newest_commit_is_torn_waits_and_holds_up_nobody_else(mesh: World) -> None:
    root, before = Path(str(mesh.config.cluster("ap").root)), _next(mesh, "us")
    mesh.write("ap", _next(mesh, "ap"), _next(mesh, "ap") + 3)
    heal = _torn(max((root / "topics" / TOPIC.path / "_delta_log").glob("*.json")))
    with running(mesh, "eu") as links:
        links.until(lambda: (State.DELAYED, "ap->eu") in {(r.state, r.link) for r in links.reports})
        mesh.write("us", before, before + 5)
        links.until(lambda: _counts_of(mesh, "us") == before + 5)
        heal()
        links.until(lambda: _counts_of(mesh, "ap") == _next(mesh, "ap"))


def test_a_region_that_hangs_holds_up_nobody_else(mesh: World) -> None:
    root = Path(str(mesh.config.cluster("ap").root))
    newest = _newest_commit_of_the_registry(root)
    fifo = newest.with_name(f"{int(newest.stem) + 1:020}.json")
    entries = _next(mesh, "us")
    with running(mesh, "eu") as links:
        links.until(lambda: {"ap->eu", "us->eu"} <= {r.link for r in links.reports if r.state is State.RUNNING})
        os.mkfifo(fifo)
        hold = _reader_of(fifo)
        lags = []
        for number in range(3):
            mesh.write("us", entries + number, entries + number + 1)
            began = time.monotonic()
            links.until(lambda number=number: _counts_of(mesh, "us") == entries + number + 1)  # type: ignore[misc]
            lags.append(time.monotonic() - began)
        fifo.unlink()
        os.close(hold)
        mesh.write("ap", _next(mesh, "ap"), _next(mesh, "ap") + 3)
        links.until(lambda: _counts_of(mesh, "ap") == _next(mesh, "ap"))
    assert max(lags) < 30, "a hang is a minute and more"


def _reader_of(fifo: Path) -> int:
    """Wait until somebody opens the pipe to read. It is kept waiting until what this returns is closed."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            return os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)
        except OSError:
            time.sleep(0.02)
    raise AssertionError("nobody reads the registry")


def _nothing() -> None:
    pass


def _counts_of(world: World, origin: str) -> int:
    """Messages of an origin in eu."""
    table = DeltaTable(world.log("eu").name).to_pyarrow_table(columns=["origin"], filters=[("origin", "=", origin)])
    return int(table.num_rows)


def _next(world: World, cluster: str) -> int:
    """The entry after the last one of a cluster's own ledger 1."""
    table = DeltaTable(world.log(cluster).name).to_pyarrow_table(columns=["origin", "ledger_id"])
    return sum(1 for row in table.to_pylist() if row["origin"] == cluster and row["ledger_id"] == 1)


def _state_of_link(links: Running, link: str) -> State | None:
    """The last state that was reported of a link as a whole."""
    whole: list[LinkReport] = [report for report in links.reports if report.link == link and report.topic != str(TOPIC)]
    return whole[-1].state if whole else None
