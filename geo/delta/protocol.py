"""Judges whether this program may read and append to a Delta table by itself, file by file: by the table's protocol, features and
columns. Pure: no Spark, clock or I/O.

A feature that is not known here is refused by name; Spark then reads and writes the table. Delta's PROTOCOL.md lists them
("Valid Feature Names in Table Features").
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

_READ = frozenset({"columnMapping", "deletionVectors", "timestampNtz", "typeWidening", "v2Checkpoint", "vacuumProtocolCheck"})
"""Features that ask nothing of a reader until a column, a file or a property uses them, which is told where that is read."""

_WRITTEN = _READ | {
    "allowColumnDefaults", "appendOnly", "changeDataFeed", "checkConstraints", "domainMetadata", "generatedColumns", "identityColumns",
    "invariants", "inCommitTimestamp", "rowTracking",
}  # fmt: skip
"""Features that an append knows, or that ask nothing of one until a column or a property uses them. With the change feed on, the files
that an append adds are the feed."""

_LEGACY_READERS, _LEGACY_WRITERS = range(1, 3), range(1, 7)
"""Versions of the protocol that stand for a fixed set of features; later ones list them."""

_OF_READERS = (2, "columnMapping")
"""Since which version readers have a feature, which has to be listed where versions list them."""

_OF_WRITERS = (
    (2, "appendOnly"), (2, "invariants"), (3, "checkConstraints"), (4, "changeDataFeed"), (4, "generatedColumns"), (5, "columnMapping"),
    (6, "identityColumns"),
)  # fmt: skip
"""Features of the versions of writers, as `_OF_READERS`."""

MAPPED_NAME, MAPPED_ID = "delta.columnMapping.physicalName", "delta.columnMapping.id"
"""Metadata of a column with its name and number in files."""

MAPPING, _TIMESTAMPS, _CONSTRAINTS = "delta.columnMapping.mode", "delta.enableInCommitTimestamps", "delta.constraints."
CHANGES = "delta.typeChanges"
"""Metadata of a column with the types that it had."""

TYPE_WIDENING = "delta.enableTypeWidening"
"""The property of a table whose columns may be made of wider types."""

_KNOWN_METADATA = frozenset({"comment", MAPPED_NAME, MAPPED_ID, CHANGES})
"""Metadata that a column may have beside its type. Anything else fills or checks it."""

_WIDER: Mapping[str, frozenset[str]] = {
    "byte": frozenset({"short", "integer", "long", "double"}),
    "short": frozenset({"integer", "long", "double"}),
    "integer": frozenset({"long", "double"}),
    "float": frozenset({"double"}),
    "date": frozenset({"timestamp_ntz"}),
}
"""Types of which values are read as wider ones, beside decimals."""

_WHOLE = {"byte": (10, 0), "short": (10, 0), "integer": (10, 0), "long": (20, 0)}
"""Whole numbers as the least decimals that they may become."""

_DECIMAL = re.compile(r"decimal\((\d+),\s*(\d+)\)")


def is_mapped(configuration: Mapping[str, str]) -> bool:
    """Tells whether the columns of a table have other names in its files."""
    return configuration.get(MAPPING, "none") != "none"


def has_times(configuration: Mapping[str, str]) -> bool:
    """Tells whether each commit of a table says when it was made, later than the one before (in-commit timestamps)."""
    return configuration.get(_TIMESTAMPS, "false").lower() == "true"


def tracks_rows(protocol: Mapping[str, Any], configuration: Mapping[str, str]) -> bool:
    """Tells whether each file of a table says which numbers its rows have (row tracking)."""
    is_suspended = configuration.get("delta.rowTrackingSuspended", "false").lower() == "true"
    return "rowTracking" in (protocol.get("writerFeatures") or ()) and not is_suspended


def why_not_read(protocol: Mapping[str, Any], configuration: Mapping[str, str]) -> str | None:
    """Tells why this program does not read the files of a table; None: it may. Raises KeyError, TypeError or ValueError for what is no protocol."""
    if (why := _why_unknown(protocol, "reader", _LEGACY_READERS, 3, _READ)) is not None:
        return why
    mode = configuration.get(MAPPING, "none")
    return f"its columns have other names in the files (column mapping by {mode})" if is_mapped(configuration) else None


def why_not_append(protocol: Mapping[str, Any], configuration: Mapping[str, str]) -> str | None:
    """Tells why this program does not append to a table, as `why_not_read`. None: it may, if it knows the columns (`why_not_plain`)."""
    for who, legacy, known in (("reader", _LEGACY_READERS, _READ), ("writer", _LEGACY_WRITERS, _WRITTEN)):
        if (why := _why_unknown(protocol, who, legacy, 3 if who == "reader" else 7, known)) is not None:
            return why
    if (mode := configuration.get(MAPPING, "none")) not in ("none", "name", "id"):
        return f"its columns are mapped in a way that is not known here ({mode})"
    if checked := sorted(key.removeprefix(_CONSTRAINTS) for key in configuration if key.startswith(_CONSTRAINTS)):
        return f"its rows are checked by the constraint {_named(checked)}"
    return None


def why_not_change(protocol: Mapping[str, Any], configuration: Mapping[str, str]) -> str | None:
    """Tells why this program takes no file out of a table to which it appends, and puts none in the place of others. None: it may."""
    if (why := why_not_read(protocol, configuration)) is not None:
        return why
    return "rows keep their numbers when they move (row tracking)" if tracks_rows(protocol, configuration) else None


def why_not_plain(columns: Iterable[Mapping[str, Any]]) -> str | None:
    """Tells why columns, as the schema lists them, are filled or checked by a rule, or have values that are not read here. None: none is."""
    for column in columns:
        for field in _within(column):
            if strange := sorted(set(field["metadata"]) - _KNOWN_METADATA):
                return f"its column {column['name']} has a rule ({_named(strange)})"
        if (why := why_not_widened(column)) is not None:
            return why
    return None


def why_not_widened(column: Mapping[str, Any]) -> str | None:
    """Tells why a column's values in older files cannot be read as the type that it has now; None: they can."""
    for field in _within(column):
        for one in field["metadata"].get(CHANGES, ()):
            if not is_wider(one["fromType"], one["toType"]):
                return (
                    f"its column {column['name']} was a {one['fromType']} and became a {one['toType']}, which is not known here"
                )
    return None


