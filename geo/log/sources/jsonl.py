"""JSON lines as a source that knows file and line number of every row: what there is to read, and reading it, in any process.

One line is one message (geo.log.sources.json_line). A directory is read with all its `*.jsonl`, `*.json` and `*.ndjson` files;
new files, and lines that are added at the end of a file, are picked up. A file that was changed below what was read stops
the stream. A file that was renamed goes on under its new name; several names of one file (links) are one file, and a copy is another.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import pyarrow as pa

from geo.errors import SourceChangedError
from geo.log.admission import ERROR
from geo.log.ledgers import SourceEnd
from geo.log.sources.files import Content, Contents, SeenFile, list_files, open_path, tail_of
from geo.log.sources.json_line import MAX_LINE_BYTES, MESSAGE, parse_line, parse_lines
from geo.log.sources.json_mark import MARK, SAME
from geo.log.sources.source import Place, Position

log = logging.getLogger(__name__)

FILE, LINE = "_geo_file", "_geo_line"
"""Columns of a line's place."""

BATCH_BYTES = 256 * 1024 * 1024
"""Of all files together, per batch: some hundred thousand messages, a commit of some seconds."""

LEAST_SPAN_BYTES = 16 * 1024 * 1024
"""Of a file, read by one task: a large one is read by several, as many as there are cores, but not in smaller parts."""

_LINE_BYTES = 4096
_CHUNK_BYTES = 1024 * 1024
_ROWS_PER_BLOCK = 2_000

FEW_BYTES = 1024 * 1024
"""A batch of up to so many bytes is read by the process that plans it: a task costs more than it saves."""

_PLACE = ((FILE, pa.string()), (LINE, pa.int64()))
BLOCK = pa.schema([*_PLACE, *((ERROR if field.name == "error" else field.name, field.type) for field in MESSAGE)])


@dataclass(frozen=True)
class FileSpan:
    """Bytes `start..end` of one file, whole lines; `line` is the number of the first, from 1."""

    file: str
    start: int
    end: int
    line: int


