"""Sums of what was written into a file of a local disk, as Hadoop keeps them beside it: who reads such a file by Spark is refused what
has changed since. What this process writes and reads without Spark is held to the same. Other storages keep sums of their own.

A file without one, as other programs leave it, is taken as it is.
"""

from __future__ import annotations

import io
import shutil
import struct
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from geo.disk import sync
from geo.errors import DamagedError

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_HEADER = struct.Struct(">4si")
_MAGIC = b"crc\0"

PART = 64 * 1024
"""Bytes of a file that have a sum, a CRC-32. Hadoop's own are 512: a hundred times as many to make."""


def sum_of(path: Path) -> Path:
    """Where the sums of a file are."""
    return path.with_name(f".{path.name}.crc")


def put_sum(path: Path, *, writes_out: bool = True) -> None:
    """Keep the sums of a file that was written and that nobody reads yet, or that is whole without them. They are written out before
    they have their name: Hadoop reads no file of which half of the sums is there."""
    with path.open("rb") as file:
        _put(path, _summed(file, PART), writes_out=writes_out)


def _put(path: Path, parts: Iterable[bytes], *, writes_out: bool) -> None:
    sums = _HEADER.pack(_MAGIC, PART) + b"".join(parts)
    new = sum_of(path).with_suffix(".new")
    try:
        new.write_bytes(sums)
        if writes_out:
            sync([new])
        new.replace(sum_of(path))
    finally:
        new.unlink(missing_ok=True)


def copy_with_sum(path: Path, to: Path) -> None:
    """Copy a file, with its sums. Raises DamagedError, and OSError: what was copied is for the caller to remove."""
    shutil.copyfile(path, to)
    try:
        shutil.copyfile(sum_of(path), sum_of(to))
    except FileNotFoundError:
        put_sum(to)
        return
    check(to, named=path)


class Summed(io.RawIOBase):
    """A file that is written from its beginning to its end, of which the sums are made on the way."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._sums, self._sum, self._size = file, list[int](), 0, 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._size

    def write(self, content: ReadableBuffer) -> int:
        rest = memoryview(content).cast("B")
        self._file.write(rest)
        written = len(rest)
        while len(rest):
            part = rest[: PART - self._size % PART]
            self._sum = zlib.crc32(part, self._sum)
            self._size += len(part)
            rest = rest[len(part) :]
            if self._size % PART == 0:
                self._sums.append(self._sum)
                self._sum = 0
        return written

    def put(self, path: Path) -> None:
        """Keep the sums beside the file, which is whole. They are not written out."""
        last = [self._sum] if self._size % PART else []
        _put(path, (one.to_bytes(4, "big") for one in (*self._sums, *last)), writes_out=False)


def read_checked(path: Path) -> bytes:
    """The content of a file. Raises DamagedError if it is not what was written, FileNotFoundError."""
    content = path.read_bytes()
    if (sums := _sums(path)) is not None:
        _check(io.BytesIO(content), path, sums)
    return content


def check(path: Path, *, named: Path | None = None) -> None:
    """As `read_checked`, of a file of any size, which is not held."""
    with path.open("rb") as file:
        if (sums := _sums(path)) is not None:
            _check(file, named or path, sums)


def _sums(path: Path) -> bytes | None:
    try:
        return sum_of(path).read_bytes()
    except FileNotFoundError:
        return None


def _check(file: BinaryIO, path: Path, sums: bytes) -> None:
    magic, part = _HEADER.unpack_from(sums) if len(sums) >= _HEADER.size else (b"", 0)
    if magic != _MAGIC or part <= 0 or sums[_HEADER.size :] != b"".join(_summed(file, part)):
        raise DamagedError(
            f"{path} is damaged: it is not what was written, by the sums in {sum_of(path).name}. Nothing of it was taken. Bring both back from a "
            "copy; if the file is right as it is, remove its sums."
        )


def _summed(file: BinaryIO, part: int) -> Iterator[bytes]:
    while content := file.read(part):
        yield zlib.crc32(content).to_bytes(4, "big")
