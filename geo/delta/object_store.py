"""An object store that this process writes: S3 and what speaks its API, by obstore (the Rust object_store).

Only a put if absent is never tried again by the library: after an answer that was lost it would say that another one was there. All else
is tried again for RETRIES_S. Raises OSError for whatever the store says: one line, without keys.
"""

from __future__ import annotations

import io
import itertools
import logging
import math
import os
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from geo.config.secret import keep_silent
from geo.config.storage_options import PROFILE, SECRETS
from geo.delta.store import PIECE_BYTES, WHOLE_BYTES, Head, Put, ReadPath
from geo.errors import GeoError
from geo.locations import authority_of, storage_of
from geo.text import first_line

if TYPE_CHECKING:
    from obstore.store import S3Store

log = logging.getLogger(__name__)

T = TypeVar("T")

RETRIES, RETRIES_S = 6, 60
_BACKOFF = {"init_backoff": timedelta(seconds=0.5), "max_backoff": timedelta(seconds=8), "base": 2}
"""A store that is busy is asked again, and one that does not answer, for some 15 seconds: whoever runs long tries again by itself then."""

REQUEST_TIMEOUT = "30s"
"""A request that has no answer by then is tried again; a put if absent is unknown then."""

_COPY_TIMEOUT = "10m"
"""The same for what a store copies by itself, up to five gigabytes."""

_PARTS_AT_ONCE, _STREAMS_AT_ONCE = 2, 4
"""Of a file that is put in pieces so many are under way at once, and so many such files: of PIECE_BYTES each."""

_NEW_PARTS_AT_ONCE = 6
"""The same of a file that is written by this process, which holds it anyway."""

_streams = threading.BoundedSemaphore(_STREAMS_AT_ONCE)

FRESH_S = 1.0
"""So long a list tells what is there: who begins with one, as whoever looks for a newest version does, asks for nothing again that it knows."""

HELD_BYTES, HELD_FILE_BYTES = 16 * 1024 * 1024, 256 * 1024
"""Of what was read so much is held, and files of at most so much."""

_NEVER_CHANGED = (".json", ".crc", ".parquet")
"""How names end of files whose content is another one only where a whole log is: those of tables."""

_LISTS, _NEWEST = 64, 512
"""So many lists are remembered, and of each so many names from its end on: the hundred commits behind a checkpoint are among them, with their
checksums."""

_lock = threading.Lock()

_END_BYTES, _AHEAD_BYTES = 1024 * 1024, 4 * 1024 * 1024
"""Of a file that is opened so much of its end is asked for first, and of a large one, of which only parts are read, so much at once."""

_PLACES = 4
"""So many such parts of it are held: its columns are read one after the other, each in one group of rows after the other."""


def _of_profile() -> Any:
    from obstore.auth.boto3 import Boto3CredentialProvider

    keep_silent("botocore")
    return Boto3CredentialProvider()


class _Held(dict[str, tuple[str, bytes]]):
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


class _Listed:
    """What lists said lately of files: their tags, and when each came."""

    def __init__(self) -> None:
        self._lists: deque[tuple[float, str, str, Mapping[str, tuple[str, int]]]] = deque(maxlen=_LISTS)
        """When it was asked, of which folder, from which name on it tells all, and tags and times by name."""

    def note(self, folder: str, after: str, names: Sequence[str], told: Mapping[str, tuple[str, int]]) -> None:
        newest = names[-_NEWEST:]
        begins = after if len(newest) == len(names) else newest[0]
        self._lists.append((time.monotonic(), folder, begins, {name: told[name] for name in newest}))

    def told(self, path: str) -> tuple[str, int] | None:
        """What the newest list that tells of the file, a moment ago, said of it; None: that it is not there, or nothing."""
        folder, _, name = path.rpartition("/")
        since = time.monotonic() - FRESH_S
        for at, of, begins, told in reversed(tuple(self._lists)):
            if at > since and of == folder and name >= begins:
                return told.get(name)
        return None


@dataclass(frozen=True, slots=True)
class Below:
    """What one list told of all files in a folder, and in those below it: of each its tag, when it came and its bytes, by its name from there.
    `asked_at`: when (monotonic) it was asked."""

    store: ObjectStore
    folder: str
    asked_at: float
    files: Mapping[str, tuple[str, int, int]]

    def inside(self, folder: str) -> dict[str, tuple[str, int, int]]:
        """As `files`, of a folder below it."""
        begin = f"{folder[len(self.folder) + 1 :]}/"
        return {name.removeprefix(begin): told for name, told in self.files.items() if name.startswith(begin)}


