"""A store in memory: far, without folders, locks or sums, as an object store is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import Lock
from time import time
from typing import ClassVar

import pyarrow as pa

from geo.delta.store import Head, Put, ReadPath


class MemoryStore:
    is_near = False
    options: ClassVar[Mapping[str, str]] = {}

    def __init__(self) -> None:
        self._files: dict[str, tuple[bytes, int, int]] = {}
        """Content, time and number of each."""
        self._puts, self._lock = 0, Lock()

    def get(self, path: str) -> bytes:
        try:
            return self._files[path][0]
        except KeyError:
            raise FileNotFoundError(path) from None

    def open(self, path: str) -> pa.NativeFile:
        return pa.BufferReader(self.get(path))

    def pieces(self, path: str) -> Iterator[bytes]:
        yield self.get(path)

    def head(self, path: str) -> Head | None:
        found = self._files.get(path)
        return None if found is None else Head(len(found[0]), found[1], found[2])

    def came_us(self, path: str) -> int | None:
        return None if (found := self.head(path)) is None else found.modified_us

    def is_there(self, path: str) -> bool:
        return path in self._files

    def names(self, folder: str, after: str) -> list[str]:
        rest = (path.removeprefix(f"{folder}/") for path in self._files if path.startswith(f"{folder}/"))
        return sorted(name for name in rest if "/" not in name and name > after)

    def check(self, path: str) -> None:
        self.get(path)

    def put(self, path: str, content: bytes) -> None:
        with self._lock:
            self._puts += 1
            self._files[path] = content, int(time() * 1e6), self._puts

    def put_if_absent(self, path: str, content: bytes) -> Put:
        with self._lock:
            self._puts += 1
            there = self._files.setdefault(path, (content, int(time() * 1e6), self._puts))
            return Put.MADE if there[2] == self._puts else Put.THERE

    @contextmanager
    def create(self, path: str) -> Iterator[pa.NativeFile]:
        sink = pa.BufferOutputStream()
        yield sink
        self.put(path, sink.getvalue().to_pybytes())

    def write_out(self, paths: Iterable[str]) -> None:
        pass

    def delete(self, path: str) -> None:
        self._files.pop(path, None)

    def delete_all(self, paths: Sequence[str]) -> None:
        for path in paths:
            self.delete(path)

    def copy(self, source: ReadPath, to: str) -> None:
        self.put(to, b"".join(source.store.pieces(source.location)))

    def begin_log(self, folder: str) -> bool:
        table = folder.rpartition("/")[0]
        return not any(path.startswith(f"{table}/") for path in self._files)

    def end_log(self, folder: str) -> None:
        pass

    def forget(self, path: str) -> None:
        pass

    def adopt(self, path: str) -> None:
        pass
