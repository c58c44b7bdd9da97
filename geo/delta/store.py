"""The store below tables: whole files by their names. Anything that keeps these promises can hold a table.

Nothing here takes for granted that it is a disk, or that a list is cheap. Nor does it that there is a lock, or that an answer arrives
(docs/structure.md). Adapters: `geo.delta.disk_store`, `geo.delta.object_store`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from enum import Enum
from itertools import chain, islice
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from geo.errors import DamagedError

A = TypeVar("A")
T = TypeVar("T")
Self = TypeVar("Self", bound="StorePath[Any]")

AT_ONCE = 16
"""Files of a store that is far that are read at once, since each is a request that waits."""

PIECE_BYTES = 8 * 1024 * 1024
"""Bytes of the pieces in which a file is copied from store to store."""

WHOLE_BYTES = 16 * 1024 * 1024
"""Largest Parquet file that is read whole on a store that is near, so that all of it is held to what was written. Of a larger one the pages that are
read are held to their own sums.
"""


_SOME_BYTES = 64 * 1024


class Put(Enum):
    """Fate of a file that was put if there was none."""

    MADE = "made"
    THERE = "there"
    """A file of that name is there. It may be one's own: a library that asks again after an answer was lost is told so of what it made."""
    UNKNOWN = "unknown"
    """It may have been made, or may still be."""


@dataclass(frozen=True, slots=True)
class Head:
    """Facts of a store about a file without its content. `stamp` tells it from any other that may take its place."""

    size: int
    modified_us: int
    """Time of the change by the store's clock, in microseconds since 1970."""
    stamp: Hashable


class ReadStore(Protocol):
    """A store as who only looks sees it. Paths are as locations name them. What is not there is FileNotFoundError."""

    @property
    def is_near(self) -> bool:
        """An answer takes microseconds, so a question by name is cheaper than a list."""

    def get(self, path: str) -> bytes:
        """The content of a file. Raises DamagedError if it is not what was written, where the store can tell."""

    def open(self, path: str) -> pa.NativeFile:
        """For reads here and there in a file, which are checked by nobody."""

    def pieces(self, path: str) -> Iterator[bytes]:
        """The content from its begin on, of a file of any size, which is never whole in memory. Raises as `get`."""

    def head(self, path: str) -> Head | None:
        """None if there is no such file."""

    def came_us(self, path: str) -> int | None:
        """Tells when a file came, as `Head.modified_us`: what a list has said a moment ago will do. None if there is no such file."""

    def is_there(self, path: str) -> bool:
        """Tells whether there is such a file: one question."""

    def names(self, folder: str, after: str) -> list[str]:
        """The names of the files in a folder that come after one, in their order; none where there is no such folder. A disk gives those of
        folders, too."""

    def check(self, path: str) -> None:
        """Raises DamagedError as `get`, of a file of any size, which is never whole in memory."""


class Store(ReadStore, Protocol):
    """A store that this process writes. Where there are folders, `create` and `copy` make one that is missing in one that is there."""

    def put(self, path: str, content: bytes) -> None:
        """Put a file, in the place of one that is there, whole for whoever looks."""

    def put_if_absent(self, path: str, content: bytes) -> Put:
        """Put a file unless there is one, whole for whoever looks, its content durable before it has its name. Raises OSError, with nothing
        done."""

    def create(self, path: str) -> AbstractContextManager[pa.NativeFile]:
        """Write a file whose name was drawn for it: nobody looks for it before its end. None is left if it fails."""

    def write_out(self, paths: Iterable[str]) -> None:
        """Afterwards the content of these files is durable, and the names in those that are folders."""

    def delete(self, path: str) -> None:
        """One that is not there is no fault."""

    def delete_all(self, paths: Sequence[str]) -> None:
        """Deletes as `delete` many at once, in no order."""

    def copy(self, source: ReadPath, to: str) -> None:
        """Copy a file, of whatever store, to a name that was drawn for it. None is left if it fails. Raises as `get`."""

    def begin_log(self, folder: str) -> bool:
        """Make way for a table whose `_delta_log` is to be there. Returns False, with nothing done, if anything is where the table is to be, but
        for what a process left that died making one."""

    def end_log(self, folder: str) -> None:
        """Undo `begin_log`, if there is no commit. What fails here is no fault."""

    @property
    def options(self) -> Mapping[str, str]:
        """Options by which `deltalake` reaches it (`storage_options`)."""

    def forget(self, path: str) -> None:
        """Forgets what the store keeps beside a file: a library is about to write it, which knows nothing of that."""

    def adopt(self, path: str) -> None:
        """A library wrote this file: from here on it is held to what it is now."""


S_co = TypeVar("S_co", bound=ReadStore, covariant=True)


