"""Holds the new rows of a part of a batch in a file, and reports how many there are of each ledger and in which order.

A task does that, or this process. From the reports on all parts the entry of every row follows. Blocks of Arrow in, lines of
Arrow out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from operator import xor
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from geo.log.admission import ERROR
from geo.log.ledgers import LedgerKey, Span
from geo.log.numbering.runs import FALLS, NEXT, steps_between
from geo.log.numbering.tallies import Alike, Rejected, ordered
from geo.log.source_identity import HASH, PUBLISHED, SOURCE

KEY = "_geo_key"
"""Column of a ledger key as a number: rows of one ledger have the same."""

OFFSET_PART, TEXT_PART = "_geo_o", "_geo_t"
"""Columns of the parts of an offset, as they are and as text, each with its number. Flat, since on its way to Python a column
with structure costs microseconds a row."""

FIRST, LAST, LAST_TEXT = "first", "last", "text"
"""Columns of a report: the offset of the first row, that of the last row, and that as text. Each has a column for each part."""

REPORT = {
    "file": pa.string(),
    "partition": pa.int32(),
    "code": pa.int64(),
    "source": pa.string(),
    "replicate_to": pa.list_(pa.string()),
    "bad": pa.bool_(),
    "is_published": pa.bool_(),
    "rows": pa.int64(),
    "hash": pa.int64(),
    "falls": pa.bool_(),
    "reason": pa.string(),
    "key": pa.string(),
}
"""The other columns of a report. It is a line for each part and for each rejected row, or one line where the rows are not in
order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldPart(Alike):
    """Of one Spark partition, or of what this process read, in the order of their offsets, which are as `ordered`. `code` is
    their ledger key as a number. The new ones among them are in `file`."""

    file: str
    partition: int
    code: int


class Order:
    """Whether the rows of each source come in the order of their offsets, a block after the other."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[Any, ...]] = {}
        """The last offset of each source, as `ordered`."""

    def rises(self, sources: pa.Array, *offsets: pa.Array) -> bool:
        """Whether those of the next block rise too. One row at least."""
        steps = steps_between([sources, *offsets])
        if pc.any(pc.equal(steps, FALLS)).as_py():
            return False
        begins = [0, *(at + 1 for at in pc.indices_nonzero(pc.not_equal(steps, NEXT)).to_pylist()), len(sources)]
        for first, end in pairwise(begins):
            source = sources[first].as_py()
            before = self._last.get(source)
            if before is not None and before >= ordered(_row(offsets, first)):
                return False
            self._last[source] = ordered(_row(offsets, end - 1))
        return True


class Holding:
    """Holds rows in a file of Arrow's: their columns `columns`, those of the log, and KEY. With `unique`, offsets of a source
    must rise."""

    def __init__(self, file: str, partition: int, columns: Sequence[str], *, unique: bool) -> None:
        self._file, self._partition, self._columns, self._unique = file, partition, columns, unique
        self._found: dict[tuple[LedgerKey, bool, bool], dict[str, Any]] = {}
        self._order = Order()

    def hold(self, blocks: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yields the report on all rows, which are held once it ends.

        Blocks have SOURCE, HASH, ERROR, PUBLISHED, KEY, the columns of OFFSET_PART and TEXT_PART, and `columns`.
        """
        writer: pa.RecordBatchFileWriter | None = None
        with pa.OSFile(self._file, "wb") as into:
            for block in blocks:
                if not len(block):
                    continue
                taken = pa.schema([block.schema.field(name) for name in (*self._columns, KEY)])
                if writer is None:
                    writer = pa.ipc.new_file(into, taken)
                self._offsets = [block[name] for name in block.schema.names if name.startswith(OFFSET_PART)]
                self._texts = [block[name] for name in block.schema.names if name.startswith(TEXT_PART)]
                if self._unique and not self._order.rises(block[SOURCE], *self._offsets):
                    yield self._line(falls=True)
                    break
                bad, published = block[ERROR].is_valid(), block[PUBLISHED]
                self._count(block, bad, published)
                new, rows = pc.invert(pc.or_(bad, published)), block.select(taken.names)
                for first, end in pairwise(begins_of([new])):
                    if new[first].as_py():  # a filter would give the fields of a map other names
                        writer.write_batch(rows.slice(first, end - first))
                yield from self._rejected(block, pc.and_(bad, pc.invert(published)))
            else:
                for (ledger, bad_, published_), part in self._found.items():
                    yield self._line(
                        file=self._file,
                        partition=self._partition,
                        source=ledger.source,
                        replicate_to=ledger.listed,
                        bad=bad_,
                        is_published=published_,
                        **part,
                    )
            if writer is not None:
                writer.close()

    def _rejected(self, block: pa.RecordBatch, wanted: pa.Array) -> Iterator[pa.RecordBatch]:
        """A line for each of the rows that are wanted, as one block."""
        rows = block.filter(wanted)
        if len(rows):
            found = {"source": rows[SOURCE], "reason": rows[ERROR]}
            found |= {"key": rows["key"]} if "key" in rows.schema.names else {}
            found |= {f"{LAST_TEXT}{at}": rows[f"{TEXT_PART}{at}"] for at in range(len(self._texts))}
            kinds = self._line().schema
            yield pa.record_batch([found.get(field.name, pa.nulls(len(rows), field.type)) for field in kinds], schema=kinds)

    def _count(self, block: pa.RecordBatch, bad: pa.Array, published: pa.Array) -> None:
        """Add rows that are alike and follow each other to what is known of those like them."""
        keys, hashes = block[KEY], block[HASH].to_pylist()
        aims = block["replicate_to"] if "replicate_to" in block.schema.names else None
        for first, end in pairwise(begins_of([keys, bad, published])):
            ledger = LedgerKey.of(block[SOURCE][first].as_py(), None if aims is None else aims[first].as_py())
            kind = (ledger, bad[first].as_py(), published[first].as_py())
            part = self._found.get(kind)
            if part is None:
                part = self._found[kind] = {"code": keys[first].as_py(), "rows": 0, "hash": 0, FIRST: _row(self._offsets, first)}
            part["rows"] += end - first
            part["hash"] = reduce(xor, hashes[first:end], part["hash"])
            part[LAST], part[LAST_TEXT] = _row(self._offsets, end - 1), _row(self._texts, end - 1)

    def _line(self, **said: Any) -> pa.RecordBatch:
        columns = {name: pa.array([said.get(name)], kind) for name, kind in REPORT.items()}
        for name, kinds in ((FIRST, self._offsets), (LAST, self._offsets), (LAST_TEXT, self._texts)):
            row = said.get(name) or [None] * len(kinds)
            columns |= {f"{name}{at}": pa.array([value], of.type) for at, (value, of) in enumerate(zip(row, kinds, strict=True))}
        return pa.record_batch(columns)


