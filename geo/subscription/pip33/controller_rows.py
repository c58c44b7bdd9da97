"""Rows that a TopicController handles, and effects that it wants done: values. Pure.

Rows are those of one topic in `system/markers`, in their order; `seq` ascends. `table` in a row is the id of the table whose versions it speaks of,
if that is known. What was said of a table that is there no more does not count. Effects are executed by who drives the controller.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from geo.ids import Position
from geo.subscription.pip33.markers import Marker


@dataclass(frozen=True, slots=True)
class MarkerRow:
    """A marker in the log here, own or replicated by a link, in the order of the log. `kind`, `payload` and `sender` (the row's origin) are as they
    are there. `read_to`: the newest version of the log that had been looked at when it was copied. `moved`: the newest version that added a message,
    of those up to its own; None: nobody knows.
    """

    seq: int
    kind: str | None
    payload: bytes | None
    sender: str | None
    position: Position
    read_to: int
    table: str | None = None
    moved: int | None = None


@dataclass(frozen=True, slots=True)
class Tick:
    """Time, and what only a look at the tables and the configuration can say.

    `now` in seconds since 1970. `moved`: the newest version of the log here that added a message, None without any. `asked`: whom a snapshot must ask
    (`geo.subscription.pip33.asked`). `unable`: who cannot answer now, and why. `ways`: of each cluster that an answer can reach, the hubs on the way to it.
    `looked`: the newest version when `moved` was looked for: nothing between the two is a message. `comes`: the other clusters whose messages come
    here, by the policies and by what links have replicated since those were read.
    """

    seq: int
    now: float
    moved: int | None = None
    asked: tuple[str, ...] = ()
    unable: Mapping[str, str] = field(default_factory=dict)
    ways: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    looked: int | None = None
    table: str | None = None
    comes: tuple[str, ...] = ()

    @classmethod
    def read(cls, fields: Mapping[str, Any]) -> Tick:
        """One whose fields JSON has."""
        ways = {name: tuple(hubs) for name, hubs in fields["ways"].items()}
        return cls(**{**fields, "asked": tuple(fields["asked"]), "ways": ways, "comes": tuple(fields.get("comes", ()))})


@dataclass(frozen=True, slots=True)
class FinishedUpTo:
    """A consumer here has finished every version of the log up to this one."""

    seq: int
    subscription: str
    version: int
    table: str | None = None


@dataclass(frozen=True, slots=True)
class Subscribed:
    """Somebody created a version subscription here, in microseconds since 1970 at `created_us`: with another number it is another one.
    `version`: what it has finished, None for nothing."""

    seq: int
    subscription: str
    version: int | None = None
    table: str | None = None
    created_us: int = 0


@dataclass(frozen=True, slots=True)
class Unsubscribed:
    seq: int
    subscription: str


@dataclass(frozen=True, slots=True)
class Invalidated:
    """Rows come into the log here, or come back, otherwise than in the order in which links replicate them. So does a comparison of both logs,
    backfill or rebuild, or a link that replicates what such a one wrote into its source. `begins` before its first row, else after its last. `what`
    names it: who begins again after a crash has the same name, and who ends ends it once. To end what has not begun changes nothing. `table`:
    versions here are those of another table from now on; such a row says by itself that this has ended.
    """

    seq: int
    what: str
    begins: bool
    table: str | None = None


@dataclass(frozen=True, slots=True)
class Resnapshot:
    """An update could not be written: one more snapshot is to be taken though nothing came, and told."""

    seq: int


Row = MarkerRow | Tick | FinishedUpTo | Subscribed | Unsubscribed | Invalidated | Resnapshot


@dataclass(frozen=True, slots=True)
class WriteMarker:
    """A row of the log here, in the order of the effects."""

    marker: Marker
    replicate_to: tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class MayStart:
    """The place where a subscription may go on. It has the first version to read in each cluster, and when the snapshot that says so was asked for,
    in microseconds since 1970. Elsewhere, by what was finished here; with a `sender` here, by what that cluster has told."""

    subscription: str
    snapshot_id: str
    started_us: int
    starts: Mapping[str, int]
    sender: str | None = None


@dataclass(frozen=True, slots=True)
class GivenUp:
    """A snapshot was not completed in time, or others are to be asked now. `missing`: whose answer was not there; nobody: its own request
    was not read back."""

    snapshot_id: str
    missing: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StateDropped:
    """The place where the subscription may go on elsewhere, by what this cluster told, counts no more: it was deleted here. `here_too`: neither
    does where it may begin here, since the log is another one."""

    subscription: str
    here_too: bool


Effect = WriteMarker | MayStart | GivenUp | StateDropped


@dataclass(frozen=True, slots=True)
class TopicStanding:
    """State of a topic: the clusters because of which no snapshot is begun, and how many markers changed nothing that should have, each by why."""

    waits_for: Mapping[str, str]
    refused: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Notes:
    """Notes of the controllers of a cluster for its tail and who opens them next, in one process; by topic. `rests`: the number of the last row that
    its controller had handled when it had nothing more to do. `lost_updates`: of one whose update could not be written the number of the row that it
    followed from. `failed`: the batch in which its markers could not be written last, and how often.
    """

    rests: dict[str, int] = field(default_factory=dict)
    lost_updates: dict[str, int] = field(default_factory=dict)
    failed: dict[str, tuple[int, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Rests:
    """The controller has nothing more to do: another tick that says the same does nothing."""
