"""An object store that this process writes: S3 and what speaks its API, by obstore (the Rust object_store).

Only a put if absent is never tried again by the library: after an answer that was lost it would say that another one was there. All else
is tried again for RETRIES_S. Raises OSError for whatever the store says: one line, without keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from geo.delta.store import WHOLE_BYTES, Head, Put

if TYPE_CHECKING:
    from obstore.store import S3Store

T = TypeVar("T")

RETRIES, RETRIES_S = 10, 180
"""As Hadoop's S3A does: a store may be away for minutes."""

REQUEST = "30s"
"""A request that has no answer by then is tried again; a put if absent is unknown then."""

_AT_ONCE_BYTES = 1024 * 1024
"""Of a large file of which only parts are read."""


@dataclass(frozen=True)
class ObjectStore:
    """One bucket, with the keys of one cluster. Stores keep sums of their own, so nothing is held to any here."""

    bucket: str
    options: Mapping[str, str] = field(repr=False)
    """As object_store and `deltalake` name them; `timeout` among them is of a request."""

    is_near = False

    @cached_property
    def _store(self) -> S3Store:
        return self._made(RETRIES)

    @cached_property
    def _once(self) -> S3Store:
        """Asks once: for what must not be asked twice in silence."""
        return self._made(0)

    def _made(self, retries: int) -> S3Store:
        from obstore.store import S3Store

        return S3Store(
            self.bucket,
            config={name: value for name, value in self.options.items() if name != "timeout"},  # type: ignore[arg-type]  # names of settings
            client_options={"timeout": self.options.get("timeout", REQUEST)},
            retry_config={"max_retries": retries, "retry_timeout": timedelta(seconds=RETRIES_S)},
        )

    def get(self, path: str) -> bytes:
        return self._ask(lambda o: bytes(o.get(self._store, self._key(path)).bytes()))

    def open(self, path: str) -> pa.NativeFile:
        """A small file is one request, and in memory then; of a larger one what is read is asked for."""
        return self._ask(lambda o: self._opened(o, self._key(path)))

    def _opened(self, o: Any, key: str) -> pa.NativeFile:
        found = o.get(self._store, key)
        if found.meta["size"] <= WHOLE_BYTES:
            return pa.BufferReader(pa.py_buffer(found.bytes()))
        return pa.PythonFile(o.open_reader(self._store, key, buffer_size=_AT_ONCE_BYTES), mode="r")

    def head(self, path: str) -> Head | None:
        try:
            found = self._ask(lambda o: o.head(self._store, self._key(path)))
        except FileNotFoundError:
            return None
        modified_us = int(found["last_modified"].timestamp() * 1_000_000)
        return Head(found["size"], modified_us, (found["e_tag"], found["version"], found["size"], modified_us))

    def is_there(self, path: str) -> bool:
        return self.head(path) is not None

    def names(self, folder: str, after: str) -> list[str]:
        """From the first, a list of this folder alone; after a name, a list that begins there and has what is in folders below it."""
        key = self._key(folder)

        def listed(o: Any) -> Iterable[Mapping[str, Any]]:
            if after:
                return [one for some in o.list(self._store, key, offset=f"{key}/{after}") for one in some]
            objects: list[Mapping[str, Any]] = o.list_with_delimiter(self._store, key)["objects"]
            return objects

        names = (one["path"].removeprefix(f"{key}/") for one in self._ask(listed))
        # The order and the beginning are the port's: not every store keeps to them.
        return sorted(name for name in names if "/" not in name and name > after)

    def check(self, path: str) -> None:
        if not self.is_there(path):
            raise FileNotFoundError(path)

    def put(self, path: str, content: bytes) -> None:
        self._ask(lambda o: o.put(self._store, self._key(path), content))

    def put_if_absent(self, path: str, content: bytes) -> Put:
        """UNKNOWN is what is said of any answer from which nothing follows, such as none within its time."""
        from obstore import put
        from obstore.exceptions import AlreadyExistsError, BaseError, PermissionDeniedError, UnauthenticatedError

        try:
            put(self._once, self._key(path), content, mode="create", use_multipart=False)
        except AlreadyExistsError:
            return Put.THERE
        except (FileNotFoundError, PermissionDeniedError, UnauthenticatedError) as error:
            raise self._said(error) from None
        except BaseError:
            return Put.UNKNOWN
        return Put.MADE

    @contextmanager
    def create(self, path: str) -> Iterator[pa.NativeFile]:
        sink = pa.BufferOutputStream()
        yield sink
        self.put(path, sink.getvalue().to_pybytes())

    def write_out(self, paths: Iterable[str]) -> None:
        """An answer says that it is durable."""

    def delete(self, path: str) -> None:
        try:
            self._ask(lambda o: o.delete(self._store, self._key(path)))
        except FileNotFoundError:
            return

    def copy(self, path: str, to: str) -> None:
        """By the store itself; nothing of it passes here."""
        self._ask(lambda o: o.copy(self._store, self._key(path), self._key(to)))

    def begin_log(self, folder: str) -> bool:
        """There are no folders to make: asked is whether anything is below the table."""
        table = self._key(folder).rpartition("/")[0]
        return not self._ask(lambda o: o.list(self._store, table, chunk_size=1).collect())

    def end_log(self, folder: str) -> None:
        pass

    def forget(self, path: str) -> None:
        pass

    def adopt(self, path: str) -> None:
        pass

    def _ask(self, question: Callable[[Any], T]) -> T:
        """The answer, with obstore's errors as OSError."""
        import obstore
        from obstore.exceptions import BaseError

        try:
            return question(obstore)
        except (FileNotFoundError, BaseError) as error:
            raise self._said(error) from None

    def _said(self, error: Exception) -> OSError:
        """Its first line: those behind it are what the library holds, keys among it."""
        from obstore.exceptions import PermissionDeniedError, UnauthenticatedError

        line = str(error).partition("\n")[0]
        for secret in (value for name, value in self.options.items() if "secret" in name or "token" in name):
            line = line.replace(secret, "…")
        if "NoSuchBucket" in str(error):
            return FileNotFoundError(f"there is no bucket {self.bucket} now: {line}")
        if isinstance(error, FileNotFoundError):
            return FileNotFoundError(line)
        return (PermissionError if isinstance(error, (PermissionDeniedError, UnauthenticatedError)) else OSError)(line)

    def _key(self, path: str) -> str:
        return path.partition("://")[2].partition("/")[2]
