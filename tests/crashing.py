"""A death of this process's work at a named crash point, for tests that go on after it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from geo.crash import CrashPoint, InjectedCrash, arm


@contextmanager
def dies_at(point: CrashPoint, nth: int = 1) -> Iterator[None]:
    """What is done inside ends at the point, when it is there for the nth time."""
    arm(f"{point.value}:raise:{nth}")
    try:
        with pytest.raises(InjectedCrash, match=point.value):
            yield
    finally:
        arm(None)


def points(*begins: str) -> list[CrashPoint]:
    """Those whose names begin with one of these."""
    return [point for point in CrashPoint if point.value.startswith(begins)]
