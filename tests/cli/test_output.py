"""JSON as any parser takes it."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from datetime import datetime, timezone
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geo.cli.main import main
from geo.cli.output import Colour, Line, NobodyReadsError, Output, UnprintedError, fitted, ready_streams, table_lines, to_json
from geo.text import printable
from tests.examples import examples


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (float("nan"), "NaN"),
        (float("inf"), "Infinity"),
        (float("-inf"), "-Infinity"),
        (1.5, 1.5),
        (datetime(1, 1, 1, tzinfo=timezone.utc), "0001-01-01T00:00:00Z"),
        (datetime.min, "0001-01-01T00:00:00"),
        (
            {datetime.min: b"\xff", True: Decimal("1.50"), 1.5: float("nan")},
            {"0001-01-01T00:00:00": "/w==", "true": "1.50", "1.5": "NaN"},
        ),
    ],
)
def test_numbers_that_json_has_not_and_the_first_times_are_shown(
    value: object, shown: object, capsys: pytest.CaptureFixture[str]
) -> None:
    assert to_json({"nested": [value]}) == {"nested": [shown]}
    Output(as_json=True).line({"value": value})
    printed = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert printed == {"value": shown}


def test_what_is_said_moves_no_cursor_and_forges_no_line(capsys: pytest.CaptureFixture[str]) -> None:
    bad = "\x1b[31mFAILED\x9b0m: by \u202esomebody\u200e\r\n      fix: none\u2028\ud800"
    Output(as_json=False).text(bad)
    Output(as_json=False).table(("REASON",), [(bad,)])
    said = "\ufffd[31mFAILED\ufffd0m: by \ufffdsomebody\ufffd\ufffd\ufffd      fix: none\ufffd\ufffd"
    assert capsys.readouterr().out == f"{said}\nREASON\n{said}\n"
    Output(as_json=True).line({"reason": bad})
    printed = capsys.readouterr().out
    assert printed.removesuffix("\n").isprintable()
    assert json.loads(printed) == {"reason": bad}


def test_verbs_of_prose_are_as_they_are_typed_and_what_is_in_messages_stays(capsys: pytest.CaptureFixture[str]) -> None:
    output = Output(as_json=False)
    output.config = "./of prod.yaml"
    said = "FAILED. Run: geo reconcile --source us"
    output.text(said, output.typed(said))
    output.table(("REASON",), [(said,), (None,)])
    output.lines([Line(said)])
    typed = "FAILED. Run: geo reconcile --config './of prod.yaml' --source us"
    assert capsys.readouterr().out.splitlines() == [typed, typed, "REASON", typed, "", said]


@given(st.text(max_size=200) | st.just("persistent://a/b/" + "c" * 10_000), st.integers(20, 80))
@settings(max_examples=examples(1))
def test_what_is_shown_fits_a_terminal_but_for_long_words_and_loses_none(text: str, width: int) -> None:
    shown = [line for line, _ in fitted([Line(f"  do: {text}")], width)]
    assert all(printable(line) == line and (len(line) <= width or len(line.split()) <= 1) for line in shown)
    assert "".join("".join(shown).split()) == "".join(printable(f"do: {text}").split())


def test_what_is_watched_is_a_line_of_json_each_time(capsys: pytest.CaptureFixture[str]) -> None:
    output, looks = Output(as_json=True), iter(range(3))

    def show() -> int:
        output.data({"look": [next(looks)]})
        return 0

    with pytest.raises(StopIteration):
        output.watch(0, show)
    assert list(map(json.loads, capsys.readouterr().out.splitlines())) == [{"look": [0]}, {"look": [1]}, {"look": [2]}]


@pytest.mark.slow
def test_a_screen_is_shown_again_and_again_until_a_signal(tmp_path: Path) -> None:
    (tmp_path / "geo.yaml").write_text("version: 1\nclusters: {eu: {root: eu}}\n")
    (tmp_path / "eu").mkdir()
    verb = [sys.executable, "-m", "geo", "status", "--config", "geo.yaml", "--watch", "1", "-o", "json"]
    environment = {**os.environ, "PYTHONPATH": os.getcwd()}
    with subprocess.Popen(verb, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        looks = [json.loads(process.stdout.readline()) for _ in range(2)]
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
    assert looks[0].keys() == looks[1].keys()
    assert [one["cluster"] for look in looks for one in look["clusters"]] == ["eu", "eu"]


@pytest.mark.parametrize("width", [None, 9])
def test_a_row_of_what_failed_has_its_colour_and_its_head_none_of_it(width: int | None) -> None:
    shown = table_lines(("LINK", "FAILED"), [("us->eu", "FAILED"), ("us->ap", 1), ("eu->us", "DELAYED")], width)
    coloured = {line.text.split()[0 if width is None else 1]: line.colour for line in shown if line.text[0] != " "}
    assert coloured.pop("LINK", Colour.HEAD) is Colour.HEAD
    assert coloured == {"us->eu": Colour.BAD, "us->ap": None, "eu->us": Colour.WARNS}


_PRINTS_WHILE_SPARK_STARTS = """
import os, threading
from types import SimpleNamespace
from geo.cli import running
from geo.cli.output import Output
starts, has_printed = threading.Event(), threading.Event()
def session(name, schemes):
    starts.set()
    assert has_printed.wait(60)
    os.write(1, b"of Spark\\n")
    raise RuntimeError