class JsonLinesReader:
    """Reads a file or a directory. The place in a file is `[bytes, lines, tail, hash, stamp]`: fingerprints of what lies just before it and of all
    before it, and of what the file was when it was seen so (`SeenFile`). Places of before have none of the last two. A last line without its newline is waited for; in a run that ends
    (`end_here`) it is taken if it is a whole message, and else left for a later run. May be sent to another process."""

    blocks = BLOCK

    def __init__(self, path: str, batch_bytes: int, span_bytes: int) -> None:
        self._path, self._batch_bytes, self._span_bytes = path, batch_bytes, span_bytes
        self._end: Mapping[str, SeenFile] | None = None
        self._listed: Mapping[str, SeenFile] | None = None
        """What was listed for the next batch."""
        self._begun: Position = {}
        """Where files go on that were published under other names, as of the batch that is planned."""
        self._contents = Contents()
        self._unchanged: dict[str, str] = {}
        """The stamps of files that were read again and are what was published, though they look otherwise."""
        self._other_names: set[str] = set()
        """Files of which it was said what else they are called."""
        self._inner = ""
        """The path as its file system has it, once somebody asked."""
        self._left: set[str] = set()
        """Files of which it was said that their last line is left for later."""

    def place_of(self, source: str, end: SourceEnd) -> Place | None:
        """Where a file goes on that is published up to `end`; None if the end does not say."""
        found = MARK.fullmatch(end.parts[-1])
        return (
            None if found is None else [int(found[1]), int(found[2]), *(text for text in found.groups()[2:] if text is not None)]
        )

    def has(self, source: str) -> bool:
        """Whether it is the file, or a file of the directory."""
        self._inner = self._inner or open_path(self._path)[1].rstrip("/")
        return source == self._inner or source.startswith(f"{self._inner}/")

    def say(self, source: str, place: Place) -> str:
        """As file and line."""
        return f"{source} from line {place[1] + 1}"

    def mark_of(self, place: Place) -> str:
        """The place as text."""
        return ":".join(map(str, place))

    def begin(self, known: Position) -> Position:
        """The position at which to begin."""
        return known

    def unread(self, position: Position) -> Collection[str]:
        """The files that are not in the position, and the names by which they are known whatever they are called."""
        self._listed = self._list()
        new = {file: seen for file, seen in self._listed.items() if file not in position}
        return [*new, *(f"{SAME}{seen.stamp}" for seen in new.values() if seen.inode)]

    def _list(self) -> Mapping[str, SeenFile]:
        return self._end if self._end is not None else list_files(*open_path(self._path))

    def end_here(self) -> None:
        """Read no further than what is there now."""
        self._end = list_files(*open_path(self._path))

    def next(self, start: Position) -> Position:
        """The position up to which the next batch is read. Raises SourceChangedError for a file that was changed below
        `start`."""
        system, _ = open_path(self._path)
        listed, self._listed = self._listed or self._list(), None
        end, left = dict(start), self._batch_bytes
        self._begun = renamed = self._renamed(start, listed)
        for file, seen in sorted(listed.items()):
            size, place = seen.size, start.get(file) or renamed.get(file)
            position, lines = place[:2] if place is not None else (0, 0)
            is_known = place is not None and size == position and seen.stamp in (*place[4:], self._unchanged.get(file))
            if left <= 0 or file in self._other_names or (place is None and not size) or is_known:
                continue
            with system.open_input_file(file) as stream:
                if place is not None and not self._is_as_read(stream, file, place, seen):
                    if file not in start:  # another file with the number of one that is gone
                        position, lines, place = 0, 0, None
                        del renamed[file]
                    else:
                        raise SourceChangedError(
                            f"{file}: was changed below line {lines + 1}, which is where publishing had come to. Nothing was skipped "
                            "or published. Give the new content a name of its own, or publish it with another --producer."
                        )
                if size == position:
                    self._unchanged[file] = seen.stamp
                    continue
                content = self._contents.at(stream, file, position)
                stop, counted, has_tail = _whole_lines(stream, position, min(size, position + left), size, content)
                inside = _is_inside_a_line(stream, position)
                if inside:
                    _refuse_longer_line(stream, file, position, size, lines)
                    counted -= stop > position  # its newline ends a line that is counted
                if (
                    has_tail
                    and self._end is not None
                    and (stop > position or not inside)
                    and self._takes(stream, file, stop, size)
                ):
                    stream.seek(stop)
                    content.update(stream.read(size - stop))
                    stop, counted = size, counted + 1
                if stop > position:
                    if file in renamed:
                        log.info("%s: was published under another name up to line %d, and goes on from there", file, lines)
                    self._contents.keep(file, stop, content)
                    end[file] = [stop, lines + counted, tail_of(stream, stop), content.told, seen.stamp]
                    left -= stop - position
        return end

    def _is_as_read(self, stream: pa.NativeFile, file: str, place: Place, seen: SeenFile) -> bool:
        """Whether all of a file before a place is what it was when that was read. Of a place of before only its last bytes are known."""
        position, _, tail, *more = place
        if seen.size < position or tail_of(stream, position) != tail:
            return False
        if not more or seen.stamp == more[1] or (seen.size > position and self._contents.may_go_on(file, position)):
            return True
        return self._contents.at(stream, file, position, anew=True).told == str(more[0])

    def _renamed(self, start: Position, listed: Mapping[str, SeenFile]) -> Position:
        """By files that are not in `start` where they go on, since they are there under names that are gone. What has two names that are
        both there is read under one of them, the known one or else the first.

        By its inode; whether it has the content, too, the caller looks. A file that did not grow must be as old as it was: the
        number of a file that was removed may be given to a new one.
        """
        inodes: dict[tuple[int, int], str] = {}
        for file, seen in sorted(listed.items(), key=lambda one: (one[0] not in start, one[0])):
            if seen.inode and (other := inodes.setdefault((seen.device, seen.inode), file)) != file and file not in start:
                if file not in self._other_names:
                    self._other_names.add(file)
                    log.warning("%s: is another name of %s, and is not read again", file, other)
            elif file in self._other_names:
                self._other_names.remove(file)
        new = {seen.inode: file for file, seen in listed.items() if file not in start and file not in self._other_names}
        found: Position = {}
        for name, place in start.items() if new else ():
            file = new.get(int(place[4].rpartition("-")[2]), "") if len(place) > 4 else ""
            if not file or (name in listed and listed[name].is_same_file(listed[file])):
                continue
            grew = listed[file].size > place[0]
            if (grew or listed[file].stamp == place[4]) and (file not in found or found[file][0] < place[0]):
                found[file] = place
        return found

    def _takes(self, stream: pa.NativeFile, file: str, stop: int, size: int) -> bool:
        """Whether the last line, which has no newline, is a whole message: somebody may be writing it."""
        stream.seek(stop)
        line = stream.read(min(size - stop, MAX_LINE_BYTES + 1))
        try:
            parse_line(line)
        except ValueError as error:
            if line.strip() and file not in self._left:
                self._left.add(file)
                log.warning("%s: the last line has no newline and is left for a later run: %s", file, error)
            return False
        return True

    def part_of(self, position: Position) -> float | None:
        """As the part of the bytes of all files."""
        if self._end is None or not (total := sum(seen.size for seen in self._end.values())):
            return None
        done: int = sum(position[file][0] for file in self._end if file in position)
        return done / total

    def spans(self, start: Position, end: Position) -> list[FileSpan]:
        """What is read between two positions."""
        spans: list[FileSpan] = []
        for file, (stop, *_) in sorted(end.items()):
            position, lines, *_ = start.get(file) or self._begun.get(file) or (0, 0)
            if stop - position > self._span_bytes:
                spans += self._split(file, position, stop, lines + 1)
            elif stop > position:
                spans.append(FileSpan(file, position, stop, lines + 1))
        return spans

    def _split(self, file: str, position: int, stop: int, line: int) -> Iterator[FileSpan]:
        """A span in several, each of whole lines. `line` is the number of the first, as FileSpan has it."""
        system, _ = open_path(self._path)
        with system.open_input_file(file) as stream:
            line -= _is_inside_a_line(stream, position)  # from here on the number of the line at `position`, whole or not
            while position < stop:
                end, count, has_tail = _whole_lines(stream, position, min(stop, position + self._span_bytes), stop)
                end = stop if has_tail else end
                yield FileSpan(file, position, end, line + _is_inside_a_line(stream, position))
                position, line = end, line + count

    def are_few(self, spans: Sequence[FileSpan]) -> bool:
        """Whether the process that planned them reads them itself."""
        return sum(span.end - span.start for span in spans) <= FEW_BYTES

    def close(self) -> None:
        """Nothing is kept open."""

    def read(self, span: FileSpan) -> Iterator[pa.RecordBatch]:
        """The lines, in order, as BLOCK."""
        system, _ = open_path(self._path)
        with system.open_input_file(span.file) as stream:
            first = span.line - _is_inside_a_line(stream, span.start)
            numbered = ((number, line) for number, line in enumerate(_lines(stream, span.start, span.end), first) if line.strip())
            while block := list(islice(numbered, _ROWS_PER_BLOCK)):
                numbers, lines = zip(*block, strict=True)
                place = [pa.repeat(pa.scalar(span.file), len(block)), pa.array(numbers, pa.int64())]
                yield pa.RecordBatch.from_arrays([*place, *parse_lines(lines).columns], schema=BLOCK)


