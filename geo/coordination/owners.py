"""Reads who owns the runners of a cluster, and refuses what an owner that lives, or may live, forbids."""

from __future__ import annotations

import logging
from collections.abc import Sequence, Set

from geo.coordination.claims import Liveness, Owner
from geo.coordination.holder import liveness
from geo.coordination.holders import RegionHolders, seen_here
from geo.coordination.liveness import silent_s
from geo.coordination.runners import RunnerKind, RunnerName
from geo.delta.locks import JVM_END_S
from geo.delta.process import Process
from geo.errors import AlreadyOwnedError
from geo.journal.cluster import ClusterTables
from geo.names import Topic
from geo.schemas import OWNERS
from geo.times import shown_time

log = logging.getLogger(__name__)


def owned_now(tables: ClusterTables) -> list[Owner]:
    """The runners of a cluster that are owned and not released."""
    return [one for one in tables.journal(OWNERS).read(Owner) if one.is_owned]


def owner_of(tables: ClusterTables, runner: str) -> Owner | None:
    """The newest claim of the runner of this name; None: nobody ever owned it."""
    return tables.journal(OWNERS).one(Owner, runner=runner)


def owners_of(tables: ClusterTables, prefix: str) -> list[Owner]:
    """The newest claims of the runners whose names begin so."""
    return tables.journal(OWNERS).read(Owner, ("runner", prefix))


def named_owners(tables: ClusterTables, kind: RunnerKind | None = None) -> list[tuple[RunnerName, Owner]]:
    """Everybody, or all of a kind, who ever owned something of a topic in this cluster."""
    owners = tables.journal(OWNERS).read(Owner, None if kind is None else ("runner", f"{kind.value} "))
    found = [(name, one) for one in owners if (name := RunnerName.parse(one.runner)) is not None]
    return [(name, one) for name, one in found if name.cluster == tables.cluster.name]


def refuse_producers(tables: ClusterTables, topics: Set[Topic]) -> None:
    """Raises AlreadyOwnedError if a producer of one of these topics lives in this cluster, or may."""
    refuse_living(tables, [one for name, one in named_owners(tables, RunnerKind.PRODUCER) if name.topic in topics])


def refuse_living(tables: ClusterTables, owners: Sequence[Owner], else_: str = "Nothing was written.") -> None:
    """Raises AlreadyOwnedError, which ends with `else_`, if one of these owners lives, or may."""
    owners = [one for one in owners if one.is_owned]
    found = liveness_of_owners(tables, owners)
    for one in owners:
        if found[one.holder].is_alive:
            raise refused(one, else_)
        wait_for_end(one.holder, one.runner)


def liveness_of_owners(tables: ClusterTables, held: Sequence[Owner]) -> dict[str, Liveness]:
    """Liveness by owner process. Signs of life are asked for only if this host cannot see one of the processes."""
    found: dict[str, Liveness] = {}
    holders, by_holder = RegionHolders(tables, held, writes=True), dict[str, list[Owner]]()
    for owner in held:
        by_holder.setdefault(owner.holder, []).append(owner)
    for encoded, claims in by_holder.items():
        process = Process.decode(encoded)
        seen = seen_here(process, claims)
        silence_s = 0.0 if seen is not None else silent_s(holders.now_us, holders.signs_us(encoded))
        found[encoded] = liveness(seen, silence_s, tables.cluster.owner_timeout_s)
        if found[encoded] is Liveness.DEAD and process is not None and not _can_be_waited_for(process, tables):
            found[encoded] = Liveness.LEFT
        if found[encoded] is Liveness.SILENT:
            log.warning("%s: %s gave no sign of life for %.0f s: taking over", claims[0].runner, process, silence_s)
    return found


def _can_be_waited_for(dead: Process, tables: ClusterTables) -> bool:
    """True if the end of its JVM tells that nothing of the process is in flight."""
    return bool(dead.jvm_started) and dead.jvm != tables.me.jvm


def refused(owner: Owner, else_: str) -> AlreadyOwnedError:
    holder = Process.decode(owner.holder)
    who = "this process" if holder is not None and holder.is_mine else str(holder)
    unseen = " From here one cannot look whether it lives; it gave a sign of life lately."
    elsewhere = "" if holder is None or holder.is_seen_here else unseen
    return AlreadyOwnedError(
        f"{owner.runner}: already run by {who} since {shown_time(owner.since)}.{elsewhere} One runner at a time: stop that one first. {else_}"
    )


def wait_for_end(encoded: str, runner: str) -> None:
    """Wait until the JVM of a dead holder on this host, which may still be committing, is gone too."""
    holder = Process.decode(encoded)
    if holder is not None and holder.is_seen_here and not holder.is_mine and not holder.wait_for_jvm_end(JVM_END_S):
        raise AlreadyOwnedError(f"{runner}: the JVM {holder.jvm_pid} of the dead {holder} still runs: end it, then start again.")
