"""State of a link: its cursor, the record of it in each append, the row in `system/links`. Pure: no Spark, clock or I/O."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from geo.delta.commits import read_record
from geo.delta.history import CommitName
from geo.journal.rows import in_columns
from geo.log.ledgers import BACKFILL_KEY, BACKFILL_VERSION, LINK_KEY, LINK_VERSION
from geo.reasons import Reason
from geo.streams.life import State


def accepted_of(impossible: int, accepted: int, not_accepted: int | None, *, was_failed: bool) -> int:
    """Counts, of so many rows of a source that no producer can have written, those that a person has accepted. So many were `accepted` before and so
    many not. Which of them are gone since nobody can tell: rather those that were accepted, so that none is accepted by itself. Of a link that
    `was_failed` all may be others: its source was changed.
    """
    return 0 if was_failed or not_accepted is None else min(accepted, impossible - min(impossible, not_accepted))


def backfill_record(link: str, origins: Iterable[str], source: CommitName) -> str:
    """Record of a commit of a backfill: which link's way it went, and at which commit of the source it read."""
    at = [source.table_id, source.version, source.commit_id]
    fields = {BACKFILL_KEY: BACKFILL_VERSION, "link": link, "origins": sorted(origins), "source": at}
    return json.dumps(fields, separators=(",", ":"))


def backfilled(text: str | None) -> frozenset[str] | None:
    """The origins of which a commit says that it filled something in; None of one that is no backfill's. Raises SchemaError as
    `LinkRecord.decode`."""
    return read_record(text, BACKFILL_KEY, BACKFILL_VERSION, lambda fields: frozenset(fields["origins"]))


@dataclass(frozen=True, slots=True)
class LinkRecord:
    """Record of a link's append in its own commit (userMetadata). With it the target holds, of these origins, all that the source had up to
    `cursor`. `reconciling`: it is a step of a reconcile at that commit of the source, after which the target does not yet.
    """

    link: str
    origins: tuple[str, ...]
    topic: str
    cursor: CommitName
    generation: int
    token: str
    reconciling: bool = False

    def encode(self) -> str:
        cursor = [self.cursor.table_id, self.cursor.version, self.cursor.commit_id]
        return json.dumps(
            {
                LINK_KEY: LINK_VERSION,
                "link": self.link,
                "origins": list(self.origins),
                "topic": self.topic,
                "reconciling" if self.reconciling else "cursor": cursor,
                "generation": self.generation,
                "token": self.token,
            },
            separators=(",", ":"),
        )

    @classmethod
    def decode(cls, text: str | None) -> LinkRecord | None:
        """None for a commit that no link made. Raises SchemaError for a record newer than this program."""

        def make(fields: Mapping[str, Any]) -> LinkRecord:
            reconciling = "reconciling" in fields
            cursor = CommitName(*fields["reconciling" if reconciling else "cursor"])
            link, origins, topic = fields["link"], tuple(fields["origins"]), fields["topic"]
            return cls(link, origins, topic, cursor, fields["generation"], fields["token"], reconciling=reconciling)

        return read_record(text, LINK_KEY, LINK_VERSION, make)


@dataclass(frozen=True, slots=True)
class LinkState:
    """One row of `system/links`: see geo.schemas.system.LINKS for each field.

    It says: of `origins` the target holds all that the source had up to `cursor`, and did so when `target` was its newest commit.
    """

    source: str
    topic: str
    state: State
    reason: str | None
    generation: int
    origins: tuple[str, ...]
    cursor: CommitName | None = field(metadata=in_columns("source_table_id", "source_version", "source_commit"))
    target: CommitName | None = field(metadata=in_columns("target_table_id", "target_version", "target_commit"))
    floors: Mapping[str, int] | None
    expired: int
    sequence: int
    impossible: int | None = None
    state_since: datetime | None = None
    reason_code: Reason | None = None
    impossible_accepted: int | None = None
    impossible_since: datetime | None = None

    @property
    def not_accepted(self) -> int | None:
        """Rows that it left out since no producer can have written them, and that nobody has accepted. None: it has not counted them."""
        return None if self.impossible is None else max(0, self.impossible - (self.impossible_accepted or 0))
