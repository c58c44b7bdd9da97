"""Texts that may be shown. Pure."""

from __future__ import annotations

from geo.text import counted, first_line, printable, printable_lines, show


def test_characters_that_move_a_cursor_or_forge_a_line_are_replaced() -> None:
    assert (
        printable("a\x1b[2Kb\nc\x7f\x9fd")
        == "a\N{REPLACEMENT CHARACTER}[2Kb\N{REPLACEMENT CHARACTER}c" + "\N{REPLACEMENT CHARACTER}" * 2 + "d"
    )
    assert printable_lines("a\tb\nc") == "a\N{REPLACEMENT CHARACTER}b\nc"


def test_a_value_is_shown_quoted_on_one_line_and_bounded() -> None:
    assert show("ä\n") == r"'\xe4\n'"
    assert show("x" * 118) == "'" + "x" * 118 + "'"
    assert show("x" * 119) == "'" + "x" * 116 + "..."


def test_a_number_agrees_with_its_noun() -> None:
    assert [counted(n, "message") for n in (0, 1, 2, 2_000)] == ["0 messages", "1 message", "2 messages", "2,000 messages"]


def test_an_error_says_its_first_line_or_its_type() -> None:
    assert first_line(ValueError("no\nat Java")) == "no"
    java = "An error occurred while calling o69.save.\n: SparkException: aborted\n\tat x\nCaused by: A: b\n\tat y\nCaused by: IOException: full\n\tat z"
    assert first_line(RuntimeError(java)) == "IOException: full"
    assert first_line(RuntimeError("An error occurred while calling o1.x.\n: E: why\n\tat y")) == "E: why"
    assert first_line(RuntimeError("An error occurred while calling o1.x.")) == "An error occurred while calling o1.x."
    assert first_line(KeyError()) == "KeyError"
