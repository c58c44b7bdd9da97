"""Which commits bring rows out of order, and what a link brought of such ones: one line a case."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from geo.delta.commits import Commit
from geo.delta.history import CommitName
from geo.log.ledgers import BACKFILL_KEY, BACKFILL_VERSION, REBUILD_KEY
from geo.replication.link_state import LinkRecord
from geo.subscription.pip33.reordering import out_of_order, replicated_out_of_order
from tests.replication.histories import commit

BEFORE = CommitName("t", 4, "id-4")


def _record(link: str, version: int, *, reconciling: bool = False) -> LinkRecord:
    return LinkRecord(link, ("us",), "persistent://a/b/c", CommitName("t", version, f"id-{version}"), 1, "token", reconciling)


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        (None, None),
        ("what a person wrote", None),
        (_record("us->eu", 3).encode(), None),
        (_record("us->eu", 3, reconciling=True).encode(), "comparison of us->eu"),
        (f'{{"{BACKFILL_KEY}": {BACKFILL_VERSION}, "origins": ["us"]}}', "backfill"),
        (f'{{"{REBUILD_KEY}": 1}}', "rebuild"),
    ],
)
def test_a_comparison_a_backfill_and_a_rebuild_are_out_of_order(metadata: str | None, expected: str | None) -> None:
    assert out_of_order(commit(1, metadata=metadata)) == expected


@pytest.mark.parametrize(
    ("cursor", "passed", "says"),
    [
        (6, [commit(4), commit(5), commit(6)], None),
        (6, [commit(5), commit(6)], None),
        (4, [commit(4)], None),
        (3, [], "its source was put back"),
        (6, [commit(4, commit_id="other"), commit(5), commit(6)], "has grown since"),
        (6, [commit(6)], "some of what it replicated is gone"),
        (6, [commit(4), commit(6)], "some of what it replicated is gone"),
        (6, [], "some of what it replicated is gone"),
        (
            6,
            [commit(4), commit(5, metadata=_record("ap->us", 2, reconciling=True).encode()), commit(6)],
            "us->eu replicated a comparison of ap->us",
        ),
        (4, [commit(4, metadata=f'{{"{REBUILD_KEY}": 1}}')], None),
    ],
)
def test_what_a_link_brought_is_in_order_if_all_of_it_is_known_to_be(
    cursor: int, passed: Sequence[Commit], says: str | None
) -> None:
    """What stands at the commit that it had brought before was asked then."""
    found = replicated_out_of_order(_record("us->eu", cursor), BEFORE, passed)
    assert found is None if says is None else says in str(found)
