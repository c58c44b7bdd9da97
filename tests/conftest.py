"""Fixtures shared by all tests: one Spark session for those that need one, and worlds on temporary folders."""

from __future__ import annotations

import gc
import os
import re
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from geo.disk import SETTING
from tests.kafka_broker import Broker, free_ports
from tests.object_store import ObjectStore
from tests.processes import JAVA_OF_TESTS, LEAST
from tests.shared_classes import java_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.world import World

# Whoever makes many objects that stay, as a parser does, waits for garbage to be looked for less often.
gc.set_threshold(100_000)

os.environ["TZ"] = "UTC"
time.tzset()

# Of all JVMs that start from here: this process's own, and those of the processes that tests start.
os.environ.setdefault("SPARK_SUBMIT_OPTS", f"{JAVA_OF_TESTS} {java_options()}")

# Writing out each commit makes the suite a sixth slower; what it is for is shown with it on (tests/delta/test_power_cut.py).
os.environ.setdefault(SETTING, "off")

# A commit more in each region that a test makes would make the suite longer; tests that are about events have them on.
os.environ.setdefault("GEO_EVENTS", "off")

# The first example pays for imports and warm-up; a machine that is busy with Spark is no fault of the property.
settings.register_profile("new-examples", deadline=None, max_examples=500, derandomize=False)
# The same examples each time, so that a change is judged by what it changes: to hunt for others is the other profile's work.
settings.register_profile("delta-geo", settings.get_profile("new-examples"), max_examples=60, derandomize=True)
# Of them the first ones, for `./run test-fast`.
settings.register_profile("fast", settings.get_profile("delta-geo"), max_examples=10)
settings.load_profile("delta-geo")


_LONG = ("test_version_sync.py", "test_scenarios.py", "test_consumer.py", "test_kinds.py", "test_verify.py", "test_looking.py")
"""Files of tests with the session that all share which take longest, half a minute to three: a process that begins one of them as
the last one is waited for."""


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """A file whose tests all have a mark that is left out is not read."""
    asked = config.option.markexpr.split(" and ")
    marks = [one.removeprefix("not ") for one in asked if one.startswith("not ")]
    if not marks or " or " in config.option.markexpr or not collection_path.name.startswith("test_"):
        return None
    all_have = re.search(r"^pytestmark = (.*)$", collection_path.read_text(), re.MULTILINE)
    return True if all_have is not None and any(f"pytest.mark.{mark}" in all_have[1] for mark in marks) else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes longest comes first, so that of several processes none waits long for the last one: tests with processes of their
    own, then those with the session that all share, of which some files first, then all others."""

    def rank(item: pytest.Item) -> int:
        if item.get_closest_marker("spark") is None:
            return 3
        shares = "spark" in getattr(item, "fixturenames", ())
        if not shares or item.get_closest_marker("crash") is not None:
            return 0
        return 1 if item.path.name in _LONG else 2

    items.sort(key=rank)


def pytest_collection_finish() -> None:
    """What is loaded by now stays: whoever looks for garbage need not go through it again and again."""
    gc.freeze()


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    """An S3 API, without buckets; of those who share it each makes its own. Who begins to write there tries fewer names than else."""
    from geo.delta import probe

    probe.ROUNDS = 3
    store = ObjectStore(free_ports(1)[0], tmp_path_factory.mktemp("s3") / "log", os.environ.get("GEO_TEST_S3", ""))
    yield store
    store.close()


@pytest.fixture
def bucket(s3: ObjectStore) -> Iterator[str]:
    """A bucket of the S3 API, which makes no faults any more afterwards."""
    name = f"b{uuid.uuid4()}"
    s3.make_bucket(name)
    yield name
    s3.refuse()
    s3.forget_faults()


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The session that all Spark tests share: what `geo` itself starts, on two cores, with the least of everything."""
    from geo.session import session

    started = session("delta-geo tests", master="local[2]", conf=LEAST)
    yield started
    started.stop()


@pytest.fixture
def world(spark: SparkSession, tmp_path: Path) -> World:
    """Two clusters, eu and us, linked both ways, empty."""
    from tests.world import World

    return World(tmp_path, spark=spark)


@pytest.fixture(scope="session")
def _linked_once(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> World:
    from tests.world import World

    world = World(tmp_path_factory.mktemp("linked"), spark=spark)
    for source, target in (("us", "eu"), ("eu", "us")):
        world.write(source, 0, 20)
        world.replicate(target)
    return world


@pytest.fixture
def linked(_linked_once: World, tmp_path: Path) -> World:
    """Two clusters, eu and us, linked both ways; each wrote 20 messages, and both hold all 40. A copy for this test alone."""
    return _linked_once.copy(tmp_path)


@pytest.fixture(autouse=True)
def _disarmed() -> Iterator[None]:
    """No crash point stays armed from one test to the next."""
    yield
    from geo import crash

    crash.arm(None)


@pytest.fixture(autouse=True)
def _tries_soon(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """What failed is tried again within half a second where tables are real: a pass ends only after three tries."""
    if request.node.get_closest_marker("spark") is not None:
        from geo.streams import timetable

        monkeypatch.setattr(timetable, "MOST_BACKOFF_S", 0.5)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A Kafka broker of one module's own, from its first use on."""
    started = Broker(tmp_path_factory.mktemp("kafka"))
    yield started
    started.close()
