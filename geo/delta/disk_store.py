"""Files on a disk of this machine, with sums beside them (geo.delta.sums). No Spark.

A name that is put if absent is a hard link, which no two processes make. What is put is whole where it has its name; whether the name
itself outlives a power cut is seen to for whole tables, also for what Spark writes there (geo.delta.durable).
"""

from __future__ import annotations

import io
import os
import re
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

import pyarrow as pa

from geo.crash import CrashPoint, reach
from geo.delta import sums
from geo.delta.store import Head, Put, StorePath, WritePath
from geo.delta.sums import put_sum, sum_of
from geo.disk import sync

LEFT = re.compile(r"\.\d{20}\.(json\.)?[0-9a-f-]{36}\.tmp|\.\.\d{20}\.json\.[0-9a-f-]{36}\.tmp\.crc")
"""What a process, or Spark in it, leaves in a log that died before a commit had its name."""


@dataclass(frozen=True, slots=True)
class DiskStore:
    """All disks of this machine. What is read is held to its sums, if it has any."""

    is_near = True
    options = None

    def get(self, path: str) -> bytes:
        return sums.read_checked(Path(path))

    def open(self, path: str) -> pa.NativeFile:
        return pa.OSFile(path)

    def head(self, path: str) -> Head | None:
        try:
            found = os.stat(path)
        except FileNotFoundError:
            return None
        stamp = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
        return Head(found.st_size, found.st_mtime_ns // 1000, stamp)

    def is_there(self, path: str) -> bool:
        return os.path.exists(path)

    def names(self, folder: str, after: str) -> list[str]:
        """Of the folders in it, too."""
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
        try:
            with _unnamed(place, content) as new:
                sync([new])  # a power cut may spare a name and take the content
                if has_left:
                    sum_of(place).unlink(missing_ok=True)
                reach(CrashPoint.COMMIT_WRITTEN)
                _link(new, place)
        except FileExistsError:
            return Put.THERE
        with suppress(OSError):  # a file without is taken as it is
            put_sum(place)
        return Put.MADE

    @contextmanager
    def create(self, path: str) -> Iterator[BinaryIO]:
        place = Path(path)
        try:
            file = place.open("xb")
        except FileNotFoundError:
            place.parent.mkdir(parents=True, exist_ok=True)
            file = place.open("xb")
        try:
            summed = sums.Summed(file)
            # Who writes Parquet writes some bytes at a time.
            with file, io.BufferedWriter(summed, sums.PART) as buffered:
                yield cast("BinaryIO", buffered)
            summed.put(place)
        except BaseException:
            self.delete(path)
            raise

    def write_out(self, paths: Iterable[str]) -> None:
        sync(one for path in map(Path, paths) for one in (path, sum_of(path)))

    def delete(self, path: str) -> None:
        for one in (sum_of(Path(path)), Path(path)):
            one.unlink(missing_ok=True)

    def copy(self, path: str, to: str) -> None:
        Path(to).parent.mkdir(parents=True, exist_ok=True)
        try:
            sums.copy_with_sum(Path(path), Path(to))
        except BaseException:
            self.delete(to)
            raise

    def forget(self, path: str) -> None:
        """Hadoop would hold what is written there against the sums of what was."""
        sum_of(Path(path)).unlink(missing_ok=True)

    def adopt(self, path: str) -> None:
        put_sum(Path(path))


DISK = DiskStore()


def on_disk(place: Path) -> WritePath:
    """A place on a disk, as all stores have it."""
    return StorePath(DISK, str(place))


def path_of(place: WritePath) -> Path:
    """Where a place is that is known to be on a disk: for what Spark writes there, and for what a disk alone asks for."""
    assert isinstance(place.store, DiskStore)
    return Path(place.location)


@contextmanager
def _unnamed(place: Path, content: bytes) -> Iterator[Path]:
    """The content as a file beside the place, which is gone at the end."""
    new = place.with_name(f".{place.name}.{uuid.uuid4()}.tmp")
    try:
        try:
            new.write_bytes(content)
        except FileNotFoundError:
            place.parent.mkdir(parents=True, exist_ok=True)
            new.write_bytes(content)
        yield new
    finally:
        with suppress(OSError):
            new.unlink(missing_ok=True)


def _link(new: Path, place: Path) -> None:
    try:
        os.link(new, place)
    except OSError:
        # A network file system may lose the answer, or ask again for a link that it made: then it is ours.
        if not (place.exists() and place.samefile(new)):
            raise
