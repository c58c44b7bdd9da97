"""Ownership of what one process at a time may do, and a fence that stops a stale owner (facts: exactly-once, C).

A runner is an origin's way into a topic of a cluster, or a producer. `system/owners` has a row per claim, with a generation and a token. A claim is
the file `<generation>-<token>` in its runner's folder of fences. A stale owner may be stopped at any moment and continued after a takeover. The
argument that it adds nothing:

1. An append asks for exactly the own fence file after the version is known on which its commit follows.

   - On a local disk this process commits: it takes the table's lock, reads the newest version and asks for the file. Then it
     commits as the next version or begins again. Whatever is slow (a plan, which may read another region, and its files) comes
     before the lock.
   - On an object store it commits without a lock: it reads version v, asks for the file and puts v+1 if that is absent. The commit
     counts only while v is as it was read (geo.delta.counted).
   - Where Spark commits, the append's plan reads the file and fails unless it is there. Delta pins the table's snapshot before it
     plans the append, so the snapshot is older than the check. If this program does not know the features of a local
     table, the plan reads files that were written before the lock was taken.
2. A takeover does this, in this order ((a) to (d): geo.coordination.claiming; (e): `Ownership.fence`):

   - (a) It adds its claim to `owners`, with a generation above all that are there. On a local disk it does so under that table's
     lock, elsewhere by a Delta transaction of that number, so no two have the same.
   - (b) It writes its own fence file.
   - (c) It reads `owners` again and gives up, removing only its own file, unless its claim is the newest.
   - (d) It removes the files of lower generations.
   - (e) On a local disk it waits for the table's lock. Elsewhere it sets the table property `geo.fence.<runner>` to its token, a
     metadata change.
   - (f) It reads the table's end and goes on from there.
3. A stale check after (d) fails, whenever its plan was made or its files were written. For a stale check before (d):

   - On a local disk the check and the commit are under one hold of the table's lock, so (f) sees the commit.
   - On an object store (e) takes v+1, or comes before v was read.
   - By Spark its snapshot is older than (e). If it commits after (e), the metadata change makes it fail; if it commits before (e),
     then (f) sees it.
4. A claimer that is stopped anywhere before (d) finds at (c), or by its missing file, that it is not the newest. No file is
   ever overwritten, and no two claims share a name.

Where there is no lock, (e) is left out if nothing can be in flight. The last owner released the runner, or (where Spark commits) it died on this
host with its JVM. And its row does not say that something of those before it was still in flight. What this program has sent to an object store may
come after its end. Commits are assumed to be put-if-absent; where storage does not have them a claim is refused (geo.delta.storage).

An owner that this process cannot see is judged by its last sign of life and the storage's clock (geo.coordination.holder).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa

from geo.coordination.claims import OWNED, RELEASED, Owner, fence_generation, fence_name
from geo.coordination.heartbeat import leave
from geo.coordination.holders import live
from geo.coordination.runners import Runner, RunnerName, broker_runner, version_sync_runner
from geo.coordination.storage_clock import storage_now_us
from geo.crash import CrashPoint, reach
from geo.delta.appending import append_frame, append_rows, append_written
from geo.delta.committing import wait_for_commits
from geo.delta.ddl import set_property
from geo.delta.row_files import Written
from geo.delta.store import ask_all
from geo.delta.table import Table
from geo.errors import FencedError, RetryableError
from geo.faults import faults_here, spark_errors_here
from geo.journal.cluster import ClusterTables
from geo.late import F
from geo.schemas import OWNERS
from geo.sql_text import identifier
from geo.times import from_us

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_RAISED = "GEO_FENCED"

Rows: TypeAlias = "DataFrame | pa.Table | Written"
"""Rows to append: rows of Spark's, rows that are at hand, or files that were written beside the table and not committed."""


