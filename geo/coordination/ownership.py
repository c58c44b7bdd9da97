"""Ownership of what one process at a time may do, and a fence that stops a stale owner (facts: exactly-once, C).

A runner is an origin's way into a topic of a cluster, or a producer. `system/owners` has a row per claim, with a generation and a
token; a claim is the file `<generation>-<token>` in its runner's folder of fences. The argument that a stale owner, stopped at
any moment and continued after a takeover, adds nothing:

1. An append asks for exactly the own fence file after the version is known on which its commit follows. On a local disk this
   process commits: it takes the table's lock, reads the newest version, asks for the file, and commits as the next version or
   begins again. Whatever is slow (a plan, which may read another region, and its files) comes before the lock. On an object store
   it commits without a lock: it reads version v, asks for the file, puts v+1 if that is absent, and the commit counts only while v
   is as it was read (geo.delta.counted). Where Spark commits, the append's plan reads the file and fails unless it is there: Delta pins the table's snapshot before it plans the
   append, so the snapshot is older than the check. (A table on a local disk of which this program does not know the features:
   the plan reads files that were written before the lock was taken.)
2. A takeover, in this order: (a) it adds its claim to `owners`, with a generation above all that are there: on a local disk under
   that table's lock, elsewhere by a Delta transaction of that number, so no two have the same; (b) it writes its own fence file;
   (c) it reads `owners` again and gives up, removing only its own file, unless its claim is the newest; (d) it removes the files
   of lower generations; (e) on a local disk it waits for the table's lock, elsewhere it sets the table property
   `geo.fence.<runner>` to its token, a metadata change; (f) it reads the table's end and goes on from there.
3. Stale check after (d): it fails, whenever its plan was made or its files were written. Stale check before (d): on a local disk
   the check and the commit are under one hold of the table's lock, so (f) sees it; on an object store (e) takes v+1, or comes before v was read; by Spark its snapshot is older than (e): if it commits after (e) the
   metadata change makes it fail, if it commits before (e) then (f) sees it.
4. A claimer that is stopped anywhere before (d) finds at (c), or by its missing file, that it is not the newest. No file is
   ever overwritten, and no two claims share a name.

Where there is no lock (e) is left out if nothing can be in flight: the last owner released the runner, or (where Spark commits) it died on this host with its
JVM, and its row does not say that something of those before it was still in flight. What this program has sent to an object store may come after its end. Assumes commits that are put-if-absent; where storage does not
have them a claim is refused (geo.delta.storage).

Whether an owner lives that this process cannot see is told by its last sign of life and the storage's clock (geo.coordination.holder).
"""

from __future__ import annotations

import logging
import random
import re
import secrets
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa

from geo.coordination.claims import OWNED, RELEASED, Liveness, Owner, Refuse, Take, decide, fence_generation, fence_name
from geo.coordination.clock import SIGN_APART_US, refuse, why_wrong
from geo.coordination.first_use import admit
from geo.coordination.heartbeat import keep_alive, leave
from geo.coordination.holder import liveness
from geo.coordination.holders import RegionHolders, live, seen_here
from geo.coordination.liveness import silent_s
from geo.coordination.storage_clock import known_now_us, note, renew, storage_now_us
from geo.crash import CrashPoint, reach
from geo.delta.locks import JVM_END_S
from geo.delta.process import Process
from geo.delta.store import ask_all
from geo.delta.table import Table
from geo.delta.writer import Written
from geo.errors import AlreadyOwnedError, FencedError, InvalidNameError, RetryableError, UnsafeError
from geo.faults import faults_here, spark_errors_here
from geo.journal.cluster import ClusterTables
from geo.journal.event_rate import EventKind
from geo.journal.events import events_of
from geo.journal.journal import Journal
from geo.late import F
from geo.names import Topic
from geo.now import now_us
from geo.reasons import Reason
from geo.schemas import OWNERS
from geo.sql_text import identifier
from geo.times import from_us, in_us, shown_time

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

log = logging.getLogger(__name__)

_CLAIMS = "geo.claims"
"""Delta application id of the claims of one owners table."""

