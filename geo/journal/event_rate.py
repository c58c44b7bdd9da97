"""Events and their rate: of each subject, kind and cause one row a minute, which counts the others of that minute. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import Enum

from geo.names import Topic, is_glob, topic_glob_matches
from geo.reasons import Reason
from geo.times import in_us

MOST = 10_000
"""Rows that wait to be written, some megabytes: where a table cannot be written for long the oldest are forgotten."""

MOST_CHARACTERS = 1_000
"""Characters of a text: a longer one is cut."""

_MINUTE_US = 60 * 1_000_000


class EventKind(str, Enum):
    """The subject matter of an event."""

    LINK = "LINK"
    """The state of a link's topic, or of a link whose source cannot be asked."""
    WORK = "WORK"
    """The state of another work: a publisher, a fold, the version sync."""
    OWNER = "OWNER"
    """The one who runs something: a broker that came or went, a take-over."""
    HEALTH = "HEALTH"
    """Health of a link's topic or of a cluster."""
    GAP = "GAP"
    """Messages that are gone before they were read."""
    VERB = "VERB"
    """Verb that a person asked for."""
    FAILOVER = "FAILOVER"
    """A consumer or a producer went on in another cluster."""
    ERASE = "ERASE"
    """Messages were emptied for good."""
    CONFIG = "CONFIG"
    """A changed configuration was taken or refused."""
    VERIFY = "VERIFY"
    """A comparison of clusters ended."""
    MAINTAIN = "MAINTAIN"
    """Expiry, compaction and clean-up ended."""
    REJECT = "REJECT"
    """Rows of a source were refused."""
    OTHER = "OTHER"
    """A kind of a later program."""

    @classmethod
    def _missing_(cls, value: object) -> EventKind:
        return cls.OTHER


@dataclass(frozen=True, slots=True)
class Event:
    """A row of `system/events`: see geo.schemas.system.EVENTS for each field."""

    id: str
    at: datetime
    cluster: str
    kind: EventKind
    subject: str
    topic: str | None
    from_state: str | None
    to_state: str
    reason_code: Reason | None
    reason: str | None
    by: str
    count: int = 1

    @property
    def cause(self) -> Reason | None:
        """The cause that tells an event from others of its kind and subject. A region may be unwell for several reasons at once, each of which
        begins and ends for itself.

        None: of all other events, whose subject is in one state at a time.
        """
        return self.reason_code if self.kind is EventKind.HEALTH and self.topic is None else None

    def may_be_about(self, glob: str) -> bool:
        """True if the event is of a topic that the glob matches, or of topics of which some may match."""
        if self.topic is None:
            return False
        if is_glob(self.topic):
            return is_glob(glob) or topic_glob_matches(self.topic, Topic.parse(glob))
        return topic_glob_matches(glob, Topic.parse(self.topic))


class EventRate:
    """Selects the events of a process that are written. `writer` is unique to the process: ids of rows begin with it."""

    def __init__(self, writer: str, most: int = MOST) -> None:
        self._writer, self._most, self._number = writer, most, 0
        self._newest: dict[tuple[EventKind, str, Reason | None], tuple[int, Event | None]] = {}
        """Minute of the last event, and its row, by kind, subject and cause."""
        self._due: dict[str, Event] = {}
        """Rows by id that are not written as they are now."""
        self.forgotten = 0
        """Events that were never written, since too many waited."""

    def note(self, event: Event) -> None:
        """`event`: without an id."""
        key, minute = (event.kind, event.subject, event.cause), in_us(event.at) // _MINUTE_US
        of_minute, before = self._newest.pop(key, (minute, None))  # the last noted is the last to be forgotten
        code, reason, id_, from_state, count = event.reason_code, event.reason, "", event.from_state, 1
        if before is not None and of_minute == minute:
            id_, from_state, count = before.id, before.from_state, before.count + 1
            if code is None:
                code, reason = before.reason_code, before.reason
        else:
            self._number += 1
            id_ = f"{self._writer}-{self._number}"
        # Not `replace`, which takes most of the time of all this.
        row = Event(
            id_, event.at, event.cluster, event.kind, _stored(event.subject), event.topic, from_state, _stored(event.to_state),
            code, None if reason is None else _stored(reason), event.by, count,
        )  # fmt: skip
        self._newest[key] = minute, row
        self._due[id_] = row
        while len(self._newest) > self._most:
            del self._newest[next(iter(self._newest))]
        while len(self._due) > self._most:
            self.forgotten += self._due.pop(next(iter(self._due))).count

    @property
    def due(self) -> list[Event]:
        """Rows to write, oldest first. A row that was written before is due again once it counts more."""
        return list(self._due.values())

    def written(self, rows: Iterable[Event]) -> None:
        """These rows are in the table."""
        for row in rows:
            if self._due.get(row.id) == row:
                del self._due[row.id]


def _stored(text: str) -> str:
    """A text that any table takes: one that none does would keep all others that wait from being written."""
    return text if text.isascii() and len(text) <= MOST_CHARACTERS else text[:MOST_CHARACTERS].encode(errors="replace").decode()
