"""Processes behind a runner, and whether they still live. Operating system calls only; no Spark, no table."""

from __future__ import annotations

import json
import os
import socket
import time
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path


@cache
def _system() -> str:
    """The running system and its space of process ids: another host, another boot and another container have the same name
    sometimes. "" where the system does not say."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""


def _stat(pid: int) -> tuple[str, str]:
    """State of a process, and its start in clock ticks since boot; both "" where the system does not say or it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return "", ""
    return fields[0], fields[19]


def _started(pid: int) -> str:
    """Start of a process that has not ended; "" where the system does not say or it is gone."""
    state, started = _stat(pid)
    return "" if state == "Z" else started


def _lives(pid: int, started: str) -> bool:
    """Tells whether a process lives. One that the system does not show (/proc with hidepid) lives if some process has its id."""
    if pid <= 0:
        return False
    state, found = _stat(pid)
    if state:
        return state != "Z" and (not started or found == started)
    return _exists(pid)


def _exists(pid: int) -> bool:
    """Tells whether some process has this id, also one that /proc does not show."""
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
    commit, so a runner counts as gone only when both are. Process ids are distinguished from reused ones by their start."""

    host: str
    pid: int
    started: str
    jvm_pid: int = 0
    jvm_started: str = ""
    system: str = ""
    """The place where its process ids mean something."""

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"

    @property
    def name(self) -> str:
        """Name of this process and no other."""
        return f"{self.host}:{self.pid}:{self.started}:{self.system[:8]}"

    def beside(self, name: str) -> Process | None:
        """The process of this name where it ran on this one's host, without its JVM; None: elsewhere, or that is no name."""
        parts = name.rsplit(":", 3)
        if len(parts) != 4 or not parts[1].isdecimal() or (parts[0], parts[3]) != (self.host, self.system[:8]):
            return None
        return Process(self.host, int(parts[1]), parts[2], system=self.system)

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
    def jvm(self) -> tuple[int, str]:
        """The JVM it drives, on its host."""
        return self.jvm_pid, self.jvm_started

    @property
    def is_here(self) -> bool:
        return self.host == socket.gethostname() and self.system == _system()

    @property
    def is_seen_here(self) -> bool:
        """True if it runs, or ran, on this host, and this process can see whether it lives. The system may hide processes of other users; of such a
        one it only says that some process has its id.
        """
        return self.is_here and not (self.started and self.pid > 0 and not _stat(self.pid)[0] and _exists(self.pid))

    @property
    def is_mine(self) -> bool:
        return self.is_here and self.pid == os.getpid() and self.started == _started(os.getpid())

    @property
    def lives(self) -> bool:
        """True if the Python process lives, or may: only meaningful where `is_here`, and for sure only where `is_seen_here`."""
        return _lives(self.pid, self.started)

    @property
    def stopped(self) -> tuple[int, ...]:
        """Ids of its processes that are halted (SIGSTOP): they live, and do nothing until they are continued. Only meaningful
        where `is_here`; none where the system does not say."""
        both = ((self.pid, self.started), self.jvm)
        return tuple(pid for pid, started in both if pid > 0 and _stat(pid)[0] in ("T", "t") and _stat(pid)[1] == started)

    def wait_for_jvm_end(self, timeout_s: float) -> bool:
        """Wait until the JVM of a dead runner is gone too. False if it is not within the time."""
        deadline = time.monotonic() + timeout_s
        while _lives(*self.jvm):
            if time.monotonic() > deadline:
                return False
            time.sleep(0.05)
        return True


@cache
def this_process(jvm_pid: int) -> Process:
    return Process(socket.gethostname(), os.getpid(), _started(os.getpid()), jvm_pid, _started(jvm_pid), _system())
