"""The reason why something is as it is: the closed list of reason codes, which states, findings and events share. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Literal

Level = Literal["ok", "warn", "error"]
"""Severity of something."""


class Reason(str, Enum):
    """One code, one cause. `means`: what it says, of anything. The sentence beside it says the rest. `do`: what ends it; None: that depends on what the
    sentence says. `level`: nothing is told with it that is worse. docs/health.md has the list for people."""

    means: str
    do: str | None
    level: Level

    def __new__(cls, code: str, means: str = "", do: str | None = None, level: Level = "error") -> Reason:
        self = str.__new__(cls, code)
        self._value_, self.means, self.do, self.level = code, means, do, level
        return self

    # of a source
    SOURCE_RECREATED = (
        "SOURCE_RECREATED",
        "The source's log was dropped and created again: versions of before are of another table.",
    )
    SOURCE_RESTORED = "SOURCE_RESTORED", "An older copy of the source's log was put back, or a RESTORE undid versions of it."
    SOURCE_ROWS_GONE = "SOURCE_ROWS_GONE", "Messages that were still to be read are no longer in the source."
    SOURCE_CHANGED = "SOURCE_CHANGED", "Messages of the source were changed, or what was published means something else now."
    SOURCE_GONE = "SOURCE_GONE", "The source, its registry, or the topic's log in it is not there."
    SOURCE_UNREADABLE = "SOURCE_UNREADABLE", "The source is there, as far as is known, and cannot be read."
    # of a target
    TARGET_GONE = "TARGET_GONE", "The target, its registry, or the topic's log in it is not there."
    TARGET_CHANGED = "TARGET_CHANGED", "The target is not what the link left there: its next start compares both logs."
    TARGET_DISK_FULL = (
        "TARGET_DISK_FULL",
        "No space is left where something was to be written, as a rule in the target.",
        "free space there; it goes on by itself",
    )
    # of a storage, a host or a configuration
    NO_RIGHT = (
        "NO_RIGHT",
        "A storage lets these keys, or this user, not do what is needed.",
        "let its keys, or its user, do that there; to see what they lack: geo doctor",
    )
    KEYS_REFUSED = (
        "KEYS_REFUSED",
        "Keys are wrong, expired or not there, or the reference to them leads nowhere.",
        "renew the credential that its configuration names",
    )
    NO_ANSWER = (
        "NO_ANSWER",
        "Nobody answers at a storage, or nobody who is trusted.",
        "check root and end point of its cluster; it goes on by itself once somebody answers",
    )
    NO_BUCKET = "NO_BUCKET", "A bucket is not there.", "make the bucket, or correct root or checkpoints of its cluster"
    UNKNOWN_ANSWER = "UNKNOWN_ANSWER", "A store did not say whether a commit was made; whoever tries again looks for it first."
    DAMAGED = "DAMAGED", "A file is not what was written into it.", "bring that file back from a copy"
    STORAGE = "STORAGE", "Another fault of a file or a storage."
    SPARK = "SPARK", "Another fault of Spark."
    SPARK_ENDED = "SPARK_ENDED", "Spark's process has ended.", "start it again"
    SETUP = "SETUP", "This host or session is not ready to run: no Java, a missing jar."
    CLOCK = "CLOCK", "This host's clock is not the storage's.", "set this host's clock"
    SCHEMA = (
        "SCHEMA",
        "A table is newer than this program, or is not ours.",
        "upgrade delta-geo here, or move the table away that its sentence names",
    )
    COLUMNS = (
        "COLUMNS",
        "A column of the source has another type, or case, than in the target.",
        "what its sentence says; where the values are exactly of the target's type, `geo links resolve` with --accept-type",
    )
    COLUMNS_APART = (
        "COLUMNS_APART",
        "A column of the source has a type of which no value can be taken as one of the target's.",
        "publish under another name of the column, or delete the topic where it is wrong (`geo topics delete`), and the link makes it again",
    )
    COLUMNS_DENIED = (
        "COLUMNS_DENIED",
        "The source has columns, or wider types, that its link does not bring (schema_updates: deny).",
        "give them to the target, as its sentence says",
    )
    CONFIG = "CONFIG", "The configuration is wrong."
    USAGE = "USAGE", "What was asked for cannot be done."
    MISNAMED = "MISNAMED", "The configuration calls a cluster by another one's name."
    REGISTRY_EMPTY = (
        "REGISTRY_EMPTY",
        "A registry says nothing though topics are there: it was emptied, or an older copy was put back.",
    )
    # of owners
    OWNED_ELSEWHERE = "OWNED_ELSEWHERE", "Another living runner owns it."
    FENCED = "FENCED", "Another runner took it over."
    TAKEN_OVER = "TAKEN_OVER", "Its owner of before was silent or dead, or somebody asked for it.", None, "warn"
    NEVER_RAN = "NEVER_RAN", "Nobody has run it yet."
    NO_OWNER = "NO_OWNER", "Nobody runs it now."
    OWNER_SILENT = "OWNER_SILENT", "Its owner gives no sign of life."
    LOCKED = "LOCKED", "Somebody else commits to a table, for too long."
    CONFLICT = "CONFLICT", "Commits of others came first, again and again."
    # of what is wanted
    ASKED_TO_PAUSE = "ASKED_TO_PAUSE", "A person asked it to rest.", None, "warn"
    POLICY = "POLICY", "A policy or the configuration does not let it go there."
    PLACED_ELSEWHERE = "PLACED_ELSEWHERE", "It is another broker's by the placement.", None, "warn"
    DELETED = "DELETED", "The topic was deleted.", None, "warn"
    # of progress
    STALE_CURSOR = (
        "STALE_CURSOR",
        "The commits from its cursor on are gone, or cannot be vouched for: its next start compares both logs.",
    )
    NOT_MOVING = "NOT_MOVING", "Its source moves and its cursor does not."
    GROWING = "GROWING", "It is behind, and not getting nearer.", None, "warn"
    LAG_LIMIT = "LAG_LIMIT", "It lacks something for longer than whoever asks allows."
    NOT_REPLICATED = "NOT_REPLICATED", "What was published is not in other regions in time."
    SHORT_RETENTION = "SHORT_RETENTION", "Commits are removed before whoever is away has to have read them."
    OVERDUE = "OVERDUE", "What is to be done again and again was not, for too long.", None, "warn"
    IMPOSSIBLE_ROWS = (
        "IMPOSSIBLE_ROWS",
        "Rows of a source do not cross, since no producer can have written them: their ids or times are those of no message.",
    )
    REFUSED_ROWS = "REFUSED_ROWS", "Rows or records were refused, and are nowhere else."
    OTHER = "OTHER", "Something else; the sentence says it."

    @classmethod
    def _missing_(cls, value: object) -> Reason:
        """A code of a later program."""
        return cls.OTHER


@dataclass(frozen=True, slots=True)
class Wrong:
    """Something that is wrong: its code, a sentence without its end, and what a person does about it. As text it is both, one after the other."""

    code: Reason
    what: str
    do: str

    def __str__(self) -> str:
        return f"{self.what}. {self.do}"