@dataclass(frozen=True, slots=True)
class StorePath(Generic[S_co]):
    """A file or folder on a store."""

    store: S_co
    location: str

    def __str__(self) -> str:
        return self.location

    def __truediv__(self: Self, name: str) -> Self:
        """Joins a name as a log names its files: an absolute one, of a clone, is where it says."""
        return type(self)(self.store, name if name.startswith("/") else f"{self.location}/{name}")

    @property
    def parent(self: Self) -> Self:
        return type(self)(self.store, self.location.rpartition("/")[0])

    def get(self) -> bytes:
        return self.store.get(self.location)

    def lines(self) -> list[str]:
        """The lines of a text. Raises as `ReadStore.get`."""
        try:
            # Not `splitlines`: a text in it may have other ends of lines.
            return self.get().decode().removesuffix("\n").split("\n")
        except UnicodeDecodeError:
            raise DamagedError(f"{self} is damaged: it is no text. Bring it back from a copy.") from None

    def first_line(self) -> bytes:
        """Reads the first line as `unchecked`, without its end, of a file that may be long."""
        with self.store.open(self.location) as file:
            found = b""
            while b"\n" not in found and (more := file.read(_SOME_BYTES)):
                found += more
            return found.partition(b"\n")[0]

    def unchecked(self) -> bytes:
        """The content, checked by nobody."""
        with self.store.open(self.location) as file:
            return bytes(file.read())

    def head(self) -> Head | None:
        return self.store.head(self.location)

    def is_there(self) -> bool:
        return self.store.is_there(self.location)

    def has(self, name: str) -> bool:
        """Tells whether a folder has a file: asked for every append and every look."""
        return self.store.is_there(f"{self.location}/{name}")

    def names(self, after: str = "") -> list[str]:
        return self.store.names(self.location, after)

    def check(self) -> None:
        self.store.check(self.location)

    def delete(self: StorePath[Store]) -> None:
        self.store.delete(self.location)


ReadPath: TypeAlias = StorePath[ReadStore]
WritePath: TypeAlias = StorePath[Store]


def parquet(place: ReadPath) -> pq.ParquetFile:
    """A Parquet file, of which each page that is read must be what was written."""
    return _opened(place.store.open(place.location))


def parquet_checked(place: ReadPath, size: int = 0) -> pq.ParquetFile:
    """Opens as `parquet`. One that is near and has up to WHOLE_BYTES, or of which that is not known (0), is read whole. Its end, too, must be what
    was written. Raises as `ReadStore.get`.
    """
    return _opened(pa.BufferReader(place.get())) if place.store.is_near and size <= WHOLE_BYTES else parquet(place)


def _opened(file: pa.NativeFile) -> pq.ParquetFile:
    # Times in microseconds, else the year 9999 is 1816.
    return pq.ParquetFile(file, coerce_int96_timestamp_unit="us", page_checksum_verification=True)


class Begin(Protocol):
    def __call__(self, call: Callable[[], T], /) -> Callable[[], T]: ...


@contextmanager
def meanwhile(store: ReadStore | None) -> Iterator[Begin]:
    """Begins calls beside what is done in here: each returns how to ask for what came of it. On a store that is near, or none, a call is made when
    that is asked for. At the end none runs any more.
    """
    if store is None or store.is_near:
        yield lambda call: call
        return

    def begin(call: Callable[[], T]) -> Callable[[], T]:
        try:
            return pool.submit(call).result
        except RuntimeError:  # the interpreter is ending, while somebody still tidies up
            return call

    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield begin


def ask_all(store: ReadStore | None, asked: Sequence[Callable[[], T]]) -> list[T]:
    """Answers some questions, which do not follow from each other: of a store that is far asked at once, but for one alone. Raises what the first of
    them raised.
    """
    with meanwhile(store if len(asked) > 1 else None) as begin:
        answers = [begin(one) for one in asked]
        return [answer() for answer in answers]


def read_each(store: ReadStore | None, asked: Iterable[A], read: Callable[[A], T]) -> Iterator[T | None]:
    """Applies `read` to each that is asked of a store, and yields the results in order; None for one that is not there. Of a store that is far some are read
    at once. `store` None: it is not far."""

    def one(what: A) -> T | None:
        with suppress(FileNotFoundError):
            return read(what)
        return None

    left = iter(asked)
    first = list(islice(left, 2))
    left = chain(first, left)
    if store is None or store.is_near or len(first) < 2:
        yield from map(one, left)
        return
    with ThreadPoolExecutor(AT_ONCE) as pool:
        while some := list(islice(left, AT_ONCE)):
            try:
                found = pool.map(one, some)
            except RuntimeError:  # the interpreter is ending, while somebody still tidies up
                found = map(one, some)
            yield from found
