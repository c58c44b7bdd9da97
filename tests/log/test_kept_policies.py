"""What a topic's log keeps of its policies, and what that lets links carry."""

from __future__ import annotations

import pytest

from geo.log.absence import unlike_log
from geo.log.kept_policies import DELETED, REPLICATION_CLUSTERS, UNCLEAR, UNENDED, clusters_of, forbids, kept, restored
from tests.world import TOPIC

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


@pytest.mark.parametrize(
    ("registry", "log", "said"),
    [
        (kept(_BETWEEN), kept(_BETWEEN), None),
        (kept(None), kept({}), None),
        (kept(restored(None)), kept({}), None),  # of which nobody knows: told as that
        (kept(_BETWEEN), None, None),  # an older program's log
        (kept(_BETWEEN), kept({}), "are: eu, us, by its log: as configured"),
        (kept({}), kept({REPLICATION_CLUSTERS: "us"}), "are: as configured, by its log: us"),
    ],
)
def test_a_registry_that_says_otherwise_than_the_log_is_told(registry: str | None, log: str | None, said: str | None) -> None:
    told = unlike_log(TOPIC, registry, log, "us")
    assert (told is None) is (said is None)
    assert said is None or (said in str(told) and f"geo topics set --cluster us --topic {TOPIC}" in str(told))
