"""JSON lines: where lines end, and what happens to files while they are read. No Spark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geo.errors import SourceChangedError, UsageError
from geo.log.sources import jsonl
from geo.log.sources.jsonl import JsonLinesReader, open_path


def _read(
    path: Path, start: dict[str, Any], batch_bytes: int, *, once: bool = True, span_bytes: int = jsonl.LEAST_SPAN_BYTES
) -> tuple[list[tuple[int, str]], dict[str, Any]]:
    """One micro-batch as (line number, key or reason), and the offset after it."""
    reader = JsonLinesReader(str(path), batch_bytes, span_bytes)
    if once:
        reader.end_here()
    end = reader.next(start)
    rows = [row for span in reader.spans(start, end) for block in reader.read(span) for row in block.to_pylist()]
    return [(row["_geo_line"], row["key"] if row["_geo_error"] is None else row["_geo_error"]) for row in rows], end


@given(
    lines=st.lists(st.integers(0, 200), max_size=40),
    batch_bytes=st.integers(1, 2_000),
    span_bytes=st.integers(1, 2_000),
    last_newline=st.booleans(),
)
def test_batches_of_any_size_give_every_line_once_with_its_number(
    tmp_path_factory: pytest.TempPathFactory, lines: list[int], batch_bytes: int, span_bytes: int, last_newline: bool
) -> None:
    path = tmp_path_factory.mktemp("jsonl") / "x.jsonl"
    keys = [f"{number}-" + "k" * size for number, size in enumerate(lines, 1)]
    text = "\n".join(json.dumps({"key": key}) for key in keys)
    path.write_text(text + ("\n" if last_newline and keys else ""))
    offset: dict[str, Any] = {}
    found: list[tuple[int, str]] = []
    for _ in range(len(lines) + 1):
        rows, offset = _read(path, offset, batch_bytes, span_bytes=span_bytes)
        found += rows
    assert found == list(enumerate(keys, 1))


def test_blank_lines_count_as_lines_but_are_no_messages(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text('{"key": "a"}\n\n  \n{"key": "b"}\n')
    assert _read(path, {}, 10_000)[0] == [(1, "a"), (4, "b")]


def test_while_following_an_unfinished_last_line_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text('{"key": "a"}\n{"key": ')
    rows, offset = _read(path, {}, 10_000, once=False)
    assert rows == [(1, "a")]
    path.write_text('{"key": "a"}\n{"key": "b"}\n')
    assert _read(path, offset, 10_000, once=False)[0] == [(2, "b")]


@pytest.mark.parametrize("torn", ['{"key": "b"', '{"key": ', "{", '{"key": "b"} {', "  "])
def test_a_line_that_somebody_is_writing_is_left_for_the_next_run(
    tmp_path: Path, torn: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A nightly run over a file that grows: half a line is no bad line, and its other half is none either."""
    path = tmp_path / "x.jsonl"
    path.write_text('{"key": "a"}\n' + torn)
    rows, offset = _read(path, {}, 10_000)
    assert rows == [(1, "a")]
    assert _read(path, offset, 10_000) == ([], offset)
    assert ("left for a later run" in caplog.text) == bool(torn.strip())
    path.write_text('{"key": "a"}\n{"key": "b"}\n{"key": "c"}\n')
    if torn == '{"key": "b"} {':
        path.write_text('{"key": "a"}\n' + torn + "\n")
    rows, _ = _read(path, offset, 10_000)
    assert rows == ([(2, "not JSON: Extra data at column 14")] if torn == '{"key": "b"} {' else [(2, "b"), (3, "c")])


def test_a_last_line_that_is_whole_is_taken_without_its_newline_and_the_next_ones_keep_their_numbers(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text('{"key": "a"}\n{"key": "b"}')
    rows, offset = _read(path, {}, 10_000)
    assert rows == [(1, "a"), (2, "b")]
    path.write_text('{"key": "a"}\n{"key": "b"}\n{"key": "c"}')
    rows, offset = _read(path, offset, 10_000)
    assert rows == [(3, "c")], "as a run that reads it from the beginning counts"
    path.write_text('{"key": "a"}\n{"key": "b"}\n{"key": "c"}\r\n\n{"key": "d"}\n')
    assert _read(path, offset, 10_000)[0] == [(5, "d")]


@given(
    cuts=st.lists(st.integers(0, 60), max_size=6),
    batch_bytes=st.integers(1, 60),
    span_bytes=st.integers(1, 60),
    once=st.lists(st.booleans(), min_size=7),
)
def test_a_file_read_while_it_grows_gives_every_line_once_with_its_number(
    tmp_path_factory: pytest.TempPathFactory, cuts: list[int], batch_bytes: int, span_bytes: int, once: list[bool]
) -> None:
    path = tmp_path_factory.mktemp("jsonl") / "x.jsonl"
    text = '{"key": "a"}\n\n{"key": "b"}\r\n{"key": "c"}\n{"key": "d"}\n'
    offset: dict[str, Any] = {}
    found: list[tuple[int, str]] = []
    for cut, at_once in zip([*sorted(cuts), len(text)], once, strict=False):
        path.write_text(text[:cut])
        for _ in range(6):
            rows, offset = _read(path, offset, batch_bytes, once=at_once, span_bytes=span_bytes)
            found += rows
    assert found == [(1, "a"), (3, "b"), (4, "c"), (5, "d")]


def test_more_than_a_newline_behind_a_line_that_was_taken_is_a_loud_stop(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text('{"key": "a"}')
    _, offset = _read(path, {}, 10_000)
    for more in (' {"key": "b"}\n', "x"):
        path.write_text('{"key": "a"}' + more)
        with pytest.raises(SourceChangedError, match="line 1 was a whole message without a newline"):
            _read(path, offset, 10_000)


def test_a_file_that_grew_goes_on_and_new_files_join(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"key": "a"}\n')
    rows, offset = _read(tmp_path, {}, 10_000)
    (tmp_path / "a.jsonl").write_text('{"key": "a"}\n{"key": "b"}\n')
    (tmp_path / "b.json").write_text('{"key": "c"}')
    (tmp_path / "_tmp.jsonl").write_text("no")
    (tmp_path / "notes.txt").write_text("no")
    assert (rows, _read(tmp_path, offset, 10_000)[0]) == ([(1, "a")], [(2, "b"), (1, "c")])


@pytest.mark.parametrize("text", ['{"key": "z"}\n{"key": "b"}\n', "", '{"key"'])
def test_a_file_changed_below_what_was_read_is_a_loud_stop(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text('{"key": "a"}\n')
    _, offset = _read(path, {}, 10_000)
    path.write_text(text)
    with pytest.raises(SourceChangedError, match="changed below line 2"):
        _read(path, offset, 10_000)


def test_a_path_that_is_not_there_is_named() -> None:
    with pytest.raises(UsageError, match="no such file or directory"):
        open_path("/nowhere/x.jsonl")
