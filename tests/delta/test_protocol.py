"""Which tables this program reads and appends to by itself: a table of protocols."""

from __future__ import annotations

from typing import Any

import pytest

from geo.delta.protocol import why_not_append, why_not_plain, why_not_read


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
        (_protocol(2, 7), {}, None, None),
        (_protocol(1, 7, None, ["appendOnly", "invariants"]), {}, None, None),
        (_protocol(3, 7, ["columnMapping"], ["columnMapping", "allowColumnDefaults"]), {}, None, None),
        (_protocol(2, 5), MAPPED, "other names in the files", "other names in the files"),
        (_protocol(3, 7, ["columnMapping"], ["columnMapping"]), MAPPED, "column mapping by name", "column mapping by name"),
        (_protocol(3, 7, ["deletionVectors"], ["deletionVectors"]), {}, "asks readers for deletionVectors", "deletionVectors"),
        (_protocol(3, 7, ["v2Checkpoint"], ["v2Checkpoint"]), {}, "asks readers for v2Checkpoint", "v2Checkpoint"),
        (_protocol(3, 7, ["ofTomorrow"], ["ofTomorrow"]), {}, "asks readers for ofTomorrow", "ofTomorrow"),
        (_protocol(4, 8, ["columnMapping"], []), {}, None, "writers of protocol version 8"),
        (_protocol(3, 7), {}, "readers of protocol version 3", "readers of protocol version 3"),
        (_protocol(1, 7, None, ["rowTracking", "ofTomorrow"]), {}, None, "asks writers for ofTomorrow, rowTracking"),
        (_protocol(1, 7, None, ["inCommitTimestamp"]), {}, None, None),
        (_protocol(1, 7, None, ["inCommitTimestamp"]), {"delta.enableInCommitTimestamps": "true"}, None, "in-commit timestamps"),
        (_protocol(1, 3), {"delta.constraints.positive": "a > 0"}, None, "constraint positive"),
    ],
)  # fmt: skip
def test_what_is_not_known_is_refused_by_name(
    protocol: dict[str, Any], configuration: dict[str, str], reads: str | None, appends: str | None
) -> None:
    for found, wanted in ((why_not_read(protocol, configuration), reads), (why_not_append(protocol, configuration), appends)):
        assert (found is None) is (wanted is None), found
        assert wanted is None or wanted in (found or "")


def test_columns_that_a_rule_fills_or_checks_are_left_to_spark() -> None:
    plain = {"name": "a", "metadata": {"comment": "x"}}
    assert why_not_plain([plain, {"name": "b", "metadata": {}}]) is None
    assert "column c" in (why_not_plain([plain, {"name": "c", "metadata": {"CURRENT_DEFAULT": "1"}}]) or "")
