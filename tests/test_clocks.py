"""Whole processes on hosts whose clocks are off. `./run clocks` has all of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from geo.coordination.owners import owners_of
from geo.coordination.runners import origin_runners
from tests.clock_actor import end, run, start
from tests.clock_world import clock_world, ready

pytestmark = [pytest.mark.spark, pytest.mark.crash]


def test_a_link_leaves_nothing_out_and_nobody_who_lives_is_replaced_by_a_clock_that_is_off(
    spark: SparkSession, tmp_path: Path
) -> None:
    world = clock_world(spark, tmp_path)
    topic = ready(world, "late")
    told = run(-2 * 86_400, "a", world.path, "link", str(topic))
    assert (told["error"], "behind the storage's" in told["text"]) == ("WrongClockError", True)
    assert world.count("eu", topic) == 0
    assert run(299, "a", world.path, "link", str(topic)) == {"replicated": 10, "expired": 0, "impossible": 0}
    owner = start(-299, "a", world.path, "own", str(topic))
    try:
        told = run(299, "b", world.path, "take", str(topic))
        assert (told["error"], "gave a sign of life lately" in told["text"]) == ("AlreadyOwnedError", True)
        before = owners_of(world.tables("eu"), origin_runners({"us"}, topic, "eu")[0].name)
        assert run(600, "b", world.path, "take", str(topic))["error"] == "WrongClockError"
        assert owners_of(world.tables("eu"), origin_runners({"us"}, topic, "eu")[0].name) == before
    finally:
        end(owner)
