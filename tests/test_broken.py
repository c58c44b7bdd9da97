"""Set-ups that are broken in one way: what is told of them, and that what is told ends it. Those that take a moment, on a local disk; all of them,
on S3 too: `./run broken`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from geo.journal.events import SETTING, flush_all
from tests.broken.check import EVENT, check
from tests.broken.place import Place, without_spark
from tests.broken.set_ups import SET_UPS, SetUp

pytestmark = pytest.mark.slow

QUICK = ("folder gone", "failed", "rows left out", "paused and forgotten")


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv(SETTING, raising=False)
    with without_spark():
        yield
        flush_all()


@pytest.mark.parametrize("set_up", [one for one in SET_UPS if one.name in QUICK], ids=lambda one: one.name)
def test_what_is_broken_is_told_by_its_cause_and_what_is_told_ends_it(set_up: SetUp, tmp_path: Path) -> None:
    shown = check(set_up, Place(tmp_path, None))
    assert shown.lacks == []
    assert shown.told == dict.fromkeys((*set_up.tells, EVENT), True)


def test_all_seventeen_are_there() -> None:
    assert len({one.name for one in SET_UPS}) == 17
    assert {one.name for one in SET_UPS} >= set(QUICK)
