"""What a topic's log keeps of its policies, and what that lets links carry."""

from __future__ import annotations

import pytest

from geo.log.kept_policies import DELETED, REPLICATION_CLUSTERS, UNCLEAR, UNENDED, clusters_of, forbids, kept, restored

_BETWEEN = {REPLICATION_CLUSTERS: "eu,us"}


@pytest.mark.parametrize("policies", [{}, _BETWEEN, {**_BETWEEN, "other": 'a "quoted" one'}])
def test_what_a_log_keeps_is_restored(policies: dict[str, str]) -> None:
    assert restored(kept(policies)) == policies
    assert restored(kept(policies | {DELETED: "2026-11-29T00:00:00Z", UNENDED: "begun"})) == policies, (
        "a delete is no policy to keep"
    )


def test_a_topic_without_policies_is_told_from_one_whose_policies_nobody_knows() -> None:
    assert kept(None) == kept({}) == "{}"
    assert restored("{}") == {}
    assert list(restored(None)) == [UNCLEAR]
    assert kept(restored(None)) is None, "what nobody knows is not kept as if it were known"
    assert clusters_of(restored(None)) is None


@pytest.mark.parametrize(
    ("told", "target", "forbidden"),
    [
        (kept(_BETWEEN), "eu", False),
        (kept(_BETWEEN), "ap", True),
        (kept({REPLICATION_CLUSTERS: "us"}), "eu", True),
        (kept({REPLICATION_CLUSTERS: "ap,eu"}), "eu", True),  # without the source itself
        (kept({}), "ap", False),
        (None, "ap", False),
    ],
)
def test_a_log_forbids_what_its_replication_clusters_leave_out(told: str | None, target: str, *, forbidden: bool) -> None:
    assert (forbids(told, "us", target) is not None) is forbidden
