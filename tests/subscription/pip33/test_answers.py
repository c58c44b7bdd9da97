"""Which answers have come to the same round of a snapshot."""

from __future__ import annotations

from collections.abc import Set

from geo.ids import Position
from geo.subscription.pip33.answers import MOST_ROUNDS, Answers
from geo.subscription.pip33.controller_rows import MarkerRow
from geo.subscription.pip33.markers import Marker, SnapshotRequest, SnapshotResponse, encode


def _row(marker: Marker, sender: str, payload: bytes | None = None) -> MarkerRow:
    return MarkerRow(1, marker.kind.value, payload or encode(marker), sender, Position(1, 0), 1, "t", 1)


def test_answers_to_one_round_are_told_together_and_nothing_else_is_an_answer() -> None:
    answers = Answers("a")

    def given(sender: str, snapshot: str = "a:t:1", round_number: int = 1, *, asker: str = "a", cluster: str = "") -> Set[str]:
        answer = SnapshotResponse(snapshot, asker, cluster or sender, Position(1, 0), round_number)
        return set(answers.note(_row(answer, sender), ("b", "c")))

    assert [given("b"), given("b"), given("c"), given("b")] == [{"b"}, {"b"}, {"b", "c"}, {"b", "c"}]
    assert [given("c", round_number=2), given("b", "a:t:2"), given("b", round_number=2)] == [{"c"}, {"b"}, {"b", "c"}]
    assert not given("b", "c:t:1", asker="c"), "it is for another cluster"
    assert not given("b", "a:t:3", cluster="c"), "forged"
    assert not given("d"), "it is not asked"
    request = SnapshotRequest("a:t:1", "a", 0)
    assert not answers.note(_row(request, "a"), ("a", "b"))
    assert not answers.note(_row(SnapshotResponse("a:t:1", "a", "b", Position(1, 0)), "b", b"{"), ("b", "c")), "refused"
    for nth in range(MOST_ROUNDS):
        given("b", f"a:t:{nth + 10}")
    assert given("c") == {"c"}, "the first are forgotten"
