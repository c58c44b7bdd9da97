"""Five faults at once in one broker: each topic has its own state, reason and verb, the others notice nothing, and all ends clean."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from geo.delta.appending import append_frame
from geo.log.topics import create_topic
from geo.names import Topic
from geo.replication.link_status import LinkStatus, link_statuses
from geo.replication.rebuild import rebuild
from geo.replication.repair import resolve_links
from geo.streams.life import State
from tests.fleet.test_broker import Running
from tests.world import World

pytestmark = pytest.mark.spark

_FULL_BYTES = 4 * 1024**2


def _topic(name: str) -> Topic:
    return Topic.parse(f"persistent://shop/web/{name}")


WELL = [_topic("clicks"), _topic("orders")]
POISONED, MADE_ANEW, FORBIDDEN, FULL, FAR = map(_topic, ("poisoned", "made-anew", "forbidden", "full", "far"))


@pytest.fixture
def world(spark: SparkSession, tmp_path: Path) -> World:
    return world_of(spark, tmp_path)


def world_of(spark: SparkSession, folder: Path) -> World:
    """Six topics of us and one of ap, all of which eu holds."""
    world = World(folder, ("ap", "eu", "us"), [("us", "eu"), ("ap", "eu")], spark=spark)
    for topic in (*WELL, POISONED, MADE_ANEW, FORBIDDEN, FULL):
        world.write("us", 0, 20, topic=topic)
    world.write("ap", 0, 20, topic=FAR)
    assert {report.state for report in world.replicate("eu")} == {State.STOPPED}
    return world


@contextmanager
def _poisoned(world: World) -> Iterator[None]:
    """The file of a commit is cut off in its middle."""
    log = Path(world.log("us", POISONED).name)
    before = set(log.rglob("*.parquet"))
    world.write("us", 20, 25, topic=POISONED)
    (file,) = {one for one in log.rglob("*.parquet") if "_delta_log" not in one.parts} - before
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    yield
    file.write_bytes(whole)


@contextmanager
def _made_anew(world: World) -> Iterator[None]:
    """Somebody dropped the table, and producers began again, with a ledger of their own."""
    shutil.rmtree(world.log("us", MADE_ANEW).name)
    create_topic(world.tables("us"), MADE_ANEW)
    rows = world.entries("us", 0, 5).selectExpr("* EXCEPT (ledger_id)", "2L AS ledger_id")
    append_frame(world.log("us", MADE_ANEW), rows)
    yield
    (back,) = rebuild(world.spark, world.config, "us", "eu", str(MADE_ANEW))
    assert back.messages == 20
    done, not_done = resolve_links(world.spark, world.config, "us", "eu", str(MADE_ANEW))
    assert ([one.topic for one in done], not_done) == ([str(MADE_ANEW)], {})


@contextmanager
def _forbidden(world: World) -> Iterator[None]:
    """A loop of links, since a user that may do everything is refused nothing: an error of the same kind."""
    log = Path(world.log("us", FORBIDDEN).name)
    world.write("us", 20, 25, topic=FORBIDDEN)
    kept = log.rename(log.with_name("kept"))
    log.symlink_to(log)
    yield
    log.unlink()
    kept.rename(log)


@contextmanager
def _full(world: World) -> Iterator[None]:
    """The log lies on a disk of its own, without room. Where none can be mounted its folder is a loop of links."""
    world.write("us", 20, 1_000, topic=FULL)
    log = Path(world.log("eu", FULL).name)
    kept, disk = log.rename(log.with_name("kept")), log.with_name("disk")
    disk.mkdir()
    mounted = os.geteuid() == 0 and not subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={_FULL_BYTES}", "none", str(disk)], capture_output=True, check=False
    ).returncode  # fmt: skip
    try:
        if mounted:
            shutil.copytree(kept, disk / "log")
            log.symlink_to(disk / "log")
            with open(disk / "filler", "wb", buffering=0) as filler, suppress(OSError):
                while filler.write(b"x" * 4096):
                    pass
        else:
            log.symlink_to(log)
        yield
    finally:
        log.unlink()
        if mounted:
            shutil.rmtree(kept)
            shutil.copytree(disk / "log", kept)
            subprocess.run(["umount", "-l", str(disk)], check=True)
        kept.rename(log)


@contextmanager
def _far(world: World) -> Iterator[None]:
    """A region that is away."""
    world.write("ap", 20, 25, topic=FAR)
    root = world.folder / "ap"
    away = root.rename(root.with_name("elsewhere"))
    yield
    away.rename(root)


FAULTS: list[Callable[[World], object]] = [_poisoned, _made_anew, _forbidden, _full, _far]


def _statuses(world: World) -> dict[Topic, LinkStatus]:
    sources = {name: world.tables(name) for name in world.config.clusters}
    return {one.topic: one for one in link_statuses(world.tables("eu"), sources, world.config, "persistent://*/*/*")}


def _lag(status: LinkStatus) -> int | None:
    """In messages."""
    return None if status.lag is None else status.lag.messages


def test_five_faults_at_once_disturb_nobody_else_and_each_ends_clean(world: World) -> None:
    with ExitStack() as healed:
        for fault in FAULTS:
            healed.enter_context(fault(world))  # type: ignore[arg-type]
        with Running(world, "eu") as running:

            def told(name: str) -> tuple[State | None, str]:
                return next(((one.state, one.reason or "") for one in reversed(running.events) if one.name == name), (None, ""))

            def of(topic: Topic) -> tuple[State | None, str]:
                return told(f"us->eu {topic}")

            running.until(lambda: all(of(topic)[0] is State.RUNNING for topic in WELL))
            running.until(lambda: all(of(topic)[0] is State.DELAYED for topic in (POISONED, FORBIDDEN, FULL)))
            running.until(lambda: of(MADE_ANEW)[0] is State.FAILED and told("ap->eu")[0] is State.DELAYED)
            for first in range(20, 70, 5):  # the others go on as ever
                for topic in WELL:
                    world.write("us", first, first + 5, topic=topic)
                running.until(lambda first=first: all(world.count("eu", topic) == first + 5 for topic in WELL))  # type: ignore[misc]
            assert "was dropped and created again" in of(MADE_ANEW)[1]
            assert f"geo reconcile --source us --target eu --topic {MADE_ANEW}" in of(MADE_ANEW)[1]
            assert of(FORBIDDEN)[1]
            assert of(POISONED)[1]
            if (Path(world.log("eu", FULL).name).parent / "disk" / "filler").exists():
                assert "No space left" in of(FULL)[1]
            assert "nothing is registered at" in told("ap->eu")[1]
            statuses = _statuses(world)
            assert [(statuses[topic].in_sync, _lag(statuses[topic])) for topic in WELL] == [(True, 0)] * len(WELL)
            assert (statuses[POISONED].state, _lag(statuses[POISONED])) == (State.DELAYED, 5)
            assert statuses[MADE_ANEW].state is State.FAILED
            assert [world.count("eu", topic) for topic in (POISONED, MADE_ANEW)] == [20, 20], (
                "nothing was skipped or brought twice"
            )
            healed.close()  # each is resolved as its reason says
            running.until(lambda: all(of(topic)[0] is State.RUNNING for topic in (POISONED, FORBIDDEN, FULL, MADE_ANEW)))
            running.until(lambda: told(f"ap->eu {FAR}")[0] is State.RUNNING)
            running.until(lambda: [world.count("eu", topic) for topic in (POISONED, FORBIDDEN, FAR, MADE_ANEW)] == [25] * 4)
            running.until(lambda: world.count("eu", FULL) == 1_000)
    world.assert_clean(*WELL, POISONED, MADE_ANEW, FORBIDDEN, FULL, FAR)
    report = world.verify_quick()
    assert report.clean, report.lines()
