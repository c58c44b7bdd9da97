"""The newest version of a log, which is listed once and then asked by name, is always the one that a list would show."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from unittest import mock

from hypothesis import given
from hypothesis import strategies as st

from geo.delta import delta_log
from geo.delta.delta_log import committed_before, newest_version
from geo.delta.disk_store import on_disk
from geo.delta.store import ReadPath

_CHANGES = st.one_of(
    st.tuples(st.just("commits"), st.integers(1, 40)),
    st.tuples(st.just("cut"), st.integers(0, 40)),
    st.tuples(st.just("another log"), st.integers(0, 40)),
    st.tuples(st.just("away"), st.just(0)),
)


@given(st.lists(_CHANGES, max_size=12))
def test_whatever_becomes_of_a_log_its_newest_version_is_found(changes: list[tuple[str, int]]) -> None:
    folder = Path(tempfile.mkdtemp()) / "_delta_log"
    try:
        there: list[int] = []
        for change, count in changes:
            if change == "commits":
                first = there[-1] + 1 if there else 0
                there += range(first, first + count)
            elif change == "cut":
                there = there[min(count, len(there) - 1) :] if there else []
            else:
                there = list(range(count))
            if change in ("another log", "away"):
                shutil.rmtree(folder, ignore_errors=True)
            if change != "away":
                folder.mkdir(exist_ok=True)
            names = {f"{version:020}.{end}" for version in there for end in ("json", "crc")}
            found = set(os.listdir(folder)) if folder.exists() else set()
            for name in found - names:
                os.unlink(f"{folder}/{name}")
            for name in names - found:
                os.close(os.open(f"{folder}/{name}", os.O_CREAT | os.O_WRONLY))
            assert newest_version(on_disk(folder)) == (there[-1] if there else None)
    finally:
        shutil.rmtree(folder.parent)


def test_a_log_is_listed_once(tmp_path: Path) -> None:
    with mock.patch.object(os, "listdir", wraps=os.listdir) as listed:
        for version in range(50):
            (tmp_path / f"{version:020}.json").touch()
            assert newest_version(on_disk(tmp_path)) == version
    assert listed.call_count == 1


def _commits(folder: Path, *versions: int) -> None:
    for version in versions:
        (folder / f"{version:020}.json").touch()


def test_behind_a_gap_that_an_older_copy_left_is_the_newest(tmp_path: Path) -> None:
    """Whoever took what is before it would put commits there that nobody else reads."""
    _commits(tmp_path, *range(51))
    assert newest_version(on_disk(tmp_path)) == 50
    _commits(tmp_path, *range(81), *range(100, 151))
    (tmp_path / "_last_checkpoint").write_text('{"version":100}')
    assert newest_version(on_disk(tmp_path)) == 150


def test_what_is_cut_off_while_it_is_looked_for_is_not_the_newest(tmp_path: Path) -> None:
    _commits(tmp_path, *range(51))
    assert newest_version(on_disk(tmp_path)) == 50
    _commits(tmp_path, *range(51, 101))
    search = delta_log._last_behind

    def cut_meanwhile(folder: ReadPath, there: int) -> int:
        for version in range(50, 80):
            (tmp_path / f"{version:020}.json").unlink()
        return search(folder, there)

    with mock.patch.object(delta_log, "_last_behind", cut_meanwhile):
        assert newest_version(on_disk(tmp_path)) == 100


def test_the_newest_commit_before_a_time_is_found_by_halving(tmp_path: Path) -> None:
    _commits(tmp_path, *range(100))
    for version in range(100):
        os.utime(tmp_path / f"{version:020}.json", (version * 10, version * 10))
    commits = tuple(range(100))
    assert [committed_before(on_disk(tmp_path), commits, time) for time in (0, 5, 10, 15, 500, 10_000)] == [-1, 0, 0, 1, 49, 99]
    assert committed_before(on_disk(tmp_path), (), 5) == -1
