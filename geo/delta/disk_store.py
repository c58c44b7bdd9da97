"""Files on a disk of this machine, with sums beside them (geo.delta.sums). No Spark.

A name that is put if absent is a hard link, which no two processes make. What is put is whole where it has its name. Whether the name itself
outlives a power cut is seen to for whole tables, also for what Spark writes there (geo.delta.durable).
"""

from __future__ import annotations

import errno
import os
import re
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar, TypeAlias

import pyarrow as pa

from geo.crash import CrashPoint, reach
from geo.delta import sums
from geo.delta.store import PIECE_BYTES, Head, Put, ReadPath, StorePath, WritePath
from geo.delta.sums import put_sum, sum_of
from geo.disk import sync

_LEFT = re.compile(r"\.\d{20}\.(json\.)?[0-9a-f-]{36}\.tmp|\.\.\d{20}\.json\.[0-9a-f-]{36}\.tmp\.crc")
"""Names of files that a process, or Spark in it, leaves in a log if it dies before a commit has its name."""


@dataclass(frozen=True, slots=True)
class DiskStore:
    """All disks of this machine. What is read is held to its sums, if it has any."""

    is_near = True
    options: ClassVar[Mapping[str, str]] = MappingProxyType({})

    def get(self, path: str) -> bytes:
        return sums.read_checked(Path(path))

    def open(self, path: str) -> pa.NativeFile:
        return pa.OSFile(path)

    def pieces(self, path: str) -> Iterator[bytes]:
        sums.check(Path(path))
        with open(path, "rb") as file:
            yield from iter(lambda: file.read(PIECE_BYTES), b"")

    def head(self, path: str) -> Head | None:
        try:
            found = os.stat(path)
        except FileNotFoundError:
            return None
        stamp = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
        return Head(found.st_size, found.st_mtime_ns // 1000, stamp)

    def came_us(self, path: str) -> int | None:
        return None if (found := self.head(path)) is None else found.modified_us

    def is_there(self, path: str) -> bool:
        return os.path.exists(path)

    def names(self, folder: str, after: str) -> list[str]:
        """Names in the folder, of folders too."""
        try:
            return sorted(name for name in os.listdir(folder) if name > after)
        except (FileNotFoundError, NotADirectoryError):
            return []

    def check(self, path: str) -> None:
        sums.check(Path(path))

    def put(self, path: str, content: bytes) -> None:
        """Neither it nor its sums are written out: where they do not fit after a power cut, it is as if there were none."""
        place = Path(path)
        with _unnamed(place, content) as new:
            sum_of(place).unlink(missing_ok=True)
            new.replace(place)
        put_sum(place, writes_out=False)

    def put_if_absent(self, path: str, content: bytes) -> Put:
        place = Path(path)
        # Of a file of this name that is gone: readers would hold ours against them. What another process puts beside its own it puts
        # behind that, so what is there before is not of it.
        has_left = sum_of(place).exists()
        if place.exists():
            return Put.THERE
        with _unnamed(place, content) as new:
            sync([new])  # a power cut may spare a name and take the content
            if has_left:
                sum_of(place).unlink(missing_ok=True)
            reach(CrashPoint.COMMIT_WRITTEN)
            said = _linked(new, place)
        if said is not Put.THERE:
            with suppress(OSError):  # a file without is taken as it is
                put_sum(place)
        return said

    @contextmanager
    def create(self, path: str) -> Iterator[pa.NativeFile]:
        try:
            try:
                file = pa.OSFile(path, "wb")
            except FileNotFoundError:
                _make_folder(path)
                file = pa.OSFile(path, "wb")
            with file:
                yield file
            put_sum(Path(path), writes_out=False)
        except BaseException:
            self.delete(path)
            raise

    def write_out(self, paths: Iterable[str]) -> None:
        sync(one for path in map(Path, paths) for one in (path, sum_of(path)))

    def delete(self, path: str) -> None:
        for one in (sum_of(Path(path)), Path(path)):
            one.unlink(missing_ok=True)

    def delete_all(self, paths: Sequence[str]) -> None:
        for path in paths:
            self.delete(path)

    def copy(self, source: ReadPath, to: str) -> None:
        if not isinstance(source.store, DiskStore):
            with self.create(to) as file:
                for piece in source.store.pieces(source.location):
                    file.write(piece)
            return
        _make_folder(to)
        try:
            sums.copy_with_sum(Path(source.location), Path(to))
        except BaseException:
            self.delete(to)
            raise

    def begin_log(self, folder: str) -> bool:
        """With the folders above it."""
        if not _is_free(place := Path(folder)):
            return False
        place.mkdir(parents=True, exist_ok=True)
        _remove_left(place)
        return True

    def end_log(self, folder: str) -> None:
        """Spark would take the folder for something that is no table."""
        with suppress(OSError):
            if _is_free(place := Path(folder)):
                _remove_left(place)
                place.rmdir()

    def forget(self, path: str) -> None:
        """Hadoop would hold what is written there against the sums of what was."""
        sum_of(Path(path)).unlink(missing_ok=True)

    def adopt(self, path: str) -> None:
        put_sum(Path(path))


_UNANSWERED = (errno.EIO, errno.ETIMEDOUT, errno.ESTALE, errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ECONNRESET, errno.EINTR)
"""Errors of a network file system that does not know what became of a request."""

_FOLDERS_OF_SPARK = ("_staged_commits", "_commits")
"""Folders that Spark makes in a log before the first commit."""

DISK = DiskStore()


DiskPath: TypeAlias = StorePath[DiskStore]
"""For what Spark writes there, and for what a disk alone asks for."""


def on_disk(place: Path) -> DiskPath:
    return StorePath(DISK, str(place))


def path_of(place: DiskPath) -> Path:
    return Path(place.location)


def disk_of(place: WritePath) -> DiskPath | None:
    """The same place, for what a disk alone has: folders, locks, writing out what others wrote. None on another store."""
    return StorePath(place.store, place.location) if isinstance(place.store, DiskStore) else None


def _is_free(log: Path) -> bool:
    """Tells whether nothing is where a table is to be, but for what a process, or Spark in it, left that died here."""
    with suppress(FileNotFoundError):
        if any(name != log.name for name in os.listdir(log.parent)):
            return False
        return all(_LEFT.fullmatch(path.name) or _is_empty_of_spark(path) for path in log.iterdir())
    return True


def _is_empty_of_spark(path: Path) -> bool:
    return path.name in _FOLDERS_OF_SPARK and path.is_dir() and not any(path.iterdir())


def _remove_left(log: Path) -> None:
    for path in log.iterdir():
        path.rmdir() if path.is_dir() else path.unlink()


def _make_folder(path: str) -> None:
    """That of a new partition, in a table that is there: nobody makes again what was removed as a whole."""
    Path(path).parent.mkdir(exist_ok=True)


@contextmanager
def _unnamed(place: Path, content: bytes) -> Iterator[Path]:
    """The content as a file beside the place, which is gone at the end."""
    new = place.with_name(f".{place.name}.{uuid.uuid4()}.tmp")
    try:
        new.write_bytes(content)
        yield new
    finally:
        with suppress(OSError):
            new.unlink(missing_ok=True)


def _linked(new: Path, place: Path) -> Put:
    """A network file system may lose the answer, or ask again for a link that it made: then it is ours."""
    try:
        os.link(new, place)
        return Put.MADE
    except OSError as error:
        with suppress(OSError):
            if place.samefile(new):
                return Put.MADE
        if isinstance(error, FileExistsError):
            return Put.THERE
        if error.errno in _UNANSWERED:
            return Put.UNKNOWN
        raise
