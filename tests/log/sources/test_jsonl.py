"""JSON lines: where lines end, and what happens to files while they are read. No Spark."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geo.errors import SourceChangedError, UsageError
from geo.log.ledgers import SourceEnd
from geo.log.sources import files, jsonl
from geo.log.sources.files import open_path
from geo.log.sources.jsonl import JsonLinesReader


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "x.jsonl"


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


@pytest.mark.parametrize("torn", ['{"key": "b"', '{"key": ', "{", '{"key": "b"} {', "  "])
def test_a_line_that_somebody_is_writing_is_left_for_the_next_run(
    path: Path, torn: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A nightly run over a file that grows: half a line is no bad line, and its other half is none either."""
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


def test_a_last_line_that_is_whole_is_taken_without_its_newline_and_the_next_ones_keep_their_numbers(path: Path) -> None:
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
    """Blank lines count and are no messages; a last line that is not whole is waited for."""
    path = tmp_path_factory.mktemp("jsonl") / "x.jsonl"
    text = '{"key": "a"}\n\n  \n{"key": "b"}\r\n{"key": "c"}\n{"key": "d"}\n'
    offset: dict[str, Any] = {}
    found: list[tuple[int, str]] = []
    for cut, at_once in zip([*sorted(cuts), len(text)], once, strict=False):
        path.write_text(text[:cut])
        for _ in range(6):
            rows, offset = _read(path, offset, batch_bytes, once=at_once, span_bytes=span_bytes)
            found += rows
    assert found == [(1, "a"), (4, "b"), (5, "c"), (6, "d")]


def test_more_than_a_newline_behind_a_line_that_was_taken_is_a_loud_stop(path: Path) -> None:
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
def test_a_file_changed_below_what_was_read_is_a_loud_stop(path: Path, text: str) -> None:
    path.write_text('{"key": "a"}\n')
    _, offset = _read(path, {}, 10_000)
    path.write_text(text)
    with pytest.raises(SourceChangedError, match="changed below line 2"):
        _read(path, offset, 10_000)


def test_a_path_that_is_not_there_is_named() -> None:
    with pytest.raises(UsageError, match="no such file or directory"):
        open_path("/nowhere/x.jsonl")


# -- whether a file is the one that was read ------------------------------------------------------------------------------

LONG = "".join(json.dumps({"key": f"{number:05}"}) + "\n" for number in range(1_000))


@pytest.mark.parametrize("at", [0, 10_000, len(LONG) - 10])
@pytest.mark.parametrize("more", ["", '{"key": "new"}\n'])
def test_an_edit_anywhere_below_what_was_read_is_a_loud_stop_at_the_next_start(path: Path, at: int, more: str) -> None:
    """Also of as many bytes as before, and above the last ones that were read."""
    path.write_text(LONG)
    _, offset = _read(path, {}, 1_000_000)
    digit = LONG.index("0", at) if at < len(LONG) - 20 else LONG.rindex("9")
    path.write_text(LONG[:digit] + "7" + LONG[digit + 1 :] + more)
    with pytest.raises(SourceChangedError, match="was changed below line 1001"):
        _read(path, offset, 1_000_000)


def test_a_file_that_only_looks_changed_is_read_again_once_and_not_published(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at: Any = files.Contents.at
    path.write_text(LONG)
    reader = JsonLinesReader(str(path), 1_000_000, 1_000_000)
    offset = reader.next({})
    os.utime(path, (5, 5))
    opened: list[str] = []

    def counted(*args: Any, **how: Any) -> Any:
        opened.append(args[2])
        return at(*args, **how)

    monkeypatch.setattr(files.Contents, "at", counted)
    for _ in range(2):
        assert reader.next(offset) == offset
    assert opened == [str(path)]


def test_an_edit_while_a_file_is_followed_is_seen_once_it_has_doubled(path: Path) -> None:
    path.write_text(LONG)
    reader, text = JsonLinesReader(str(path), 1_000_000, 1_000_000), LONG.replace("00000", "00009", 1)
    offset = reader.next({})
    with pytest.raises(SourceChangedError):
        for _ in range(12):
            text += LONG[:2_000]
            path.write_text(text)
            offset = reader.next(offset)


def test_a_renamed_file_goes_on_under_its_new_name(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(LONG)
    _, offset = _read(tmp_path, {}, 1_000_000)
    (tmp_path / "a.jsonl").rename(tmp_path / "b.jsonl")
    rows, offset = _read(tmp_path, offset, 10_000)
    assert rows == []
    with (tmp_path / "b.jsonl").open("a") as file:
        file.write('{"key": "c"}\n')
    (tmp_path / "b.jsonl").rename(tmp_path / "c.jsonl")  # with news, and once more
    assert _read(tmp_path, offset, 10_000)[0] == [(1001, "c")]


LINE = '{"key": "up"}\n'


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ((100_100_000_000, 7), ("hb-2", LINE * 2, 100_900_000_000, 8), 2),  # in one second
        ((100_100_000_000, 7), ("hb-2", LINE, 100_900_000_000, 7), 1),
        ((0, 7), ("hb-2", LINE * 2, 0, 8), 2),  # out of two archives
        ((0, 7), ("hb-2", LINE, 0, 8), None),
        ((100_100_000_000, 7), ("hb-2", LINE, 100_000_000_000, 8), None),  # or moved by who keeps whole seconds
        ((100_100_000_000, 7), ("hb-2", LINE * 2, 200_100_000_000, 7), None),  # or renamed and grown
        ((100_100_000_000, 7), ("hb-1.1", LINE * 2, 200_100_000_000, 8), None),
        ((0, 7), ("hb-2", LINE, 0, 7), 0),  # renamed
        ((100_100_000_000, 7), ("hb-2", LINE, 100_100_000_000, 8), 0),  # moved
    ],
)
def test_a_short_file_that_begins_as_one_that_is_gone_is_never_taken_for_it_in_silence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: tuple[int, int], new: tuple[str, str, int, int], found: int | None
) -> None:
    """It is published where it is certainly another one, passed over where it is certainly that one, and else refused."""
    first, second = tmp_path / "hb-1.jsonl", tmp_path / f"{new[0]}.jsonl"
    listed = {str(first): files.SeenFile(len(LINE), *old)}
    monkeypatch.setattr(jsonl, "list_files", lambda *_: listed)
    first.write_text(LINE)
    rows, offset = _read(tmp_path, {}, 10_000)
    assert rows == [(1, "up")]
    first.unlink()
    second.write_text(new[1])
    listed = {str(second): files.SeenFile(len(new[1]), *new[2:])}
    if found is None:
        remedy = "remove it, since all" if new[1] == LINE else "call it .* again"
        with pytest.raises(SourceChangedError, match=f"which is gone or replaced, so it may be that file. .* If it is, {remedy}"):
            _read(tmp_path, offset, 10_000)
    else:
        rows, offset = _read(tmp_path, offset, 10_000)
        assert rows == [(line, "up") for line in range(1, found + 1)]
        third = second.rename(tmp_path / "hb-3.jsonl")
        listed = {str(third): listed[str(second)]}
        assert _read(tmp_path, offset, 10_000)[0] == [], "whatever else had its inode or time before"