_below: ContextVar[Sequence[Below]] = ContextVar("below", default=())
_changed_at: dict[str, float] = {}
"""By bucket when (monotonic) this process changed something there last."""


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
    """When (monotonic) what is asked in here is so: now, or when the first of its lists was asked."""
    return min((one.asked_at for one in _below.get()), default=time.monotonic())


def _us(found: Mapping[str, Any]) -> int:
    """When an object was put, in microseconds since 1970."""
    return int(found["last_modified"].timestamp() * 1_000_000)


class _Reader(io.RawIOBase):
    """A large file whose last bytes, `end`, are at hand: of the others what is read is asked for, from one place to another, and some more."""

    def __init__(self, ask: Callable[[int, int], Any], size: int, end: bytes) -> None:
        self._ask, self._size, self._at = ask, size, 0
        self._end = size - len(end), end
        self._held: deque[tuple[int, Any]] = deque(maxlen=_PLACES)
        """What was asked for last, with where it begins."""

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def read(self, size: int = -1) -> Any:
        """Without a copy: what a group of rows has is large."""
        first, last = self._at, self._size if size < 0 else min(self._at + size, self._size)
        if first >= last:
            return b""
        found = next((one for one in (self._end, *self._held) if one[0] <= first and last <= one[0] + len(one[1])), None)
        if found is None:
            found = first, self._ask(first, min(max(last, first + _AHEAD_BYTES), self._size))
            if last - first < _AHEAD_BYTES:
                self._held.append(found)
        begin, content = found
        self._at = last
        return memoryview(content)[first - begin : last - begin]


_REQUEST = re.compile(r"Error performing ([A-Z]+) (\S+) ")
_STATUS = re.compile(r"status code: (\d{3} [A-Z][A-Za-z ]*)")
_OF_KEYS = re.compile(r"status code: 40[13]|ExpiredToken|InvalidAccessKeyId|InvalidToken|status code: 400 Bad Request: $")
"""An answer (to HEAD without a code) after which other keys may do."""
_NO_ANSWERS = {
    "no trust": re.compile(r"InvalidCertificate"),
    "no keys": re.compile(r"169\.254\.|[Cc]redential|Invalid encryption header"),
}
"""What tells why a request was not answered: the store's certificate is not trusted here; what is asked for keys where none
are given, or says that there are none."""
_CODE = re.compile(r"<Code>(\w+)</Code>")
_NOT_DELETED = re.compile(r"DeleteObjects request failed for key (.*?): .*\(code: (\w+)\)")
"""What is said of one of the names that a request was to delete; the request itself was taken."""
_NO_END = re.compile(r"status code: 416|non-partial response")
"""How a store answers who asks for the last bytes of an empty file."""
_REFUSED = re.compile(r"status code: 4(?!09|12)\d\d")
"""An answer that says that nothing was done."""


class _New(io.RawIOBase):
    """A file that is being written, held until it is there. Of one that is larger than a piece `send` says how it is sent, meanwhile."""

    sent: Future[None] | None = None

    def __init__(self, send: Callable[[], Future[None]]) -> None:
        self._send, self._parts, self._size = send, list[bytes](), 0
        self._more = threading.Condition()
        self._is_whole: bool | None = None

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._size

    def write(self, part: Any) -> int:
        """Raises what went wrong with what is sent."""
        if self.sent is not None and self.sent.done():
            self.sent.result()
        with self._more:
            self._parts.append(bytes(part))  # who writes may use its memory again
            self._size += len(part)
            self._more.notify_all()
        if self.sent is None and self._size > PIECE_BYTES:
            self.sent = self._send()
        return len(part)

    def end(self, *, is_whole: bool = True) -> None:
        with self._more:
            self._is_whole = is_whole
            self._more.notify_all()

    def pieces(self) -> Iterator[bytes]:
        """What is written, from its begin on, as it comes, to its end. Raises _NotWholeError if that never comes."""
        for at in itertools.count():
            with self._more:
                self._more.wait_for(lambda at=at: at < len(self._parts) or self._is_whole is not None)  # type: ignore[misc]
                if self._is_whole is False:
                    raise _NotWholeError
                if at == len(self._parts):
                    return
            yield self._parts[at]


