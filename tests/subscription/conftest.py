"""A world in which a subscription has been consumed, made once for all tests of this folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.subscription.consuming import consume
from tests.world import World


@pytest.fixture(scope="session")
def _consumed_once(_linked_once: World, tmp_path_factory: pytest.TempPathFactory) -> World:
    world = _linked_once.copy(tmp_path_factory.mktemp("consumed"))
    consume(world, "eu", "NOT (origin = 'eu' AND entry_id = 5)")
    return world


@pytest.fixture
def consumed(_consumed_once: World, tmp_path: Path) -> World:
    """As `linked`; in eu all but one message, eu:1:5, was acknowledged. A copy for this test alone."""
    return _consumed_once.copy(tmp_path)
