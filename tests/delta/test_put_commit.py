"""A commit beside what an older copy of the log left, and beside a rival without the lock."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from geo.delta import put_commit as put
from geo.delta.put_commit import put_commit
from geo.delta.sums import put_sum, sum_of

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
    assert put_commit(tmp_path, 7, "mine", ACTIONS)
    assert '"mine"' in commit.read_text()
    assert sum_of(commit).exists()
    assert sum_of(commit).read_bytes() != b"of another commit"
    assert not checksum.exists()
    assert not sum_of(checksum).exists()
    assert {path.name for path in tmp_path.iterdir()} == {commit.name, sum_of(commit).name}


def test_a_rival_that_was_first_keeps_its_commit_and_what_is_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def rival_comes(paths: Iterable[Path]) -> None:
        for end in ("json", "crc"):
            _put_with_sum(_name(tmp_path, end), "the rival's")

    monkeypatch.setattr(put, "sync", rival_comes)  # behind the look at what is there, before ours has its name
    assert not put_commit(tmp_path, 7, "mine", ACTIONS)
    names = [_name(tmp_path, end) for end in ("json", "crc")]
    assert [path.read_text() for path in names] == ["the rival's"] * 2
    assert {path.name for path in tmp_path.iterdir()} == {path.name for one in names for path in (one, sum_of(one))}
