"""When failed works are tried again."""

from __future__ import annotations

import time
from collections.abc import Hashable, Mapping

import pytest

from geo.streams.again import FailedAgain
from geo.streams.life import State

Known = Mapping[Hashable, tuple[object, State]]


def test_a_failed_work_is_due_once_its_time_has_passed_and_then_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    works = FailedAgain(10.0)
    failed: Known = {"a": (None, State.FAILED)}
    fine: Known = {"a": (None, State.RUNNING)}
    assert works.due(failed) == []
    now = 109.0
    assert works.due(failed) == []
    now = 110.0
    assert works.due(failed) == ["a"]
    assert works.due(failed) == [], "it is told once"
    now = 119.0
    assert works.due(fine) == []
    now = 121.0
    assert works.due(failed) == [], "it failed anew just now"
