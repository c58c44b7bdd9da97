"""Real processes, really killed or stopped: what an injected stop in one process cannot show."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from pyspark.sql import functions as F

from geo.crash import CrashPoint
from geo.delta.appending import append_frame
from geo.delta.committing import alone
from geo.delta.engines.native.rows import MOST_ROWS
from geo.log.publish import PublishOptions, publish_json_lines
from geo.names import Topic
from geo.replication.link_topics import LinkReport
from geo.replication.repair import reconcile_links
from geo.streams.life import State
from tests.processes import GeoProcess, environment, geo
from tests.world import TOPIC, World

pytestmark = [pytest.mark.spark, pytest.mark.crash]


def _replicate(world: World, target: str) -> list[str]:
    return ["replicate", "--config", str(world.path), "--cluster", target]


def test_a_link_killed_behind_a_step_of_its_comparison_replicates_everything_once_after_a_restart(world: World) -> None:
    world.write("us", 20, 40)
    with geo(world.folder, *_replicate(world, "eu"), crash=(CrashPoint.LINK_AFTER_RECONCILE_APPEND, "kill")) as process:
        assert process.wait() == -signal.SIGKILL
    world.write("us", 40, 60)
    world.replicate("eu")
    world.replicate("us")
    world.assert_clean()


def test_a_publish_killed_between_commit_and_checkpoint_goes_on_where_it_was(world: World) -> None:
    path = world.folder / "in.jsonl"
    lines = [json.dumps({"key": f"k{i}", "payload": f"p{i}", "replicate_to": ["us"] if i % 3 == 0 else None}) for i in range(300)]
    path.write_text("\n".join([*lines[:100], "{broken", *lines[100:]]) + "\n")
    args = ["publish", "--config", str(world.path), "--cluster", "eu", "--topic", str(TOPIC), "--jsonl", str(path)]
    with geo(world.folder, *args, crash=(CrashPoint.PUBLISH_AFTER_APPEND, "kill")) as process:
        assert process.wait() == -signal.SIGKILL
    assert world.count("eu") == 300, "the commit landed, the checkpoint does not know"
    path.write_text(path.read_text() + json.dumps({"key": "k300", "payload": "p300"}) + "\n")
    for added in (1, 0):
        assert world.publish_lines("eu", path).published.rows == added
    rows = world.log("eu").read()
    assert rows.count() == 301
    assert rows.select("key").distinct().count() == 301
    ledgers = {tuple(r["replicate_to"] or ()): (r["ledgers"], r["end"]) for r in rows.groupBy("replicate_to").agg(
        F.countDistinct("ledger_id").alias("ledgers"), F.max("entry_id").alias("end")).collect()}  # fmt: skip
    assert ledgers == {(): (1, 200), ("us",): (1, 99)}, "the same two ledgers go on, without holes"
    ordered = rows.where("replicate_to IS NULL").orderBy("entry_id").collect()
    assert [r["key"] for r in ordered] == [f"k{i}" for i in range(301) if i % 3 or i == 300], "in line order"


def test_a_stopped_runner_that_was_taken_over_adds_nothing_when_it_goes_on(linked: World) -> None:
    """SIGSTOP between planning the append of a turn and starting it; takeover; SIGCONT. (Of a comparison: replication/test_stale.py.)"""
    world = linked
    world.write("us", 20, 40)
    with geo(world.folder, *_replicate(world, "eu"), crash=(CrashPoint.LINK_BEFORE_APPEND, "stop")) as stale:
        stale.until(lambda: stale.is_stopped)
        (report,) = world.replicate("eu", take_over=True)
        assert (report.state, report.replicated) == (State.STOPPED, 20)
        before = world.log("eu").latest_version()
        stale.signal(signal.SIGCONT)
        assert stale.wait() == 1, stale.log.read_text()
        assert "another runner took over" in stale.log.read_text()
        assert world.log("eu").latest_version() == before
    world.write("us", 40, 60)
    world.replicate("eu")
    world.assert_clean()


def test_a_runner_stopped_between_its_files_and_its_commit_adds_each_message_once_or_none(linked: World) -> None:
    """SIGSTOP once Spark's files are beside the table, whose lock somebody holds, so that their commit has to wait."""
    world, end = linked, MOST_ROWS + 2_000  # more than are written without Spark
    append_frame(world.log("us"), world.entries("us", 20, end))
    log = Path(world.log("eu").name)
    before = world.log("eu").latest_version()
    files = set(log.glob("publish_date=*/*.parquet"))
    with geo(world.folder, *_replicate(world, "eu")) as stale:
        stale.until(lambda: bool(list(log.glob("_geo-written-*"))))
        with alone(world.log("eu")):
            stale.until(lambda: bool(set(log.glob("publish_date=*/*.parquet")) - files))
            stale.signal(signal.SIGSTOP)
        assert world.log("eu").latest_version() == before, "stopped before its commit"
        taken: list[LinkReport] = []
        taker = threading.Thread(target=lambda: taken.extend(world.replicate("eu", take_over=True)))
        taker.start()
        stale_generation = world.link_state("eu", "us").generation
        _until_owned_by_another(stale, world, stale_generation)
        stale.signal(signal.SIGCONT)
        taker.join()
        stale.wait()
    assert [report.state for report in taken] == [State.STOPPED]
    assert len(world.arrived("eu")) == end
    world.write("us", end, end + 10)
    world.replicate("eu")
    world.assert_clean()