class _NotWholeError(Exception):
    """Whoever wrote a file failed."""


@dataclass(eq=False)
class ObjectStore:
    """One bucket, with the keys of one cluster. Stores keep sums of their own, so nothing is held to any here."""

    bucket: str
    said: Mapping[str, str] = field(repr=False)
    """As object_store and `deltalake` name them; `timeout` among them is of a request, and PROFILE says that keys are those of the files that
    Amazon's programs have on this machine."""
    find_options: Callable[[], Mapping[str, str]] | None = field(default=None, repr=False)
    """Finds them again, when a key is refused: it may have been rotated. A task asks it on its own host."""

    is_near = False

    @property
    def options(self) -> Mapping[str, str]:
        found = {name: value for name, value in self.said.items() if name not in ("timeout", PROFILE)}
        if PROFILE in self.said:
            keys = _of_profile()()
            found |= {f"aws_{name}": keys[name] for name in ("access_key_id", "secret_access_key")}
            found |= {"aws_session_token": keys["token"]} if keys.get("token") else {}
        return found

    def __reduce__(self) -> tuple[type[ObjectStore], tuple[Any, ...]]:
        """For tasks of Spark's, which connect by themselves: with the keys that there are now."""
        said = self.said
        if self.find_options is not None:
            with suppress(GeoError):  # they are not there now; those that were found last may still do
                said = self.find_options()
        return ObjectStore, (self.bucket, dict(said), self.find_options)

    def holds(self, path: str) -> bool:
        """Whether a location is in this bucket."""
        return storage_of(path) == "s3a" and authority_of(path) == self.bucket

    @property
    def _store(self) -> S3Store:
        return self._with_keys(RETRIES)

    @property
    def _once(self) -> S3Store:
        """Asks once: for what must not be asked twice in silence."""
        return self._with_keys(0)

    def _into_this(self, bucket: str) -> S3Store:
        """Copies from that bucket into this one. The library names the bucket that it was given as that of the source, and asks where the end
        point says, which is this one's."""
        is_whole = self.said.get("aws_virtual_hosted_style_request") == "true" and self.endpoint is not None
        endpoint = (self.endpoint or f"https://s3.{self.region}.amazonaws.com").rstrip("/")
        at = {
            "aws_endpoint_url": endpoint if is_whole else f"{endpoint}/{self.bucket}",
            "aws_virtual_hosted_style_request": "true",
        }
        return self._with_keys(RETRIES, bucket, at)

    def _with_keys(self, retries: int, bucket: str | None = None, at: dict[str, str] | None = None) -> S3Store:
        """The library's store, with the keys that were found last; `bucket` and `at` of one that copies."""
        with _lock:
            if (made := self._stores.get((retries, bucket))) is None or made[0] is not self.said:
                made = self._stores[retries, bucket] = self.said, self._made(retries, bucket, at or {})
            return made[1]

    @cached_property
    def _stores(self) -> dict[tuple[int, str | None], tuple[Mapping[str, str], S3Store]]:
        return {}

    def _made(self, retries: int, bucket: str | None, at: dict[str, str]) -> S3Store:
        from obstore.store import S3Store

        return S3Store(
            bucket or self.bucket,
            config={name: value for name, value in self.said.items() if name not in ("timeout", PROFILE)} | at,  # type: ignore[arg-type]  # names of settings
            credential_provider=_of_profile() if PROFILE in self.said else None,
            client_options={"timeout": self.said.get("timeout", REQUEST_TIMEOUT) if bucket is None else _COPY_TIMEOUT},
            retry_config={"max_retries": retries, "retry_timeout": timedelta(seconds=RETRIES_S), "backoff": _BACKOFF},  # type: ignore[arg-type]  # as it is
        )

    def get(self, path: str) -> bytes:
        """One that was read before is not asked for again if a list has just said that it is the same."""
        if (held := self._held.get(path)) is not None and (told := self._told(path)) is not None and told[0] == held[0]:
            return held[1]

        def ask(o: Any) -> tuple[str | None, bytes]:
            found = o.get(self._store, self._key(path))
            return found.meta["e_tag"], bytes(found.bytes())

        tag, content = self._ask(ask)
        self._held.keep(path, tag, content)
        return content

    def held(self, path: str) -> tuple[str, bytes] | None:
        """Tag and content of a small file as this process read or put it last; None: it holds none."""
        return self._held.get(path)

    def hold(self, path: str, tag: str, content: bytes) -> None:
        """Hold a small file as if it had been read: whoever wants it is given it only while a list tells this tag."""
        self._held.keep(path, tag, content)

    def open(self, path: str) -> pa.NativeFile:
        """A small file is one request, a larger one two, and in memory then; of a large one what is read is asked for. It is always asked
        for: whether a commit that was put counts follows from what is there now. But for a file of rows that is held: its name was drawn
        for it, so nobody puts another one there, and whether it is of the table its log says."""
        if path.endswith(".parquet") and "/_delta_log/" not in path and (held := self._held.get(path)) is not None:
            return pa.BufferReader(held[1])
        return self._ask(lambda o: self._opened(o, path))

    def pieces(self, path: str) -> Iterator[bytes]:
        found = self._ask(lambda o: o.get(self._store, self._key(path)).stream(min_chunk_size=PIECE_BYTES))
        while piece := self._ask(lambda o: next(found, None)):
            yield bytes(piece)

    def _opened(self, o: Any, path: str) -> pa.NativeFile:
        key = self._key(path)
        try:
            found = o.get(self._store, key, options={"range": {"suffix": _END_BYTES}})
        except o.exceptions.GenericError as error:
            if not _NO_END.search(str(error)):
                raise
            found = o.get(self._store, key)
        size, content = found.meta["size"], bytes(found.bytes())
        if size > WHOLE_BYTES:
            return pa.PythonFile(_Reader(lambda first, last: self._range(path, first, last), size, content), mode="r")
        if len(content) < size:  # whole from one answer: in its place may be another one by now
            found = o.get(self._store, key)
            content = bytes(found.bytes())
        self._held.keep(path, found.meta["e_tag"], content)
        return pa.BufferReader(content)

    def _range(self, path: str, first: int, last: int) -> Any:
        return self._ask(lambda o: o.get_range(self._store, self._key(path), start=first, end=last))

    def head(self, path: str) -> Head | None:
        try:
            found = self._ask(lambda o: o.head(self._store, self._key(path)))
        except FileNotFoundError:
            return None
        modified_us = _us(found)
        return Head(found["size"], modified_us, (found["e_tag"], found["version"], found["size"], modified_us))

    def came_us(self, path: str) -> int | None:
        if (told := self._told(path)) is not None:
            return told[1]
        return None if (found := self.head(path)) is None else found.modified_us

    def is_there(self, path: str) -> bool:
        if (below := self._as_listed(path)) is not None:
            return path[len(below.folder) + 1 :] in below.files
        return self.head(path) is not None

    def names(self, folder: str, after: str) -> list[str]:
        """From the first, a list of this folder alone; after a name, a list that begins there and has what is in folders below it. Raises
        OSError where there is no bucket."""
        if (below := self._as_listed(folder)) is not None:
            return sorted(name for name in below.inside(folder) if "/" not in name and name > after)
        key = self._key(folder)

        def listed(o: Any) -> Iterable[Mapping[str, Any]]:
            if after:
                return [one for some in o.list(self._store, key, offset=f"{key}/{after}") for one in some]
            objects: list[Mapping[str, Any]] = o.list_with_delimiter(self._store, key)["objects"]
            return objects

        found = {one["path"].removeprefix(f"{key}/"): (one["e_tag"], _us(one)) for one in self._ask(listed)}
        # The order and the beginning are the port's: not every store keeps to them.
        names = sorted(name for name in found if "/" not in name and name > after)
        self._listed.note(folder, after, names, found)
        return names

    def below(self, folder: str, *, least_bytes: int = 0) -> list[str]:
        """The paths of all files in a folder and in those below it, from that folder on, that have at least so many bytes."""
        return sorted(name for name, one in self._all_below(folder) if one["size"] >= least_bytes)

    def modified_us(self, folder: str) -> dict[str, int]:
        """When each file in a folder was written last, by name: microseconds since 1970, of whole seconds."""
        if (below := self._as_listed(folder)) is not None:
            return {name: came_us for name, (_, came_us, _) in below.inside(folder).items()}
        return {name: _us(one) for name, one in self._all_below(folder)}

    def all_below(self, folder: str) -> Below:
        """What is in a folder, and in those below it, by one list: a request for each thousand files."""
        asked_at = time.monotonic()
        files = {name: (one["e_tag"], _us(one), one["size"]) for name, one in self._all_below(folder)}
        return Below(self, folder, asked_at, files)

    def _all_below(self, folder: str) -> list[tuple[str, Mapping[str, Any]]]:
        """Each object in a folder, or in one below it, by its name from there."""
        key = self._key(folder)
        found = self._ask(lambda o: [one for some in o.list(self._store, key) for one in some])
        return [(one["path"].removeprefix(f"{key}/"), one) for one in found]

    def _as_listed(self, path: str) -> Below | None:
        """The list by which this thread takes what is in a folder (`as_listed`). None: there is none of it, or none that tells all."""
        since = _changed_at.get(self.bucket, -math.inf)
        lists = (one for one in _below.get() if one.store is self and one.asked_at > since)
        return next((one for one in lists if path.startswith(f"{one.folder}/")), None)

    @contextmanager
    def _changes(self) -> Iterator[None]:
        """Around whatever changes what is there: a list from before its end may not have it, also if its answer was lost."""
        try:
            yield
        finally:
            _changed_at[self.bucket] = time.monotonic()

    def _told(self, path: str) -> tuple[str, int] | None:
        """Tag and time of a file that a list has told, a moment ago or to who takes it as it was listed. None: it is not there, or no list
        told."""
        if (below := self._as_listed(path)) is not None:
            found = below.files.get(path[len(below.folder) + 1 :])
            return None if found is None else found[:2]
        return self._listed.told(path)

    def folders(self, folder: str) -> set[str]:
        """The names of the folders in a folder."""
        found = self._ask(lambda o: o.list_with_delimiter(self._store, self._key(folder))["common_prefixes"])
        return {one.rstrip("/").rpartition("/")[2] for one in found}

    def has_any(self, folder: str) -> bool:
        """Whether there is a file in a folder, or in one below it."""
        return bool(self._ask(lambda o: next(iter(o.list(self._store, self._key(folder), chunk_size=1)), [])))

    def delete_all(self, paths: Sequence[str]) -> None:
        for path in paths:
            self._held.drop(path)
        if paths:
            with self._changes():
                self._ask(lambda o: o.delete(self._store, list(map(self._key, paths))))

    def check(self, path: str) -> None:
        if not self.is_there(path):
            raise FileNotFoundError(path)

    def put(self, path: str, content: bytes) -> None:
        with self._changes():
            made = self._ask(lambda o: o.put(self._store, self._key(path), content))
        self._held.keep(path, made["e_tag"], content)

    def put_if_absent(self, path: str, content: bytes) -> Put:
        """UNKNOWN is what is said of any answer from which nothing follows, such as none within its time."""
        from obstore import put
        from obstore.exceptions import AlreadyExistsError, BaseError

        try:
            # Other keys are tried once more: what was refused was not done.
            with self._changes():
                made = self._by_keys(lambda: put(self._once, self._key(path), content, mode="create", use_multipart=False))
        except AlreadyExistsError:
            return Put.THERE
        except (FileNotFoundError, BaseError) as error:
            if isinstance(error, FileNotFoundError) or _REFUSED.search(str(error)):
                raise self._said(error) from None
            return Put.UNKNOWN
        self._held.keep(path, made["e_tag"], content)
        return Put.MADE

    @contextmanager
    def create(self, path: str) -> Iterator[pa.NativeFile]:
        """What is larger than a piece is on its way to the store while more is written."""

        def put(o: Any) -> None:
            o.put(self._store, self._key(path), new.pieces(), chunk_size=PIECE_BYTES, max_concurrency=_NEW_PARTS_AT_ONCE)

        with self._changes(), ThreadPoolExecutor(1) as sending:
            new = _New(lambda: sending.submit(self._ask, put))
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
        self._held.drop(path)
        with self._changes(), suppress(FileNotFoundError):
            self._ask(lambda o: o.delete(self._store, self._key(path)))

    def copy(self, source: ReadPath, to: str) -> None:
        """By the store itself where both are of one end point and these keys may read there: nothing of it passes here. Else, as of a file
        that is too large for that, in pieces."""
        there = source.store
        if isinstance(there, ObjectStore) and self.endpoint == there.endpoint and there.bucket not in self._closed:
            try:
                with self._changes():
                    self._ask(lambda o: o.copy(self._into_this(there.bucket), self._key(source.location), self._key(to)))
                return
            except OSError as error:
                log.info("%s: is copied in pieces: %s", source, first_line(error))
                if isinstance(error, PermissionError):
                    self._closed.add(there.bucket)

        with (
            _streams,
            self._changes(),
            ThreadPoolExecutor(1) as reading,
        ):  # the library asks for pieces where it cannot be asked itself

            def put(o: Any) -> None:
                left = there.pieces(source.location)
                pieces = iter(lambda: reading.submit(next, left, b"").result(), b"")
                o.put(self._store, self._key(to), pieces, chunk_size=PIECE_BYTES, max_concurrency=_PARTS_AT_ONCE)

            self._ask(put)

    def begin_log(self, folder: str) -> bool:
        """There are no folders to make: asked is whether anything is below the table."""
        return not self.has_any(folder.rpartition("/")[0])

    def end_log(self, folder: str) -> None:
        pass

    def forget(self, path: str) -> None:
        pass

    def adopt(self, path: str) -> None:
        pass

    @property
    def region(self) -> str:
        """As said, or as the environment does."""
        return self.said.get("aws_region") or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or "us-east-1"

    @property
    def endpoint(self) -> str | None:
        """None: Amazon's, by the region."""
        return self.said.get("aws_endpoint_url")

    def told_us(self) -> int | None:
        """What time its server says it is, to the second, in microseconds since 1970; None: it does not. One request, which needs no keys."""
        if "proxy_url" in self.options:
            return None
        from geo.delta.server_time import server_time_us  # who writes needs none of it

        return server_time_us(self.endpoint or f"https://s3.{self.region}.amazonaws.com")

    @cached_property
    def _closed(self) -> set[str]:
        """Buckets from which these keys may not copy."""
        return set()

    @cached_property
    def _held(self) -> _Held:
        return _Held()

    @cached_property
    def _listed(self) -> _Listed:
        return _Listed()

    def _ask(self, question: Callable[[Any], T]) -> T:
        """The answer, with obstore's errors as OSError."""
        import obstore
        from obstore.exceptions import BaseError

        try:
            return self._by_keys(lambda: question(obstore))
        except (FileNotFoundError, BaseError) as error:
            raise self._said(error) from None

    def _by_keys(self, ask: Callable[[], T]) -> T:
        """The answer; once more, if the keys were refused and there are others."""
        from obstore.exceptions import BaseError

        used = self.said
        try:
            return ask()
        except BaseError as error:
            if not (_OF_KEYS.search(str(error)) and self._found_keys(used)):
                raise
        return ask()

    def _found_keys(self, used: Mapping[str, str]) -> bool:
        """Whether there are, or may be, other keys than those `used`, which were refused. The library never asks for keys again by itself
        then."""
        with _lock:
            if self.said is not used:  # somebody else has found them
                return True
            try:
                found = self.said if self.find_options is None else self.find_options()
            except GeoError as error:  # they are not there now; what was asked was refused
                log.info("S3 bucket %s: %s", self.bucket, first_line(error))
                return False
            if found == self.said and PROFILE not in found:
                return False
            self.said = dict(found)
            return True

    def _said(self, error: Exception) -> OSError:
        """In one line, without what the library holds, keys among it. A bucket that is not there is no file that is not there."""
        from obstore.exceptions import PermissionDeniedError, UnauthenticatedError

        text = str(error)
        request, status, code = _REQUEST.search(text), _STATUS.search(text), _CODE.search(text)
        what = "" if request is None else f"{request[1]} {request[2]}: "
        if (kept := _NOT_DELETED.search(text)) is not None:
            what, why = f"DELETE {kept[1]}: ", kept[2]
        elif status is None:
            kind = next((kind for kind, tells in _NO_ANSWERS.items() if tells.search(text)), "no answer")
            why = f"{kind}: {text.partition(chr(10))[0].rpartition(' - ')[2]}"
        else:
            why = f"{status[1]}{f', {code[1]}' if code else ''}"
        for secret in filter(None, map(self.said.get, SECRETS)):
            what, why = what.replace(secret, "…"), why.replace(secret, "…")
        if isinstance(error, FileNotFoundError) and "NoSuchBucket" not in text:
            return FileNotFoundError(f"S3 bucket {self.bucket}: {what}{why}")
        refused = isinstance(error, (PermissionDeniedError, UnauthenticatedError)) or why.startswith(("403 ", "AccessDenied"))
        return (PermissionError if refused else OSError)(f"S3 bucket {self.bucket}: {what}{why}")

    def _key(self, path: str) -> str:
        return path.partition("://")[2].partition("/")[2]
