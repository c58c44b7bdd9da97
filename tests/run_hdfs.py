"""`./run hdfs`: what a crash, a halt and two writers are to a log on HDFS, where no lock keeps processes apart: the tests of crash points
and of stopped processes, in worlds on a real HDFS. A command of its own: it takes some ten minutes.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tests.elsewhere import *  # noqa: F403
from tests.elsewhere import Elsewhere
from tests.hdfs import Hdfs
from tests.kafka_broker import free_ports
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


@pytest.fixture(scope="session")
def elsewhere(spark: SparkSession, hdfs: Hdfs) -> Elsewhere:
    return lambda folder: World(folder, place=hdfs.below(f"worlds/{next(_number)}"), spark=spark)
