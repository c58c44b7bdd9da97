"""A commit beside what an older copy of the log left, beside a rival without the lock, and on a store whose answers are lost."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from geo import crash
from geo.crash import CrashPoint
from geo.delta import put_commit as put_commit_module
from geo.delta.disk_store import DiskStore, on_disk
from geo.delta.put_commit import FAR_TRIES, TRIES, put_commit
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


Given = list[tuple[bool, Put | OSError]]


@dataclass(frozen=True, slots=True)
class _Answers(DiskStore):
    """A disk, or what is far, whose answers are given out of a list: of each put, whether it is done, and what is said of it."""

    given: Given = field(hash=False)
    before: Callable[[], None] = field(default=lambda: None, hash=False)
    is_near: bool = True

    def put_if_absent(self, path: str, content: bytes) -> Put:
        self.before()
        is_done, said = self.given.pop(0)
        if is_done:
            DiskStore.put_if_absent(self, path, content)
        if isinstance(said, OSError):
            raise said
        return said


def _on(store: _Answers, folder: Path) -> WritePath:
    return StorePath(store, str(folder))


NO_ROUTE = OSError("no route to host")


@pytest.mark.parametrize("given", [
    [(True, Put.THERE)],  # asked again by the library, for what it had made
    [(True, Put.UNKNOWN)],
    [(False, Put.UNKNOWN), (True, Put.MADE)],
    [(False, Put.UNKNOWN)] * (TRIES - 1) + [(True, Put.UNKNOWN)],
    [(False, Put.UNKNOWN), (False, NO_ROUTE), (True, Put.MADE)],
])  # fmt: skip
def test_a_commit_that_is_there_is_made_whatever_the_answer_was(tmp_path: Path, given: Given) -> None:
    store = _Answers(list(given))
    assert put_commit(_on(store, tmp_path), 7, ACTIONS)
    assert store.given == []
    assert '"mine"' in _name(tmp_path, "json").read_text()


@pytest.mark.parametrize("said", [Put.THERE, Put.UNKNOWN])
def test_a_rivals_commit_is_not_taken_for_ours_whatever_the_answer_was(tmp_path: Path, said: Put) -> None:
    store = _Answers([(False, said)], before=lambda: _put_with_sum(_name(tmp_path, "json"), "the rival's"))
    assert not put_commit(_on(store, tmp_path), 7, ACTIONS)


@pytest.mark.parametrize("given", [
    [(False, Put.UNKNOWN)] * FAR_TRIES,
    [(False, Put.THERE)] * FAR_TRIES,
    [(False, Put.UNKNOWN), *[(False, NO_ROUTE)] * (FAR_TRIES - 1)],
])  # fmt: skip
def test_what_nobody_can_tell_is_an_error_of_its_own(tmp_path: Path, given: Given, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(put_commit_module, "PAUSE_S", 0.0)
    with pytest.raises(UnknownAnswerError, match="does not say whether this commit was made"):
        put_commit(_on(_Answers(list(given), is_near=False), tmp_path), 7, ACTIONS)


def test_a_name_that_another_request_is_about_to_make_is_put_again(tmp_path: Path) -> None:
    """As S3 says it (409): there is something, and nothing is there."""
    store = _Answers([(False, Put.THERE), (False, Put.THERE), (True, Put.MADE)], is_near=False)
    assert put_commit(_on(store, tmp_path), 7, ACTIONS)


def test_where_what_is_there_cannot_be_read_nobody_can_tell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the rows would be committed once more, and the files removed that the first commit names."""
    monkeypatch.setattr(put_commit_module, "PAUSE_S", 0.0)
    _name(tmp_path, "json").mkdir()  # nobody reads a folder
    store = _Answers([(False, Put.UNKNOWN)] * FAR_TRIES, is_near=False)
    with pytest.raises(UnknownAnswerError):
        put_commit(_on(store, tmp_path), 7, ACTIONS)
    assert store.given == []


def test_a_first_put_that_fails_has_done_nothing_and_a_rival_near_that_went_is_another_ones(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="no route"):
        put_commit(_on(_Answers([(False, NO_ROUTE)], is_near=False), tmp_path), 7, ACTIONS)
    assert not put_commit(_on(_Answers([(False, Put.THERE)]), tmp_path), 7, ACTIONS)


@pytest.mark.parametrize(("is_made", "told"), [(True, errno.EIO), (False, errno.EIO), (True, errno.EEXIST)])
def test_a_link_whose_answer_is_lost_or_wrong_is_asked_again_or_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_made: bool, told: int
) -> None:
    """As a network file system may: it asks again for what it did, and says that it is there; or its answer is lost."""
    link, lost = os.link, [OSError(told, "of what was asked")]

    def loses(new: Path, place: Path) -> None:
        if is_made or not lost:
            link(new, place)
        if lost:
            raise lost.pop()

    monkeypatch.setattr(os, "link", loses)
    assert put_commit(on_disk(tmp_path), 7, ACTIONS)
    assert sum_of(_name(tmp_path, "json")).exists()
    assert [path for path in tmp_path.iterdir() if path.suffix == ".tmp"] == []
