"""Small files of an object store that this process has read or put, and what lists tell of what is there.

A list stands for a look at each file in it. It does so for a moment, and for who makes one picture of a folder for as long as that takes
(`as_listed`).
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from geo.delta.store import Store

FRESH_S = 1.0
"""So long a list tells what is there. Who begins with one, as whoever looks for a newest version does, asks for nothing again that it knows."""

HELD_BYTES, HELD_FILE_BYTES = 16 * 1024 * 1024, 256 * 1024
"""Bytes that are held of what was read, and of a file that is held, at most."""

_NEVER_CHANGED = (".json", ".crc", ".parquet")
"""Ends of the names of files whose content is another one only where a whole log is: those of tables."""

_LISTS, _NEWEST = 64, 512
"""So many lists are remembered, and of each so many names from its end on. The hundred commits behind a checkpoint are among them, with their
checksums."""

_lock = threading.Lock()


class HeldFiles(dict[str, tuple[str, bytes]]):
    """Contents of small files by path, with their tags, those that were read or put last."""

    def __init__(self) -> None:
        self.size = 0

    def keep(self, path: str, tag: str | None, content: bytes) -> None:
        if tag is None or len(content) > HELD_FILE_BYTES or not path.endswith(_NEVER_CHANGED):
            return
        with _lock:
            self._pop(path)
            self[path] = tag, content
            self.size += len(content)
            while self and self.size > HELD_BYTES:
                self._pop(next(iter(self)))

    def drop(self, path: str) -> None:
        with _lock:
            self._pop(path)

    def _pop(self, path: str) -> None:
        if (before := self.pop(path, None)) is not None:
            self.size -= len(before[1])


@dataclass(frozen=True, slots=True)
class Below:
    """Answer of one list about all files in a folder, and in those below it. Each has its tag, when it came and its bytes, by its name from there.
    `asked_at`: when (monotonic) it was asked.
    """

    store: Store
    folder: str
    asked_at: float
    files: Mapping[str, tuple[str, int, int]]

    def inside(self, folder: str) -> dict[str, tuple[str, int, int]]:
        """Files of a folder below it, as `files`."""
        begin = f"{folder[len(self.folder) + 1 :]}/"
        return {name.removeprefix(begin): told for name, told in self.files.items() if name.startswith(begin)}


_below: ContextVar[Sequence[Below]] = ContextVar("below", default=())
_changed_at: dict[str, float] = {}
"""Time (monotonic), by bucket, when this process changed something there last."""


@contextmanager
def as_listed(below: Sequence[Below]) -> Iterator[None]:
    """In here, in this thread, what is below those folders is what their lists told: for who makes one picture of them. A list tells nothing any
    more once this process has changed something in its bucket: who writes sees what it wrote."""
    before = _below.set(below)
    try:
        yield
    finally:
        _below.reset(before)


def told_at() -> float:
    """Tells when (monotonic) what is asked in here is so: now, or when the first of its lists was asked."""
    return min((one.asked_at for one in _below.get()), default=time.monotonic())


class ListedFiles:
    """Files of one store as lists told them: lately, and to who takes them as they were listed."""

    def __init__(self, store: Store, bucket: str) -> None:
        self._store, self._bucket = store, bucket
        self._lists: deque[tuple[float, str, str, Mapping[str, tuple[str, int]]]] = deque(maxlen=_LISTS)
        """The time when it was asked, of which folder, from which name on it tells all, and tags and times by name."""

    def note(self, folder: str, after: str, names: Sequence[str], told: Mapping[str, tuple[str, int]]) -> None:
        newest = names[-_NEWEST:]
        begins = after if len(newest) == len(names) else newest[0]
        self._lists.append((time.monotonic(), folder, begins, {name: told[name] for name in newest}))

    def told(self, path: str) -> tuple[str, int] | None:
        """Tag and time of a file that a list has told, a moment ago or to who takes it as it was listed. None: it is not there, or no list
        told."""
        if (below := self.below(path)) is not None:
            found = below.files.get(path[len(below.folder) + 1 :])
            return None if found is None else found[:2]
        folder, _, name = path.rpartition("/")
        since = time.monotonic() - FRESH_S
        for at, of, begins, told in reversed(tuple(self._lists)):
            if at > since and of == folder and name >= begins:
                return told.get(name)
        return None

    def below(self, path: str) -> Below | None:
        """The list by which this thread takes what is in a folder (`as_listed`). None: there is none of it, or none that tells all."""
        since = _changed_at.get(self._bucket, -math.inf)
        lists = (one for one in _below.get() if one.store is self._store and one.asked_at > since)
        return next((one for one in lists if path.startswith(f"{one.folder}/")), None)

    @contextmanager
    def changes(self) -> Iterator[None]:
        """Around whatever changes what is there: a list from before its end may not have it, also if its answer was lost."""
        try:
            yield
        finally:
            _changed_at[self._bucket] = time.monotonic()
