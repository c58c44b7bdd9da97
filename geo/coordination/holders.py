"""Reads once who owns what in a region, and what tells whether they live; `holder` says what that means. Looks only."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from functools import cached_property
from typing import NamedTuple

from geo.coordination.claims import Liveness, Owner
from geo.coordination.holder import Holder, SeenHere, holder
from geo.coordination.signs import signs
from geo.coordination.storage_clock import storage_now_us
from geo.delta.held_files import as_listed
from geo.delta.mirror import may_be_old
from geo.delta.process import Process
from geo.journal.cluster import ClusterTables
from geo.journal.rows import from_row
from geo.schemas import OWNERS
from geo.times import in_us

live: set[tuple[str, str]] = set()
"""Token and runner of the ownerships of this process that are in use. One that was abandoned after an error is not among them, so that a notebook
can try again without a restart. Its row still says owned, so the next owner fences."""

_MAY_HAVE_RELEASED = (Liveness.DEAD, Liveness.LEFT)


def seen_here(process: Process | None, claims: Iterable[Owner]) -> SeenHere | None:
    """Answer of this host about a process that has some claims.
    None: it says nothing."""
    if process is None or not process.is_seen_here:
        return None
    if process.is_mine:
        return SeenHere(any((one.token, one.runner) in live for one in claims), mine=True)
    return SeenHere(lives, halted=process.stopped) if (lives := process.lives) else SeenHere(lives)


class _Process(NamedTuple):
    """Knowledge about a process, whatever it owns."""

    process: Process | None
    seen: SeenHere | None
    signs_us: Collection[int]


class RegionHolders:
    """The owners of a region, and whether they live. Owners, signs of life, the storage's time and each process are looked at once, when first needed.
    `claims`: the newest ones of the runners in question, for who has read them; else all that are there. `writes`: for who may write to learn the
    storage's time."""

    def __init__(self, tables: ClusterTables, claims: Sequence[Owner] | None = None, *, writes: bool = False) -> None:
        self._tables, self._given, self._writes = tables, claims, writes
        self._processes: dict[str, _Process] = {}

    @cached_property
    def claims(self) -> list[Owner]:
        """The claims and releases that are there, those too that others have replaced, in their order."""
        found = self._given
        if found is None:
            found = [from_row(Owner, row) for row in self._tables.journal(OWNERS).there()]
        return sorted(found, key=lambda one: (one.generation, one.sequence))

    @cached_property
    def newest(self) -> dict[str, Owner]:
        """Newest claim or release by runner."""
        return {one.runner: one for one in self.claims}

    def owned(self) -> list[Holder]:
        """Judgements of each runner that is owned and not released, nor was meanwhile by a process that is gone."""
        found = (self.of(one) for one in self.newest.values() if one.is_owned)
        return [one for one in found if one.liveness is not Liveness.ENDED]

    def of_runner(self, runner: str) -> Holder | None:
        """None: nobody ever owned it."""
        return None if (one := self.newest.get(runner)) is None else self.of(one)

    def of(self, claim: Owner) -> Holder:
        """Judges a newest claim or release. Of a process that is gone, or runs it no longer, what it released meanwhile counts."""
        found = self._of(claim)
        newest = self._read_again.get(claim.runner, claim) if found.liveness in _MAY_HAVE_RELEASED else claim
        return found if (newest.token, newest.state) == (claim.token, claim.state) else self._of(newest)

    @cached_property
    def _read_again(self) -> dict[str, Owner]:
        """The newest claims and releases, read after a process was seen to be gone, or to run something no longer. It may have released that since
        they were read. Also who makes a picture of how all was a moment ago reads them as they are now."""
        with may_be_old(0.0), as_listed(()):
            return {one.runner: one for one in self._tables.journal(OWNERS).read(Owner)}

    def _of(self, claim: Owner) -> Holder:
        known = self._process(claim.holder)
        process, seen = known.process, known.seen
        if seen is not None and seen.mine:  # it may have given up this one
            seen = seen_here(process, [claim])
        name = "a process of another program version" if process is None else str(process)
        return holder(claim, name, seen, known.signs_us, self.now_us, self._tables.cluster.owner_timeout_s)

    def why_not_run(self, runner: str) -> str:
        """Tells why nobody does this now, also if its owner is halted; "": its owner lives, or may."""
        found = self.of_runner(runner)
        return "nobody ever has" if found is None else found.why

    def signs_us(self, encoded: str) -> Collection[int]:
        """The signs of life of a process: its claims and releases, and its own sign."""
        return self._process(encoded).signs_us

    def _process(self, encoded: str) -> _Process:
        """Each process is looked at once, however much it owns."""
        if (known := self._processes.get(encoded)) is None:
            process = Process.decode(encoded)
            told = None if process is None else self._signs.get(process.name)
            signs_us = self._claimed_us.get(encoded, set()) | (set() if told is None else {told})
            known = self._processes[encoded] = _Process(process, seen_here(process, ()), signs_us)
        return known

    @cached_property
    def _claimed_us(self) -> dict[str, set[int]]:
        """Times by process at which it claimed or released something."""
        found: dict[str, set[int]] = {}
        for one in self.newest.values():
            found.setdefault(one.holder, set()).add(in_us(one.since))
        return found

    @cached_property
    def _signs(self) -> dict[str, int]:
        return {name: at_us for name, (at_us, _) in signs(self._tables).items()}

    @cached_property
    def now_us(self) -> int:
        """Now by the storage's clock."""
        return storage_now_us(self._tables, writes=self._writes)
