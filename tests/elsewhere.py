"""Worlds that are not beside their configuration, and the tests of crash points in them. Whoever runs these says by a fixture `elsewhere`
how such a world is made in a folder of its own, and imports what it wants from here.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.test_crash_points import (
    test_a_link_that_stops_here_replicates_everything_once_after_a_restart,
    test_a_publish_that_stops_here_goes_on_where_it_was,
    test_what_landed_before_a_stop_is_told_by_its_own_commit_and_not_appended_again,
)
from tests.world import World

Elsewhere = Callable[[Path], World]

__all__ = [
    "Elsewhere",
    "linked",
    "one_world",
    "test_a_link_that_stops_here_replicates_everything_once_after_a_restart",
    "test_a_publish_that_stops_here_goes_on_where_it_was",
    "test_what_landed_before_a_stop_is_told_by_its_own_commit_and_not_appended_again",
    "world",
]


@pytest.fixture
def world(elsewhere: Elsewhere, tmp_path: Path) -> World:
    return elsewhere(tmp_path)


@pytest.fixture(scope="module")
def one_world(elsewhere: Elsewhere, tmp_path_factory: pytest.TempPathFactory) -> World:
    return elsewhere(tmp_path_factory.mktemp("one-world"))


@pytest.fixture
def linked(world: World) -> World:
    for source, target in (("us", "eu"), ("eu", "us")):
        world.write(source, 0, 20)
        world.replicate(target)
    return world
