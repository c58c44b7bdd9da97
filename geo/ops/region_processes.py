"""The one who runs a region: the processes that own what it needs, of its holders. Looks only."""

from __future__ import annotations

from geo.coordination.holder import Holder
from geo.coordination.holders import RegionHolders
from geo.coordination.runners import RunnerKind, RunnerName
from geo.delta.process import Process
from geo.ops.region_process import RegionProcess
from geo.times import in_us

_BROKERS = ("broker", "bundle", "leader", "version sync")
"""Beginnings of the names of runners that are a broker's."""


def region_processes(holders: RegionHolders) -> list[RegionProcess]:
    """The processes that run links or bundles of a region, or did and have not ended by themselves."""
    owned: dict[str, list[Holder]] = {}
    for one in holders.owned():
        if _runs_region(one.claim.runner):
            owned.setdefault(one.claim.holder, []).append(one)
    return [_of(Process.decode(encoded), of_one) for encoded, of_one in owned.items()]


def _of(process: Process | None, owned: list[Holder]) -> RegionProcess:
    names = frozenset(one.claim.runner for one in owned)
    return RegionProcess(
        "?" if process is None else f"{process.host}:{process.pid}",
        "broker" if any(map(is_brokers, names)) else "links",
        min(owned, key=lambda one: one.is_dead),  # this process may have given up some of it
        min(in_us(one.claim.since) for one in owned),
        sum(RunnerName.parse(name) is not None for name in names),
        names,
    )


def is_brokers(runner: str) -> bool:
    """Tells whether a broker alone has a runner of this name."""
    return runner.startswith(_BROKERS)


def _runs_region(runner: str) -> bool:
    name = RunnerName.parse(runner)
    return is_brokers(runner) or (name is not None and name.kind is RunnerKind.ORIGIN)