def parsed_reports(lines: Sequence[Mapping[str, Any]]) -> tuple[list[HeldPart], list[Rejected]] | None:
    """The parts and the rejected rows of all reports. None if some rows are not in order."""
    if any(line["falls"] for line in lines):
        return None
    parts = [
        HeldPart(
            file=line["file"],
            partition=line["partition"],
            code=line["code"],
            key=LedgerKey.of(line["source"], line["replicate_to"]),
            bad=line["bad"],
            is_published=line["is_published"],
            rows=line["rows"],
            hash=line["hash"],
            first=ordered(_offset(line, FIRST)),
            last=ordered(_offset(line, LAST)),
            last_text=_offset(line, LAST_TEXT),
        )
        for line in lines
        if line["reason"] is None
    ]
    rejected = [
        Rejected(line["source"], _offset(line, LAST_TEXT), line["reason"], line["key"])
        for line in lines
        if line["reason"] is not None
    ]
    return parts, rejected


def are_apart(parts: Sequence[HeldPart]) -> bool:
    """Whether of each source the rows of a Spark partition all lie above those of another one, or below."""
    spans: dict[tuple[str, int], list[tuple[Any, ...]]] = {}
    for part in parts:
        spans.setdefault((part.key.source, part.partition), []).extend((part.first, part.last))
    by_source: dict[str, list[tuple[tuple[Any, ...], tuple[Any, ...]]]] = {}
    for (source, _), ends in spans.items():
        by_source.setdefault(source, []).append((min(ends), max(ends)))
    return all(before[1] < after[0] for found in by_source.values() for before, after in pairwise(sorted(found)))


def entries_of(parts: Sequence[HeldPart], spans: Sequence[Span]) -> dict[str, dict[int, tuple[int, int]]]:
    """By held file, and in it by the number of a ledger key: its ledger, and the entry of its first row. Raises ValueError for
    two keys with one number."""
    found: dict[str, dict[int, tuple[int, int]]] = {}
    of_key = {span.key: span for span in spans}
    following = {span.key: span.first for span in spans}
    for part in sorted((part for part in parts if part.is_new), key=lambda part: (part.first, part.partition)):
        codes = found.setdefault(part.file, {})
        if part.code in codes:
            raise ValueError(f"two ledger keys have the number {part.code}")
        codes[part.code] = of_key[part.key].ledger_id, following[part.key]
        following[part.key] += part.rows
    assert all(following[span.key] == span.last + 1 for span in spans), "as many as were counted"
    return found


def numbers_of(codes: pa.Array, starts: Mapping[int, tuple[int, int]]) -> tuple[pa.Array, pa.Array]:
    """Ledger and entry of each row of a held file, from the numbers of the rows' ledger keys. `starts`: ledger and first entry by
    number."""
    following = {code: entry for code, (_, entry) in starts.items()}
    ledgers, entries = [], []
    for begin, end in pairwise(begins_of([codes])):
        code = codes[begin].as_py()
        ledgers.append(pa.repeat(pa.scalar(starts[code][0], pa.int64()), end - begin))
        entries.append(pa.array(range(following[code], following[code] + end - begin), pa.int64()))
        following[code] += end - begin
    return pa.concat_arrays(ledgers), pa.concat_arrays(entries)


def begins_of(columns: Sequence[pa.Array]) -> list[int]:
    """Where rows begin that have other values than the row before in any of the columns, which have a value everywhere; and their
    end."""
    count = len(columns[0])
    other = reduce(pc.or_, (pc.not_equal(column.slice(1), column.slice(0, count - 1)) for column in columns))
    return [0, *(at + 1 for at in pc.indices_nonzero(other).to_pylist()), count]


def _row(columns: Sequence[pa.Array], at: int) -> tuple[Any, ...]:
    return tuple(column[at].as_py() for column in columns)


def _offset(line: Mapping[str, Any], name: str) -> tuple[Any, ...]:
    parts = sum(key.startswith(name) and key[len(name) :].isdigit() for key in line)
    return tuple(line[f"{name}{at}"] for at in range(parts))
