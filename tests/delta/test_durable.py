"""Which commits of a log are written out, and that no process does it for what another one has."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from geo.delta import durable
from geo.delta.disk_store import on_disk
from geo.delta.durable import sync_commits, sync_left
from geo.disk import SETTING


class Log:
    """A log whose commits add a file each."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.mark = folder / "log" / "_delta_log", folder / "log.lock.synced"
        self.folder.mkdir(parents=True)
        self.newest = -1

    def commit(self, count: int = 1) -> None:
        for _ in range(count):
            self.newest += 1
            (self.folder.parent / f"{self.newest}.parquet").touch()
            (self.folder / f"{self.newest:020}.json").write_text(json.dumps({"add": {"path": f"{self.newest}.parquet"}}))

    def another_process(self) -> None:
        durable._synced.clear()


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path)


@pytest.fixture
def written_out(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the files that are written out, not of folders."""
    found: list[str] = []
    monkeypatch.delenv(SETTING, raising=False)

    def fsync(handle: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{handle}"))
        if path.is_file():
            found.append(path.name)

    monkeypatch.setattr(os, "fsync", fsync)
    return found


def test_what_one_process_wrote_out_no_other_one_does(log: Log, written_out: list[str]) -> None:
    log.commit(3)
    sync_commits(on_disk(log.folder), log.mark)
    assert sorted(written_out) == sorted([f"{n}.parquet" for n in range(3)] + [f"{n:020}.json" for n in range(3)])
    for _ in range(2):
        log.another_process()
        written_out.clear()
        log.commit()
        sync_commits(on_disk(log.folder), log.mark)
        assert written_out == [f"{log.newest}.parquet", f"{log.newest:020}.json"]


def test_what_others_left_is_written_out_before_the_lock_but_for_the_newest(log: Log, written_out: list[str]) -> None:
    log.commit(3)
    sync_left(on_disk(log.folder), log.mark)
    assert sorted(name for name in written_out if "json" in name) == [f"{n:020}.json" for n in range(2)]
    written_out.clear()
    sync_left(on_disk(log.folder), log.mark)
    assert written_out == []
    sync_commits(on_disk(log.folder), log.mark)
    assert written_out == ["2.parquet", f"{2:020}.json"], "its maker may have been at its checkpoint"


@pytest.mark.parametrize("text", [None, "", "[2, [1, 2", "[2, null]", "[9, [1, 2, 3, 4]]"])
def test_a_mark_that_does_not_name_a_commit_of_the_log_counts_for_nothing(
    log: Log, written_out: list[str], text: str | None
) -> None:
    log.commit(3)
    sync_commits(on_disk(log.folder), log.mark)
    log.another_process()
    written_out.clear()
    if text is None:  # an older copy is put in the place of the log
        shutil.copytree(log.folder, log.folder.with_name("copy"))
        shutil.rmtree(log.folder)
        log.folder.with_name("copy").rename(log.folder)
    else:
        log.mark.write_text(text)
    sync_commits(on_disk(log.folder), log.mark)
    assert len(written_out) == 6


@pytest.mark.slow
def test_after_hundreds_of_young_commits_a_process_begins_at_once(log: Log, written_out: list[str]) -> None:
    log.commit(200)
    sync_commits(on_disk(log.folder), log.mark)
    log.another_process()
    log.commit()
    written_out.clear()
    sync_commits(on_disk(log.folder), log.mark)
    assert len(written_out) <= 6, "the newest commit alone, with its files"
