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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F

from geo.crash import CrashPoint, reach
from geo.errors import AlreadyOwnedError, FencedError
from geo.log.frames import rows_frame, utc
from geo.log.names import Topic
from geo.log.process import Process
from geo.log.table import Table
from geo.log.tables import ClusterTables
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

    def __init__(self, tables: ClusterTables, runner: Runner, claim: Mapping[str, Any], *, clean: bool) -> None:
        self._tables, self.runner, self._claim, self._clean = tables, runner, claim, clean
        self.generation: int = claim["generation"]
        _live.add((runner.name, claim["token"]))

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

    def abandon(self) -> None:
        """Stop after an error: something may be in flight, so the row stays owned and the next owner fences."""
        _live.discard((self.runner.name, self._claim["token"]))


def release(ownerships: Sequence[Ownership]) -> None:
    """A clean stop, in one commit: nothing of these owners, all of one cluster, is in flight. The next ones need no fence and
    need not ask who lives."""
    if ownerships:
        rows = [{**o._claim, "state": "released", "sequence": o._claim["sequence"] + 1, "since": _now()} for o in ownerships]
        ownerships[0]._tables.journal(OWNERS).append(rows)
    for ownership in ownerships:
        ownership.abandon()


def claim(
    tables: ClusterTables, runners: Sequence[Runner], *, take_over: bool = False, point: CrashPoint | None = None
) -> list[Ownership]:
    """Step (a) for several runners in one commit: take them for this process.

    `take_over` takes a runner also from an owner that seems to live; safe because of the fence, rude because that one fails.
    Raises AlreadyOwnedError naming the owner, if one lives or cannot be asked (another host).
    """
    owners, token = tables.journal(OWNERS), secrets.token_hex(8)
    names = {runner.name for runner in runners}
    for _ in range(_CLAIM_TRIES):
        newest = owners.newest()
        found = {row["runner"]: row for row in newest if row["runner"] in names}
        if not take_over:
            for row in found.values():
                _refuse_if_owned(row, "Start again with --take-over to replace it.")
        sequence = max((row["sequence"] for row in newest), default=0) // 2 * 2 + 2
        rows = {
            name: {
                "runner": name,
                "generation": (found[name]["generation"] if name in found else 0) + 1,
                "token": token,
                "holder": tables.me.encode(),
                "state": "owned",
                "sequence": sequence,
                "since": _now(),
            }
            for name in sorted(names)
        }
        # Of two takers that read the same number only one appends; the other looks again.
        if owners.append_once(list(rows.values()), (_CLAIMS, sequence), token):
            break
    else:
        raise AlreadyOwnedError(f"{runners[0].name}: others claimed at the same moments {_CLAIM_TRIES} times. Start again.")
    for runner in runners:
        fence = rows_frame(tables.spark, {"value": "STRING"}, [{"value": str(rows[runner.name]["generation"])}])
        fence.coalesce(1).write.mode("overwrite").text(_fence_path(tables, runner))
    if point is not None:
        reach(point)
    return [
        Ownership(tables, r, rows[r.name], clean=r.name not in found or found[r.name]["state"] == "released") for r in runners
    ]


def owned_now(tables: ClusterTables) -> list[Row]:
    """The runners of a cluster that are owned and not released: rows of schemas.OWNERS."""
    return [row for row in tables.journal(OWNERS).newest() if row["state"] == "owned"]


def refuse_producers(tables: ClusterTables, topic: Topic) -> None:
    """Raises AlreadyOwnedError if a producer of the topic lives in this cluster, or may: it runs on another host."""
    for row in tables.journal(OWNERS).newest(
        f"startswith(runner, 'producer ') AND endswith(runner, ' of {topic} in {tables.cluster.name}')"
    ):
        _refuse_if_owned(row, "Nothing was written.")


def producer_runner(tables: ClusterTables, topic: Topic, producer: str) -> Runner:
    """What a producer owns: its work on one topic."""
    name = f"producer {producer} of {topic} in {tables.cluster.name}"
    return Runner(name, f"publish/{topic.path}/{producer}", f"producer.{producer}")


def _now() -> datetime:
    return datetime.now(timezone.utc)


def _refuse_if_owned(row: Row, else_: str) -> None:
    runner, since, holder = row["runner"], utc(row["since"]), Process.decode(row["holder"])
    if row["state"] == "released" or holder is None:
        return
    if holder.is_mine and (runner, row["token"]) not in _live:
        return
    if not holder.is_here:
        raise AlreadyOwnedError(
            f"{runner}: owned by {holder} since {since:%Y-%m-%d %H:%M:%S} UTC, which did not stop cleanly or still runs. "
            f"From here it cannot be told which. If it runs, stop it first. {else_}"
        )
    if holder.lives:
        raise AlreadyOwnedError(
            f"{runner}: already run by {holder} since {since:%Y-%m-%d %H:%M:%S} UTC. One runner at a time: stop that one first. {else_}"
        )
    if not holder.wait_for_jvm_end(_JVM_END_S):
        raise AlreadyOwnedError(f"{runner}: the JVM {holder.jvm_pid} of the dead {holder} still runs: end it, then start again.")


def _fence_path(tables: ClusterTables, runner: Runner) -> str:
    return tables.checkpoint("fences", runner.path)