def test_a_new_file_with_the_inode_of_one_that_is_gone_is_a_new_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its content may even be the same, as of a file that is written each hour when nothing happened."""
    (tmp_path / "a.jsonl").write_text('{"key": "nothing"}\n')
    seen = files.list_files(*open_path(str(tmp_path)))
    _, offset = _read(tmp_path, {}, 10_000)
    (tmp_path / "a.jsonl").unlink()
    (tmp_path / "b.jsonl").write_text('{"key": "nothing"}\n')
    (inode,) = (one.inode for one in seen.values())
    listed = {str(tmp_path / "b.jsonl"): files.SeenFile(19, 7, inode)}
    monkeypatch.setattr(jsonl, "list_files", lambda *_: listed)
    assert _read(tmp_path, offset, 10_000)[0] == [(1, "nothing")]
    listed[str(tmp_path / "b.jsonl")] = files.SeenFile(20, 7, inode)
    (tmp_path / "b.jsonl").write_text('{"key": "nothing!"}\n')
    assert _read(tmp_path, offset, 10_000)[0] == [(1, "nothing!")]


def test_files_of_two_devices_with_one_inode_are_two_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the first files of two new file systems have."""
    for name in "ab":
        (tmp_path / f"{name}.jsonl").write_text(f'{{"key": "{name}"}}\n')
    listed = {str(tmp_path / f"{name}.jsonl"): files.SeenFile(13, 7, 12, device) for device, name in enumerate("ab", 1)}
    monkeypatch.setattr(jsonl, "list_files", lambda *_: listed)
    assert [key for _, key in _read(tmp_path, {}, 10_000)[0]] == ["a", "b"]


@pytest.mark.parametrize("link", [os.link, os.symlink])
def test_two_names_of_one_file_are_one_file_and_a_copy_is_another(
    tmp_path: Path, link: Callable[[Path, Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "a.jsonl").write_text('{"key": "a"}\n')
    link(tmp_path / "a.jsonl", tmp_path / "b.jsonl")
    rows, offset = _read(tmp_path, {}, 10_000)
    assert rows == [(1, "a")]
    assert "b.jsonl: is another name of" in caplog.text
    shutil.copy(tmp_path / "a.jsonl", tmp_path / "c.jsonl")
    rows, offset = _read(tmp_path, offset, 10_000)
    assert rows == [(1, "a")]
    if link is os.link:
        (tmp_path / "a.jsonl").unlink()
        assert _read(tmp_path, offset, 10_000)[0] == []


def test_files_that_are_not_read_are_named_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for name in ("a.jsonl.bz2", "b.txt", ".hidden.txt", "c.jsonl"):
        (tmp_path / name).write_text('{"key": "a"}\n')
    for _ in range(2):
        assert _read(tmp_path, {}, 10_000)[0] == [(1, "a")]
    assert (
        caplog.text.count(
            "2 files not read, by their endings (.bz2, .txt); read are .jsonl, .json, .ndjson, also with .gz or .zst behind it"
        )
        == 1
    )


def test_a_place_of_before_goes_on_and_its_last_bytes_are_compared(path: Path) -> None:
    path.write_text(LONG)
    _, offset = _read(path, {}, 1_000_000)
    before = {file: place[:3] for file, place in offset.items()}
    assert _read(path, before, 1_000_000) == ([], before)
    path.write_text(LONG + '{"key": "b"}\n')
    rows, after = _read(path, before, 1_000_000)
    assert rows == [(1001, "b")]
    assert [len(place) for place in after.values()] == [5]
    path.write_text(LONG[:-10] + "7" + LONG[-9:])
    with pytest.raises(SourceChangedError):
        _read(path, before, 1_000_000)


@pytest.mark.parametrize("place", [[7, 2, "ab12"], [7, 2, "ab12", "cd34", "7-170-55"], [0, 0, ""]])
def test_a_place_is_what_its_mark_says(tmp_path: Path, place: list[Any]) -> None:
    reader = JsonLinesReader(str(tmp_path), 1, 1)
    end = SourceEnd(json.dumps(["2", reader.mark_of(place)]), 2)
    assert reader.place_of("x", end) == place
