"""Usage of the host by this process and those that it started, as far as `/proc` says: other systems say less."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

from geo.fleet.placement.load_data import Usage

_PROC = Path("/proc")
_CGROUP = Path("/sys/fs/cgroup")


class HostUsage:
    """Samples the cores and the memory that this process takes, with its JVM and that one's workers. `cpu` is in percent of a core, and its limit
    100 for each core that a container lets it have, as in Pulsar. `memory` in bytes."""

    def __init__(self) -> None:
        self._cpu_s, self._at = _cpu_s(_family()), time.monotonic()

    def sample(self) -> tuple[Usage, Usage]:
        """Cores since the last sample, and memory now."""
        family, now = _family(), time.monotonic()
        cpu_s, took = _cpu_s(family), max(now - self._at, 1e-6)
        used = max(0.0, cpu_s - self._cpu_s) / took  # one of them may have ended, and its time with it
        self._cpu_s, self._at = cpu_s, now
        return Usage(100 * used, 100.0 * cores()), Usage(_resident(family), _total())


def cores(cgroup: Path = _CGROUP) -> float:
    """Cores that this process may use: those of the host, or what the container's quota says (cgroup, version 2 or 1)."""
    here = float(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
    for names in (("cpu.max",), ("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us")):
        try:
            quota, period = (float(word) for name in names for word in (cgroup / name).read_text().split())
        except (OSError, ValueError):  # not of this version, or "max": no quota
            continue
        if quota > 0 and period > 0:
            return min(here, quota / period)
    return here


def nic_bytes_per_s(override_gbps: float) -> float:
    """Bytes a second that the network of this host carries, by its fastest interface, unless it is said; 0: that is not known."""
    if override_gbps > 0:
        return override_gbps * 1e9 / 8
    speeds = [0]
    for file in Path("/sys/class/net").glob("*/speed"):
        try:
            speeds.append(int(file.read_text()))  # megabits per second; -1 of one that has no speed
        except (OSError, ValueError):
            continue
    return max(speeds) * 1e6 / 8


def _family() -> list[list[str]]:
    """Fields of `/proc/PID/stat` behind the name, of this process and all that it started, and those they started; empty where there is none."""
    stats: dict[int, list[str]] = {}
    children: dict[int, list[int]] = {}
    for folder in _PROC.glob("[0-9]*"):
        with suppress(OSError):  # it has ended
            stats[int(folder.name)] = (folder / "stat").read_text().rpartition(")")[2].split()
    for pid, fields in stats.items():
        children.setdefault(int(fields[1]), []).append(pid)
    found, todo = list[int](), [os.getpid()]
    while todo:
        found.append(todo.pop())
        todo += children.get(found[-1], [])
    return [stats[pid] for pid in found if pid in stats]


def _cpu_s(family: list[list[str]]) -> float:
    if not family:
        return time.process_time()
    return sum(int(fields[11]) + int(fields[12]) for fields in family) / float(os.sysconf("SC_CLK_TCK"))


def _resident(family: list[list[str]]) -> float:
    return float(sum(int(fields[21]) for fields in family) * os.sysconf("SC_PAGE_SIZE"))


def _total() -> float:
    try:
        return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (ValueError, OSError):
        return 0.0
