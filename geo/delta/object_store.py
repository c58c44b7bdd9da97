"""An object store that this process writes: S3 and what speaks its API, by obstore (the Rust object_store).

Raises OSError for whatever the store says: one line, without keys (`s3_bucket.py`).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any

import pyarrow as pa

from geo.delta.held_files import Below, HeldFiles, ListedFiles
from geo.delta.object_files import NewFile
from geo.delta.object_reads import has_any, objects_below, open_object, put_us
from geo.delta.s3_bucket import REFUSED, S3Bucket
from geo.delta.store import PIECE_BYTES, Head, Put, ReadPath
from geo.locations import authority_of, storage_of
from geo.text import first_line

log = logging.getLogger(__name__)

_PARTS_AT_ONCE, _STREAMS_AT_ONCE = 2, 4
"""Pieces of a file that are put at once, and files that are put so at once: of PIECE_BYTES each."""

_NEW_PARTS_AT_ONCE = 6
"""The same of a file that is written by this process, which holds it anyway."""

_streams = threading.BoundedSemaphore(_STREAMS_AT_ONCE)


class ObjectStore:
    """One bucket, with the keys of one cluster. Stores keep sums of their own, so nothing is held to any here."""

    is_near = False

    def __init__(self, bucket: str, said: Mapping[str, str], find_options: Callable[[], Mapping[str, str]] | None = None) -> None:
        """Arguments as `S3Bucket`."""
        self.s3 = S3Bucket(bucket, said, find_options)
        self.held = HeldFiles()
        """Small files as this process read or put them last: whoever wants one is given it only while a list tells its tag."""
        self.lists = ListedFiles(self, bucket)
        self._closed = set[str]()
        """Buckets from which these keys may not copy."""

    def __reduce__(self) -> tuple[type[ObjectStore], tuple[Any, ...]]:
        """For tasks of Spark's, which connect by themselves."""
        return ObjectStore, self.s3.given

    @property
    def options(self) -> Mapping[str, str]:
        return self.s3.options

    def holds(self, path: str) -> bool:
        """Tells whether a location is in this bucket."""
        return storage_of(path) == "s3a" and authority_of(path) == self.s3.bucket

    def get(self, path: str) -> bytes:
        """One that was read before is not asked for again if a list has just said that it is the same."""
        if (held := self.held.get(path)) is not None and (told := self.lists.told(path)) is not None and told[0] == held[0]:
            return held[1]

        def ask(o: Any) -> tuple[str | None, bytes]:
            found = o.get(self.s3.store, self.s3.key(path))
            return found.meta["e_tag"], bytes(found.bytes())

        tag, content = self.s3.ask(ask)
        self.held.keep(path, tag, content)
        return content

    def open(self, path: str) -> pa.NativeFile:
        """A small file is one request, a larger one two, and in memory then; of a large one what is read is asked for. It is always asked for:
        whether a commit that was put counts follows from what is there now. A file of rows that is held is not asked for. Its name was drawn for
        it, so nobody puts another one there, and whether it is of the table its log says."""
        if path.endswith(".parquet") and "/_delta_log/" not in path and (held := self.held.get(path)) is not None:
            return pa.BufferReader(held[1])
        return self.s3.ask(lambda o: open_object(o, self.s3, self.held, path))

    def pieces(self, path: str) -> Iterator[bytes]:
        found = self.s3.ask(lambda o: o.get(self.s3.store, self.s3.key(path)).stream(min_chunk_size=PIECE_BYTES))
        while piece := self.s3.ask(lambda o: next(found, None)):
            yield bytes(piece)

    def head(self, path: str) -> Head | None:
        try:
            found = self.s3.ask(lambda o: o.head(self.s3.store, self.s3.key(path)))
        except FileNotFoundError:
            return None
        modified_us = put_us(found)
        return Head(found["size"], modified_us, (found["e_tag"], found["version"], found["size"], modified_us))

    def came_us(self, path: str) -> int | None:
        if (told := self.lists.told(path)) is not None:
            return told[1]
        return None if (found := self.head(path)) is None else found.modified_us

    def is_there(self, path: str) -> bool:
        if (below := self.lists.below(path)) is not None:
            return path[len(below.folder) + 1 :] in below.files
        return self.head(path) is not None

    def names(self, folder: str, after: str) -> list[str]:
        """From the first, a list of this folder alone; after a name, a list that begins there and has what is in folders below it. Raises
        OSError where there is no bucket."""
        if (below := self.lists.below(folder)) is not None:
            return sorted(name for name in below.inside(folder) if "/" not in name and name > after)
        key = self.s3.key(folder)

        def listed(o: Any) -> Iterable[Mapping[str, Any]]:
            if after:
                return [one for some in o.list(self.s3.store, key, offset=f"{key}/{after}") for one in some]
            objects: list[Mapping[str, Any]] = o.list_with_delimiter(self.s3.store, key)["objects"]
            return objects

        found = {one["path"].removeprefix(f"{key}/"): (one["e_tag"], put_us(one)) for one in self.s3.ask(listed)}
        # The order and the beginning are the port's: not every store keeps to them.
        names = sorted(name for name in found if "/" not in name and name > after)
        self.lists.note(folder, after, names, found)
        return names

    def below(self, folder: str, *, least_bytes: int = 0) -> list[str]:
        """The paths of all files in a folder and in those below it, from that folder on, that have at least so many bytes."""
        return sorted(name for name, one in objects_below(self.s3, folder) if one["size"] >= least_bytes)

    def all_below(self, folder: str) -> Below:
        """Lists what is in a folder, and in those below it, at once: a request for each thousand files."""
        asked_at = time.monotonic()
        files = {name: (one["e_tag"], put_us(one), one["size"]) for name, one in objects_below(self.s3, folder)}
        return Below(self, folder, asked_at, files)

    def delete_all(self, paths: Sequence[str]) -> None:
        for path in paths:
            self.held.drop(path)
        if paths:
            with self.lists.changes():
                self.s3.ask(lambda o: o.delete(self.s3.store, list(map(self.s3.key, paths))))

    def check(self, path: str) -> None:
        if not self.is_there(path):
            raise FileNotFoundError(path)

    def put(self, path: str, content: bytes) -> None:
        with self.lists.changes():
            made = self.s3.ask(lambda o: o.put(self.s3.store, self.s3.key(path), content))
        self.held.keep(path, made["e_tag"], content)

    def put_if_absent(self, path: str, content: bytes) -> Put:
        """UNKNOWN is what is said of any answer from which nothing follows, such as none within its time."""
        from obstore import put
        from obstore.exceptions import AlreadyExistsError, BaseError

        try:
            # Other keys are tried once more: what was refused was not done.
            with self.lists.changes():
                made = self.s3.by_keys(lambda: put(self.s3.once, self.s3.key(path), content, mode="create", use_multipart=False))
        except AlreadyExistsError:
            return Put.THERE
        except (FileNotFoundError, BaseError) as error:
            if isinstance(error, FileNotFoundError) or REFUSED.search(str(error)):
                raise self.s3.as_os_error(error) from None
            return Put.UNKNOWN
        self.held.keep(path, made["e_tag"], content)
        return Put.MADE

    @contextmanager
    def create(self, path: str) -> Iterator[pa.NativeFile]:
        """Opens a file for writing. What is larger than a piece is on its way to the store while more is written."""

        def put(o: Any) -> None:
            o.put(self.s3.store, self.s3.key(path), new.pieces(), chunk_size=PIECE_BYTES, max_concurrency=_NEW_PARTS_AT_ONCE)

        with self.lists.changes(), ThreadPoolExecutor(1) as sending:
            new = NewFile(lambda: sending.submit(self.s3.ask, put))
            try:
                yield pa.PythonFile(new, mode="w")
            except BaseException:
                new.end(is_whole=False)
                raise
            new.end()
        if new.sent is None:
            self.put(path, b"".join(new.pieces()))
        else:
            new.sent.result()

    def write_out(self, paths: Iterable[str]) -> None:
        """An answer says that it is durable."""

    def delete(self, path: str) -> None:
        self.held.drop(path)
        with self.lists.changes(), suppress(FileNotFoundError):
            self.s3.ask(lambda o: o.delete(self.s3.store, self.s3.key(path)))

    def copy(self, source: ReadPath, to: str) -> None:
        """Copies by the store itself where both are of one end point and these keys may read there: nothing of it passes here. Else, as of a file
        that is too large for that, in pieces.
        """
        there = source.store
        if isinstance(there, ObjectStore) and self.s3.endpoint == there.s3.endpoint and there.s3.bucket not in self._closed:
            try:
                with self.lists.changes():
                    self.s3.ask(
                        lambda o: o.copy(self.s3.into_this(there.s3.bucket), self.s3.key(source.location), self.s3.key(to))
                    )
                return
            except OSError as error:
                log.info("%s: is copied in pieces: %s", source, first_line(error))
                if isinstance(error, PermissionError):
                    self._closed.add(there.s3.bucket)

        with (
            _streams,
            self.lists.changes(),
            ThreadPoolExecutor(1) as reading,
        ):  # the library asks for pieces where it cannot be asked itself

            def put(o: Any) -> None:
                left = there.pieces(source.location)
                pieces = iter(lambda: reading.submit(next, left, b"").result(), b"")
                o.put(self.s3.store, self.s3.key(to), pieces, chunk_size=PIECE_BYTES, max_concurrency=_PARTS_AT_ONCE)

            self.s3.ask(put)

    def begin_log(self, folder: str) -> bool:
        """There are no folders to make: asked is whether anything is below the table."""
        return not has_any(self.s3, folder.rpartition("/")[0])

    def end_log(self, folder: str) -> None:
        pass

    def forget(self, path: str) -> None:
        pass

    def adopt(self, path: str) -> None:
        pass
