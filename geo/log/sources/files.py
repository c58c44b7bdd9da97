"""Files of a source: which there are, and whether one is what was read of it, by its content.

A file is *the same as it was seen* while its size, its time of change and its inode are (`SeenFile.stamp`). Then nothing of it is read. Else all
that was read of it is hashed again and compared. A file that grows while it is followed is hashed again only when it has doubled, and at the next
start. Until then the last bytes that were read are compared.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections import OrderedDict
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyarrow import fs

from geo.errors import UsageError
from geo.log.sources.packed import CODECS, Stream, known_as
from geo.text import counted

log = logging.getLogger(__name__)

ENDINGS = (".jsonl", ".json", ".ndjson")

_TAIL_BYTES = 4096
_CHUNK_BYTES = 1024 * 1024
_LARGE_PART = 64 * 1024
"""Smaller ones are hashed at once: handing one over takes as long."""

_MOST_CONTENTS = 1_000
"""Files of which the hash is kept with which it goes on; of others all that was read is hashed again."""

_said: set[str] = set()
"""Folders of which it was said which files are not read."""


def whole_path(path: str) -> str:
    """The path by which files are known in what is recorded: absolute and without `..`, from whichever folder it was given. Links
    are not followed, and a URI stays as it was written."""
    return path if "://" in path else os.path.abspath(path)


def open_path(path: str) -> tuple[fs.FileSystem, str]:
    """File system and path of a local path or URI. Raises UsageError if there is nothing."""
    try:
        system, inner = fs.FileSystem.from_uri(path) if "://" in path else (fs.LocalFileSystem(), path)
    except (pa.ArrowInvalid, OSError) as error:
        raise UsageError(f"{path}: cannot be opened: {error}") from None
    if system.get_file_info(inner).type == fs.FileType.NotFound:
        raise UsageError(f"{path}: there is no such file or directory.")
    return system, inner


@dataclass(frozen=True, slots=True)
class SeenFile:
    """A file as it was listed. It has its size in bytes, when it changed last in ns since 1970, its inode, and the device of that. 0 where there is
    none. A device has another number after a restart of the host, so `stamp`, which is kept, does not name it. `path` is where it is, '' if that is
    its name; `copies` are files of the same name that are compressed."""

    size: int
    changed_ns: int = 0
    inode: int = 0
    device: int = 0
    path: str = ""
    copies: tuple[SeenFile, ...] = ()

    def is_same_file(self, other: SeenFile) -> bool:
        """True if both are names of one file, both listed now."""
        return self.inode > 0 and (self.device, self.inode) == (other.device, other.inode)

    @classmethod
    def of(cls, stamp: str) -> SeenFile:
        """Read a stamp: what it says of a file."""
        size, changed_ns, inode = map(int, stamp.split("-"))
        return cls(size, changed_ns, inode)

    @property
    def changed_s(self) -> int:
        """The time when it changed last, as programs keep it that move or compress files."""
        return self.changed_ns // 1_000_000_000

    def is_as_old(self, other: SeenFile) -> bool:
        """True if both changed last at the same ns. Whole seconds show nothing: all files of an archive may have the same."""
        return self.changed_ns == other.changed_ns and self.changed_ns % 1_000_000_000 != 0

    @property
    def is_packed(self) -> bool:
        """True if the file is compressed; then its size is not that of its content."""
        return known_as(self.path) != self.path

    @property
    def stamp(self) -> str:
        return f"{self.size}-{self.changed_ns}-{self.inode}"


def list_files(system: fs.FileSystem, path: str) -> dict[str, SeenFile]:
    """The file itself, or the JSON lines files below a directory, by the names by which they are known (`known_as`). Files with other endings
    are named once."""
    info = system.get_file_info(path)
    found = [info] if info.type == fs.FileType.File else system.get_file_info(fs.FileSelector(path, recursive=True))
    files = [file for file in found if file.type == fs.FileType.File and (file is info or file.base_name[0] not in "._")]
    read = [file for file in files if file is info or known_as(file.path).endswith(ENDINGS)]
    if len(read) < len(files) and path not in _said:
        _said.add(path)
        others = sorted(
            {os.path.splitext(file.base_name)[1] or file.base_name for file in files if not known_as(file.path).endswith(ENDINGS)}
        )
        log.warning(
            "%s: %s not read, by their endings (%s); read are %s, also with %s behind it", path,
            counted(len(files) - len(read), "file"), ", ".join(others[:5]), ", ".join(ENDINGS), " or ".join(CODECS),
        )  # fmt: skip
    local = isinstance(system, fs.LocalFileSystem)
    by_name: dict[str, list[SeenFile]] = {}
    for file in sorted(read, key=lambda one: one.path):  # so that one that is not compressed comes first
        if (seen := _seen(file, local=local)) is not None:
            by_name.setdefault(known_as(file.path), []).append(seen)
    return {name: replace(first, copies=tuple(more)) if more else first for name, (first, *more) in by_name.items()}


def _seen(file: fs.FileInfo, *, local: bool) -> SeenFile | None:
    if not local:
        return SeenFile(file.size, file.mtime_ns or 0, path=file.path)
    try:
        there = os.stat(file.path)
    except FileNotFoundError:
        return None
    return SeenFile(there.st_size, there.st_mtime_ns, there.st_ino, there.st_dev, file.path)


def inode_of(name: str) -> tuple[int, int] | None:
    """Device and inode of what is on this host's disks under a name by which a file is known; None if there is nothing."""
    for ending in ("", *CODECS):
        with suppress(OSError):
            there = os.stat(name + ending)
            return there.st_dev, there.st_ino
    return None


