"""One snapshot: who is waited for, how often, and what it says in the end."""

from __future__ import annotations

import json
from dataclasses import asdict

from hypothesis import given
from hypothesis import strategies as st

from geo.ids import Position
from geo.subscription.pip33.markers import SnapshotRequest
from geo.subscription.pip33.snapshot_builder import SnapshotBuilder, begin, read_builder
from geo.subscription.pip33.snapshot_cache import Snapshot


def begun(*remotes: str) -> SnapshotBuilder:
    builder = begin("s1", remotes, 100.0)
    assert builder.request("a") == request(1)
    return builder


def request(round_number: int) -> SnapshotRequest:
    return SnapshotRequest("s1", "a", 100_000_000, round_number)


def completed(local: Position, **clusters: Position) -> Snapshot:
    return Snapshot("s1", local, clusters, 100_000_000)


def test_one_remote_cluster_needs_one_round() -> None:
    assert begun("b").on_response("b", Position(7, 1), Position(3, 0)) == completed(Position(3, 0), b=Position(7, 1))


def test_two_need_two_and_the_positions_stay_those_of_the_first() -> None:
    builder = begun("b", "c")
    assert builder.on_response("b", Position(11, 11), Position(1, 1)) is None
    assert builder.request("a") == request(1)
    assert builder.on_response("c", Position(22, 22), Position(2, 2)) is None
    assert builder.request("a") == request(2)
    assert builder.on_response("c", Position(33, 33), Position(4, 4)) is None
    done = completed(Position(5, 5), b=Position(11, 11), c=Position(22, 22))
    assert builder.on_response("b", Position(44, 44), Position(5, 5)) == done


def test_of_a_cluster_the_first_answer_of_a_round_counts() -> None:
    builder = begun("b", "c")
    builder.on_response("b", Position(1, 0), Position(1, 1))
    assert builder.on_response("b", Position(9, 9), Position(2, 2)) is None
    assert builder.missing == ["c"]
    builder.on_response("c", Position(2, 0), Position(3, 3))
    builder.on_response("b", Position(5, 0), Position(4, 0))
    done = completed(Position(5, 0), b=Position(1, 0), c=Position(2, 0))
    assert builder.on_response("c", Position(6, 0), Position(5, 0)) == done


def test_who_was_not_asked_or_comes_after_the_end_changes_nothing() -> None:
    builder = begun("b")
    assert builder.on_response("c", Position(1, 0), Position(1, 1)) is None
    assert builder.on_response("a", Position(1, 0), Position(1, 1)) is None
    assert builder.missing == ["b"]
    builder.on_response("b", Position(1, 0), Position(2, 0))
    assert builder.on_response("b", Position(2, 0), Position(3, 0)) is None


@given(st.lists(st.sampled_from("abcd"), max_size=12), st.integers(0, 11))
def test_a_state_kept_in_between_changes_nothing(answers: list[str], at: int) -> None:
    one, other = begun("b", "c", "d"), begun("b", "c", "d")
    for number, cluster in enumerate(answers):
        if number == at:
            other = read_builder(json.loads(json.dumps(asdict(other))))
        said = [each.on_response(cluster, Position(number, 0), Position(number, 1)) for each in (one, other)]
        assert said[0] == said[1]
    assert one == other