_CLAIM_S, _CLAIM_PAUSE_S = 60.0, 0.2
"""Claims of other runners of the cluster may come between, on a store without locks three times of four where eight claim at once. Who lost
looks again after a moment, since the others do not wait either, and gives up after a minute."""

_FENCE_TRIES = 5
"""So often it is claimed anew because a store does not say whether a fence was made. It is asked for each once."""

_RAISED = "GEO_FENCED"

Rows: TypeAlias = "DataFrame | pa.Table | Written"
"""What is appended: rows of Spark's, rows that are at hand, or files that were written beside the table and not committed."""


@dataclass(frozen=True, slots=True)
class Runner:
    """What is owned. `name` is unique in the cluster, `path` is its folder of fences, `property_key` its part of a table
    property."""

    name: str
    path: str
    property_key: str


class RunnerKind(str, Enum):
    """What a runner does. Its name begins with this."""

    ORIGIN = "origin"
    FILLING = "backfill of"
    PRODUCER = "producer"
    CONSUMER = "subscription"


_PLACES = {
    RunnerKind.ORIGIN: ("origin/{who}/{topic}", "origin"),
    RunnerKind.FILLING: ("backfill/{who}/{topic}", "backfill"),
    RunnerKind.PRODUCER: ("publish/{topic}/{who}", "producer"),
    RunnerKind.CONSUMER: ("consume/{topic}/{who}", "subscription"),
}
"""By kind, `Runner.path` and the beginning of `Runner.property_key`."""

_NAME = re.compile(rf"({'|'.join(kind.value for kind in RunnerKind)}) (\S+) of (\S+) (?:in|into) ([^\s,]+)(?:, (.+))?")


@dataclass(frozen=True, slots=True)
class RunnerName:
    """The name of a runner that does something for one topic in a cluster, made and read here only. `who`: the origin, producer
    or subscription; `share`: that of a consumer, if it is not alone."""

    kind: RunnerKind
    who: str
    topic: Topic
    cluster: str
    share: str = ""

    def __str__(self) -> str:
        into = "into" if self.kind in (RunnerKind.ORIGIN, RunnerKind.FILLING) else "in"
        return f"{self.kind.value} {self.who} of {self.topic} {into} {self.cluster}{self.share and f', {self.share}'}"

    @classmethod
    def parse(cls, text: str) -> RunnerName | None:
        """The inverse of `str`; None for any other text, as the name of a broker."""
        if (found := _NAME.fullmatch(text)) is None:
            return None
        kind, who, topic, cluster, share = found.groups()
        try:
            name = cls(RunnerKind(kind), who, Topic.parse(topic), cluster, share or "")
        except InvalidNameError:
            return None
        return name if str(name) == text else None

    @property
    def runner(self) -> Runner:
        place, key = _PLACES[self.kind]
        who = self.who + (self.share and "-" + self.share.replace(" ", "-"))
        return Runner(str(self), place.format(who=who, topic=self.topic.path), f"{key}.{who}")


def origin_runners(origins: Set[str], topic: Topic, target: str) -> list[Runner]:
    """Bringing the messages of each of the origins into the topic's log in `target`, whoever does it: a link, a reconcile, a
    rebuild."""
    return [RunnerName(RunnerKind.ORIGIN, origin, topic, target).runner for origin in sorted(origins)]


def filling_runners(origins: Set[str], topic: Topic, target: str) -> list[Runner]:
    """Bringing what is missing of each of the origins in what a link has passed: a backfill beside it, or whoever compares both
    logs, which is over some time."""
    return [RunnerName(RunnerKind.FILLING, origin, topic, target).runner for origin in sorted(origins)]


def producer_runner(tables: ClusterTables, topic: Topic, producer: str) -> Runner:
    """What a producer owns: its work on one topic."""
    return RunnerName(RunnerKind.PRODUCER, producer, topic, tables.cluster.name).runner


def consumer_runner(tables: ClusterTables, topic: Topic, subscription: str, share: str = "") -> Runner:
    """What a consumer owns: delivering a subscription in one cluster, or a named share of it."""
    return RunnerName(RunnerKind.CONSUMER, subscription, topic, tables.cluster.name, share).runner