class Ownership:
    """Runners that this process owns by one claim. Made by `claim`."""

    def __init__(self, tables: ClusterTables, runners: Sequence[Runner], generation: int, token: str, *, in_flight: bool) -> None:
        self._tables, self.runners, self.generation, self.token = tables, tuple(runners), generation, token
        self.in_flight = in_flight
        """An append of an earlier owner may still land: it is not fenced yet."""
        self._is_abandoned = False
        self._besides: list[Ownership] = []
        """Ownerships that must hold too, for an append to count."""
        live.update((token, runner.name) for runner in self.runners)

    def __str__(self) -> str:
        return ", ".join(runner.name for runner in self.runners)

    def fence(self, log_table: Table, point: CrashPoint | None = None) -> None:
        """Step (e): from here on nothing that an earlier owner has in flight can be committed to `log_table`."""
        # The lock is taken in any case: nothing that is known of an owner's end is as good.
        if not wait_for_commits(log_table) and self.in_flight:
            for runner in self.runners:
                set_property(log_table, f"geo.fence.{runner.property_key}", self.token)
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
        """True if somebody claimed another runner of the cluster after this claim."""
        return any(one.generation > self.generation for one in self._tables.journal(OWNERS).read(Owner, runner=runner.name))

    def still_owns(self) -> bool:
        """True if nobody took a runner over, as far as can be seen now. For actions that are no append; an append asks in its plan."""
        return _are_there(self._tables, self._fences)

    def refuse_if_replaced(self) -> None:
        """Raises FencedError if another runner took over: its newer fence is there, and the own one is not."""
        for other in self._besides:
            other.refuse_if_replaced()
        if self.still_owns():
            return
        names = (name for runner in self.runners for name in self._tables.files.names(fence_folder(self._tables, runner)))
        if any(fence_generation(name) > self.generation for name in names):
            raise FencedError(
                f"{self}: another runner took over from generation {self.generation}. This one wrote nothing more and stops."
            )

    def refuse_if_lost(self) -> None:
        """Raises FencedError if another runner took over, RetryableError if the fence cannot be found (its storage is away), and once it was
        abandoned. Whoever did that waits for nobody, who may still be at it."""
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
        """Append in one commit, if and only if this claim still owns its runners; what is no DataFrame without Spark, where that can be. `refuse`
        raises unless the table is as the rows were made for. It is asked right before, as `append_frame`'s, where a look is a request beside the
        own fences.

        Raises FencedError if another runner took over; then nothing was written.
        """

        def refuse_all() -> None:
            ask_all(self._tables.port, [self.refuse_if_lost, refuse])

        try:
            # `refuse` also asks for the fence, so that no plan is made by whoever was replaced long ago. Where Spark commits, the
            # check in the plan is what counts.
            if isinstance(rows, Written):
                append_written(table, rows, user_metadata, refuse_all, self._fenced)
            elif isinstance(rows, pa.Table):
                append_rows(table, rows, user_metadata, refuse_all, self._fenced)
            else:
                append_frame(table, rows, user_metadata, refuse=refuse_all, fenced=self._fenced)
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
        return [f"{fence_folder(self._tables, runner)}/{name}" for runner in self.runners]


def release(ownerships: Sequence[Ownership]) -> None:
    """A clean stop, in one commit: nothing of these owners, all of one cluster, is in flight. The next ones need not ask who
    lives, and fence only if these have not fenced against those before them."""
    if ownerships:
        tables = ownerships[0]._tables
        since = from_us(storage_now_us(tables))
        claims = [
            owned_row(tables, r, o.generation, o.token, since, in_flight=o.in_flight) for o in ownerships for r in o.runners
        ]
        tables.journal(OWNERS).append([replace(one, state=RELEASED, sequence=1) for one in claims])
    for ownership in ownerships:
        ownership.abandon()


@contextmanager
def giving_back(owned: Sequence[Ownership], is_safe: Callable[[Exception], bool] = lambda error: False) -> Iterator[None]:
    """Release them, all of one cluster, once what is done under them has ended well or failed with nothing in flight (`is_safe` says which errors).
    After all others the next owner fences."""
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


def owned_row(tables: ClusterTables, runner: Runner, generation: int, token: str, since: datetime, *, in_flight: bool) -> Owner:
    return Owner(runner.name, generation, token, tables.me.encode(), OWNED, in_flight, since)


def fences_of(tables: ClusterTables, owner: Owner) -> tuple[str, Sequence[str]] | None:
    """The name of the fence of a claim, and those that its runner has: they are this one alone, but while somebody claims it. None: where they
    are is not known by the runner's name, as of bundles."""
    name = RunnerName.parse(owner.runner)
    others = (broker_runner(tables), version_sync_runner(tables))
    runner = name.runner if name is not None else next((one for one in others if one.name == owner.runner), None)
    return (
        None if runner is None else (fence_name(owner.generation, owner.token), tables.files.names(fence_folder(tables, runner)))
    )


def fence_folder(tables: ClusterTables, runner: Runner) -> str:
    """The folder of a runner's fence files."""
    return tables.checkpoint("fences", runner.path)


def _are_there(tables: ClusterTables, paths: Sequence[str]) -> bool:
    return all(ask_all(tables.port, [partial(tables.files.exists, path) for path in paths]))
