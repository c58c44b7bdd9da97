"""The one who owns what: owners that are dead, silent or halted, and claims that contradict each other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from geo.coordination.claims import Liveness, Owner, fence_generation
from geo.coordination.holder import Holder
from geo.coordination.owners import owned_now
from geo.coordination.ownership import fences_of
from geo.coordination.runners import RunnerKind, RunnerName
from geo.coordination.storage_clock import storage_now_us
from geo.delta.process import Process
from geo.journal.cluster import ClusterTables
from geo.ops.health import Finding
from geo.ops.region_processes import is_brokers
from geo.ops.symptom import Symptom
from geo.reasons import Reason
from geo.times import in_us, shown_time

MOST_FENCES = 50
"""Runners whose fences are looked at, at most, where that is a request each."""

CLAIMED_US = 60 * 1_000_000
"""A claim comes first, then its fence, and then those before it go: seconds later where Spark claims."""


def of_owners(cluster: str, owned: Sequence[Holder], fault: Finding | None) -> Iterator[Symptom]:
    """Judges who owns runners of a cluster, of one process once; `fault`: of who runs all of it (`fault_of_region`). What that
    one's verb ends is not said again. Who died and runs what nobody else misses is a warning: of what lacks something its link
    tells.
    """
    if fault is not None:
        yield Symptom(fault.level, f"cluster {cluster}", fault.reason, fault.do or "", fault.code, fault.since_us, fault.health)
    by_process: dict[str, list[Holder]] = {}
    for one in owned:
        if one.liveness is Liveness.LIVES:
            yield Symptom("ok", one.claim.runner, f"owned by {one.name} since {shown_time(one.claim.since)}")
        else:
            by_process.setdefault(one.claim.holder, []).append(one)
    for of_one in by_process.values():
        fix = _goes_on(cluster, of_one)
        if fault is not None and fault.do == fix:
            continue
        first = min(of_one, key=lambda one: (not is_brokers(one.claim.runner), one.claim.runner))
        where = first.claim.runner if len(of_one) == 1 else f"{first.claim.runner} and {len(of_one) - 1:,} more"
        if first.is_dead:
            yield Symptom("warn", where, f"did not stop cleanly: {first.why}", fix, first.code, first.last_us)
        else:
            yield Symptom("error", where, first.why, fix, first.code, first.last_us)


def _goes_on(cluster: str, of_one: Sequence[Holder]) -> str:
    """Tells how the works of one process go on, by its verb where that is known."""
    names = [one.claim.runner for one in of_one]
    if not of_one[0].is_dead:
        return of_one[0].go_on
    if any(map(is_brokers, names)):
        return f"geo broker --cluster {cluster}"
    if any(name is not None and name.kind is RunnerKind.ORIGIN for name in map(RunnerName.parse, names)):
        return f"geo replicate --cluster {cluster}"
    return "start it again: the next start fences and heals"


def two_owners(tables: ClusterTables, living: Sequence[Owner]) -> Iterator[Symptom]:
    """Finds runners, owned by who lives, for which there is another fence than that of the newest claim. Two count themselves for the owner, or
    nobody does. Who claims one at this moment is none.
    """
    if not tables.is_near and len(living) > MOST_FENCES:
        return
    if not (odd := [one for one in living if _other_fences(tables, one) is not None]):
        return
    now, now_us = owned_now(tables), storage_now_us(tables, writes=False)  # of a claim of this moment the table tells by now
    for one in odd:
        if one in now and (others := _other_fences(tables, one)) is not None:
            if now_us - in_us(one.since) < CLAIMED_US and all(fence_generation(other) <= one.generation for other in others[1]):
                continue
            what = f"{Process.decode(one.holder)} owns it by {others[0]}, and its fences are: {', '.join(others[1]) or 'none'}"
            fix = "end all processes that run it, and start one again: it fences all others"
            yield Symptom("error", one.runner, what, fix, Reason.FENCED, in_us(one.since))


def _other_fences(tables: ClusterTables, one: Owner) -> tuple[str, Sequence[str]] | None:
    found = fences_of(tables, one)
    return None if found is None or list(found[1]) == [found[0]] else found
