"""Deaths at a named point: of what runs in this process, and of a child process. The points are those of `geo.crash`."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from geo.crash import CrashPoint, InjectedCrash, arm


def crash_points(*begins: str) -> list[CrashPoint]:
    """List the points whose names begin with one of these, such as "link-" or "sink-"; without any, all."""
    return [point for point in CrashPoint if not begins or point.value.startswith(begins)]


@contextmanager
def dies_at(point: CrashPoint, nth: int = 1) -> Iterator[None]:
    """End what is done inside at the point, when it is reached for the nth time, by InjectedCrash, which is caught here.

    The process lives on, so what `finally` and `with` guard is cleaned up, unlike in `kill_at`. delta-geo does not retry the error.
    Raises AssertionError if the point is not reached so often.
    """
    arm(f"{point.value}:raise:{nth}")
    try:
        yield
    except InjectedCrash as crash:
        if str(crash) != point.value:
            raise
    else:
        raise AssertionError(f"{point.value} was not reached {nth} times: what was done inside ended by itself")
    finally:
        arm(None)


class Killed(NamedTuple):
    """A child process that was killed, and what it had printed."""

    stdout: str
    stderr: str


def kill_at(
    point: CrashPoint, command: Sequence[str | Path], *, nth: int = 1, timeout_s: float = 400.0, cwd: str | Path | None = None
) -> Killed:
    """Run a command that is killed (SIGKILL) with its JVM when it reaches the point for the nth time.

    Python code of any kind may run: it reads the point from the environment variable GEO_CRASH when `geo` is imported.
    Raises AssertionError if the command ends otherwise, or not within `timeout_s` seconds; then it is killed, too.
    """
    process = subprocess.Popen(
        [str(part) for part in command],
        cwd=cwd,
        env={**os.environ, "GEO_CRASH": f"{point.value}:kill:{nth}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        stdout, stderr = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        raise AssertionError(f"{point.value} was not reached within {timeout_s:g} seconds") from None
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    if process.returncode != -signal.SIGKILL:
        raise AssertionError(
            f"{point.value} was not reached {nth} times: the command ended with {process.returncode}\n{stdout}{stderr}"
        )
    return Killed(stdout, stderr)
