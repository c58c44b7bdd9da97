"""Decides who may take a runner, and with which generation. Pure: no Spark, clock or I/O.

A runner is what one process at a time may do. It replicates the messages of an origin into a topic of a cluster, or publishes as a producer. Its
owner's claim has a generation, above every one that was ever given out for it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum

OWNED, RELEASED = "owned", "released"


class Liveness(str, Enum):
    """Knowledge about the process that owns a runner, or owned it last."""

    LIVES = "LIVES"
    """It runs on this host, or gave a sign of life from another one within the owner timeout."""
    HALTED = "HALTED"
    """It runs on this host and is stopped (SIGSTOP): it does nothing until it is continued, and owns what it owns."""
    ENDED = "ENDED"
    """It gave the runner up by itself."""
    DEAD = "DEAD"
    """It ran on this host and is gone; its JVM may still be ending, whose end can be waited for."""
    LEFT = "LEFT"
    """It runs it no longer, and what it has sent may still come: it is this process, which gave the runner up after an error. Or it ran on this
    host and is gone, and its JVM cannot be waited for. Nothing is known of it, or it is the JVM of this process."""
    SILENT = "SILENT"
    """Nothing is known of it: it runs on another host, if it does, and gave no sign of life for longer than the owner timeout."""

    @property
    def is_alive(self) -> bool:
        """True if the process may write now, or once it is continued."""
        return self in (Liveness.LIVES, Liveness.HALTED)


@dataclass(frozen=True, slots=True)
class Owner:
    """The newest claim of a runner, or its release: a row of `system/owners`."""

    runner: str
    generation: int
    token: str
    holder: str
    """Its process, encoded (geo.delta.process)."""
    state: str
    in_flight: bool
    """An append of the owners before it may still land. It has not fenced, or it did and has not said so, which a release does."""
    since: datetime
    sequence: int = 0

    @property
    def is_owned(self) -> bool:
        return self.state != RELEASED


@dataclass(frozen=True, slots=True)
class Granted:
    """The runners may be taken, all with this generation. `dead`: holders on this host whose JVMs must have ended before anything
    is done. `in_flight`: runners of which then an append of an owner before may still land. Not of one that released it, or whose
    JVM ended, unless it had not fenced against those before it."""

    generation: int
    dead: frozenset[str]
    in_flight: frozenset[str]


@dataclass(frozen=True, slots=True)
class Denied:
    """Another owner lives."""

    owner: Owner


def decide(
    owners: Collection[Owner],
    wanted: Collection[str],
    liveness: Mapping[str, Liveness],
    fences: Mapping[str, Iterable[int]],
    *,
    take_over: Collection[str] = (),
    outlives: bool = False,
) -> Granted | Denied:
    """Decides whether the `wanted` runners may be claimed together.

    `owners` are the newest claims of all runners of the cluster, and `liveness` is by owner process. `fences` are the generations of the fence
    files of the wanted runners. The new generation is above all of them. No two claims of a runner ever share one, also if the table of owners was
    lost or put back older. Nothing is known of an owner that only its fence tells of. Of the runners `take_over` an owner that lives is replaced;
    its next append fails. `outlives`: what a process has sent may arrive after its end, as at an object store. Then something may be in flight of
    an owner who did not release.
    """
    found = {owner.runner: owner for owner in owners if owner.runner in wanted}
    held = [owner for owner in found.values() if owner.is_owned]
    for owner in held:
        if liveness[owner.holder].is_alive and owner.runner not in take_over:
            return Denied(owner)
    highest = {runner: max(fences.get(runner, ()), default=0) for runner in wanted}
    generation = max((*(owner.generation for owner in owners), *highest.values()), default=0) + 1
    dead = {owner.holder for owner in held if liveness[owner.holder] is Liveness.DEAD}
    ended = {owner.runner for owner in found.values() if not owner.is_owned or (owner.holder in dead and not outlives)}
    unknown = {runner for runner in wanted if highest[runner] > (found[runner].generation if runner in found else 0)}
    in_flight = unknown | {owner.runner for owner in found.values() if owner.in_flight or owner.runner not in ended}
    return Granted(generation, frozenset(dead), frozenset(in_flight))


def fence_name(generation: int, token: str) -> str:
    """Name of the file whose presence says that this claim still owns the runner."""
    return f"{generation:012}-{token}"


def fence_generation(name: str) -> int:
    """The generation in such a name; 0 for a file that is none of ours."""
    number = name.partition("-")[0]
    return int(number) if number.isdigit() else 0
