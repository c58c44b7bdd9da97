"""`./run storages points`: the crash points of publishing, linking, claims and compaction in worlds on an S3 API, with Spark. Those that need no
Spark are in the suite (`test_crash_points_on_s3.py`)."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import SparkSession

from geo.crash import CrashPoint
from geo.journal import upkeep
from geo.journal.journal import Journal
from geo.now import utc_now
from geo.ops.date_files import compact_date
from geo.schemas import OWNERS
from geo.session import session
from geo.testing import dies_at
from tests.elsewhere import *  # noqa: F403
from tests.elsewhere import Elsewhere
from tests.object_store import KEY, SECRET
from tests.object_store import ObjectStore as S3
from tests.processes import LEAST
from tests.world import World

pytestmark = pytest.mark.spark

_POINTS = pytest.mark.parametrize("point", [CrashPoint.CHANGE_MADE, CrashPoint.APPEND_COMMITTED], ids=lambda point: point.value)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    started = session("delta-geo tests on S3", master="local[2]", conf=LEAST, schemes=["s3a"])
    yield started
    started.stop()


@pytest.fixture(scope="session")
def elsewhere(spark: SparkSession, s3: S3) -> Elsewhere:
    os.environ.update(GEO_TEST_KEY=KEY, GEO_TEST_SECRET=SECRET)
    reached = json.dumps(s3.storage())

    def place(name: str) -> str:
        s3.make_bucket(bucket := f"{name}-{uuid.uuid4()}")
        return f"root: 's3a://{bucket}/t', storage: {reached}"

    return lambda folder: World(folder, place=place, spark=spark)


@_POINTS
def test_a_compaction_that_stops_here_is_done_once(world: World, point: CrashPoint) -> None:
    for entry in range(5):
        world.write("us", entry, entry + 1)
    log, today = world.log("us"), utc_now().date()
    with dies_at(point):
        compact_date(log, today)
    assert world.arrived("us") == list(range(5))
    compact_date(log, today)
    assert (world.arrived("us"), log.count_files()) == (list(range(5)), 1)
    world.settle("eu", "us")


@_POINTS
def test_a_system_table_whose_compaction_stops_here_loses_nothing(world: World, point: CrashPoint) -> None:
    world.write("us", 0, 5)
    world.settle("eu")
    owners = world.tables("eu").journal(OWNERS)
    before = _newest(owners)
    with dies_at(point):
        upkeep.clean(owners)
    assert _newest(world.tables("eu").journal(OWNERS)) == before
    upkeep.clean(owners)
    assert (_newest(world.tables("eu").journal(OWNERS)), upkeep.count_files(owners)) == (before, 1)


def _newest(journal: Journal) -> dict[str, dict[str, Any]]:
    return {row["runner"]: row for row in journal.newest()}