def with_feature(protocol: Mapping[str, Any], feature: str) -> Mapping[str, Any]:
    """The protocol of a table that gets something which readers and writers have to know (`timestampNtz`, `typeWidening`)."""
    if feature in (protocol.get("readerFeatures") or ()):
        return protocol
    reads, writes = (list(protocol.get(f"{who}Features") or ()) for who in ("reader", "writer"))
    if protocol["minReaderVersion"] < 3:
        reads += [_OF_READERS[1]] if protocol["minReaderVersion"] >= _OF_READERS[0] else []
    if protocol["minWriterVersion"] < 7:
        writes += [name for since, name in _OF_WRITERS if protocol["minWriterVersion"] >= since]
    listed = (list(dict.fromkeys([*there, feature])) for there in (reads, writes))
    return {"minReaderVersion": 3, "minWriterVersion": 7, **dict(zip(("readerFeatures", "writerFeatures"), listed, strict=True))}


def _why_unknown(protocol: Mapping[str, Any], who: str, legacy: range, listing: int, known: frozenset[str]) -> str | None:
    version, features = int(protocol[f"min{who.capitalize()}Version"]), protocol.get(f"{who}Features")
    if version not in legacy and (version != listing or features is None):
        return f"it asks for {who}s of protocol version {version}"
    if unknown := sorted(set(features or ()) - known):
        return f"it asks {who}s for {_named(unknown)}"
    return None


def _within(column: Any) -> Iterator[Mapping[str, Any]]:
    """A column, and the columns in it."""
    if not isinstance(column, Mapping):
        return
    if "metadata" in column:
        yield column
        yield from _within(column["type"])
    for field in column.get("fields", ()):
        yield from _within(field)
    for part in ("elementType", "keyType", "valueType"):
        yield from _within(column.get(part))


def is_wider(kind: str, wider: str) -> bool:
    if wider in _WIDER.get(kind, ()):
        return True
    before, after = _DECIMAL.fullmatch(kind), _DECIMAL.fullmatch(wider)
    digits, behind = (int(before[1]), int(before[2])) if before else _WHOLE.get(kind, (99, 0))
    return after is not None and int(after[2]) >= behind and int(after[1]) - int(after[2]) >= digits - behind


def _named(names: Sequence[str]) -> str:
    return ", ".join(names)
