"""A commit beside what an older copy of the log left, beside a rival without the lock, and on a store whose answers are lost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from geo import crash
from geo.crash import CrashPoint
from geo.delta.disk_store import DiskStore, on_disk
from geo.delta.put_commit import TRIES, put_commit
from geo.delta.store import Put, StorePath, WritePath
from geo.delta.sums import put_sum, sum_of
from geo.errors import UnknownAnswerError

ACTIONS = [{"commitInfo": {"operation": "WRITE", "txnId": "mine"}}]


def _name(folder: Path, end: str) -> Path:
    return folder / f"{7:020}.{end}"


def _put_with_sum(path: Path, text: str) -> None:
    path.write_text(text)
    put_sum(path)


def test_what_an_older_copy_left_of_this_version_goes(tmp_path: Path) -> None:
    commit, checksum = _name(tmp_path, "json"), _name(tmp_path, "crc")
    _put_with_sum(checksum, "of another commit")
    put_sum(checksum)
    sum_of(commit).write_bytes(b"of another commit")
    assert put_commit(on_disk(tmp_path), 7, ACTIONS)
    assert '"mine"' in commit.read_text()
    assert sum_of(commit).exists()
    assert sum_of(commit).read_bytes() != b"of another commit"
    assert not checksum.exists()
    assert not sum_of(checksum).exists()
    assert {path.name for path in tmp_path.iterdir()} == {commit.name, sum_of(commit).name}


def test_a_rival_that_was_first_keeps_its_commit_and_what_is_beside_it(tmp_path: Path) -> None:
    def rival_comes(point: CrashPoint) -> None:
        if point is CrashPoint.COMMIT_WRITTEN:  # behind the look at what is there, before ours has its name
            for end in ("json", "crc"):
                _put_with_sum(_name(tmp_path, end), "the rival's")

    with crash.watched(rival_comes):
        assert not put_commit(on_disk(tmp_path), 7, ACTIONS)
    names = [_name(tmp_path, end) for end in ("json", "crc")]
    assert [path.read_text() for path in names] == ["the rival's"] * 2
    assert {path.name for path in tmp_path.iterdir()} == {path.name for one in names for path in (one, sum_of(one))}


@dataclass(frozen=True, slots=True)
class _Answers(DiskStore):
    """A disk whose answers are given out of a list: of each put, whether it is done, and what is said of it."""

    given: list[tuple[bool, Put]] = field(hash=False)
    before: Callable[[], None] = field(default=lambda: None, hash=False)

    def put_if_absent(self, path: str, content: bytes) -> Put:
        self.before()
        is_done, said = self.given.pop(0)
        if is_done:
            DiskStore.put_if_absent(self, path, content)
        return said


def _on(store: _Answers, folder: Path) -> WritePath:
    return StorePath(store, str(folder))


@pytest.mark.parametrize("given", [
    [(True, Put.THERE)],  # asked again by the library, for what it had made
    [(True, Put.UNKNOWN)],
    [(False, Put.UNKNOWN), (True, Put.MADE)],
    [(False, Put.UNKNOWN)] * (TRIES - 1) + [(True, Put.UNKNOWN)],
])  # fmt: skip
def test_a_commit_that_is_there_is_made_whatever_the_answer_was(tmp_path: Path, given: list[tuple[bool, Put]]) -> None:
    assert put_commit(_on(_Answers(given), tmp_path), 7, ACTIONS)
    assert given == []
    assert '"mine"' in _name(tmp_path, "json").read_text()


@pytest.mark.parametrize("said", [Put.THERE, Put.UNKNOWN])
def test_a_rivals_commit_is_not_taken_for_ours_whatever_the_answer_was(tmp_path: Path, said: Put) -> None:
    store = _Answers([(False, said)], before=lambda: _put_with_sum(_name(tmp_path, "json"), "the rival's"))
    assert not put_commit(_on(store, tmp_path), 7, ACTIONS)


@pytest.mark.parametrize("given", [[(False, Put.UNKNOWN)] * TRIES, [(False, Put.THERE)]])
def test_what_nobody_can_tell_is_an_error_of_its_own(tmp_path: Path, given: list[tuple[bool, Put]]) -> None:
    with pytest.raises(UnknownAnswerError, match="does not say whether this commit was made"):
        put_commit(_on(_Answers(given), tmp_path), 7, ACTIONS)
