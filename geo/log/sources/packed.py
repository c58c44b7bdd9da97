"""Compressed files as the bytes in them: `.gz` and `.zst`, several members or frames one behind the other. What is in one is known by its
name without that ending, so that a file stays the same file when it is compressed.
"""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Protocol

from pyarrow import fs

from geo.errors import UsageError

if TYPE_CHECKING:
    from typing_extensions import Self

CODECS = {".gz": "gzip", ".zst": "zstd"}
"""Codecs by the ending of a file's name."""

_CHUNK_BYTES = 1024 * 1024
_KEPT_BYTES = 2 * _CHUNK_BYTES
"""Bytes that are kept of what was read last: a look at what lies just before a place costs nothing."""

_KINDS = {
    b"\x1f\x8b": "gzip data, whose name ends in .gz",
    b"\x28\xb5\x2f\xfd": "Zstandard data, whose name ends in .zst",
    b"BZh": "bzip2 data, which is not read",
    b"\xfd7zXZ\0": "xz data, which is not read",
    b"PK\x03\x04": "a zip archive, which is not read",
    b"PAR1": "a Parquet file: publish it as a DataFrame",
    b"\xff\xfe": "UTF-16: JSON lines are UTF-8",
    b"\xfe\xff": "UTF-16: JSON lines are UTF-8",
}
"""Beginnings of what is no JSON lines file, and what it is."""


class Stream(Protocol):
    """The questions that are asked of a file's content."""

    def read(self, count: int, /) -> bytes:
        """So many bytes, fewer at the end."""

    def seek(self, position: int, /) -> object:
        """The next `read` begins there."""

    def __enter__(self) -> Stream: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> object: ...


def known_as(path: str) -> str:
    """The name by which what is in a file is known."""
    return path.removesuffix(next(filter(path.endswith, CODECS), ""))


def open_unpacked(system: fs.FileSystem, path: str) -> Stream:
    """Open the content of a file. Raises OSError as the file system does, and `NotWholeError` and UsageError where it is read as `Unpacked`."""
    stream: Stream = Unpacked(system, path) if known_as(path) != path else system.open_input_file(path)
    return stream


def refuse_other_kind(path: str, begin: bytes) -> None:
    """Raises UsageError if what is in a file begins so and is of a kind that has no lines."""
    for sign, kind in _KINDS.items():
        if begin.startswith(sign):
            raise UsageError(f"{path}: in it is {kind}. Nothing of it was published. Give it its right name, or move it away.")


class NotWholeError(Exception):
    """A compressed file ends in the middle, as one that somebody is writing."""


class Unpacked:
    """The content of a compressed file. To seek forward is to read; back beyond _KEPT_BYTES, to begin again.

    Raises NotWholeError, and UsageError for one that is damaged or not compressed so.
    """

    def __init__(self, system: fs.FileSystem, path: str) -> None:
        self._system, self._path = system, path
        self._codec = CODECS[path[len(known_as(path)) :]]
        self._position = 0
        self._begin()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /) -> None:
        self._stream.close()

    def seek(self, position: int) -> None:
        """The next `read` begins there."""
        self._position = position

    def read(self, count: int) -> bytes:
        """So many bytes, fewer at the end."""
        parts = []
        while count:
            if self._position < self._at - len(self._kept):
                self._stream.close()
                self._begin()
            if self._position < self._at:
                begin = len(self._kept) - (self._at - self._position)
                part = self._kept[begin : begin + count]
                parts.append(part)
                self._position += len(part)
                count -= len(part)
            elif not self._read_on():
                break
        return b"".join(parts)

    def size(self) -> int:
        """Count the bytes of the content, by reading them all."""
        while self._read_on():
            pass
        return self._at

    def _begin(self) -> None:
        self._stream = self._system.open_input_stream(self._path, compression=self._codec)
        self._at, self._kept = 0, b""

    def _read_on(self) -> bool:
        try:
            chunk = self._stream.read(_CHUNK_BYTES)
        except OSError as error:
            if "Truncated compressed stream" in str(error):
                raise NotWholeError(self._path) from None
            if error.errno is not None or not any(word in str(error) for word in ("zlib", "ZSTD")):
                raise
            raise UsageError(
                f"{self._path}: what is in it cannot be read as {self._codec}, as its name says: {error}. Nothing of it was published "
                "from there on. Put a whole copy in its place."
            ) from None
        self._at += len(chunk)
        self._kept = (self._kept + chunk)[-_KEPT_BYTES:]
        return bool(chunk)