running.session = session
def start():
    try:
        running.start_spark("a test", SimpleNamespace(schemes=frozenset()))
    except RuntimeError:
        pass
thread = threading.Thread(target=start)
thread.start()
assert starts.wait(60)
Output(as_json=False).text("of another topic")
has_printed.set()
thread.join()
Output(as_json=False).text("the end")
"""


@pytest.mark.slow
def test_what_is_printed_while_spark_starts_goes_to_stdout_and_what_spark_prints_does_not() -> None:
    done = subprocess.run([sys.executable, "-c", _PRINTS_WHILE_SPARK_STARTS], capture_output=True, text=True, check=True)
    assert done.stdout == "of another topic\nthe end\n"
    assert "of Spark" in done.stderr


@given(
    st.lists(st.text(st.characters()), min_size=1, max_size=4), st.sampled_from(["ascii", "latin-1", "cp1252", "utf-8", "utf-16"])
)
def test_any_text_is_shown_in_any_encoding_and_read_back_as_json(texts: list[str], encoding: str) -> None:
    """Surrogates alone, control characters, those from right to left, and emoji among them."""
    said = {}
    for as_json in (True, False):
        with pytest.MonkeyPatch.context() as patched, io.TextIOWrapper(io.BytesIO(), encoding, newline="\n") as stream:
            patched.setattr(sys, "stdout", stream)
            ready_streams()
            Output(as_json=as_json).line({"texts": texts, **dict.fromkeys(texts, 1)})
            Output(as_json=as_json).table(("TEXT", "OTHER"), [(one, "there") for one in texts])
            stream.flush()
            stream.seek(0)
            said[as_json] = stream.read()
    assert json.loads(said[True]) == {"texts": texts, **dict.fromkeys(texts, 1)}
    lines = said[False].split("\n")
    assert (len(lines), lines[-1]) == (len(texts) + 2, "")
    assert all(line.endswith("  there") and printable(line) == line for line in lines[1:-1])


@pytest.mark.parametrize("full", [False, True])
def test_where_nothing_can_be_written_that_is_said_once_and_all_else_goes_nowhere(
    full: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, write = os.pipe()
    os.close(read)
    with open("/dev/full" if full else write, "w", encoding="utf-8") as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        with pytest.raises(UnprintedError, match="No space left on device" if full else "^$") as raised:
            Output(as_json=False).text("a line")
        assert (isinstance(raised.value, NobodyReadsError), raised.value.exit_code) == (not full, 1 if full else 141)
        Output(as_json=False).text("another line")


@pytest.mark.slow
def test_what_nobody_reads_to_its_end_ends_in_silence(tmp_path: Path) -> None:
    (tmp_path / "geo.yaml").write_text(f"version: 1\nclusters:\n  eu: {{root: {tmp_path}/eu}}\n")
    command = f"{sys.executable} -m geo status --config {tmp_path}/geo.yaml | true; echo ${{PIPESTATUS[0]}}"
    ended = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert (ended.stdout, ended.stderr) == ("141\n", "")


def test_an_argument_that_is_not_known_is_named_on_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["status", "--config", "geo.yaml", "\x1b[2J\n\u202egeo: all is well"])
    said = capsys.readouterr().err.splitlines()[-1]
    assert said == "geo: unrecognized arguments: \ufffd[2J\ufffd\ufffdgeo: all is well. What there is: geo status --help"