def subscription_prefix(tables: ClusterTables, topic: Topic, subscription: str) -> str:
    """How the names of all runners begin that deliver the subscription, or a share of it, in this cluster."""
    return str(RunnerName(RunnerKind.CONSUMER, subscription, topic, tables.cluster.name))


def name_of_share(number: int, count: int) -> str:
    """The share of the keys of consumer `number` of `count`, counted from 0."""
    return f"keys {number} of {count}"


def broker_runner(tables: ClusterTables) -> Runner:
    """What the broker of a cluster owns: being the only one. What it runs is owned piece by piece."""
    return Runner(f"broker of {tables.cluster.name}", "broker", "broker")


def version_sync_runner(tables: ClusterTables) -> Runner:
    """Telling where version subscriptions may go on: the tail, which writes `system/markers`, and the controllers, which read it."""
    return Runner(f"version sync of {tables.cluster.name}", "version-sync", "version-sync")


class Ownership:
    """Runners that this process owns by one claim. Made by `claim`."""

    def __init__(self, tables: ClusterTables, runners: Sequence[Runner], generation: int, token: str, *, in_flight: bool) -> None:
        self._tables, self.runners, self.generation, self.token = tables, tuple(runners), generation, token
        self.in_flight = in_flight
        """An append of an earlier owner may still land: it is not fenced yet."""
        self._is_abandoned = False
        self._besides: list[Ownership] = []
        """What must be owned too, for an append to count."""
        live.update((token, runner.name) for runner in self.runners)

    def __str__(self) -> str:
        return ", ".join(runner.name for runner in self.runners)

    def fence(self, log_table: Table, point: CrashPoint | None = None) -> None:
        """Step (e): from here on nothing that an earlier owner has in flight can be committed to `log_table`."""
        # The lock is taken in any case: nothing that is known of an owner's end is as good.
        if not log_table.wait_for_commits() and self.in_flight:
            for runner in self.runners:
                log_table.set_property(f"geo.fence.{runner.property_key}", self.token)
        self.in_flight = False
        if point is not None:
            reach(point)

    @contextmanager
    def besides(self, other: Ownership) -> Iterator[None]:
        """Meanwhile an append is one of both: it fails if either is owned here no longer."""
        self._besides.append(other)
        try:
            yield
        finally:
            self._besides.remove(other)

    @property
    def check(self) -> Column:
        """True while this claim owns its runners; evaluated inside the plan that appends, it fails the append if not."""
        found = " AND ".join(f"(SELECT count(*) FROM text.{identifier(path)}) = 1" for path in self._fences)
        return F.expr(f"CASE WHEN {found} THEN true ELSE raise_error('{_RAISED}') END")

    def precedes(self, runner: Runner) -> bool:
        """Whether somebody claimed another runner of the cluster after this claim."""
        return any(one.generation > self.generation for one in self._tables.journal(OWNERS).read(Owner, runner=runner.name))

    def still_owns(self) -> bool:
        """Whether nobody took a runner over, as far as can be seen now. For what is not an append; an append asks in its plan."""
        return _are_there(self._tables, self._fences)

    def refuse_if_replaced(self) -> None:
        """Raises FencedError if another runner took over: its newer fence is there, and the own one is not."""
        for other in self._besides:
            other.refuse_if_replaced()
        if self.still_owns():
            return
        names = (name for runner in self.runners for name in self._tables.files.names(_fences_of(self._tables, runner)))
        if any(fence_generation(name) > self.generation for name in names):
            raise FencedError(
                f"{self}: another runner took over from generation {self.generation}. This one wrote nothing more and stops."
            )

    def refuse_if_lost(self) -> None:
        """Raises FencedError if another runner took over, RetryableError if the fence cannot be found (its storage is away), and
        once it was abandoned: whoever did that waits for nobody, who may still be at it."""
        ask_all(self._tables.port, [*(other.refuse_if_lost for other in self._besides), self._refuse_if_lost_alone])

    def _refuse_if_lost_alone(self) -> None:
        if self._is_abandoned:
            raise RetryableError(f"{self}: it is owned here no longer. Nothing more was written.")
        if _are_there(self._tables, self._own_fences):
            return
        self.refuse_if_replaced()
        raise RetryableError(f"{self}: the fence of generation {self.generation} is not there: {', '.join(self._fences)}.")

    def append(
        self, table: Table, rows: Rows, user_metadata: str | None = None, refuse: Callable[[], None] = lambda: None
    ) -> None:
        """Append in one commit, if and only if this claim still owns its runners; what is no DataFrame without Spark, where that
        can be. `refuse` raises unless the table is as the rows were made for: it is asked right before, as `Table.append`'s, where a look
        is a request beside the own fences.

        Raises FencedError if another runner took over; then nothing was written.
        """

        def refuse_all() -> None:
            ask_all(self._tables.port, [self.refuse_if_lost, refuse])

        try:
            # `refuse` also asks for the fence, so that no plan is made by whoever was replaced long ago. Where Spark commits, the
            # check in the plan is what counts.
            if isinstance(rows, Written):
                table.append_written(rows, user_metadata, refuse_all, self._fenced)
            elif isinstance(rows, pa.Table):
                table.append_rows(rows, user_metadata, refuse_all, self._fenced)
            else:
                table.append(rows, user_metadata, refuse=refuse_all, fenced=self._fenced)
        except spark_errors_here():
            # Its plan found the file missing, or a file that was there when it was made: the error has many forms, the cause one.
            self.refuse_if_lost()
            raise

    def _fenced(self, rows: DataFrame) -> DataFrame:
        return rows.where(self.check)

    def abandon(self) -> None:
        """Stop after an error: something may be in flight, so the row stays owned and the next owner fences."""
        self._is_abandoned = True
        mine = {(self.token, runner.name) for runner in self.runners}  # other ownerships of the same claim go on
        if mine & live:
            live.difference_update(mine)
            leave(self._tables)

    @property
    def _fences(self) -> list[str]:
        return [*self._own_fences, *(path for other in self._besides for path in other._fences)]

    @property
    def _own_fences(self) -> list[str]:
        name = fence_name(self.generation, self.token)
        return [f"{_fences_of(self._tables, runner)}/{name}" for runner in self.runners]


