"""Waiting for what somebody else does, on the same cores."""

from __future__ import annotations

import time
from collections.abc import Callable

LEAST_S, MOST_S = 0.05, 0.5
"""Between two looks."""


def holds(condition: Callable[[], bool], every_s: float | None = None) -> bool:
    """Whether it holds by now; if not, after a pause: `every_s`, else twice as long as the look took, so that who looks leaves most of a
    core to what is waited for."""
    began = time.monotonic()
    if condition():
        return True
    time.sleep(min(max(LEAST_S, 2 * (time.monotonic() - began)), MOST_S) if every_s is None else every_s)
    return False


def until(
    condition: Callable[[], bool],
    told: Callable[[], object] = lambda: "did not happen",
    *,
    limit_s: float = 120.0,
    every_s: float | None = None,
    goes_on: Callable[[], bool] = lambda: True,
) -> None:
    """Wait until it holds, looking as `holds` does. Fails with what is `told` then, after the limit, or once what it waits for does not go on."""
    deadline = time.monotonic() + limit_s
    while not holds(condition, every_s):
        assert goes_on(), f"ended early: {told()}"
        assert time.monotonic() < deadline, told()
