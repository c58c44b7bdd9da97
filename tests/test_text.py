"""Texts that may be shown. Pure."""

from __future__ import annotations

from unicodedata import bidirectional

from hypothesis import given
from hypothesis import strategies as st
from pyspark.errors import PySparkException

from geo.text import counted, first_line, lasting, per_second, printable, printable_lines, show


def test_characters_that_move_a_cursor_or_forge_a_line_are_replaced() -> None:
    assert (
        printable("a\x1b[2Kb\nc\x7f\x9fd")
        == "a\N{REPLACEMENT CHARACTER}[2Kb\N{REPLACEMENT CHARACTER}c" + "\N{REPLACEMENT CHARACTER}" * 2 + "d"
    )
    assert printable_lines("a\tb\nc") == "a\N{REPLACEMENT CHARACTER}b\nc"


@given(st.characters() | st.sampled_from("\x1b\x9b\u061c\u200e\u202e\u2028\ud800"))
def test_what_is_shown_is_read_as_it_is_written(character: str) -> None:
    shown = printable(f"a{character}b")
    assert shown.encode("utf-8")
    assert not {bidirectional(one) for one in shown} & {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI", "B", "S"}


def test_a_value_is_shown_quoted_on_one_line_and_bounded() -> None:
    assert show("ä\n") == r"'\xe4\n'"
    assert show("x" * 118) == "'" + "x" * 118 + "'"
    assert show("x" * 119) == "'" + "x" * 116 + "..."


def test_a_span_of_time_is_in_the_largest_unit_of_which_there_are_two() -> None:
    spans = (0, 9.94, 10, 119, 120, 7199, 7200, 172_799, 172_800, 10**9)
    assert [lasting(one) for one in spans] == [
        "0.0 s", "9.9 s", "10 s", "119 s", "2 min", "119 min", "2 h", "47 h", "2 days", "11,574 days"
    ]  # fmt: skip


def test_a_little_a_second_is_not_nothing() -> None:
    assert [per_second(one) for one in (0, 0.0234, 0.999, 4.21, 99.94, 1204.4)] == ["0", "0.023", "1", "4.2", "99.9", "1,204"]


def test_a_number_agrees_with_its_noun() -> None:
    assert [counted(n, "message") for n in (0, 1, 2, 2_000)] == ["0 messages", "1 message", "2 messages", "2,000 messages"]


def test_an_error_says_its_first_line_or_its_type() -> None:
    assert first_line(ValueError("no\nat Java")) == "no"
    java = "An error occurred while calling o69.save.\n: SparkException: aborted\n\tat x\nCaused by: A: b\n\tat y\nCaused by: IOException: full\n\tat z"
    assert first_line(RuntimeError(java)) == "IOException: full"
    assert first_line(RuntimeError("An error occurred while calling o1.x.\n: E: why\n\tat y")) == "E: why"
    assert first_line(RuntimeError("An error occurred while calling o1.x.")) == "An error occurred while calling o1.x."
    assert first_line(KeyError()) == "KeyError"


def test_an_error_of_a_task_says_what_was_raised_in_it_and_of_a_storage_what_to_do() -> None:
    def of_task(raised: str) -> RuntimeError:
        trace = 'Traceback (most recent call last):\n  File "x.py", line 50, in y\n    raise Why: not\n'
        return RuntimeError(
            f"An exception was thrown from the Python worker:\n{trace}{raised}\n\nJVM stacktrace:\norg.x.PythonException: no\n\tat z"
        )

    assert first_line(of_task("ValueError: bad row")) == "ValueError: bad row"
    said = "S3 bucket b: PUT http://h/b/part: 403 Forbidden, AccessDenied"
    told = first_line(of_task(f"PermissionError: {said}"))
    assert told.startswith(f"{said}; check the credential")
    for last in ("nothing", "AssertionError", "x.y.Error", "ValueError: one\n  and two"):
        assert first_line(of_task(last)) in last, "the last line of a trace is always there"
    assert first_line(PySparkException(str(of_task(f"OSError: {said}")))) == told
    assert first_line(PySparkException(str(of_task("ValueError: bad row")))) == "ValueError: bad row"
    trace = 'Traceback (most recent call last):\n  File "x.py", line 50, in y\n    f.write(z)\nOSError: [Errno 28] No space left on device\n\n'
    for java in (
        f"[STREAM_FAILED] Query [id = x] terminated: Task 0 failed: org.x.PythonException: {trace}\tat z\n",
        f"An error occurred while calling o69.save.\n: SparkException: aborted\n\tat x\nCaused by: org.x.PythonException: {trace}\tat z\n",
    ):
        assert first_line(RuntimeError(java)) == (
            "OSError: [Errno 28] No space left on device; free space there; it goes on by itself"
        )
    once = first_line(OSError(28, "No space left on device", "/data/us/x"))
    assert once == "[Errno 28] No space left on device: '/data/us/x'; free space there; it goes on by itself"
    assert first_line(RuntimeError(f"us: {once}")) == f"us: {once}"
