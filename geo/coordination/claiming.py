"""Claims runners for this process: steps (a) to (d) of a takeover, whose argument is in geo.coordination.ownership."""

from __future__ import annotations

import random
import secrets
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial

from geo.coordination.claims import RELEASED, Denied, Granted, Owner, decide, fence_generation, fence_name
from geo.coordination.clock import SIGN_APART_US, refuse, why_wrong
from geo.coordination.first_use import admit
from geo.coordination.heartbeat import keep_alive
from geo.coordination.owners import liveness_of_owners, refused, wait_for_end
from geo.coordination.ownership import Ownership, fence_folder, owned_row
from geo.coordination.runners import Runner
from geo.coordination.storage_clock import known_now_us, note, renew
from geo.crash import CrashPoint, reach
from geo.delta.process import Process
from geo.delta.store import ask_all
from geo.delta.versions import committed_at
from geo.errors import AlreadyOwnedError, RetryableError, UnsafeError
from geo.journal.cluster import ClusterTables
from geo.journal.event_rate import EventKind
from geo.journal.events import events_of
from geo.journal.journal import Journal
from geo.now import now_us
from geo.reasons import Reason
from geo.schemas import OWNERS
from geo.times import from_us, in_us, shown_time

_CLAIMS = "geo.claims"
"""Delta application id of the claims of one owners table."""

_CLAIM_S, _CLAIM_PAUSE_S = 60.0, 0.2
"""Claims of other runners of the cluster may come between, on a store without locks three times of four where eight claim at once. Who lost
looks again after a moment, since the others do not wait either, and gives up after a minute."""

_FENCE_TRIES = 5
"""Claims in a row that may fail because a store does not say whether a fence was made. Each claim asks once for each fence."""


def claim(
    tables: ClusterTables,
    wanted: Sequence[Sequence[Runner]],
    *,
    take_over: bool | Collection[Runner] = False,
    point: CrashPoint | None = None,
) -> list[Ownership]:
    """Steps (a) to (d) for several groups of runners in one commit: take them for this process, all or none.

    `take_over` also replaces an owner that lives, of all of them or of these. The fence makes this safe; the replaced runner fails. Raises
    AlreadyOwnedError naming the owner, if one lives; UnsafeError where the cluster's storage loses commits, and on a host whose clock is not the
    storage's. RetryableError where the store says again and again not whether a fence was made.
    """
    tables.refuse_unsafe_storage()
    admit(tables)
    for _ in range(_FENCE_TRIES):
        if (owned := _claimed(tables, wanted, take_over, point)) is not None:
            return owned
    raise RetryableError(
        f"{wanted[0][0].name}: the store did not say {_FENCE_TRIES} times whether the fence was made. Start again."
    )


def _claimed(
    tables: ClusterTables,
    wanted: Sequence[Sequence[Runner]],
    take_over: bool | Collection[Runner],
    point: CrashPoint | None,
) -> list[Ownership] | None:
    """Claims once, with the errors of `claim`.

    None: the claim is in the table, but the store does not say whether a fence was made. That fence may still come, also after a takeover.
    So nothing is done under this claim. The next claim names fences of its own and takes this one for that of an owner who left."""
    runners = {runner.name: runner for group in wanted for runner in group}
    replaced = runners.keys() if take_over is True else {runner.name for runner in take_over or ()}
    owners, token, who = tables.journal(OWNERS), secrets.token_hex(8), f"{next(iter(runners))} is not run"
    if known_now_us(tables, who) is None:
        refuse(who, why_wrong(now_us(), in_us(owners.came_at())))
    deadline = time.monotonic() + _CLAIM_S
    while True:
        before, decision = _looked(tables, owners, runners, replaced)
        with owners.alone() as alone:
            if alone.is_alone:
                waited_for = decision.dead
                before, decision = _looked(tables, alone, runners, replaced, wait=False)
                if not decision.dead <= waited_for:
                    continue
            before_us, known_us = now_us(), known_now_us(tables, who)
            since = from_us(before_us if known_us is None else known_us)
            claims = [
                owned_row(tables, r, decision.generation, token, since, in_flight=r.name in decision.in_flight)
                for r in runners.values()
            ]
            if alone.is_alone:
                alone.append(claims)  # (a) add the claim
                version = alone.table.latest_version()
                break
        # (a) Add the claim. Of two claimers that read the same generation only one appends; the other reads again.
        if (found := owners.append_once(claims, (_CLAIMS, decision.generation), token)) is not None:
            version = found
            break
        if time.monotonic() > deadline:
            raise AlreadyOwnedError(
                f"{next(iter(runners))}: others claimed at the same moments for {_CLAIM_S:.0f} s. Start again."
            )
        time.sleep(random.uniform(0, _CLAIM_PAUSE_S))  # noqa: S311  # no secret
    reach(CrashPoint.CLAIM_WON)
    if known_us is None:
        try:
            held = note(tables, before_us, in_us(committed_at(owners.table, version)), who)
        except UnsafeError:
            owners.append([_given_back(one, before.get(one.runner)) for one in claims])
            raise
        if held.apart_us > SIGN_APART_US:
            renew(tables)  # the claim, the first sign of life of this process, has this host's time
    if not _write_fences(tables, list(runners.values()), decision.generation, token, version):
        return None
    if point is not None:
        reach(point)
    _note_taken(tables, {name: before[name] for name in runners if name in before}, decision.dead, replaced)
    keep_alive(tables, len(wanted))
    return [
        Ownership(tables, group, decision.generation, token, in_flight=any(runner.name in decision.in_flight for runner in group))
        for group in wanted
    ]


