"""What a change may follow on. (Changes on real tables: tests/ops/test_date_files.py, test_erase.py.)"""

from __future__ import annotations

import json

import pytest

from geo.delta.change import Change, DataFileOf, conflict

DAY = {"publish_date": "2026-01-01"}
TAKEN = (DataFileOf("publish_date=2026-01-01/a", DAY, 10, 1),)
COMPACTION = Change(3, "OPTIMIZE", {}, {}, TAKEN, changes_rows=False)
EXPIRY = Change(3, "DELETE", {}, {}, TAKEN, closed=frozenset({"2026-01-01"}))


@pytest.mark.parametrize(
    ("action", "after_compaction", "after_expiry"),
    [
        ({"commitInfo": {"operation": "WRITE"}}, None, None),
        ({"add": {"path": "b", "partitionValues": {"publish_date": "2026-01-02"}}}, None, None),
        ({"add": {"path": "b", "partitionValues": DAY}}, None, "b came meanwhile"),
        ({"add": {"path": TAKEN[0].path, "partitionValues": DAY}}, "was added once more", "was added once more"),
        ({"remove": {"path": TAKEN[0].path}}, "was taken out meanwhile", "was taken out meanwhile"),
        ({"remove": {"path": "b"}}, None, None),
        ({"metaData": {"id": "x"}}, None, None),
    ],
)
def test_a_change_follows_on_what_leaves_its_files_and_dates_alone(
    action: dict[str, object], after_compaction: str | None, after_expiry: str | None
) -> None:
    for change, expected in ((COMPACTION, after_compaction), (EXPIRY, after_expiry)):
        why = conflict(change, [json.dumps({"commitInfo": {}}), json.dumps(action)])
        assert (why is None) == (expected is None)
        assert expected is None or expected in (why or "")
