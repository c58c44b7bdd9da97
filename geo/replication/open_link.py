"""A topic of a link with both its logs open: what its start and its run ask of the source, and what they refuse."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from geo.delta.history import CommitName
from geo.errors import RetryableError, SourceChangedError
from geo.journal.cluster import ClusterTables
from geo.journal.event_rate import EventKind
from geo.journal.events import events_of
from geo.log.promises import Promise, told_range
from geo.names import Topic
from geo.reasons import Reason
from geo.replication.both_logs import BothLogs
from geo.replication.link_row import LinkRow
from geo.replication.link_target import LinkTarget
from geo.replication.source_history import CompareLogs, Fault
from geo.replication.source_look import SourceLook
from geo.replication.turns import TopicTurns


@dataclass(frozen=True, slots=True)
class OpenLink:
    """Made by a start once the link owns its topic, and the target is fenced."""

    target_tables: ClusterTables
    topic: Topic
    logs: BothLogs
    look: SourceLook
    into: LinkTarget
    row: LinkRow
    turns: TopicTurns
    promises: Callable[[], Sequence[Promise]]
    """Reads the ends that the source's own producers recorded, but for what a person accepted as lost. To be asked before its log."""

    def __str__(self) -> str:
        return self.logs.what

    def refuse(self, judged: Fault | CompareLogs | None, cursor: CommitName) -> None:
        """Raises SourceChangedError for what must not be passed over, RetryableError if both logs are to be compared."""
        if isinstance(judged, Fault):
            raise self.refusal(judged, cursor)
        if judged is not None:
            raise RetryableError(f"{self}: {judged.why}; comparing both logs.", code=Reason.STALE_CURSOR)

    def refusal(self, fault: Fault, cursor: CommitName | None) -> SourceChangedError:
        """The error of a fault, with the messages that are no longer in the source."""
        if not fault.lost:
            # What it held and has no more, and what it would never get to hold.
            promises, version = self.promises(), self.logs.source.latest_version()
            lost = [*self.logs.gone_from_source(), *self.lost(version, promises, cursor)]
            is_new = cursor is not None and cursor.table_id != self.logs.source.table_id()
            fault = replace(fault, lost=lost[:10], beside=self.logs.beside(version) if is_new else 0)
        if fault.lost:
            events_of(self.target_tables).note(
                EventKind.GAP, str(self), "lost", topic=self.topic, code=Reason.SOURCE_ROWS_GONE, reason=", ".join(fault.lost)
            )
        told = fault.message(self.logs.rule.source, self.logs.rule.target, str(self.topic), cursor)
        return SourceChangedError(told, code=fault.code)

    def lost(self, version: int, promises: Sequence[Promise], cursor: CommitName | None, *, gaps: bool = True) -> list[str]:
        """Finds what the link has still to read and the source at `version` has no more. Ends that a producer recorded, and with `gaps` what lies
        before a later entry.
        """
        lost = self.logs.lost(version, self.row.floors) if gaps else []
        unkept = self.logs.unkept(version, self.row.floors, promises, None if cursor is None else cursor.version)
        return [*lost, *(told_range(*one) for one in unkept.items())]
