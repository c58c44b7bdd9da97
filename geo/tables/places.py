"""Where this process reads the files of tables by itself: folders of this machine, and of an object store that lets it in."""

from __future__ import annotations

import io
import os
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TextIO

import pyarrow as pa
from pyarrow import fs

_AT_ONCE = 16
"""Files of a store that are read at once, since each is a request that waits."""


@dataclass(frozen=True, slots=True)
class Store:
    """A store that lets this process in: its files, and what `deltalake` needs for the same."""

    files: fs.FileSystem
    options: Mapping[str, str] = field(repr=False)


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

    def open_binary(self) -> pa.NativeFile:
        """For reads here and there in it. Raises FileNotFoundError."""
        return self.store.files.open_input_file(self._path)

    def open(self, encoding: str = "utf-8") -> TextIO:
        return io.StringIO(self.read_text(encoding))

    def read_text(self, encoding: str = "utf-8") -> str:
        with self.store.files.open_input_stream(self._path, compression=None) as stream:
            return bytes(stream.read()).decode(encoding)

    def names(self) -> list[str]:
        """Of the files in a folder; none if it is not there."""
        found = self.store.files.get_file_info(fs.FileSelector(self._path, allow_not_found=True))
        return [one.base_name for one in found if one.type == fs.FileType.File]

    @property
    def _path(self) -> str:
        return self._location.partition("://")[2]


Place = Path | RemotePath
"""Of a file or folder that this process reads."""


def names_in(folder: Place) -> list[str]:
    """Of the files, and on a local disk of the folders. Raises FileNotFoundError or NotADirectoryError on a local disk."""
    return os.listdir(folder) if isinstance(folder, Path) else folder.names()


def is_there(folder: Place, name: str) -> bool:
    """Whether a folder has a file or folder of that name: asked for every append and every look."""
    return os.path.exists(f"{folder}/{name}") if isinstance(folder, Path) else (folder / name).exists()


def opened(place: Place) -> Path | pa.NativeFile:
    """A Parquet file, as pyarrow takes it."""
    return place if isinstance(place, Path) else place.open_binary()


def lines_of(folder: Place, names: Iterable[str]) -> Iterator[Iterable[str] | None]:
    """Of each file in a folder its lines, None if it is not there: in order, of a store some at once."""
    if isinstance(folder, Path):
        for name in names:
            with ExitStack() as opened_one:
                lines = None
                with suppress(FileNotFoundError):
                    lines = opened_one.enter_context(open(folder / name, encoding="utf-8"))
                yield lines
        return

    def read(name: str) -> Iterable[str] | None:
        with suppress(FileNotFoundError):
            return (folder / name).read_text().split("\n")  # not `splitlines`: a text in it may have other ends of lines
        return None

    left = iter(names)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        while some := list(islice(left, 2 * _AT_ONCE)):
            yield from pool.map(read, some)
