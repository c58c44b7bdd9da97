"""A host's clock that is off: for a while in this process, or for a whole process from before anything of this program is imported.

`python -m tests.clock_off SECONDS ARGUMENT …` runs `geo ARGUMENT …` on a host whose clock is that many seconds ahead (behind if negative).
What the kernel says, as the time of a file, stays right: it is the storage's clock. The JVM's stays right too.
"""

from __future__ import annotations

import runpy
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

_time, _time_ns = time.time, time.time_ns


@contextmanager
def clock_off(seconds: float) -> Iterator[None]:
    """In this process, while it lasts."""
    try:
        _set(seconds)
        yield
    finally:
        _set(0)


def _set(seconds: float) -> None:
    time.time = lambda: _time() + seconds
    time.time_ns = lambda: _time_ns() + round(seconds * 1e9)


def set_clock_off(seconds: float) -> None:
    """For the rest of this process. Nothing of `geo` asks another clock (`test_structure.py`); a class in the place of `datetime` would
    not be what C extensions take."""
    _set(seconds)


if __name__ == "__main__":
    set_clock_off(float(sys.argv[1]))
    sys.argv = ["geo", *sys.argv[2:]]
    runpy.run_module("geo", run_name="__main__")