def _looked(
    tables: ClusterTables, owners: Journal, runners: Mapping[str, Runner], replaced: Collection[str], *, wait: bool = True
) -> tuple[dict[str, Owner], Granted]:
    """The newest claims of the cluster by runner, and what may be done about `runners`. Waits for the JVMs of the dead to end.
    Raises AlreadyOwnedError."""
    # Fences first: whose fence is there has its claim in what is read then. The other way around that of somebody who came between would
    # count as one of a table that was put back.
    names = ask_all(tables.port, [partial(tables.files.names, fence_folder(tables, one)) for one in runners.values()])
    there = {name: list(map(fence_generation, files)) for name, files in zip(runners, names, strict=True)}
    found = {one.runner: one for one in owners.read(Owner)}
    held = [owner for name, owner in found.items() if name in runners and owner.is_owned]
    decision = decide(
        found.values(), runners, liveness_of_owners(tables, held), there, take_over=replaced, outlives=tables.port is not None
    )
    if isinstance(decision, Denied):
        raise _already_runs(decision.owner)
    for holder in decision.dead if wait else ():
        wait_for_end(holder, next(owner.runner for owner in held if owner.holder == holder))
    return found, decision


def _already_runs(owner: Owner) -> AlreadyOwnedError:
    """Makes the error for an owner whom somebody may replace."""
    holder = Process.decode(owner.holder)
    if holder is None or not holder.is_mine:
        return refused(owner, "Start again with --take-over to replace it.")
    return AlreadyOwnedError(
        f"{owner.runner}: already run by this process since {shown_time(owner.since)}. As where a cell of a notebook is run again. "
        "One runner at a time: call stop() of what runs, or begin with take_over=True, which ends it."
    )


def _given_back(claimed: Owner, before: Owner | None) -> Owner:
    """The row by which a claim that fenced nobody leaves a runner to whoever had it: that one may live, and has its fence. What
    the claim found in flight stays in flight: its generation is above the fences by which the next one would find it."""
    if before is None:
        return replace(claimed, state=RELEASED, sequence=1)
    return replace(before, generation=claimed.generation, in_flight=claimed.in_flight, sequence=1)


def _write_fences(tables: ClusterTables, runners: Sequence[Runner], generation: int, token: str, version: int) -> bool:
    """Steps (b) to (d), of a claim that is version `version` of the table of owners. False: whether (b) was done is not known."""
    name = fence_name(generation, token)
    folders = {runner.name: fence_folder(tables, runner) for runner in runners}
    # (b) Write the own fence files.
    made = ask_all(tables.port, [partial(tables.files.create, f"{folder}/{name}", token) for folder in folders.values()])
    if not all(made):
        return False
    reach(CrashPoint.CLAIM_FENCED)
    owners = tables.journal(OWNERS)
    # (c) Read the owners again, and give up unless this claim is the newest.
    for one in owners.read(Owner) if owners.table.latest_version() != version else ():
        if one.runner in folders and one.token != token:
            for folder in folders.values():
                tables.files.remove(f"{folder}/{name}")
            raise refused(one, "It claimed at the same moment.")
    reach(CrashPoint.CLAIM_NEWEST)
    is_lower = partial(_is_lower, generation)
    # (d) Remove the fence files of lower generations.
    ask_all(tables.port, [partial(tables.files.remove_where, folder, is_lower) for folder in folders.values()])
    return True


def _is_lower(generation: int, fence: str) -> bool:
    return fence_generation(fence) < generation


def _note_taken(tables: ClusterTables, before: Mapping[str, Owner], dead: Collection[str], asked: Collection[str]) -> None:
    """The event of taking over what others still owned; `dead`: holders that ended, `asked`: runners whose owner may have lived."""
    by_holder: dict[str, list[str]] = {}
    for name, owner in before.items():
        if owner.is_owned and owner.holder != tables.me.encode():
            by_holder.setdefault(owner.holder, []).append(name)
    for holder, names in by_holder.items():
        was = Process.decode(holder)
        has_ended = holder in dead or (was is not None and was.is_seen_here and not was.lives)
        code = Reason.NO_OWNER if has_ended else Reason.TAKEN_OVER if names[0] in asked else Reason.OWNER_SILENT
        others = f" and {len(names) - 1:,} more" if len(names) > 1 else ""
        events_of(tables).note(EventKind.OWNER, f"{names[0]}{others}", str(tables.me), from_state=str(was), code=code)
