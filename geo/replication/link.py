"""One topic of one link: the thin layer that names its query and its tables and runs the steps in order.

The decisions are elsewhere and pure: which rows cross (rule), whether the source is still the one that was read (state),
what is missing (reconcile), who may write (geo.log.ownership).
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from geo.config_tree import Config, Link, Start
from geo.crash import CrashPoint, reach
from geo.errors import SourceChangedError
from geo.log.checkpoints import checkpoint_id
from geo.log.names import Topic
from geo.log.ownership import Ownership, Runner
from geo.log.table import Commit, Table
from geo.log.tables import ClusterTables, open_log, user_columns
from geo.log.topics import create_topic, grow
from geo.replication import reconcile
from geo.replication.link_table import append_links
from geo.replication.rule import Rule
from geo.replication.state import Fault, LinkState, State, diagnose, is_erasure, read_version, start_version
from schemas import TOPIC_LOG

log = logging.getLogger(__name__)

_NEVER_SPLIT = str(2**31 - 1)
"""maxFilesPerTrigger: a batch takes whole commits, so that no ledger is seen with a hole in the target for a moment."""


class TopicLink:
    """Replicates one topic from a source cluster into a target cluster, exactly once per message and in ledger order.

    `start` does, in this order, with a named crash point after each arrow:
    1. (the caller claimed the ownership) 2. create the topic in the target, fence it → 3. read the link's state and
    diagnose the source: FAILED, or go on 4. without a usable checkpoint reconcile at the source's version V: append what
    is missing → record V → 5. start the stream. A batch: append → Spark commits the checkpoint → now and then `flush`.

    Why a replay doubles nothing: P is the source's newest version when this owner started, and `ends` are the ends of the
    target's ledgers then. Whatever an earlier owner may have appended came from versions up to P. So of every batch that
    begins at or below P, whatever the checkpoint says, only entries beyond `ends` are appended: a ledger has no holes
    (L5), what is not beyond its end is there. A batch that begins above P cannot have been appended before.
    """

    def __init__(self, target: ClusterTables, source: ClusterTables, config: Config, link: Link, topic: Topic) -> None:
        self.target, self.source, self.link, self.topic = target, source, link, topic
        self.rule = Rule(link.source, link.target, frozenset(link.origins), config.policy(topic).message_ttl_s)
        self.state: LinkState | None = None
        self.query: StreamingQuery | None = None
        self.failure: Exception | None = None
        self.replicated = 0
        self.recorded: LinkState | None = None
        """The newest state of this link in `system/links`."""
        self._newest: str | None = None
        self._settled = False

    def __str__(self) -> str:
        return f"{self.link.link_name} {self.topic}"

    @property
    def runner(self) -> Runner:
        """Owned in the target: a link has one runner per topic."""
        name = f"link {self.link.link_name} of {self.topic}"
        return Runner(name, f"replicate/{self.link.source}/{self.topic.path}", f"link.{self.link.source}")

    @property
    def _start(self) -> Start:
        """Acknowledgements cross from the earliest: a link that leaves old messages out still needs to know what is done."""
        return "earliest" if self.topic.is_system else self.link.start

    # -- start -----------------------------------------------------------------------------------------------------

    def prepare(
        self,
        ownership: Ownership,
        *,
        accept_source: bool = False,
        start: Start | datetime | None = None,
        compare: bool = False,
    ) -> None:
        """Steps 2 to 4: after this the target holds all of the source up to `self.state.source_version`.

        `recorded` must have been read since the ownership was claimed. `accept_source` takes the source as it is now,
        whatever happened to it (`geo reconcile`). With `start` the link begins there anew (`geo links reset`): what is before
        is not fetched any more, what is there stays. `compare` does not go on from the checkpoint, where the stream failed.
        Raises SourceChangedError if the source changed in a way that must not be passed over, SchemaError.
        """
        self._ownership, self._settled, self.query = ownership, False, None
        self._source_log, columns = open_log(self.source, self.topic)
        self._target_log = self.target.log(self.topic)
        target = self._target_log.find(TOPIC_LOG) or create_topic(self.target, self.topic, user_columns(columns))
        ownership.fence(self._target_log, CrashPoint.LINK_FENCED)
        self._columns = grow(self._target_log, target, user_columns(columns), str(self))
        self._known_latest = self._source_log.latest_version()
        source_id, target_id = self._source_log.table_id(), self._target_log.table_id()
        state = self.recorded
        floors = self.floors(start or self._start, self._known_latest) if start or state is None else state.floors
        if state is None or accept_source:
            self._reconcile(floors, source_id, target_id)
        else:
            self.state = state
            commits = self._checked(state, source_id, self._known_latest)
            if why := self._must_reconcile(state, target_id, commits, compare):
                log.warning("%s: %s; comparing both logs", self, why)
                self._refuse_lost(state)
                self._reconcile(floors, source_id, target_id)
            else:
                self.state = replace(state, generation=ownership.generation)
        self._ends = reconcile.ledger_ends(self._target_log.read(), self.rule.origins)

    def check_source(self) -> None:
        """Raises SourceChangedError if the source is not the one this link has read, or was changed above its position."""
        assert self.state is not None
        self._checked(self.state, self._source_log.table_id(), self._source_log.latest_version())

    def _checked(self, state: LinkState, table_id: str, latest: int) -> list[Commit]:
        """The commits of the source since the link's position, as far as they are still listed. Raises as `check_source`."""
        same = table_id == state.source_table_id and latest >= state.source_version
        commits = self._source_log.history(state.source_version, latest) if same else []
        fault = diagnose(state, table_id, latest, commits)
        if fault is None and not self._holds(self._source_log, state.witness):
            what = f"the newest message replicated, {state.witness}, is no longer in the source: an older copy was put back, or it was deleted"
            fault = Fault(what, 0, state.source_version)
        if fault is not None:
            lost = reconcile.lost_ranges(
                reconcile.ledger_ends(self._source_log.read(), self.rule.origins),
                reconcile.ledger_ends(self._target_log.read(), self.rule.origins),
            )
            raise SourceChangedError(replace(fault, lost=lost[:10]).message(state, self.link.target))
        return commits

    def _must_reconcile(self, state: LinkState, target_id: str, commits: list[Commit], compare: bool) -> str | None:
        """Why the stream cannot simply go on from its checkpoint; None if it can."""
        latest = self._target_log.latest_version()
        if state.target_table_id != target_id or latest < state.target_version:
            return "the target's log is not the one this link wrote"
        if any(c.operation == "RESTORE" for c in self._target_log.history(state.target_version, latest)):
            return "the target was restored to an older version"
        if not self._holds(self._target_log, state.witness):
            return f"the newest message replicated, {state.witness}, is not in the target"
        if state.checkpoint is not None and checkpoint_id(self.target.spark, self._checkpoint(state.checkpoint)) is None:
            return "its checkpoint is gone"
        if len(commits) < self._known_latest - state.source_version:
            return f"commits of the source after version {state.source_version} are gone (log cleanup)"
        if any(is_erasure(commit) for commit in commits):
            return "messages were erased in the source"
        return "the stream failed twice at the same place" if compare else None

    def _refuse_lost(self, state: LinkState) -> None:
        """Raises SourceChangedError if messages this link had still to read are gone from the source, and not by expiry.

        Seen by the gap between the end of a ledger here and the first later entry there (L5: it has no holes otherwise).
        """
        if self.rule.message_ttl_s is not None:
            return
        ends = reconcile.ledger_ends(self._target_log.read(), self.rule.origins)
        crosses = F.col("marker").isNull() & reconcile.wanted(self.rule, state.floors, _now_us())
        later = reconcile.ledger_begins(
            reconcile.beyond(self._source_log.read(self._known_latest).where(crosses), ends), self.rule.origins
        )
        due = {ledger: max(ends.get(ledger, -1) + 1, (state.floors or {}).get(ledger, 0)) for ledger in later}
        if lost := [f"{ledger}:{due[ledger]}-{first - 1}" for ledger, first in sorted(later.items()) if first > due[ledger]]:
            what = "messages that were not read yet are gone: removed, and their files or commits cleaned up"
            fault = Fault(what, state.source_version + 1, self._known_latest, lost[:10])
            raise SourceChangedError(fault.message(state, self.link.target))

    def missing(self, version: int, floors: Mapping[str, int] | None) -> DataFrame:
        """What a reconcile at `version` of the source would append."""
        return reconcile.in_target_shape(self._missing(version, floors), self._columns)

    def _missing(self, version: int, floors: Mapping[str, int] | None) -> DataFrame:
        return reconcile.missing(self._source_log.read(version), self._target_log.read(), self.rule, floors, _now_us())

    def preview(self, start: Start | datetime | None = None) -> tuple[int, int]:
        """How many messages a reconcile would append now, and at which version of the source. Writes nothing."""
        self._source_log = open_log(self.source, self.topic)[0]
        self._target_log = self.target.log(self.topic)
        version = self._source_log.latest_version()
        recorded = self.recorded
        floors = self.floors(start or self._start, version) if start or recorded is None else recorded.floors
        if self._target_log.exists():
            return self._missing(version, floors).count(), version
        crosses = F.col("marker").isNull() & reconcile.wanted(self.rule, floors, _now_us())
        return self._source_log.read(version).where(crosses).count(), version

    def _reconcile(self, floors: Mapping[str, int] | None, source_id: str, target_id: str) -> None:
        version = self._known_latest
        self.state = LinkState(
            self.link.source, str(self.topic), State.STOPPED, None, self._ownership.generation, source_id, version,
            target_id, 0, None, None, floors, self.recorded.sequence if self.recorded else 0,
        )  # fmt: skip
        reach(CrashPoint.LINK_BEFORE_RECONCILE_APPEND)
        self._append(self.missing(version, floors))
        reach(CrashPoint.LINK_AFTER_RECONCILE_APPEND)
        crossed = self._source_log.read(version).where(F.col("marker").isNull() & reconcile.wanted(self.rule, floors, _now_us()))
        witness = crossed.agg(_newest().alias("newest")).collect()[0]["newest"]
        self.state = replace(self.state, target_version=self._target_log.latest_version(), witness=witness)
        self.flush(State.STOPPED)

    def floors(self, start: Start | datetime, version: int) -> dict[str, int] | None:
        """The first entry wanted of each ledger of the source at `version`, for a link that begins at `start`; None: all."""
        if start == "earliest":
            return None
        rows = self._source_log.read(version)
        ends = reconcile.ledger_ends(rows, self.rule.origins)
        later = (
            reconcile.ledger_begins(rows.where(F.col("publish_time") >= start), self.rule.origins) if start != "latest" else {}
        )
        return {ledger: later.get(ledger, end + 1) for ledger, end in ends.items()}

    def start(self, trigger: Mapping[str, Any]) -> None:
        """Step 5. The stream goes on from its checkpoint, or from the recorded version with a new one."""
        assert self.state is not None
        if self.state.checkpoint is None:
            self.state = replace(self.state, checkpoint=f"{self.state.sequence + 1:06d}")
            self.flush(State.RUNNING)
        reach(CrashPoint.LINK_START_RECORDED)
        options = {
            # A version that exists, though it is read already: a number beyond the latest is refused.
            "startingVersion": str(self.state.source_version),
            "ignoreDeletes": "true",
            "maxFilesPerTrigger": _NEVER_SPLIT,
        }
        assert self.state.checkpoint is not None
        writer = self._source_log.read_stream(options).writeStream.queryName(f"geo replicate {self}")
        writer = writer.foreachBatch(self._on_batch).option("checkpointLocation", self._checkpoint(self.state.checkpoint))
        self.query = writer.trigger(**trigger).start()

    # -- running ---------------------------------------------------------------------------------------------------

    def _on_batch(self, rows: DataFrame, batch_id: int) -> None:
        assert self.state is not None
        try:
            rows = rows.where(reconcile.wanted(self.rule, self.state.floors, _now_us()))
            if not self._begins_after_start():
                rows = reconcile.beyond(rows, self._ends)
            rows = reconcile.in_target_shape(rows, self._columns)
            # Of what other links wrote into the source nothing crosses: an append is not planned, no lock is taken.
            crosses = not rows.isEmpty()
            reach(CrashPoint.LINK_BEFORE_APPEND)
            if crosses:
                self._append(rows)
            reach(CrashPoint.LINK_AFTER_APPEND)
        except Exception as error:
            self.failure = error
            raise

    def _begins_after_start(self) -> bool:
        """Whether this batch begins above P, the source's newest version when this owner started."""
        if not self._settled:
            begin = start_version(self._end_offset())
            self._settled = begin is not None and begin > self._known_latest
        return self._settled

    def _append(self, rows: DataFrame) -> None:
        """One commit, sorted by id within the dates' files; none if there is no row."""
        seen = Observation()
        counted = rows.observe(seen, F.count(F.lit(1)).alias("rows"), _newest().alias("newest"))
        self._ownership.append(self._target_log, counted.sortWithinPartitions("publish_date", *reconcile.ID))
        self.replicated += seen.get["rows"]
        self._newest = seen.get["newest"] or self._newest

    def _end_offset(self) -> dict[str, Any] | None:
        """Where the last finished batch ended."""
        progress = self.query.lastProgress if self.query is not None else None
        return None if progress is None else _offset(progress["sources"][0]["endOffset"])

    def position(self) -> int:
        """All versions of the source up to this one are in the target."""
        assert self.state is not None
        return max(self.state.source_version, read_version(self._end_offset()) or 0)

    # -- state -------------------------------------------------------------------------------------------------------

    def progressed(self, state: State, reason: str | None = None) -> LinkState | None:
        """The state to record now, None if the recorded one still says it."""
        assert self.state is not None
        now = replace(
            self.state,
            state=state,
            reason=reason,
            generation=self._ownership.generation,
            source_version=self.position(),
            witness=self._newest or self.state.witness,
        )
        return None if now == self.recorded else replace(now, sequence=now.sequence + 1)

    def note(self, state: LinkState) -> None:
        """`state` was recorded."""
        self.state = self.recorded = state

    def flush(self, state: State, reason: str | None = None) -> None:
        """Record the link's state now."""
        if now := self.progressed(state, reason):
            append_links(self.target, [now])
            self.note(now)
            reach(CrashPoint.LINK_STATE_RECORDED)

    # -- helpers -----------------------------------------------------------------------------------------------------

    def _checkpoint(self, name: str) -> str:
        return self.target.checkpoint("replicate", self.link.source, self.topic.path, name)

    def _holds(self, table: Table, witness: str | None) -> bool:
        """Whether the log has the message, or dropped its whole date (expiry)."""
        if witness is None:
            return True
        date, _, message = witness.partition("/")
        origin, ledger_id, entry_id = message.split(":")
        day = table.read().where(F.col("publish_date") == F.lit(date).cast("date"))
        same = (F.col("origin") == origin) & (F.col("ledger_id") == int(ledger_id)) & (F.col("entry_id") == int(entry_id))
        return not day.where(same).isEmpty() or (self.rule.message_ttl_s is not None and day.isEmpty())


def _offset(offset: Any) -> dict[str, Any] | None:
    fields: dict[str, Any] | None = json.loads(offset) if isinstance(offset, str) else offset
    return fields


def _newest() -> Column:
    """The newest of some rows as a link's witness."""
    return F.max_by(F.concat(F.col("publish_date").cast("string"), F.lit("/"), F.concat_ws(":", *reconcile.ID)), "publish_time")


def _now_us() -> int:
    return time.time_ns() // 1000
