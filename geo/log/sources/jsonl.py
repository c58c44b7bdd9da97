"""JSON lines as a source that knows file and line number of every row: what there is to read, and reading it, in any process.

One line is one message (geo.log.sources.json_line). A directory is read with all its `*.jsonl`, `*.json` and `*.ndjson` files, compressed ones too
(geo.log.sources.packed). New files, and lines that are added at the end of a file, are picked up. A file that was changed below what was read stops
the stream. A file that was renamed, moved or compressed goes on under its new name. Several names of one file (links, compressed copies) are one
file, and another copy is another.
"""

from __future__ import annotations

import logging
from codecs import BOM_UTF8
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import pyarrow as pa

from geo.errors import SourceChangedError
from geo.log.admission import ERROR
from geo.log.ledgers import SourceEnd
from geo.log.sources.file_identity import FileIdentity
from geo.log.sources.files import (
    SeenFile,
    list_files,
    open_path,
    tail_of,
)
from geo.log.sources.json_columns import OwnColumns
from geo.log.sources.json_line import BYTES, MAX_LINE_BYTES, MESSAGE, parse_line, parse_lines
from geo.log.sources.json_mark import MARK, SAME
from geo.log.sources.lines import hash_rest, is_inside_a_line, is_more, lines_of, refuse_longer_line, whole_lines
from geo.log.sources.packed import NotWholeError, Stream, Unpacked, known_as, open_unpacked, refuse_other_kind
from geo.log.sources.source import Place, Position

log = logging.getLogger(__name__)

FILE, LINE = "_geo_file", "_geo_line"
"""Columns of a line's place."""

BATCH_BYTES = 256 * 1024 * 1024
"""Bytes of all files together, per batch: some hundred thousand messages, a commit of some seconds."""

LEAST_SPAN_BYTES = 16 * 1024 * 1024
"""Bytes of a file, read by one task, at least. A large file is read by several, as many as there are cores, but not in smaller parts."""

_ROWS_PER_BLOCK = 2_000

FEW_BYTES = 1024 * 1024
"""A batch of up to so many bytes is read by the process that plans it: a task costs more than it saves."""

_PLACE = ((FILE, pa.string()), (LINE, pa.int64()))
_BLOCK = pa.schema([*_PLACE, *((ERROR if field.name == "error" else field.name, field.type) for field in MESSAGE)])


def block_of(own: OwnColumns) -> pa.Schema:
    """The columns of what is read for a topic."""
    return pa.schema([*_BLOCK, *((field.name, field.type) for field in own.schema)])


@dataclass(frozen=True)
class FileSpan:
    """Bytes `start..end` of what is in one file, whole lines; `line` is the number of the first, from 1. The file is at `path`."""

    file: str
    start: int
    end: int
    line: int
    path: str


