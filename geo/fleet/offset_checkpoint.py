"""A file of offsets by topic and partition, in Kafka's format version 0 (kafka.server.checkpoints.OffsetCheckpointFile).

    0
    2
    persistent://shop/web/clicks 0 4711
    persistent://shop/web/orders 3 12

A version, a count, and so many lines of topic, partition and offset. It is an export for scheduled jobs and other programs, and may be old. What a
link has replicated is said by its target's commits alone.
"""

from __future__ import annotations

import re
import secrets
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from glob import escape
from pathlib import Path
from typing import TextIO

from geo.disk import sync
from geo.errors import OffsetFileError
from geo.now import now_s

VERSION = 0

_LONGEST_LINE = 4096
_NUMBER = re.compile(r"[+-]?[0-9]{1,19}")
_SPACE = re.compile(r"[ \t\n\x0b\f\r]+")
"""White space as Java's regular expressions have it."""

_LEFT_S = 3600.0
"""A temporary file of that age was left by a process that was killed."""

Offsets = Mapping[tuple[str, int], int]


class OffsetCheckpoint:
    """One file. Creating the object touches nothing.

    A reader sees the offsets of one `write` whole, or those of the one before, whenever the writer dies; also of several writers.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._alone = threading.Lock()

    def write(self, offsets: Offsets) -> None:
        """Replace all that is in the file. Durable when it returns. Raises OffsetFileError for what the file cannot hold, and OSError (a full
        disk). Then the file is as it was, or, where its folder cannot be synced, as it was to be."""
        lines = [self._line(topic, partition, offset) for (topic, partition), offset in sorted(offsets.items())]
        with self._alone:
            self._remove_left()
            new = self.path.with_name(f".{self.path.name}.{secrets.token_hex(8)}.tmp")
            try:
                with open(new, "x", encoding="utf-8", newline="\n") as file:
                    file.writelines(f"{line}\n" for line in (VERSION, len(lines), *lines))
                sync([new])
                new.replace(self.path)
            except BaseException:
                new.unlink(missing_ok=True)
                raise
            sync([self.path.parent])

    def read(self) -> dict[tuple[str, int], int]:
        """Offsets that were written last; nothing if there is no file, or one with no count yet. Raises OffsetFileError naming the line where it is
        of another version, malformed, or shorter or longer than its count. So it does where a partition is named twice (where Kafka's reader takes
        the last).
        """
        try:
            # As Java's readers: a line ends at a line feed, a carriage return, or both.
            with open(self.path, encoding="utf-8", newline=None) as file:
                return self._parsed(self._lines(file))
        except FileNotFoundError:
            return {}
        except UnicodeDecodeError:
            raise self._wrong("it is no UTF-8") from None

    def _line(self, topic: str, partition: int, offset: int) -> str:
        line, why = f"{topic} {partition} {offset}", None
        if not topic or _SPACE.search(topic):
            why = "the topic is empty or has white space"
        elif len(line) > _LONGEST_LINE:
            why = f"it is longer than {_LONGEST_LINE:,} characters"
        elif not _fits(partition, 31) or not _fits(offset, 63):
            why = "the partition has more than 32 bits, or the offset more than 64"
        elif not line.isprintable():
            why = "the topic has characters that cannot be written"
        if why is not None:
            raise OffsetFileError(f"{self.path}: {line[:200]!r} cannot be a line of it: {why}. Nothing was written.")
        return line

    def _parsed(self, lines: Iterator[tuple[int, str]]) -> dict[tuple[str, int], int]:
        version = next(lines, None)
        if version is None:
            return {}
        if self._number(version, version[1], 31) != VERSION:
            raise self._wrong(f"unrecognised version {version[1]}, expected {VERSION}")
        if (count := next(lines, None)) is None:
            return {}
        expected = self._number(count, count[1], 31)
        offsets: dict[tuple[str, int], int] = {}
        for line in lines:
            words = _SPACE.split(line[1].rstrip(" \t\x0b\f"))
            if len(words) != 3 or not words[0]:
                raise self._malformed(line)
            key = words[0], self._number(line, words[1], 31)
            if key in offsets:
                raise self._wrong(f"line {line[0]} names partition {key[1]} of {key[0]} once more")
            offsets[key] = self._number(line, words[2], 63)
        if len(offsets) != expected:
            raise self._wrong(f"expected {expected} entries, found {len(offsets)}")
        return offsets

    def _lines(self, file: TextIO) -> Iterator[tuple[int, str]]:
        for number, line in enumerate(iter(lambda: file.readline(_LONGEST_LINE + 2), ""), 1):
            if len(line) > _LONGEST_LINE + 1:
                raise self._malformed((number, line))
            yield number, line.removesuffix("\n")

    def _number(self, line: tuple[int, str], text: str, bits: int) -> int:
        if not _NUMBER.fullmatch(text) or not _fits(number := int(text), bits):
            raise self._malformed(line)
        return number

    def _malformed(self, line: tuple[int, str]) -> OffsetFileError:
        return self._wrong(f"malformed line {line[0]}: {line[1][:80]!r}")

    def _wrong(self, what: str) -> OffsetFileError:
        return OffsetFileError(f"{self.path}: {what}. Nothing of it is used. Put back the file that was written, or remove it.")

    def _remove_left(self) -> None:
        for left in self.path.parent.glob(f".{escape(self.path.name)}.*.tmp"):
            with suppress(FileNotFoundError):
                if now_s() - left.stat().st_mtime > _LEFT_S:
                    left.unlink()


def _fits(number: int, bits: int) -> bool:
    return -(1 << bits) <= number < 1 << bits
