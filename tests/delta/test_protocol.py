"""Which tables this program reads and appends to by itself: a table of protocols."""

from __future__ import annotations

from typing import Any

import pytest

from geo.delta.protocol import why_not_append, why_not_change, why_not_plain, why_not_read, with_feature


def _protocol(reader: int, writer: int, reads: list[str] | None = None, writes: list[str] | None = None) -> dict[str, Any]:
    found: dict[str, Any] = {"minReaderVersion": reader, "minWriterVersion": writer}
    return found | {name: value for name, value in (("readerFeatures", reads), ("writerFeatures", writes)) if value is not None}


MAPPED = {"delta.columnMapping.mode": "name"}


@pytest.mark.parametrize(
    ("protocol", "configuration", "reads", "appends"),
    [
        (_protocol(1, 2), {}, None, None),
        (_protocol(1, 4), {}, None, None),
        (_protocol(2, 5), {}, None, None),
        (_protocol(2, 6), {}, None, None),
        (_protocol(2, 7), {}, None, "writers of protocol version 7"),
        (_protocol(1, 7, None, ["appendOnly", "invariants"]), {}, None, None),
        (_protocol(3, 7, ["columnMapping"], ["columnMapping", "allowColumnDefaults"]), {}, None, None),
        (_protocol(2, 5), MAPPED, "other names in the files", None),
        (_protocol(3, 7, ["columnMapping"], ["columnMapping"]), MAPPED, "column mapping by name", None),
        (_protocol(2, 5), {"delta.columnMapping.mode": "tomorrow"}, "column mapping by tomorrow", "not known here (tomorrow)"),
        (_protocol(3, 7, ["deletionVectors"], ["deletionVectors"]), {}, None, None),
        (_protocol(3, 7, ["v2Checkpoint"], ["v2Checkpoint"]), {}, None, None),
        (_protocol(3, 7, ["typeWidening"], ["typeWidening"]), {}, None, None),
        (_protocol(3, 7, ["ofTomorrow"], ["ofTomorrow"]), {}, "asks readers for ofTomorrow", "ofTomorrow"),
        (_protocol(4, 8, ["columnMapping"], []), {}, "readers of protocol version 4", "readers of protocol version 4"),
        (_protocol(3, 8, ["columnMapping"], []), {}, None, "writers of protocol version 8"),
        (_protocol(3, 7), {}, "readers of protocol version 3", "readers of protocol version 3"),
        (_protocol(1, 7, None, ["rowTracking", "ofTomorrow", "clustering"]), {}, None, "asks writers for clustering, ofTomorrow"),
        (_protocol(1, 7, None, ["inCommitTimestamp"]), {"delta.enableInCommitTimestamps": "true"}, None, None),
        (_protocol(1, 7, None, ["rowTracking", "domainMetadata"]), {}, None, None),
        (_protocol(1, 3), {"delta.constraints.positive": "a > 0"}, None, "constraint positive"),
    ],
)  # fmt: skip
def test_what_is_not_known_is_refused_by_name(
    protocol: dict[str, Any], configuration: dict[str, str], reads: str | None, appends: str | None
) -> None:
    for found, wanted in ((why_not_read(protocol, configuration), reads), (why_not_append(protocol, configuration), appends)):
        assert (found is None) is (wanted is None), found
        assert wanted is None or wanted in (found or "")


@pytest.mark.parametrize(
    ("features", "configuration", "why"),
    [
        (["rowTracking"], {}, "row tracking"),
        (["rowTracking"], {"delta.rowTrackingSuspended": "true"}, None),
        (["columnMapping"], MAPPED, "column mapping"),
        (["inCommitTimestamp"], {"delta.enableInCommitTimestamps": "true"}, None),
    ],
)
def test_files_go_only_where_that_asks_nothing_more(features: list[str], configuration: dict[str, str], why: str | None) -> None:
    found = why_not_change(_protocol(2, 7, None, features), configuration)
    assert (found is None) is (why is None), found
    assert why is None or why in (found or "")


def _column(name: str, kind: Any, **metadata: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": True, "metadata": metadata}


def test_columns_that_a_rule_fills_or_checks_are_left_to_spark() -> None:
    plain = _column("a", "long", comment="x")
    assert why_not_plain([plain, _column("b", "string")]) is None
    ruled = _column("c", "long", CURRENT_DEFAULT="1")
    of_columns = {"type": "struct", "fields": [plain, ruled]}
    within = {"type": "map", "keyType": "string", "valueType": {"type": "array", "elementType": of_columns}}
    for column in (ruled, _column("c", of_columns), _column("c", within)):
        assert "column c has a rule (CURRENT_DEFAULT)" in (why_not_plain([plain, column]) or "")


@pytest.mark.parametrize(
    ("kind", "wider", "is_known"),
    [
        ("byte", "short", True), ("byte", "long", True), ("integer", "double", True), ("float", "double", True), ("date", "timestamp_ntz", True),
        ("decimal(5,2)", "decimal(8,4)", True), ("integer", "decimal(12,2)", True), ("long", "decimal(20,0)", True),
        ("long", "integer", False), ("long", "double", False), ("string", "long", False), ("date", "timestamp", False),
        ("decimal(5,2)", "decimal(6,4)", False), ("decimal(5,2)", "decimal(5,1)", False), ("long", "decimal(12,2)", False),
        ("string", "decimal(38,0)", False),
    ],
)  # fmt: skip
def test_a_type_that_became_another_one_than_a_wider_one_is_left_to_spark(kind: str, wider: str, *, is_known: bool) -> None:
    changed = _column("x", wider, **{"delta.typeChanges": [{"fromType": kind, "toType": wider}]})
    for column in (changed, _column("y", {"type": "struct", "fields": [changed]})):
        assert (why_not_plain([column]) is None) is is_known


@pytest.mark.parametrize(
    ("before", "reads", "writes"),
    [
        (_protocol(1, 2), [], ["appendOnly", "invariants"]),
        (_protocol(1, 7, None, ["changeDataFeed"]), [], ["changeDataFeed"]),
        (_protocol(2, 5), ["columnMapping"], ["appendOnly", "invariants", "checkConstraints", "changeDataFeed", "generatedColumns", "columnMapping"]),
        (_protocol(3, 7, ["deletionVectors"], ["deletionVectors"]), ["deletionVectors"], ["deletionVectors"]),
    ],
)  # fmt: skip
def test_a_protocol_keeps_what_it_asked_when_times_without_a_zone_come(
    before: dict[str, Any], reads: list[str], writes: list[str]
) -> None:
    assert with_feature(before, "timestampNtz") == _protocol(3, 7, [*reads, "timestampNtz"], [*writes, "timestampNtz"])
    assert with_feature(with_feature(before, "timestampNtz"), "timestampNtz") == with_feature(before, "timestampNtz")