def _is_inside_a_line(stream: pa.NativeFile, position: int) -> bool:
    """Whether the line before `position` had no newline when it was read."""
    if not position:
        return False
    stream.seek(position - 1)
    return bool(stream.read(1) != b"\n")


def _refuse_longer_line(stream: pa.NativeFile, file: str, position: int, size: int, lines: int) -> None:
    """Raises SourceChangedError if more than its newline was added to the line that ended at `position`."""
    stream.seek(position)
    rest = stream.read(min(size - position, _LINE_BYTES)).partition(b"\n")[0]
    if rest.strip():
        raise SourceChangedError(
            f"{file}: line {lines} was a whole message without a newline when it was published, and goes on now. Nothing was skipped or "
            "published. Give the new content a name of its own, or publish it with another --producer."
        )


def _whole_lines(
    stream: pa.NativeFile, position: int, wanted: int, size: int, content: Content | None = None
) -> tuple[int, int, bool]:
    """Where the last whole line at or after `wanted` ends, but one at least; how many lines that makes; and whether all that
    comes behind is a line without its newline. `content`: a hash, which gets these lines."""
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


def _lines(stream: pa.NativeFile, start: int, end: int) -> Iterator[bytes]:
    stream.seek(start)
    rest, at = b"", start
    while at < end:
        chunk = stream.read(min(_CHUNK_BYTES, end - at))
        if not chunk:
            raise SourceChangedError(f"the file ends at byte {at}, it was {end} bytes long when the batch was planned.")
        at += len(chunk)
        *lines, rest = (rest + chunk).split(b"\n")
        yield from lines
    if rest:
        yield rest
