"""Sums of what was written into a file of a local disk, as Hadoop keeps them beside it. Who reads such a file by Spark is refused what has changed
since. What this process writes and reads without Spark is held to the same. Other storages keep sums of their own.

A file without one, as other programs leave it, is taken as it is.
"""

from __future__ import annotations

import io
import shutil
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from geo.disk import sync
from geo.errors import DamagedError

_HEADER = struct.Struct(">4si")
_MAGIC = b"crc\0"

_PART = 64 * 1024
"""Bytes of a file that have a sum, a CRC-32. Hadoop's own are 512: a hundred times as many to make."""


def sum_of(path: Path) -> Path:
    """Tells where the sums of a file are."""
    return path.with_name(f".{path.name}.crc")


def put_sum(path: Path, *, writes_out: bool = True) -> None:
    """Keep the sums of a file that was written and that nobody reads yet, or that is whole without them. They are written out before
    they have their name: Hadoop reads no file of which half of the sums is there."""
    with path.open("rb") as file:
        sums = _HEADER.pack(_MAGIC, _PART) + b"".join(_summed(file, _PART))
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


def read_checked(path: Path) -> bytes:
    """The content of a file. Raises DamagedError if it is not what was written, FileNotFoundError."""
    content = path.read_bytes()
    if (sums := _sums(path)) is not None:
        _check(io.BytesIO(content), path, sums)
    return content


def check(path: Path, *, named: Path | None = None) -> None:
    """Checks as `read_checked` a file of any size, which is not held."""
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
