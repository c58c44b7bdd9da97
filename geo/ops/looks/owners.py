"""Who owns what: owners that are dead, silent or halted, and claims that contradict each other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from geo.coordination.claims import Owner, fence_generation
from geo.coordination.ownership import RunnerKind, RunnerName, broker_runner, fences_of, owned_now, why_dead
from geo.coordination.signs import last_seen
from geo.coordination.storage_clock import storage_now_us
from geo.delta.process import Process
from geo.journal.cluster import ClusterTables
from geo.ops.symptom import Symptom
from geo.reasons import Level, Reason
from geo.times import in_us

MOST_FENCES = 50
"""Of so many runners the fences are looked at where that is a request each."""

CLAIMED_US = 60 * 1_000_000
"""A claim comes first, then its fence, and then those before it go: seconds later where Spark claims."""


def of_owner(tables: ClusterTables, one: Owner) -> Symptom:
    """What is to be said of who owns a runner now, by the tables and this host."""
    process = Process.decode(one.holder)
    if (why := why_dead(tables, one)) is not None:
        name = RunnerName.parse(one.runner)
        # Users' own processes may have ended for good; what a cluster needs is to run.
        level: Level = "warn" if name is not None and name.kind in (RunnerKind.PRODUCER, RunnerKind.CONSUMER) else "error"
        fix = _start(tables, one, name)
        code = Reason.NO_OWNER if process is not None and process.is_seen_here else Reason.OWNER_SILENT
        return Symptom(level, one.runner, f"did not stop cleanly: {why}", fix, code, _last_sign_us(tables, one, process))
    if process is not None and process.is_here and (halted := " ".join(map(str, process.stopped))):
        what = f"{process} is halted (SIGSTOP): it does nothing, and nobody else does it"
        fix = f"kill -CONT {halted}, or kill -KILL {halted} and start it again"
        return Symptom("error", one.runner, what, fix, Reason.OWNER_SILENT, _last_sign_us(tables, one, process))
    return Symptom("ok", one.runner, f"owned by {process} since {one.since:%Y-%m-%d %H:%M:%S} UTC")


def _start(tables: ClusterTables, one: Owner, name: RunnerName | None) -> str:
    """How it is started again, by its verb where that is known."""
    cluster, heals = tables.cluster.name, "the next start fences and heals"
    if one.runner == broker_runner(tables).name:
        return f"start it again: geo broker --cluster {cluster} ({heals})"
    if name is not None and name.kind is RunnerKind.ORIGIN:
        return f"start it again: geo replicate --cluster {cluster}, or its broker ({heals})"
    return f"start it again: {heals}"


def _last_sign_us(tables: ClusterTables, one: Owner, process: Process | None) -> int:
    """A claim is a sign, too."""
    return max(in_us(one.since), 0 if process is None else in_us(last_seen(tables, process)))


def two_owners(tables: ClusterTables, living: Sequence[Owner]) -> Iterator[Symptom]:
    """Of each runner, owned by who lives, for which there is another fence than that of its newest claim: two count themselves for its owner,
    or nobody does. Who claims it at this moment is none."""
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
