"""Where this process reads the files of tables by itself: folders of this machine, and of an object store that lets it in."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TextIO, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

T = TypeVar("T")

_AT_ONCE = 16
"""Files of a store that are read at once, since each is a request that waits."""


AGAIN_S = 60.0
"""A store that did not let this process in, or gave no answer, is left to Spark for so long: it may be away, or a key was rotated."""


@dataclass(slots=True)
class Store:
    """A store that lets this process in: its files, and what `deltalake` needs for the same."""

    files: fs.FileSystem
    options: Mapping[str, str] = field(repr=False)
    has_shown_commits: bool = False
    """A commit of a table was read from it, so it is the one that Spark writes."""
    silent_until: dict[str, float] = field(default_factory=dict, repr=False)
    """Monotonic times, by place: it gave no answer there."""


class RemotePath:
    """A file or folder of a store: of `pathlib.Path` what reading a table needs."""

    def __init__(self, store: Store, location: str) -> None:
        self.store, self._location = store, location

    def __str__(self) -> str:
        return self._location

    def __truediv__(self, name: str) -> RemotePath:
        return RemotePath(self.store, f"{self._location}/{name}")

    @property
    def parent(self) -> RemotePath:
        return RemotePath(self.store, self._location.rpartition("/")[0])

    def exists(self) -> bool:
        return bool(self.store.files.get_file_info(self._path).type != fs.FileType.NotFound)

    def is_file(self) -> bool:
        """One request; `exists`, of what is not there, takes two."""
        try:
            self.open_binary().close()
        except FileNotFoundError:
            return False
        return True

    def open_binary(self) -> pa.NativeFile:
        """For reads here and there in it. Raises FileNotFoundError."""
        return self.store.files.open_input_file(self._path)

    def open(self, encoding: str = "utf-8") -> TextIO:
        return io.StringIO(self.read_text(encoding))

    def read_bytes(self) -> bytes:
        with self.store.files.open_input_stream(self._path, compression=None) as stream:
            return bytes(stream.read())

    def read_text(self, encoding: str = "utf-8") -> str:
        return self.read_bytes().decode(encoding)

    def names(self) -> list[str]:
        """Of the files in a folder; none if it is not there."""
        found = self.store.files.get_file_info(fs.FileSelector(self._path, allow_not_found=True))
        return [one.base_name for one in found if one.type == fs.FileType.File]

    def refuse_no_bucket(self) -> None:
        """Raises OSError where the bucket is away: to who lists it, it is as if there were no such folder."""
        bucket = self._path.partition("/")[0]
        if self.store.files.get_file_info(bucket).type == fs.FileType.NotFound:
            raise OSError(f"there is no bucket {bucket} now")

    @property
    def _path(self) -> str:
        return self._location.partition("://")[2]


Place = Path | RemotePath
"""Of a file or folder that this process reads."""


def is_known_to_deltalake(folder: Place) -> bool:
    """Whether `deltalake` takes a path for what it is: of one with a `%` it makes another."""
    return "%" not in str(folder)


def names_in(folder: Place) -> list[str]:
    """Of the files, and on a local disk of the folders. Raises FileNotFoundError or NotADirectoryError on a local disk."""
    return os.listdir(folder) if isinstance(folder, Path) else folder.names()


def is_there(folder: Place, name: str) -> bool:
    """Whether a folder has a file of that name: asked for every append and every look."""
    return os.path.exists(f"{folder}/{name}") if isinstance(folder, Path) else (folder / name).is_file()


def parquet(place: Place | pa.NativeFile) -> pq.ParquetFile:
    """A Parquet file: each page that is read must be what was written; times in microseconds, else the year 9999 is 1816."""
    file = place.open_binary() if isinstance(place, RemotePath) else place
    return pq.ParquetFile(file, coerce_int96_timestamp_unit="us", page_checksum_verification=True)


def each(folder: Place, names: Iterable[str], read: Callable[[Place], T]) -> Iterator[T | None]:
    """What `read` makes of each file in a folder, None if it is not there: in order, of a store some at once."""

    def one(name: str) -> T | None:
        with suppress(FileNotFoundError):
            return read(folder / name)
        return None

    if isinstance(folder, Path):
        yield from map(one, names)
        return
    left = iter(names)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        while some := list(islice(left, 2 * _AT_ONCE)):
            yield from pool.map(one, some)
