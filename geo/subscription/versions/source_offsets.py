"""Place of a batch of a streaming query in the Delta tables it reads, by the file that Spark writes of it. Pure.

    metadata            {"id": id of the query}
    offsets/<batch>     v1, a line of metadata, then of each source a line with its end, `-` for none. Or v2, where each of these
                        lines begins with the source's name and a colon
    a Delta source      {"sourceVersion": 1, "reservoirId": table id, "reservoirVersion": v, "index": i, "isStartingVersion": false}

Delta counts a version as entered when the first of its files is planned, and goes to the next one with the last. So all below `reservoirVersion` is
in the batch or in an earlier one. Of that version itself at most some files are, whatever `index` says (below 0: none). While the table's first
content is read in parts (`isStartingVersion`) no version is whole.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from geo.errors import UsageError
from geo.text import show

FILE_VERSIONS = ("v1", "v2")
"""Versions of Spark's file. The second has names of sources."""

SOURCE_VERSIONS = (1, 3)
"""Versions of Delta's end. There is no second."""

VOID = "-"
"""A source of which nothing has come yet."""

MOST_CHARACTERS = 1_000_000
"""Characters of a file, at most; a source takes some hundreds."""

_NUMBER_LIMIT = 2**63


@dataclass(frozen=True, slots=True)
class DeltaEnd:
    """The place where a batch ends in one Delta table."""

    table_id: str
    version: int
    in_first_content: bool

    @property
    def finished(self) -> int | None:
        """The version up to which all is in the batch or an earlier one; None: there is none."""
        return None if self.in_first_content or self.version == 0 else self.version - 1

    @property
    def reached(self) -> int:
        """The newest version of which it has read something, where a commit adds one file."""
        return self.version if self.in_first_content else self.version - 1


@dataclass(frozen=True, slots=True)
class Ends:
    """The place where a batch ends in the Delta tables that the query reads. `void`: of some source nothing has come yet, and it may be one."""

    tables: tuple[DeltaEnd, ...]
    void: bool

    def finished(self, table_id: str) -> int | None:
        """The version of a table up to which all is in the batch or an earlier one; None: there is none. A table that is read twice is
        as far as the source that is behind. Raises UsageError if it is not read."""
        found = [one.finished for one in self.tables if one.table_id == table_id]
        if not found and not self.void:
            others = ", ".join(sorted({one.table_id for one in self.tables}))
            read = f"it reads the Delta tables with the ids {others}" if others else "it reads no Delta table"
            raise UsageError(f"is not of a query over the table with the id {table_id}: {read}")
        known = [one for one in found if one is not None]
        return min(known) if known and len(known) == len(found) else None


def read_ends(text: str) -> Ends:
    """The content of a file `offsets/<batch>`. Raises UsageError for one that Spark and Delta as they are known here cannot have
    written."""
    lines = text.split("\n") if len(text) <= MOST_CHARACTERS else []
    if len(lines) < 2 or lines[0].strip() not in FILE_VERSIONS:
        raise UsageError(f"is no file of offsets that is known here: it begins with {show(text[:20])}")
    sources = [line.strip() for line in lines[2:] if line.strip()]
    if lines[0].strip() == FILE_VERSIONS[1]:
        sources = [line.partition(":")[2] for line in sources]
    ends = [_delta_end(end, source) for source in sources if (end := _fields(source)) is not None and "reservoirId" in end]
    return Ends(tuple(ends), VOID in sources or not sources)


def read_query_id(text: str) -> str:
    """The content of a file `metadata`. Raises UsageError for one that Spark cannot have written."""
    fields = _fields(text) or {}
    if not isinstance(query_id := fields.get("id"), str) or not query_id:
        raise UsageError(f"has no id of a streaming query: {show(text[:100])}")
    return query_id


def goes_on(planned: Sequence[DeltaEnd], newest: int, has_commit: Callable[[int], bool]) -> bool:
    """Tells whether a query over one table goes on in it as it is, with its newest version and the commits it has. `planned`: the ends of the last
    batches that the query has planned, two or, of its first one, one. The last one may be done or not.

    It does not if the table was put back to before what the query has read. What comes now under the same numbers it would pass over. Nor if the
    first commit is gone that it may still have to read. Of its first batch that is the version whose content it reads.
    """
    if not planned or planned[-1].reached > newest:
        return False
    first = planned[0].version if len(planned) > 1 else planned[0].reached
    return first > newest or has_commit(first)


def _fields(text: str) -> dict[str, Any] | None:
    """Parses an object of JSON, as the ends of Delta's sources and some others are; None of other texts."""
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return fields if isinstance(fields, dict) else None


def _delta_end(fields: dict[str, Any], source: str) -> DeltaEnd:
    table_id, version, in_first_content = (fields.get(key) for key in ("reservoirId", "reservoirVersion", "isStartingVersion"))
    format_version = fields.get("sourceVersion")
    if type(format_version) is int and format_version > SOURCE_VERSIONS[-1]:
        raise UsageError(
            f"is of a newer Delta: version {show(format_version)} of its source, up to {SOURCE_VERSIONS[-1]} are known here"
        )
    if (
        format_version not in SOURCE_VERSIONS
        or not isinstance(table_id, str)
        or type(version) is not int
        or not 0 <= version < _NUMBER_LIMIT
        or type(in_first_content) is not bool
    ):
        raise UsageError(f"has an end of a Delta source that is not known here: {show(source)}")
    return DeltaEnd(table_id, version, in_first_content)