def _are_there(tables: ClusterTables, paths: Sequence[str]) -> bool:
    return all(ask_all(tables.port, [partial(tables.files.exists, path) for path in paths]))


def _fences_of(tables: ClusterTables, runner: Runner) -> str:
    """The folder of a runner's fence files."""
    return tables.checkpoint("fences", runner.path)


def fences_of(tables: ClusterTables, owner: Owner) -> tuple[str, Sequence[str]] | None:
    """The name of the fence of a claim, and those that its runner has: they are this one alone, but while somebody claims it. None: where they
    are is not known by the runner's name, as of bundles."""
    name = RunnerName.parse(owner.runner)
    others = (broker_runner(tables), version_sync_runner(tables))
    runner = name.runner if name is not None else next((one for one in others if one.name == owner.runner), None)
    return None if runner is None else (fence_name(owner.generation, owner.token), tables.files.names(_fences_of(tables, runner)))


def release(ownerships: Sequence[Ownership]) -> None:
    """A clean stop, in one commit: nothing of these owners, all of one cluster, is in flight. The next ones need not ask who
    lives, and fence only if these have not fenced against those before them."""
    if ownerships:
        tables = ownerships[0]._tables
        since = from_us(storage_now_us(tables))
        claims = [_claim(tables, r, o.generation, o.token, since, in_flight=o.in_flight) for o in ownerships for r in o.runners]
        tables.journal(OWNERS).append([replace(one, state=RELEASED, sequence=1) for one in claims])
    for ownership in ownerships:
        ownership.abandon()


@contextmanager
def giving_back(owned: Sequence[Ownership], is_safe: Callable[[Exception], bool] = lambda error: False) -> Iterator[None]:
    """Release them, all of one cluster, once what is done under them has ended well, or has failed so that nothing is in flight: after which
    errors that is so `is_safe` says. After all others the next owner fences."""
    try:
        yield
        release(owned)
    except faults_here() as error:
        if is_safe(error):
            release(owned)
        raise
    finally:
        for ownership in owned:
            ownership.abandon()


