"""Files of an object store that are read in parts, or are sent while they are written."""

from __future__ import annotations

import io
import itertools
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

from geo.delta.store import PIECE_BYTES

_AHEAD_BYTES = 4 * 1024 * 1024
"""Bytes of a large file, of which only parts are read, that are asked for at once."""

_PLACES = 4
"""So many such parts of it are held: its columns are read one after the other, each in one group of rows after the other."""


class PartsReader(io.RawIOBase):
    """A large file whose last bytes, `end`, are at hand. Of the others what is read is asked for, from one place to another, and some more."""

    def __init__(self, ask: Callable[[int, int], Any], size: int, end: bytes) -> None:
        self._ask, self._size, self._at = ask, size, 0
        self._end = size - len(end), end
        self._held: deque[tuple[int, Any]] = deque(maxlen=_PLACES)
        """Parts that were asked for last, each with where it begins."""

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


class NewFile(io.RawIOBase):
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
        """Yields what is written, from its begin on, as it comes, to its end. Raises UnfinishedError if that never comes."""
        for at in itertools.count():
            with self._more:
                self._more.wait_for(lambda at=at: at < len(self._parts) or self._is_whole is not None)  # type: ignore[misc]
                if self._is_whole is False:
                    raise UnfinishedError
                if at == len(self._parts):
                    return
            yield self._parts[at]


class UnfinishedError(Exception):
    """Whoever wrote a file failed."""
