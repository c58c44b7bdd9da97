"""The place where lines begin and end in what is in a file, and what lies before and behind a place in it."""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Iterator, Sequence

from geo.errors import SourceChangedError
from geo.log.sources.files import Content
from geo.log.sources.json_line import MAX_LINE_BYTES
from geo.log.sources.packed import Stream

_LINE_BYTES = 4096
_CHUNK_BYTES = 1024 * 1024


def is_inside_a_line(stream: Stream, position: int) -> bool:
    """True if the line before `position` had no newline when it was read."""
    if not position:
        return False
    stream.seek(position - 1)
    return bool(stream.read(1) != b"\n")


def refuse_longer_line(stream: Stream, file: str, position: int, size: int, lines: int) -> None:
    """Raises SourceChangedError if more than its newline was added to the line that ended at `position`."""
    stream.seek(position)
    rest = stream.read(min(size - position, _LINE_BYTES)).partition(b"\n")[0]
    if rest.strip():
        raise SourceChangedError(
            f"{file}: line {lines} was a whole message without a newline when it was published, and goes on now. Nothing was skipped or "
            "published. Give the new content a name of its own, or publish it with another --producer."
        )


def whole_lines(stream: Stream, position: int, wanted: int, size: int, content: Content | None = None) -> tuple[int, int, bool]:
    """Tells where the last whole line at or after `wanted` ends, but one at least. How many lines that makes; and whether all that comes behind is
    a line without its newline. `content`: a hash, which gets these lines."""
    stream.seek(position)
    at, end, count = position, position, 0
    rest: list[bytes] = []
    while at < size and (at < wanted or end < wanted):
        chunk = stream.read(min(_CHUNK_BYTES, size - at))
        if not chunk:
            break
        if at + len(chunk) >= wanted and (cut := chunk.find(b"\n", max(0, wanted - at - 1))) >= 0:
            _hash(content, [*rest, chunk[: cut + 1]])
            return at + cut + 1, count + chunk.count(b"\n", 0, cut + 1), False
        if (newline := chunk.rfind(b"\n")) >= 0:
            end = at + newline + 1
            _hash(content, [*rest, chunk[: newline + 1]])
            rest = []
        rest.append(chunk[newline + 1 :])
        count += chunk.count(b"\n")
        at += len(chunk)
    return end, count, at > end


def _hash(content: Content | None, parts: Sequence[bytes]) -> None:
    if content is not None:
        for part in parts:
            content.update(part)


def hash_rest(content: Content, stream: Stream, start: int, end: int) -> None:
    stream.seek(start)
    while start < end and (chunk := stream.read(min(_CHUNK_BYTES, end - start))):
        content.update(chunk)
        start += len(chunk)


def is_more(ours: Stream, other: Stream) -> bool | None:
    """True if one holds what the other does, and more.

    None: they differ before one of them ends.
    """
    while True:
        mine, theirs = ours.read(_CHUNK_BYTES), other.read(_CHUNK_BYTES)
        both = min(len(mine), len(theirs))
        if mine[:both] != theirs[:both]:
            return None
        if len(mine) != len(theirs) or not both:
            return len(theirs) > len(mine)


def lines_of(stream: Stream, start: int, end: int) -> Iterator[bytes]:
    """The lines; of one that is too long no more than shows that. A byte order mark in front of the first is none of its text."""
    stream.seek(start)
    parts: list[bytes] = []
    held, at, mark = 0, start, b"" if start else BOM_UTF8
    while at < end:
        chunk = stream.read(min(_CHUNK_BYTES, end - at))
        if not chunk:
            raise SourceChangedError(f"the file ends at byte {at}, it was {end} bytes long when the batch was planned.")
        at += len(chunk)
        first, *more = chunk.split(b"\n")
        if held <= MAX_LINE_BYTES:
            parts.append(first)
            held += len(first)
        if more:
            yield b"".join(parts).removeprefix(mark)
            yield from more[:-1]
            parts, held, mark = [more[-1]], len(more[-1]), b""
    if held:
        yield b"".join(parts).removeprefix(mark)