def stem(name: str) -> str:
    """The name of a file without its folder and endings: what is put behind it when it is rotated comes after this."""
    base = os.path.basename(name)
    return base[: base.find(".", 1)] if "." in base[1:] else base


def beginnings(name: str) -> list[str]:
    """All that a file's `stem` may be that was rotated to this name."""
    base = os.path.basename(name)
    return [base[:end] for end in range(1, len(base) + 1)]


def name_of_inode(file: str, inode: int) -> str | None:
    """The other name of a file beside `file`; None if there is none, or no such folder on this host's disks."""
    with suppress(OSError), os.scandir(os.path.dirname(file)) as there:
        return next((one.path for one in there if inode and one.inode() == inode and one.path != file), None)
    return None


def tail_of(stream: Stream, position: int) -> str:
    """A fingerprint of what lies just before a position."""
    if not position:
        return ""
    begin = max(0, position - _TAIL_BYTES)
    stream.seek(begin)
    return hashlib.sha256(stream.read(position - begin)).hexdigest()[:16]


_hashing = ThreadPoolExecutor(1, "geo-hash")


class Content:
    """The SHA-256 of what was read of a file. Large parts are hashed beside whatever reads on, so that it takes no time of its own."""

    def __init__(self, begun: Any = None) -> None:
        self._hash = hashlib.sha256() if begun is None else begun
        self._last: Future[None] | None = None

    def update(self, part: bytes) -> None:
        self._wait()
        if len(part) < _LARGE_PART:
            self._hash.update(part)
        else:
            self._last = _hashing.submit(self._hash.update, part)

    def copy(self) -> Content:
        self._wait()
        return Content(self._hash.copy())

    @property
    def digest(self) -> str:
        """The hash as it is recorded."""
        self._wait()
        return str(self._hash.hexdigest()[:32])

    def _wait(self) -> None:
        last, self._last = self._last, None
        if last is not None:
            last.result()


_NOTHING = (-1, Content(), 0)


class Contents:
    """The hashes of what was read of files, with which they go on. Sent to another process it is empty."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, tuple[int, Content, int]] = OrderedDict()
        """Hashes by file: up to where, the hash, and up to where all of it was last hashed at once."""

    def __reduce__(self) -> tuple[type[Contents], tuple[()]]:
        return Contents, ()

    def may_go_on(self, file: str, position: int) -> bool:
        """True if the hash up to there is known, and the file has not doubled since all of it was hashed."""
        at, _, whole = self._known.get(file, _NOTHING)
        return at == position and position < 2 * whole

    def at(self, stream: Stream, file: str, position: int, *, reread: bool = False) -> Content:
        """The hash of all before a position, to go on with; `reread`: read again, whatever is known."""
        at, content, _ = self._known.get(file, _NOTHING)
        if reread or at != position:
            content, left = Content(), position
            stream.seek(0)
            while left and (chunk := stream.read(min(_CHUNK_BYTES, left))):
                content.update(chunk)
                left -= len(chunk)
            self.keep(file, position, content, whole=position)
        return content.copy()

    def keep(self, file: str, position: int, content: Content, *, whole: int | None = None) -> None:
        """`content` is the hash up to there. `whole`: up to where it was read at once; None: as it was."""
        before = self._known.pop(file, _NOTHING)[2]
        self._known[file] = position, content, whole if whole is not None else before or position
        if len(self._known) > _MOST_CONTENTS:
            self._known.popitem(last=False)
