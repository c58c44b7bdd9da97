"""Writes out what was committed on a local disk before anybody is told of it. That is files of rows, commits, checkpoints, and the folders that
name them.

Neither Spark nor `deltalake` does that. Object stores do it by themselves, HDFS if it is told to (docs/guarantees.md).
"""

from __future__ import annotations

import json
import os
from collections.abc import Hashable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import unquote

from geo.delta.commits import commit_file
from geo.delta.delta_log import POINTER, commit_stamp, newest_checkpoint, newest_version
from geo.delta.disk_store import DiskPath, path_of
from geo.delta.sums import sum_of
from geo.disk import sync, syncs
from geo.now import now_s

SETTLED_S = 600.0
"""Age at which the operating system has written out a file long ago, whoever made it."""

_FILES = ('{"add"', '{"cdc"')
"""Beginnings of the lines of a commit that name a file of rows, or of changes."""

_MARK_BYTES = 128
"""Bytes of the text in a mark, with spaces at its end: more than a version and four numbers take."""

_synced: dict[DiskPath, tuple[int, Hashable]] = {}
"""Newest version, by log, that this process wrote out, and its stamp."""


def sync_commits(log: DiskPath, mark: Path | None = None) -> None:
    """Write out the newest commits of the table whose `_delta_log` is `log`, with the files that they added and the checkpoints at them. What is
    known to be written out is left out. So this is also what a process committed that died before it did this.

    In the file `mark` all processes note which is the newest that is written out. So it is done once, not by each. Whoever calls holds the table's
    lock.
    """
    if syncs() and (newest := newest_version(log)) is not None:
        _sync_up_to(newest, log, mark)


def sync_left(log: DiskPath, mark: Path | None = None) -> None:
    """Writes out as `sync_commits`, before the lock is taken: all commits but the newest, whose maker may still be at its checkpoint."""
    if syncs() and (newest := newest_version(log)) is not None:
        _sync_up_to(newest - 1, log, mark)


def _sync_up_to(newest: int, log: DiskPath, mark: Path | None) -> None:
    synced = max(_written_out(log, known) for known in (_synced.get(log), _marked(mark)))
    if synced >= newest:
        return
    folder = path_of(log)
    versions = list(_unsettled(folder, newest, synced))
    added = [file for version in versions for file in _added(folder, version)]
    sync(_with_checksum(added))
    if synced < 0:
        sync(folder.parents)  # the table may be new, and so may folders above it
    sync({file.parent for file in added} | {folder.parent})
    # Not its checksum, without which a version is whole.
    sync(_with_checksum(folder / commit_file(version) for version in versions))
    checkpoint, names = newest_checkpoint(log)
    if checkpoint in versions:
        sync(_with_checksum(folder / name for name in (*names, POINTER)))
    sync([folder])
    stamp = commit_stamp(log, newest)
    if stamp is not None:  # else it was cut off meanwhile
        _synced[log] = newest, stamp
        if mark is not None:
            with suppress(OSError):  # then the next process writes them out again
                _note(mark, json.dumps([newest, stamp]))


def _note(mark: Path, text: str) -> None:
    """Overwrites the mark in its place: a file that is emptied and written again is written to the disk at once by some file systems."""
    handle = os.open(mark, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        os.pwrite(handle, text.ljust(_MARK_BYTES).encode("ascii"), 0)
    finally:
        os.close(handle)


def _marked(mark: Path | None) -> tuple[int, Hashable] | None:
    """Reads the mark. It need not be on the disk itself: after a power cut the files that are there are those that were."""
    with suppress(OSError, ValueError, TypeError):
        version, stamp = json.loads(mark.read_text(encoding="ascii")) if mark is not None else (None, ())
        return None if version is None else (int(version), tuple(stamp))
    return None


def _written_out(log: DiskPath, known: tuple[int, Hashable] | None) -> int:
    """The newest version that is known to be written out; -1 if none is, or the log is another one now."""
    if known is None:
        return -1
    version, stamp = known
    return version if commit_stamp(log, version) == stamp else -1


def _unsettled(folder: Path, newest: int, synced: int) -> Iterator[int]:
    """Versions that may not be on the disk, the newest first."""
    settled = now_s() - SETTLED_S
    for version in range(newest, synced, -1):
        try:
            found = (folder / commit_file(version)).stat()
            if max(found.st_mtime, found.st_ctime) < settled:  # a copy may keep the first, and nobody the second
                return
        except FileNotFoundError:
            return  # cut off below
        yield version


def _added(folder: Path, version: int) -> Iterator[Path]:
    with suppress(FileNotFoundError), open(folder / commit_file(version), encoding="utf-8") as lines:
        for line in lines:
            if line.startswith(_FILES):
                ((_, file),) = json.loads(line).items()
                yield folder.parent / unquote(file["path"])


def _with_checksum(paths: Iterable[Path]) -> Iterator[Path]:
    """Files, and those in which Hadoop keeps their sums: it refuses what does not fit them."""
    for path in paths:
        yield path
        yield sum_of(path)
