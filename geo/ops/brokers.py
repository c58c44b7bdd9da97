"""Who runs a cluster: the processes that own what it needs, and whether they live. Looks only."""

from __future__ import annotations

from collections.abc import Iterator

from geo.coordination.claims import Owner
from geo.coordination.liveness import silent_s
from geo.coordination.ownership import RunnerKind, RunnerName, why_dead
from geo.coordination.signs import signs
from geo.coordination.storage_clock import storage_now_us
from geo.delta.process import Process
from geo.journal.cluster import ClusterTables
from geo.ops.status import Broker
from geo.times import in_us
from schemas import OWNERS

_RUNS = ("broker", "bundle", "leader", "version sync")
"""How the names of runners begin that are a broker's."""


def brokers_of(tables: ClusterTables) -> list[Broker]:
    """The processes that run links or bundles of a cluster, or did and have not ended well."""
    return [one for one, _ in with_runners(tables)]


def with_runners(tables: ClusterTables) -> Iterator[tuple[Broker, frozenset[str]]]:
    """As `brokers_of`, each with the names of what it owns."""
    owners: dict[str, list[Owner]] = {}
    for one in tables.journal(OWNERS).read(Owner):
        if one.is_owned and _runs_cluster(one.runner):
            owners.setdefault(one.holder, []).append(one)
    if not owners:
        return
    now, told = storage_now_us(tables, writes=False), signs(tables)
    for holder, owned in owners.items():
        process, since = Process.decode(holder), min(in_us(one.since) for one in owned)
        name = "?" if process is None else f"{process.host}:{process.pid}"
        sign = None if process is None or process.name not in told else told[process.name][0]
        is_broker = any(one.runner.startswith(_RUNS) for one in owned)
        works = sum(RunnerName.parse(one.runner) is not None for one in owned)
        last = [max(in_us(one.since) for one in owned), *([] if sign is None else [sign])]
        does, is_unseen = "broker" if is_broker else "links", process is None or not process.is_seen_here
        broker = Broker(name, since, silent_s(now, last), why_dead(tables, owned[0]), works, does, is_unseen)
        yield broker, frozenset(one.runner for one in owned)


def _runs_cluster(runner: str) -> bool:
    name = RunnerName.parse(runner)
    return runner.startswith(_RUNS) if name is None else name.kind is RunnerKind.ORIGIN
