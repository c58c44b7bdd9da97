"""`./run hdfs`: what a crash, a halt and two writers are to a log on HDFS, where no lock keeps processes apart: the tests of crash points
and of stopped processes, in worlds on a real HDFS. A command of its own: it takes some ten minutes.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.hdfs import Hdfs
from tests.kafka_broker import free_ports
from tests.test_crash_points import (  # noqa: F401
    test_a_link_that_stops_here_replicates_everything_once_after_a_restart,
    test_a_publish_that_stops_here_goes_on_where_it_was,
    test_what_landed_before_a_stop_is_told_by_its_own_commit_and_not_appended_again,
)
from tests.test_processes import (  # noqa: F401
    test_a_link_killed_behind_a_step_of_its_comparison_replicates_everything_once_after_a_restart,
    test_a_publish_killed_between_commit_and_checkpoint_goes_on_where_it_was,
    test_a_stopped_runner_that_was_taken_over_adds_nothing_when_it_goes_on,
)
from tests.world import World

pytestmark = pytest.mark.spark

_number = itertools.count()


@pytest.fixture(scope="session")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hdfs]:
    one = Hdfs(tmp_path_factory.mktemp("hdfs") / "hdfs", free_ports(1)[0])
    yield one
    one.close()


def _world(spark: SparkSession, folder: Path, hdfs: Hdfs) -> World:
    return World(spark, folder, place=hdfs.below(f"worlds/{next(_number)}"))


@pytest.fixture
def world(spark: SparkSession, tmp_path: Path, hdfs: Hdfs) -> World:
    return _world(spark, tmp_path, hdfs)


@pytest.fixture(scope="module")
def one_world(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, hdfs: Hdfs) -> World:
    return _world(spark, tmp_path_factory.mktemp("one-world"), hdfs)


@pytest.fixture
def linked(world: World) -> World:
    for source, target in (("us", "eu"), ("eu", "us")):
        world.write(source, 0, 20)
        world.replicate(target)
    return world