def test_a_backfill_that_was_stopped_with_its_files_copied_and_taken_over_adds_none_of_them(linked: World) -> None:
    """SIGSTOP, a comparison takes over and brings the same messages, SIGCONT. (Whoever is stopped between its check and its commit holds
    the table's lock, for which a taker waits.)"""
    world = linked
    world.rewrite(("eu", "us"), [{"source": "us", "target": "eu", "start": "latest"}, ("eu", "us")])
    topic = Topic.parse("persistent://shop/web/orders")
    world.write("us", 0, 20, topic=topic)
    world.replicate("eu")
    args = ["backfill", "--config", str(world.path), "--source", "us", "--target", "eu", "--topic", str(topic), "--mode", "files"]
    with geo(world.folder, *args, crash=(CrashPoint.BACKFILL_COPIED, "stop")) as stale:
        stale.until(lambda: stale.is_stopped)
        before = world.log("eu", topic).latest_version()
        (done,) = reconcile_links(world.spark, world.config, "us", "eu", topics=str(topic), start="earliest", take_over=True)
        assert done.appended == 20
        stale.signal(signal.SIGCONT)
        assert stale.wait() == 1, stale.log.read_text()
        assert "another runner took over" in stale.log.read_text()
        assert world.log("eu", topic).latest_version() == before + 1
    assert world.count("eu", topic) == 20
    world.assert_clean(TOPIC, topic)


def _until_owned_by_another(stale: GeoProcess, world: World, generation: int) -> None:
    """The taker has raised the generation: from here it needs the table's lock, which the stopped runner holds."""
    from geo.coordination.owners import owned_now

    stale.until(lambda: any(one.generation > generation for one in owned_now(world.tables("eu"))))


_OUTLIVES = """
import os, signal, sys
from geo.session import session
def to_all(number):
    for process in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.getsid(int(process)) == os.getsid(0):
                os.kill(int(process), signal.SIGTERM)
        except ProcessLookupError:
            pass
    return number
signal.signal(signal.SIGTERM, lambda *_: None)
spark = session("outlives", master="local[1]", conf={"spark.driver.memory": "512m"})
print(spark.sparkContext.parallelize(range(3), 1).map(to_all).count(), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_jvm_and_its_workers_outlive_a_sigterm_to_all_processes_and_not_their_python() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _OUTLIVES],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        # The pipe is the JVM's too: what is read ends when both have ended.
        assert process.stdout.read() == "3\n"
        assert process.wait() == -signal.SIGKILL


def test_two_processes_that_write_one_table_lose_no_commit(world: World) -> None:
    """Publishers in a process of their own and in this one, one topic, many commits each: on a local disk Delta alone loses some."""
    for name in ("a", "b"):
        (world.folder / name).mkdir()
        for number in range(16):
            (world.folder / name / f"{number:02d}.jsonl").write_text(f'{{"key": "{name}{number}"}}\n')
    args = ["publish", "--config", str(world.path), "--cluster", "eu", "--topic", str(TOPIC), "--producer", "a"]
    with geo(world.folder, *args, "--jsonl", str(world.folder / "a"), "--batch-bytes", "1") as process:
        process.until(lambda: world.count("eu") > 0)
        here = publish_json_lines(
            world.spark,
            str(world.folder / "b"),
            TOPIC,
            world.config,
            "eu",
            producer="b",
            options=PublishOptions(batch_bytes=1),
        )
        assert process.poll() is None, "both are at it"
        here.await_termination()
        assert process.wait() == 0, process.log.read_text()
    assert world.count("eu") == 32
    assert world.log("eu").latest_version() == 32, "one commit per file and the table's creation"
