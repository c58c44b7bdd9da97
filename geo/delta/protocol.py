"""Judges whether this program may read and append to a Delta table by itself, file by file: by the table's protocol, features and
columns. Pure: no Spark, clock or I/O.

A feature that is not known here is refused by name; Spark then reads and writes the table. Delta's PROTOCOL.md lists them
("Valid Feature Names in Table Features").
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

_UNUSED_READING = frozenset({"columnMapping", "timestampNtz", "vacuumProtocolCheck"})
"""Features that ask nothing of a reader until a column or a property uses them, which `why_not_read` and the columns' types tell."""

_UNUSED_WRITING = frozenset(
    {
        "allowColumnDefaults", "appendOnly", "changeDataFeed", "checkConstraints", "columnMapping", "domainMetadata", "generatedColumns",
        "identityColumns", "invariants", "inCommitTimestamp", "timestampNtz", "vacuumProtocolCheck",
    }
)  # fmt: skip
"""Features that ask nothing of an append of plain files until a column or a property uses them. With the change feed on, the files
that an append adds are the feed."""

_LEGACY_READERS, _LEGACY_WRITERS = range(1, 3), range(1, 7)
"""Versions of the protocol that stand for a fixed set of features; later ones list them."""

_MAPPING, _TIMESTAMPS, _CONSTRAINTS = "delta.columnMapping.mode", "delta.enableInCommitTimestamps", "delta.constraints."

_PLAIN_METADATA = frozenset({"comment"})
"""What a column may say of itself beside its type. Anything else fills, checks, maps or widens it."""


def why_not_read(protocol: Mapping[str, Any], configuration: Mapping[str, str]) -> str | None:
    """Why this program does not read the files of a table; None: it may. Raises KeyError, TypeError or ValueError for what is no
    protocol."""
    version = int(protocol["minReaderVersion"])
    features = protocol.get("readerFeatures") or ()
    if version not in _LEGACY_READERS and protocol.get("readerFeatures") is None:
        return f"it asks for readers of protocol version {version}"
    if unknown := sorted(set(features) - _UNUSED_READING):
        return f"it asks readers for {_named(unknown)}"
    mode = configuration.get(_MAPPING, "none")
    return None if mode == "none" else f"its columns have other names in the files (column mapping by {mode})"


def why_not_append(protocol: Mapping[str, Any], configuration: Mapping[str, str]) -> str | None:
    """Why this program does not append to a table, as `why_not_read`, which comes first. None: it may."""
    if (why := why_not_read(protocol, configuration)) is not None:
        return why
    version = int(protocol["minWriterVersion"])
    features = protocol.get("writerFeatures") or ()
    if version not in _LEGACY_WRITERS and version != 7:
        return f"it asks for writers of protocol version {version}"
    if unknown := sorted(set(features) - _UNUSED_WRITING):
        return f"it asks writers for {_named(unknown)}"
    if configuration.get(_TIMESTAMPS, "false").lower() == "true":
        return "its commits carry their own times (in-commit timestamps)"
    if checked := sorted(key.removeprefix(_CONSTRAINTS) for key in configuration if key.startswith(_CONSTRAINTS)):
        return f"its rows are checked by the constraint {_named(checked)}"
    return None


def why_not_plain(columns: Iterable[Mapping[str, Any]]) -> str | None:
    """Why columns, as the schema lists them, are filled or checked by a rule; None: none is."""
    for column in columns:
        if not _PLAIN_METADATA.issuperset(column["metadata"]):
            return f"its column {column['name']} has a rule ({_named(sorted(set(column['metadata']) - _PLAIN_METADATA))})"
    return None


def _named(names: Sequence[str]) -> str:
    return ", ".join(names)
