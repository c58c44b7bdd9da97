"""What the doctor says of storages, locks and the session; the rest of it is in tests/cli/test_cli.py."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from geo.config.cluster import Cluster
from geo.config.model import Config
from geo.coordination.claiming import claim
from geo.coordination.ownership import release
from geo.coordination.runners import broker_runner, producer_runner, version_sync_runner
from geo.delta.appending import append_frame
from geo.delta.local_state import own_state, why_left_to_spark
from geo.delta.process import this_process
from geo.journal.cluster import connect, connect_later
from geo.names import Topic
from geo.ops.doctor import examine
from geo.ops.regions import Regions
from geo.ops.symptom import Symptom
from geo.reasons import Reason
from geo.schemas import OWNERS
from tests.rows import owner
from tests.world import TOPIC, World


def _examined(spark: SparkSession, config: Config) -> list[Symptom]:
    return examine(spark, config, Regions({n: connect_later(lambda: spark, c) for n, c in config.clusters.items()}))


def _of(findings: list[Symptom], where: str) -> list[tuple[str, str]]:
    return [(finding.level, finding.what) for finding in findings if finding.where == where]


@pytest.mark.spark
def test_a_storage_that_may_not_be_written_is_told_also_where_it_cannot_be_read(spark: SparkSession, tmp_path: Path) -> None:
    clusters = {
        "us": Cluster("us", root="oss://bucket/us"),
        "eu": Cluster("eu", root=str(tmp_path / "eu")),
    }
    findings = _examined(spark, Config("geo.yaml", clusters))
    us, eu = (_of(findings, f"cluster {name}") for name in clusters)
    assert us[0][0] == "warn"
    assert us[0][1].startswith("oss://bucket/us: whether commits to oss: are put-if-absent is not known")
    assert us[1][0] == "error", "there is no client of it here"
    assert eu[0] == (
        "ok",
        (
            f"{tmp_path / 'eu'} is a local disk: commits of all processes of this host are serialised by file locks; a user's own OPTIMIZE, "
            "UPDATE, DELETE or VACUUM takes none and may lose commits: use `geo maintain` and `geo erase`"
        ),
    )
    assert [what for level, what in eu if level != "ok"] == [f"nothing was ever published or replicated at {tmp_path / 'eu'}"]


@pytest.mark.spark
def test_a_commit_that_stands_still_is_told_with_how_to_go_on(spark: SparkSession, tmp_path: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    started = Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()[19]
    locks = tmp_path / "eu" / "locks" / "system"
    locks.mkdir(parents=True)
    me = this_process(0)
    holder = replace(me, pid=child.pid, started=started)
    (locks / "owners.lock").write_text(holder.encode())
    config = Config("geo.yaml", {"eu": Cluster("eu", root=str(tmp_path / "eu"))})

    def told() -> list[Symptom]:
        return [finding for finding in _examined(spark, config) if "owners.lock" in finding.what]

    try:
        assert told() == []
        child.send_signal(signal.SIGSTOP)
        while not holder.stopped:
            time.sleep(0.002)
        (found,) = told()
        assert "is stopped in the middle of a commit" in found.what
        assert found.fix == f"kill -CONT {child.pid}, or kill -KILL {child.pid}"
    finally:
        child.kill()
        child.wait()
    (found,) = told()
    assert f"process {child.pid} on {me.host} died while it committed" in found.what


@pytest.mark.spark
def test_a_session_in_which_a_commit_can_land_twice_is_told(spark: SparkSession) -> None:
    key = "spark.databricks.delta.commit.idempotencyCheck.enabled"

    def told() -> list[str]:
        return [
            finding.what
            for finding in _examined(spark, Config("geo.yaml", {"x": Cluster("x", root="/nowhere/x")}))
            if key in finding.what
        ]

    before = spark.conf.get(key)
    spark.conf.set(key, "false")
    try:
        assert told() == [f"{key} is not set: a commit whose answer is lost on the way lands twice"]
        connect(spark, Cluster("x", root="/nowhere/x"))
        assert told() == [], "what writes sets it, where the session takes it"
    finally:
        spark.conf.set(key, str(before))


@pytest.mark.spark
def test_who_owns_something_and_is_dead_is_told_and_what_a_cluster_needs_is_an_error(spark: SparkSession, tmp_path: Path) -> None:
    config = Config("geo.yaml", {"eu": Cluster("eu", root=str(tmp_path / "eu"))})
    tables = connect(spark, config.cluster("eu"))
    topic = Topic.parse("persistent://a/b/c")
    silent, other = replace(tables.me, host="elsewhere"), replace(tables.me, host="vm9")
    producer, broker = producer_runner(tables, topic, "p"), broker_runner(tables)
    (living,) = claim(tables, [[producer_runner(tables, topic, "lives")]])
    owned = ((producer, other), (broker, silent), (version_sync_runner(tables), silent))
    tables.journal(OWNERS).append([owner(runner.name, 9, holder=who, age=timedelta(hours=1)) for runner, who in owned])
    found = _examined(spark, config)
    release([living])
    assert [one.level for one in found if one.where == "producer lives of persistent://a/b/c in eu"] == ["ok"]
    told, warned = [one for one in found if one.code is Reason.OWNER_SILENT]
    assert (told.level, told.where, told.fix) == ("error", "cluster eu", "geo broker --cluster eu"), "once, whatever it owned"
    assert "on elsewhere gave no sign of life for 3,6" in told.what
    assert (warned.level, warned.where) == ("warn", producer.name)
    assert warned.fix.startswith("start it again")


@pytest.mark.spark
def test_a_log_that_is_left_to_spark_is_told_and_one_whose_properties_delta_rs_set_is_not(world: World) -> None:
    world.write("us", 0, 5)
    DeltaTable(world.log("us").name).alter.set_table_properties({"delta.logRetentionDuration": "interval 31 days"})
    assert why_left_to_spark(world.log("us")) is not None, "the newest commit has no checksum beside it"
    append_frame(world.log("us"), world.entries("us", 5, 6))  # by Spark, which writes it
    assert own_state(world.log("us")) is not None
    told = "Spark reads and writes this log"
    assert not any(told in one.what for one in _examined(world.spark, world.config))
    world.leave_to_spark("us")
    (one,) = [one for one in _examined(world.spark, world.config) if told in one.what]
    assert (one.level, one.where) == ("ok", f"cluster us, {TOPIC}")
    assert "entries" in one.what