class JsonLinesReader:
    """Reads a file or a directory, for a topic that has the columns `own`. The place in a file is `[bytes, lines, tail, hash, stamp]`. These are
    fingerprints of what lies just before it and of all before it, and of what the file was then (`SeenFile`. Of a compressed one that is read in
    part without its size). Places of before have none of the last two. A last line without its newline is waited for. In a run that ends
    (`end_here`) it is taken if it is a whole message, and else left for a later run. A compressed file is read once it is whole, and its last line
    with it. May be sent to another process."""

    def __init__(self, path: str, batch_bytes: int, span_bytes: int, own: OwnColumns = BYTES) -> None:
        self._path, self._batch_bytes, self._span_bytes, self._own = path, batch_bytes, span_bytes, own
        self.blocks = block_of(own)
        self._end: Mapping[str, SeenFile] | None = None
        self._listed: Mapping[str, SeenFile] | None = None
        """Files that were listed for the next batch."""
        self._begun: Position = {}
        """The place where files of the batch that is planned go on that were published under other names."""
        self._paths: dict[str, str] = {}
        """The place where the files of that batch are."""
        self._sizes: dict[str, tuple[str, int]] = {}
        """Sizes of the contents of compressed files, with the stamp of the file of which each was found."""
        self._copies: dict[str, str] = {}
        """The stamps of compressed copies that hold nothing that the file does not."""
        self._identity = FileIdentity()
        self._unchanged: dict[str, str] = {}
        """The stamps of files that were read again and are what was published, though they look otherwise."""
        self._inner = ""
        """The path as its file system has it, once somebody asked."""
        self._left: set[str] = set()
        """Files of which it was said that something is left for later."""

    def place_of(self, source: str, end: SourceEnd) -> Place | None:
        """Tells where a file goes on that is published up to `end`; None if the end does not say."""
        found = MARK.fullmatch(end.parts[-1])
        return (
            None if found is None else [int(found[1]), int(found[2]), *(text for text in found.groups()[2:] if text is not None)]
        )

    def has(self, source: str) -> bool:
        """True for the file, or a file of the directory."""
        self._inner = self._inner or open_path(self._path)[1].rstrip("/")
        return source == known_as(self._inner) or source.startswith(f"{self._inner}/")

    def say(self, source: str, place: Place) -> str:
        """Show a place as file and line."""
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
        listed, self._listed = self._listed or self._list(), None
        end, left = dict(start), self._batch_bytes
        others, self._begun, self._paths = self._identity.other_places(start, listed), {}, {}
        for file, listed_as in sorted(listed.items()):
            if left <= 0 or file in self._identity.other_names:
                continue
            seen, own = self._longest(file, listed_as), start.get(file)
            if self._is_known(file, seen, own) or (size := self._size_of(file, seen)) is None or (own is None and not size):
                continue
            with self._open(seen.path or file) as stream:
                place = self._identity.furthest(stream, file, own, others.get(file, ()), seen, size)
                position, lines = place[:2] if place is not None else (0, 0)
                if place is not None and place is not own:
                    self._begun[file] = place
                    end[file] = [*place[:4], seen.stamp if size == position else place[4]]  # known by this name from now on
                if size == position:
                    self._unchanged[file] = seen.stamp
                    continue
                if place is None:
                    stream.seek(0)
                    refuse_other_kind(seen.path or file, stream.read(8))
                inside = is_inside_a_line(stream, position)
                if inside:
                    refuse_longer_line(stream, file, position, size, lines)
                content = self._identity.contents.at(stream, file, position)
                stop, counted, has_tail = whole_lines(stream, position, min(size, position + left), size, content)
                counted -= inside and stop > position  # its newline ends a line that is counted
                is_last = has_tail and (stop > position or not inside)
                if is_last and (seen.is_packed or (self._end is not None and self._takes(stream, file, stop, size))):
                    hash_rest(content, stream, stop, size)
                    stop, counted = size, counted + 1
                if stop > position:
                    self._identity.contents.keep(file, stop, content)
                    stamp = seen.stamp if stop == size or not seen.is_packed else replace(seen, size=0).stamp
                    end[file] = [stop, lines + counted, tail_of(stream, stop), content.digest, stamp]
                    self._paths[file] = seen.path or file
                    left -= stop - position
        return end

    def _open(self, path: str) -> Stream:
        return open_unpacked(open_path(self._path)[0], path)

    def _is_known(self, file: str, seen: SeenFile, place: Place | None) -> bool:
        """True if all of a file was read, by what it looks like."""
        if seen.stamp == self._unchanged.get(file):
            return True
        return place is not None and (seen.is_packed or seen.size == place[0]) and seen.stamp in place[4:]

    def _size_of(self, file: str, seen: SeenFile) -> int | None:
        """Return the size of a file's content.

        None: it is not known, since somebody is compressing the file.
        """
        if not seen.is_packed:
            return seen.size
        stamp, size = self._sizes.get(file, ("", 0))
        if stamp != seen.stamp:
            try:
                with Unpacked(open_path(self._path)[0], seen.path) as stream:
                    size = stream.size()
            except NotWholeError:
                self._leave(seen.path, "it is not whole, and is left for a later run")
                return None
            self._sizes[file] = seen.stamp, size
        return size

    def _longest(self, file: str, seen: SeenFile) -> SeenFile:
        """Choose, of a file that is there compressed too, the one that holds most. Raises SourceChangedError if they differ otherwise."""
        found = seen
        for copy in seen.copies:
            # Who compresses a file gives what comes of it the same time.
            if self._copies.get(copy.path) == copy.stamp or (copy.inode and copy.is_as_old(seen)):
                continue
            try:
                with self._open(found.path) as ours, self._open(copy.path) as other:
                    more = is_more(ours, other)
            except NotWholeError:
                continue
            if more is None:
                raise SourceChangedError(
                    f"{copy.path}: is called as what comes of compressing {file}, and holds other lines than {found.path}. Nothing of both was "
                    "published from there on. Give one of them another name."
                )
            if more:
                found = copy
            else:
                self._copies[copy.path] = copy.stamp
        return found

    def _takes(self, stream: Stream, file: str, stop: int, size: int) -> bool:
        """True if the last line, which has no newline, is a whole message: somebody may be writing it."""
        stream.seek(stop)
        line = stream.read(min(size - stop, MAX_LINE_BYTES + 1))
        try:
            parse_line(line if stop else line.removeprefix(BOM_UTF8), self._own)
        except ValueError as error:
            if line.strip():
                self._leave(file, f"the last line has no newline and is no message yet, so it is left for a later run: {error}")
            return False
        return True

    def _leave(self, file: str, why: str) -> None:
        """Say once that something is not read now."""
        if file not in self._left:
            self._left.add(file)
            log.warning("%s: %s", file, why)

    def part_of(self, position: Position) -> float | None:
        """Return the part of the bytes of all files."""
        if self._end is None:
            return None
        sizes = {file: self._sizes[file][1] if file in self._sizes else seen.size for file, seen in self._end.items()}
        done = sum(min(size, position[file][0]) for file, size in sizes.items() if file in position)
        return done / total if (total := sum(sizes.values())) else None

    def spans(self, start: Position, end: Position) -> list[FileSpan]:
        """Return the bytes that are read between two positions."""
        spans: list[FileSpan] = []
        for file, (stop, *_) in sorted(end.items()):
            position, lines, *_ = self._begun.get(file) or start.get(file) or (0, 0)
            path = self._paths.get(file, file)
            if stop - position > self._span_bytes and path == file:
                spans += self._split(file, position, stop, lines + 1)
            elif stop > position:
                spans.append(FileSpan(file, position, stop, lines + 1, path))
        return spans

    def _split(self, file: str, position: int, stop: int, line: int) -> Iterator[FileSpan]:
        """A span in several, each of whole lines. `line` is the number of the first, as FileSpan has it."""
        with self._open(file) as stream:
            line -= is_inside_a_line(stream, position)  # from here on the number of the line at `position`, whole or not
            while position < stop:
                end, count, has_tail = whole_lines(stream, position, min(stop, position + self._span_bytes), stop)
                end = stop if has_tail else end
                yield FileSpan(file, position, end, line + is_inside_a_line(stream, position), file)
                position, line = end, line + count

    def are_few(self, spans: Sequence[FileSpan]) -> bool:
        """True if the process that planned the spans reads them itself."""
        return sum(span.end - span.start for span in spans) <= FEW_BYTES

    def close(self) -> None:
        """Nothing is kept open."""

    def read(self, span: FileSpan) -> Iterator[pa.RecordBatch]:
        """The lines, in order, as `block_of`."""
        with self._open(span.path) as stream:
            first = span.line - is_inside_a_line(stream, span.start)
            numbered = (
                (number, line) for number, line in enumerate(lines_of(stream, span.start, span.end), first) if line.strip()
            )
            while block := list(islice(numbered, _ROWS_PER_BLOCK)):
                numbers, lines = zip(*block, strict=True)
                place = [pa.repeat(pa.scalar(span.file), len(block)), pa.array(numbers, pa.int64())]
                yield pa.RecordBatch.from_arrays([*place, *parse_lines(lines, self._own)], schema=self.blocks)
