"""Ownership of links and producers: one runner at a time, and a fence that stops a stale one (facts: exactly-once, C).

The table `system/owners` holds one row per runner with a generation that each new owner raises. The argument that a
stale runner, stopped at any moment and continued after a takeover, adds nothing:

1. Each append's plan reads the runner's fence (a one-line text file) and fails unless it holds the own generation.
   Delta pins the table's snapshot before it plans the append, so the snapshot is older than the check.
2. A takeover, in this order: (a) raises the generation in `owners`, in a numbered Delta transaction, and writes it to the
   fence; (b) sets the table property `geo.fence.<runner>`, a metadata change; (c) reads the table's end and goes on from
   there.
3. Stale check after (a): it fails. Stale check before (a): its snapshot is older than (b); if it commits after (b) the
   metadata change makes it fail, if it commits before (b) then (c) sees it.

(b) is left out after a clean stop, when nothing can be in flight. Assumes commits that are put-if-absent: object stores
with Delta's multi-writer table and HDFS have them, on a local disk the table lock makes them so.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F

from geo.crash import CrashPoint, reach
from geo.errors import AlreadyOwnedError, FencedError
from geo.log.frames import rows_frame
from geo.log.process import Process
from geo.log.tables import ClusterTables, Table
from schemas import OWNERS

log = logging.getLogger(__name__)

_live: set[tuple[str, str]] = set()
"""Runner and token of the ownerships of this process that are in use. One that was abandoned after an error is not among them, so
that a notebook can try again without a restart; its row still says owned, so the next owner fences."""

_CLAIMS = "geo.claims"
"""Delta application id of the claims of one owners table."""

_CLAIM_TRIES = 20
"""Claims of other runners of the cluster may come between; each try takes half a second, and losing twenty is no accident."""

_RAISED = "GEO_FENCED"
_JVM_END_S = 60.0
"""A JVM whose Python was killed ends by itself within seconds; after a minute it hangs and a person must look."""


@dataclass(frozen=True, slots=True)
class Runner:
    """Who is owned: a link's or a producer's work on one topic. `name` is unique in the cluster, `path` is its file form."""

    name: str
    path: str
    property_key: str


class Ownership:
    """A runner that this process owns, with its generation. Made by `claim`."""

    def __init__(self, tables: ClusterTables, runner: Runner, generation: int, token: str, *, clean: bool) -> None:
        self._tables, self.runner, self.generation, self._token = tables, runner, generation, token
        self._clean = clean
        _live.add((runner.name, token))

    def fence(self, log_table: Table, point: CrashPoint | None = None) -> None:
        """Step (b): from here on nothing that an earlier owner has in flight can be committed to `log_table`."""
        if not self._clean:
            log_table.set_property(f"geo.fence.{self.runner.property_key}", str(self.generation))
        if point is not None:
            reach(point)

    @property
    def check(self) -> Column:
        """True while this generation owns the runner; evaluated inside the plan that appends, it fails the append if not."""
        path = _fence_path(self._tables, self.runner).replace("`", "``")
        return F.expr(
            f"CASE WHEN (SELECT max(value) FROM text.`{path}`) = '{self.generation}' THEN true ELSE raise_error('{_RAISED}') END"
        )

    def append(self, table: Table, rows: DataFrame, user_metadata: str | None = None) -> None:
        """Append in one commit, if and only if this generation still owns the runner.

        Raises FencedError if another runner took over; then nothing was written.
        """
        try:
            table.append(rows.where(self.check), user_metadata)
        except PySparkException as error:
            if _RAISED in str(error):
                raise FencedError(
                    f"{self.runner.name}: another runner took over from generation {self.generation}. This one wrote nothing and stops."
                ) from None
            raise

    def release(self) -> None:
        """A clean stop: nothing of this owner is in flight. The next owner needs no fence and need not ask who lives."""
        row = _row(self._tables, self.runner, self.generation, self._token, "released", sequence=0)
        self._tables.opened_system(OWNERS).append(rows_frame(self._tables.spark, OWNERS.types, [row]).coalesce(1))
        self.abandon()

    def abandon(self) -> None:
        """Stop after an error: something may be in flight, so the row stays owned and the next owner fences."""
        _live.discard((self.runner.name, self._token))


def claim(
    tables: ClusterTables, runners: Sequence[Runner], *, take_over: bool = False, point: CrashPoint | None = None
) -> list[Ownership]:
    """Step (a) for several runners in one commit: take them for this process.

    `take_over` takes a runner also from an owner that seems to live; safe because of the fence, rude because that one fails.
    Raises AlreadyOwnedError naming the owner, if one lives or cannot be asked (another host).
    """
    owners = tables.opened_system(OWNERS)
    token = secrets.token_hex(8)
    for _ in range(_CLAIM_TRIES):
        newest, sequence = _newest(owners)
        found = {r.name: newest[r.name] for r in runners if r.name in newest}
        if not take_over:
            for row in found.values():
                _refuse_if_owned(row)
        generations = {r.name: (found[r.name]["generation"] if r.name in found else 0) + 1 for r in runners}
        rows = [_row(tables, r, generations[r.name], token, "owned", sequence + 1) for r in runners]
        # Of two takers that read the same sequence only one appends; the other finds no row of its own and looks again.
        owners.append(rows_frame(tables.spark, OWNERS.types, rows).coalesce(1), transaction=(_CLAIMS, sequence + 1))
        if not owners.read().where((F.col("token") == token) & (F.col("sequence") == sequence + 1)).isEmpty():
            break
    else:
        raise AlreadyOwnedError(f"{runners[0].name}: others claimed at the same moments {_CLAIM_TRIES} times. Start again.")
    for runner in runners:
        fence = rows_frame(tables.spark, {"value": "STRING"}, [{"value": str(generations[runner.name])}])
        fence.coalesce(1).write.mode("overwrite").text(_fence_path(tables, runner))
    if point is not None:
        reach(point)
    return [
        Ownership(tables, r, generations[r.name], token, clean=r.name not in found or found[r.name]["state"] == "released")
        for r in runners
    ]


def _newest(owners: Table) -> tuple[dict[str, Row], int]:
    """The newest row of each runner, and the number of the last claim of any."""
    newest: dict[str, Row] = {}
    sequence = 0
    for row in owners.read().collect():
        sequence = max(sequence, row["sequence"])
        known = newest.get(row["runner"])
        if known is None or (row["generation"], row["state"] == "released") > (known["generation"], known["state"] == "released"):
            newest[row["runner"]] = row
    return newest, sequence


def owned_now(tables: ClusterTables) -> list[Row]:
    """The runners of a cluster that are owned and not released: rows of schemas.OWNERS."""
    owners = tables.system(OWNERS)
    return [row for row in _newest(owners)[0].values() if row["state"] == "owned"] if owners.exists() else []


def _row(tables: ClusterTables, runner: Runner, generation: int, token: str, state: str, sequence: int) -> dict[str, object]:
    return {
        "runner": runner.name,
        "generation": generation,
        "token": token,
        "holder": tables.me.encode(),
        "state": state,
        "sequence": sequence,
        "since": datetime.now(timezone.utc),
    }


def _refuse_if_owned(row: Row) -> None:
    runner, since, holder = row["runner"], row["since"], Process.decode(row["holder"])
    if row["state"] == "released" or holder is None:
        return
    if holder.is_mine and (runner, row["token"]) not in _live:
        return
    if not holder.is_here:
        raise AlreadyOwnedError(
            f"{runner}: owned by {holder} since {since:%Y-%m-%d %H:%M:%S} UTC, which did not stop cleanly or still runs. "
            "From here it cannot be told which. If it is gone, or if you want to replace it, start again with --take-over."
        )
    if holder.lives:
        raise AlreadyOwnedError(
            f"{runner}: already run by {holder} since {since:%Y-%m-%d %H:%M:%S} UTC. One runner at a time: stop that one first, "
            "or start with --take-over to replace it."
        )
    if not holder.wait_for_jvm_end(_JVM_END_S):
        raise AlreadyOwnedError(f"{runner}: the JVM {holder.jvm_pid} of the dead {holder} still runs: end it, then start again.")


def _fence_path(tables: ClusterTables, runner: Runner) -> str:
    return tables.checkpoint("fences", runner.path)
