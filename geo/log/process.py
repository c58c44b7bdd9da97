"""Which processes stand behind a runner, and whether they still live. Operating system calls only; no Spark, no table."""

from __future__ import annotations

import json
import os
import socket
import time
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path


def _started(pid: int) -> str:
    """Start of a process in clock ticks since boot, "" where the system does not say or the process is gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    state, started = stat.rpartition(")")[2].split()[0], stat.rpartition(")")[2].split()[19]
    return "" if state == "Z" else started


def _lives(pid: int, started: str) -> bool:
    if pid <= 0:
        return False
    if started:
        return _started(pid) == started
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


@dataclass(frozen=True, slots=True)
class Process:
    """A runner: the Python process and the JVM it drives. The JVM outlives a killed Python for a moment and may still
    commit, so a runner counts as gone only when both are. Process ids are told from reused ones by their start."""

    host: str
    pid: int
    started: str
    jvm_pid: int = 0
    jvm_started: str = ""

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"

    def encode(self) -> str:
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def decode(cls, text: str) -> Process | None:
        """None for text that no version of ours has written."""
        try:
            return cls(**json.loads(text))
        except (ValueError, TypeError):
            return None

    @property
    def is_here(self) -> bool:
        return self.host == socket.gethostname()

    @property
    def is_mine(self) -> bool:
        return self.is_here and self.pid == os.getpid() and self.started == _started(os.getpid())

    @property
    def lives(self) -> bool:
        """Whether the Python process lives. Only meaningful where `is_here`."""
        return _lives(self.pid, self.started)

    def wait_for_jvm_end(self, timeout_s: float) -> bool:
        """Wait until the JVM of a dead runner is gone too. False if it is not within the time."""
        deadline = time.monotonic() + timeout_s
        while _lives(self.jvm_pid, self.jvm_started):
            if time.monotonic() > deadline:
                return False
            time.sleep(0.05)
        return True


@cache
def this_process(jvm_pid: int) -> Process:
    return Process(socket.gethostname(), os.getpid(), _started(os.getpid()), jvm_pid, _started(jvm_pid))
