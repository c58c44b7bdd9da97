"""A link compares both logs of a topic, and appends what the target lacks (design section 5: Reconcile).

What may be missing is found in both_logs and gaps; whether to compare at all is decided in link_start.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from datetime import datetime

from pyspark.sql import DataFrame

from geo.config.choices import Start
from geo.coordination.claiming import claim
from geo.coordination.ownership import Ownership, giving_back, release
from geo.coordination.runners import Runner
from geo.crash import CrashPoint, reach
from geo.delta.actions import Touched
from geo.delta.history import CommitName
from geo.errors import AlreadyOwnedError, RetryableError, UnsafeError
from geo.journal.cluster import ClusterTables
from geo.log.promises import Promise, as_accepted
from geo.reasons import Reason
from geo.replication.link_start import LinkStanding, Reconcile, begins
from geo.replication.link_target import newest_commit
from geo.replication.open_link import OpenLink
from geo.replication.source_history import Fault
from geo.replication.turns import TURN_BYTES
from geo.streams.life import State

log = logging.getLogger(__name__)

STEP_BYTES = 10 * 1024**3
"""A step of a comparison is taken for so large where it is asked whether it hangs: nobody has measured it."""


def end_left(target: ClusterTables, fillers: Sequence[Runner]) -> None:
    """End a comparison whose link was killed once it had recorded the cursor. Nobody else would say that it is over, and as long as it is under way
    no snapshot counts. Who lives, as a backfill, goes on."""
    with suppress(AlreadyOwnedError):
        release(claim(target, [fillers]))


@dataclass(slots=True, eq=False)
class Reconciliation:
    """Step 4 of a link's start (`TopicReplicator`), while nobody backfills."""

    opened: OpenLink
    fillers: Sequence[Runner]
    """Runners that it owns beside the link, so that nobody else fills what is missing meanwhile."""
    decision: Reconcile
    stands: LinkStanding
    start_at: Start | datetime | None
    """Place where the link begins again; None: it begins where it began."""
    reached: CommitName | None = None
    """The commit of the source of which the target holds everything, once it does."""
    _filling: Ownership | None = None

    def run(self, stopped: Callable[[], bool], *, take_over: bool) -> None:
        """Run the comparison. If it is `stopped` between two steps the next start compares again. `take_over` replaces a backfill that runs.

        Raises AlreadyOwnedError while one does, SourceChangedError for what is lost in the source. Raises UnsafeError for different messages that the
        source holds under one id and for messages that the target holds otherwise or twice. Raises RetryableError for messages that the target has
        and the source not yet.
        """
        if self.opened.row.recorded is not None and self.decision.why is not None:
            log.warning("%s: %s; comparing both logs", self.opened.into, self.decision.why)
        (filling,) = claim(self.opened.target_tables, [self.fillers], take_over=take_over)
        self._filling = filling
        try:
            # Also after a fault, unless an append is in doubt: so that whoever resolves it can have it.
            with giving_back([filling], lambda error: not self.opened.into.in_doubt):
                filling.fence(self.opened.into.log)
                with self.opened.into.ownership.besides(filling):
                    self._compare(stopped)
                reach(CrashPoint.LINK_COMPARED)
        finally:
            self._filling = None

    def leave(self) -> None:
        """It hangs: own nothing for it any more, so that it appends nothing more."""
        if self._filling is not None:
            self._filling.abandon()

    def _compare(self, stopped: Callable[[], bool]) -> None:
        """Each step's record says `reconciling`; the cursor is recorded after the last one."""
        decision, stands, logs, row = self.decision, self.stands, self.opened.logs, self.opened.row
        into, turns = self.opened.into, self.opened.turns
        promises = self.opened.promises()  # before the log, so that a producer at work is no loss
        is_first, source = begins(row.recorded), newest_commit(logs.source, str(into))
        if self.start_at is not None:
            # Fixed before the first row comes; not NULL, which would say that nothing was fixed yet.
            row.floors = logs.floors(self.start_at, source.version) or {}
            if row.floors or row.recorded is not None:
                row.append(row.following(State.RUNNING, None, None, None))
        elif stands.new:
            # Fixed before the first row of these origins comes. Of what came by another link already nothing is left out.
            row.floors = {**(row.floors or {}), **logs.new_floors(stands.new, source.version)}
            row.append(row.following(State.RUNNING, None, None, None))
        after = None if stands.cursor is None else stands.cursor.version
        if decision.why is None:  # a person takes the source as it is
            if lost := logs.unkept(source.version, row.floors, promises, after):
                row.floors = {**(row.floors or {}), **as_accepted(lost)}
        elif decision.check_lost or after is None:
            self._refuse_loss(source.version, stands.cursor, promises, gaps=decision.check_lost)
        self._refuse_ambiguous(source.version, decision.source_touched)
        target = newest_commit(into.log, str(into))
        into.watch_from(target)
        most, row_bytes = self._step_size()
        for rows in logs.missing(source.version, target.version, row.floors, most):
            with turns.turn(stopped) as has_turn:
                if not has_turn:
                    return
                turns.size = STEP_BYTES
                reach(CrashPoint.LINK_BEFORE_RECONCILE_APPEND)
                # For rows that are at hand no Spark is started.
                needs_tag = isinstance(rows, DataFrame) or self.opened.target_tables.has_spark
                with turns.tagged() if needs_tag else nullcontext():
                    count = into.append(rows, source, reconciling=True)
                row.replicated += count
                reach(CrashPoint.LINK_AFTER_RECONCILE_APPEND)
            turns.took(count, round(count * row_bytes))
        self._refuse_differing(source.version, decision.touched)
        self._refuse_ahead(source.version, promises, decision.target_touched)
        # Later, nobody can tell what it leaves out from what the target had and dropped.
        expired = logs.count_expired(source.version, row.floors) if is_first else 0
        row.found(impossible=logs.count_impossible(source.version), expired=expired)
        looked = into.look_on(target)
        self.reached = source
        row.append(row.following(State.STOPPED, None, source, looked.newest))

    def _refuse_ambiguous(self, version: int, touched: Touched) -> None:
        """Raises UnsafeError if the source at `version` holds different messages under one id in the partitions: nobody can tell which
        is the producer's."""
        if not (found := self.opened.logs.ambiguous(version, touched)):
            return
        rule, topic = self.opened.logs.rule, self.opened.into.topic
        raise UnsafeError(
            f"somebody else appended messages in {rule.source} under ids that are used: it holds {', '.join(found)} more than once, with other "
            f"content (these are the first). Nothing was brought of this and of what came later. Delete what is not the producer's from the "
            f"log of {topic} in {rule.source}. Then run: geo reconcile --source {rule.source} --target {rule.target} --topic {topic}",
            code=Reason.SOURCE_CHANGED,
        )

    def _refuse_differing(self, version: int, touched: Touched) -> None:
        """Raises UnsafeError if the target holds messages otherwise than the source at `version`, or twice, in the partitions."""
        other, twice = self.opened.logs.differing(version, self.opened.into.log.latest_version(), touched)
        if not other and not twice:
            return
        rule, topic = self.opened.logs.rule, self.opened.into.topic
        found = [f"{', '.join(other)} with other content than {rule.source}"] if other else []
        found += [f"{', '.join(twice)} more than once"] if twice else []
        raise UnsafeError(
            f"somebody else changed or appended messages in {rule.target}, which now holds {' and '.join(found)} (these are the first). What was "
            f"missing was brought. Delete these rows from the log of {topic} in {rule.target}: the link then brings them once more by "
            f"itself. To keep them as they are, run: geo reconcile --source {rule.source} --target {rule.target} --topic {topic}",
            code=Reason.TARGET_CHANGED,
        )

    def _refuse_ahead(self, version: int, promises: Sequence[Promise], touched: Touched) -> None:
        """Raises RetryableError if somebody else put messages into the partitions of the target that the source at `version` has not yet. Until it
        has them each start compares, so that they do not come a second time."""
        if not (found := self.opened.logs.ahead(version, self.opened.into.log.latest_version(), promises, touched)):
            return
        source, target, topic = self.opened.logs.rule.source, self.opened.logs.rule.target, self.opened.into.topic
        raise RetryableError(
            f"somebody else appended messages in {target} that {source} has not published: {', '.join(found[:10])}. What was missing was brought. "
            f"Both logs are compared again until {source} has published them. If it never will, delete them from the log of {topic} in {target}.",
            code=Reason.TARGET_CHANGED,
        )

    def _refuse_loss(self, version: int, cursor: CommitName | None, promises: Sequence[Promise], *, gaps: bool) -> None:
        """Raises SourceChangedError if something that the link has still to read is not in the source any more. That is an end that a producer
        recorded, and with `gaps` what lies before a later entry."""
        if lost := self.opened.lost(version, promises, cursor, gaps=gaps):
            what = "messages that were not read yet are gone: removed, and their files or commits cleaned up"
            begin = cursor.version + 1 if cursor is not None else 0
            fault = Fault(what, min(begin, version), version, lost[:10], code=Reason.SOURCE_ROWS_GONE)
            raise self.opened.refusal(fault, cursor)

    def _step_size(self) -> tuple[int | None, float]:
        """Messages that a step appends at most, None for as many as ever, and the bytes that each takes, 0 where nobody asks."""
        most = self.opened.turns.most
        if most.size >= TURN_BYTES:
            return most.messages, 0.0
        row_bytes = self.opened.logs.row_bytes()
        of_size = max(1, int(most.size / row_bytes))
        return of_size if most.messages is None else min(most.messages, of_size), row_bytes
