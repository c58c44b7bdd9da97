"""What a cell is, and how the matrix is printed."""

from __future__ import annotations

from tests.foreign.held import Effect, Held, differences, disorder
from tests.foreign.kinds import KINDS
from tests.foreign.verdicts import Cell, Verdict, details, loud, rendered, right

ONE, TWO = ("us", 1, 0), ("us", 1, 1)


def test_a_cell_is_right_only_without_faults_and_loud_only_if_nothing_wrong_was_written() -> None:
    assert right().verdict is Verdict.RIGHT
    assert right("5 missing") == Cell(Verdict.WRONG, "5 missing")
    assert loud("FAILED: x").verdict is Verdict.LOUD
    assert loud("FAILED: x", "wrote one").verdict is Verdict.WRONG


def test_what_a_commit_did_to_messages_is_told_from_what_the_log_held_before_and_after() -> None:
    before = Held({ONE: [("a",)], TWO: [("b",)]})
    after = Held({ONE: [("a",), ("a",)], ("eu", 1, 0): [("c",)]})
    effect = Effect.of(before, after)
    assert effect == Effect(frozenset({("eu", 1, 0)}), frozenset({ONE}), frozenset({TWO}), frozenset(), frozenset())
    assert effect.takes_from("us") == {TWO}
    changed, beside = (Effect.of(before, Held({ONE: [("a",)], TWO: rows})) for rows in ([("x",)], [("b",), ("x",)]))
    assert changed.changed == {TWO}
    assert not changed.beside
    assert beside.changed == beside.beside == {TWO}


def test_a_target_must_hold_each_message_of_the_origin_once_and_as_it_is() -> None:
    due = Held({ONE: [("a",)], TWO: [("b",)]})
    assert differences(due, due, "us") == []
    assert differences(due, Held({ONE: [("a",)]}), "us") == ["1 missing (such as us:1:1)"]
    assert differences(due, Held({**due.rows, TWO: [("b",), ("b",)]}), "us") == ["1 twice (such as us:1:1)"]
    assert differences(due, Held({**due.rows, TWO: [("x",)]}), "us") == ["1 other (such as us:1:1)"]
    assert differences(due, Held({**due.rows, ("us", 9, 0): [("z",)]}), "us") == ["1 too many (such as us:9:0)"]
    repeated = Held({ONE: [("a",), ("a",)], TWO: [("b",)]})
    assert differences(due, repeated, "us", repeated) == [], "somebody put it there twice, no link did"
    assert differences(repeated, due, "us") == [], "an id that the source has twice crosses once"


def test_entries_of_a_ledger_come_in_their_order_but_for_what_a_comparison_brings() -> None:
    assert disorder([(False, [[ONE, TWO]])]) == []
    assert disorder([(False, [[TWO], [ONE]])]) == [], "the files of a commit have no order"
    assert disorder([(False, [[TWO]]), (False, [[ONE]])]) == ["us:1:0 behind 1"]
    assert disorder([(False, [[TWO]]), (True, [[ONE]])]) == []
    assert disorder([(True, [[TWO, ONE]])]) == ["us:1:0 behind 1"]


def test_the_matrix_has_a_table_an_engine_and_says_what_is_wrong() -> None:
    matrix = {("Spark", "OPTIMIZE"): {"tail": right()}, ("crafted", "append"): {"tail": right("5 twice")}}
    assert rendered(matrix, ["tail"]) == [
        "2 kinds of commits: 1 right, 0 LOUD, 1 WRONG.",
        "", "### Spark", "", "| commit | tail |", "|---|---|", "| OPTIMIZE | right |",
        "", "### crafted", "", "| commit | tail |", "|---|---|", "| append | WRONG |",
    ]  # fmt: skip
    assert details(matrix, Verdict.WRONG) == ["- crafted, append, tail: 5 twice"]


def test_no_two_kinds_have_one_name() -> None:
    assert len({kind.slug for kind in KINDS}) == len(KINDS)