def claim(
    tables: ClusterTables,
    wanted: Sequence[Sequence[Runner]],
    *,
    take_over: bool | Collection[Runner] = False,
    point: CrashPoint | None = None,
) -> list[Ownership]:
    """Steps (a) to (d) for several groups of runners in one commit: take them for this process, all or none.

    `take_over` also replaces an owner that lives, of all of them or of these. The fence makes this safe; the replaced runner fails.
    Raises AlreadyOwnedError naming the owner, if one lives; UnsafeError where the cluster's storage loses commits, and on a host
    whose clock is not the storage's; RetryableError where the store says again and again not whether a fence was made.
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
    """As `claim`. None: it is claimed, and the store does not say whether a fence was made, which may still come, also after somebody took over.
    So nothing is done under this claim; the next one, which has fences of its own names, takes it for that of an owner who left."""
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
                _claim(tables, r, decision.generation, token, since, in_flight=r.name in decision.in_flight)
                for r in runners.values()
            ]
            if alone.is_alone:
                alone.append(claims)  # (a)
                version = alone.table.latest_version()
                break
        # (a) Of two takers that read the same generation only one appends; the other looks again.
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
            held = note(tables, before_us, in_us(owners.table.committed_at(version)), who)
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


def _looked(
    tables: ClusterTables, owners: Journal, runners: Mapping[str, Runner], replaced: Collection[str], *, wait: bool = True
) -> tuple[dict[str, Owner], Take]:
    """The newest claims of the cluster by runner, and what may be done about `runners`. Waits for the JVMs of the dead to end.
    Raises AlreadyOwnedError."""
    # Fences first: whose fence is there has its claim in what is read then. The other way around that of somebody who came between would
    # count as one of a table that was put back.
    names = ask_all(tables.port, [partial(tables.files.names, _fences_of(tables, one)) for one in runners.values()])
    there = {name: list(map(fence_generation, files)) for name, files in zip(runners, names, strict=True)}
    found = {one.runner: one for one in owners.read(Owner)}
    held = [owner for name, owner in found.items() if name in runners and owner.is_owned]
    decision = decide(
        found.values(), runners, _liveness(tables, held), there, take_over=replaced, outlives=tables.port is not None
    )
    if isinstance(decision, Refuse):
        raise _already_runs(decision.owner)
    for holder in decision.dead if wait else ():
        _wait_for_end(holder, next(owner.runner for owner in held if owner.holder == holder))
    return found, decision


def _given_back(claimed: Owner, before: Owner | None) -> Owner:
    """The row by which a claim that fenced nobody leaves a runner to whoever had it: that one may live, and has its fence. What
    the claim found in flight stays in flight: its generation is above the fences by which the next one would find it."""
    if before is None:
        return replace(claimed, state=RELEASED, sequence=1)
    return replace(before, generation=claimed.generation, in_flight=claimed.in_flight, sequence=1)


def _write_fences(tables: ClusterTables, runners: Sequence[Runner], generation: int, token: str, version: int) -> bool:
    """Steps (b) to (d), of a claim that is version `version` of the table of owners. False: whether (b) was done is not known."""
    name = fence_name(generation, token)
    folders = {runner.name: _fences_of(tables, runner) for runner in runners}
    made = ask_all(tables.port, [partial(tables.files.create, f"{folder}/{name}", token) for folder in folders.values()])  # (b)
    if not all(made):
        return False
    reach(CrashPoint.CLAIM_FENCED)
    owners = tables.journal(OWNERS)
    for one in owners.read(Owner) if owners.table.latest_version() != version else ():  # (c)
        if one.runner in folders and one.token != token:
            for folder in folders.values():
                tables.files.remove(f"{folder}/{name}")
            raise _refused(one, "It claimed at the same moment.")
    reach(CrashPoint.CLAIM_NEWEST)
    is_lower = partial(_is_lower, generation)
    ask_all(tables.port, [partial(tables.files.remove_where, folder, is_lower) for folder in folders.values()])  # (d)
    return True


def _is_lower(generation: int, fence: str) -> bool:
    return fence_generation(fence) < generation


def owned_now(tables: ClusterTables) -> list[Owner]:
    """The runners of a cluster that are owned and not released."""
    return [one for one in tables.journal(OWNERS).read(Owner) if one.is_owned]


def refuse_producers(tables: ClusterTables, topics: Set[Topic]) -> None:
    """Raises AlreadyOwnedError if a producer of one of these topics lives in this cluster, or may."""
    refuse_living(tables, [one for name, one in named_owners(tables, RunnerKind.PRODUCER) if name.topic in topics])


def refuse_living(tables: ClusterTables, owners: Sequence[Owner], else_: str = "Nothing was written.") -> None:
    """Raises AlreadyOwnedError, which ends with `else_`, if one of these owners lives, or may."""
    owners = [one for one in owners if one.is_owned]
    found = _liveness(tables, owners)
    for one in owners:
        if found[one.holder].is_alive:
            raise _refused(one, else_)
        _wait_for_end(one.holder, one.runner)


def named_owners(tables: ClusterTables, kind: RunnerKind | None = None) -> list[tuple[RunnerName, Owner]]:
    """Everybody, or all of a kind, who ever owned something of a topic in this cluster."""
    owners = tables.journal(OWNERS).read(Owner, None if kind is None else ("runner", f"{kind.value} "))
    found = [(name, one) for one in owners if (name := RunnerName.parse(one.runner)) is not None]
    return [(name, one) for name, one in found if name.cluster == tables.cluster.name]


def owners_of(tables: ClusterTables, prefix: str) -> list[Owner]:
    """The newest claims of the runners whose names begin so."""
    return tables.journal(OWNERS).read(Owner, ("runner", prefix))


def owner_of(tables: ClusterTables, runner: str) -> Owner | None:
    """The newest claim of the runner of this name; None: nobody ever owned it."""
    return tables.journal(OWNERS).one(Owner, runner=runner)


def _liveness(tables: ClusterTables, held: Sequence[Owner]) -> dict[str, Liveness]:
    """What is known of each holder. Signs of life are asked for only if this host cannot see one of them."""
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
    """Whether the end of its JVM tells that nothing of it is in flight."""
    return bool(dead.jvm_started) and dead.jvm != tables.me.jvm


def _claim(tables: ClusterTables, runner: Runner, generation: int, token: str, since: datetime, *, in_flight: bool) -> Owner:
    return Owner(runner.name, generation, token, tables.me.encode(), OWNED, in_flight, since)


def _already_runs(owner: Owner) -> AlreadyOwnedError:
    """Of one whom somebody may replace."""
    holder = Process.decode(owner.holder)
    if holder is None or not holder.is_mine:
        return _refused(owner, "Start again with --take-over to replace it.")
    return AlreadyOwnedError(
        f"{owner.runner}: already run by this process since {shown_time(owner.since)}. As where a cell of a notebook is run again. "
        "One runner at a time: call stop() of what runs, or begin with take_over=True, which ends it."
    )


def _refused(owner: Owner, else_: str) -> AlreadyOwnedError:
    holder = Process.decode(owner.holder)
    who = "this process" if holder is not None and holder.is_mine else str(holder)
    unseen = " From here one cannot look whether it lives; it gave a sign of life lately."
    elsewhere = "" if holder is None or holder.is_seen_here else unseen
    return AlreadyOwnedError(
        f"{owner.runner}: already run by {who} since {shown_time(owner.since)}.{elsewhere} One runner at a time: stop that one first. {else_}"
    )


def _wait_for_end(encoded: str, runner: str) -> None:
    """Wait until the JVM of a dead holder on this host, which may still be committing, is gone too."""
    holder = Process.decode(encoded)
    if holder is not None and holder.is_seen_here and not holder.is_mine and not holder.wait_for_jvm_end(JVM_END_S):
        raise AlreadyOwnedError(f"{runner}: the JVM {holder.jvm_pid} of the dead {holder} still runs: end it, then start again.")
