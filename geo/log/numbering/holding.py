"""Holds the new rows of a part of a batch, in a file or in memory. Reports how many there are of each ledger, and in which order.

A task does that, or this process. From the reports on all parts follow the entry of every row and the lines of the log. Blocks of Arrow in, lines
of Arrow out.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from operator import xor
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from geo.log.admission import ERROR
from geo.log.ledgers import LedgerKey, Span
from geo.log.numbering.order import Order, begins_of, ordered, row_of
from geo.log.numbering.tallies import Alike, Rejected
from geo.log.source_identity import HASH, PUBLISHED, SOURCE

OTHER_ROWS = "GEO_OTHER_ROWS"
"""In an error: the rows to be written are not those that were counted."""

KEY = "_geo_key"
"""Column of a ledger key as a number: rows of one ledger have the same."""

OFFSET_PART, TEXT_PART = "_geo_o", "_geo_t"
"""Columns of the parts of an offset, as they are and as text, each with its number. Flat, since on its way to Python a column
with structure costs microseconds a row."""

Report: TypeAlias = tuple[list[Alike], list[Rejected]]
"""Report on rows: their parts, and those that are rejected."""


@dataclass(frozen=True, slots=True)
class EntryRun:
    """Entries of a ledger, `first` and those that follow: `rows` rows of one Spark partition, in their order. `last` is the offset of the
    last one."""

    ledger_id: int
    first: int
    rows: int
    last: tuple[Any, ...]


class Holding:
    """Holds rows in a file of Arrow's, in memory if `file` is '': their columns `columns`, those of the log, and KEY. None: in nothing,
    they stay where they are and are only counted. With `rising`, SOURCE or KEY, the offsets of each must rise."""

    memory: pa.Buffer | None = None
    """Bytes that a file would have, once all rows are held."""

    def __init__(self, file: str | None, partition: int, columns: Sequence[str], *, rising: str | None) -> None:
        self._file, self._partition, self._columns, self._rising = file, partition, columns, rising
        self._found: dict[tuple[LedgerKey, bool, bool], dict[str, Any]] = {}
        self._order = Order()

    def hold(self, blocks: Iterable[pa.RecordBatch]) -> Iterator[Report | None]:
        """Yields reports, which are one together (`joined`), on all rows, which are held once it ends. None: they are not in order.

        Blocks have SOURCE, HASH, ERROR, PUBLISHED, KEY, the columns of OFFSET_PART and TEXT_PART, and `columns`.
        """
        writer: pa.RecordBatchFileWriter | None = None
        with pa.OSFile(self._file, "wb") if self._file else pa.BufferOutputStream() as into:
            for block in blocks:
                if not len(block):
                    continue
                taken = pa.schema([block.schema.field(name) for name in (*self._columns, KEY)])
                if writer is None and self._file is not None:
                    writer = pa.ipc.new_file(into, taken)
                self._offsets = [block[name] for name in block.schema.names if name.startswith(OFFSET_PART)]
                self._texts = [block[name] for name in block.schema.names if name.startswith(TEXT_PART)]
                if self._rising is not None and not self._order.rises(block[self._rising], *self._offsets):
                    yield None
                    break
                bad, published = block[ERROR].is_valid(), block[PUBLISHED]
                self._count(block, bad, published)
                if writer is None:
                    continue
                new, rows = pc.invert(pc.or_(bad, published)), block.select(taken.names)
                for first, end in pairwise(begins_of([new])):
                    if new[first].as_py():  # a filter would give the fields of a map other names
                        writer.write_batch(rows.slice(first, end - first))
                if rejected := self._rejected(block.filter(pc.and_(bad, pc.invert(published)))):
                    yield [], rejected
            else:
                place: dict[str, Any] = {"file": self._file or "", "partition": self._partition}
                yield (
                    [
                        Alike(key=key, bad=is_bad, is_published=is_published, **place, **told)
                        for (key, is_bad, is_published), told in self._found.items()
                    ],
                    [],
                )
            if writer is not None:
                writer.close()
        if not self._file:
            self.memory = into.getvalue()

    def _rejected(self, rows: pa.RecordBatch) -> list[Rejected]:
        keys = rows["key"].to_pylist() if "key" in rows.schema.names else [None] * len(rows)
        texts = zip(*(rows[f"{TEXT_PART}{at}"].to_pylist() for at in range(len(self._texts))), strict=True)
        return list(map(Rejected, rows[SOURCE].to_pylist(), texts, rows[ERROR].to_pylist(), keys))

    def _count(self, block: pa.RecordBatch, bad: pa.Array, published: pa.Array) -> None:
        """Add rows that are alike and follow each other to what is known of those like them."""
        keys, hashes = block[KEY], block[HASH].to_pylist()
        aims = block["replicate_to"] if "replicate_to" in block.schema.names else None
        for first, end in pairwise(begins_of([keys, bad, published])):
            ledger = LedgerKey.of(block[SOURCE][first].as_py(), None if aims is None else aims[first].as_py())
            kind = (ledger, bad[first].as_py(), published[first].as_py())
            part = self._found.get(kind)
            if part is None:
                part = self._found[kind] = {
                    "code": keys[first].as_py(),
                    "rows": 0,
                    "hash": 0,
                    "first": row_of(self._offsets, first),
                }
            part["rows"] += end - first
            part["hash"] = reduce(xor, hashes[first:end], part["hash"])
            part["last"], part["last_text"] = row_of(self._offsets, end - 1), row_of(self._texts, end - 1)


def joined(reports: Iterable[Report | None]) -> Report | None:
    """All that the reports say. None if some rows are not in order."""
    told = list(reports)
    if None in told:
        return None
    found = list(filter(None, told))
    return [part for parts, _ in found for part in parts], [row for _, rejected in found for row in rejected]


def are_apart(parts: Sequence[Alike], rising: str) -> bool:
    """True if the rows of a Spark partition all lie above, or below, those of another one. That is so of each source (or ledger key, as `Holding` has
    it).
    """
    spans: dict[tuple[Hashable, int], list[tuple[Any, ...]]] = {}
    for part in parts:
        whose: Hashable = part.key.source if rising == SOURCE else part.key
        spans.setdefault((whose, part.partition), []).extend((ordered(part.first), ordered(part.last)))
    by_whom: dict[Hashable, list[tuple[tuple[Any, ...], tuple[Any, ...]]]] = {}
    for (whose, _), ends in spans.items():
        by_whom.setdefault(whose, []).append((min(ends), max(ends)))
    return all(before[1] < after[0] for found in by_whom.values() for before, after in pairwise(sorted(found)))


def runs_of(parts: Sequence[Alike], spans: Sequence[Span]) -> dict[int, dict[int, EntryRun]]:
    """The entries of the new rows, by Spark partition and the number of their ledger key. Raises ValueError for two keys with one
    number."""
    found: dict[int, dict[int, EntryRun]] = {}
    of_key = {span.key: span for span in spans}
    following = {span.key: span.first for span in spans}
    for part in sorted((part for part in parts if part.is_new), key=lambda part: (ordered(part.first), part.partition)):
        runs = found.setdefault(part.partition, {})
        if part.code in runs:
            raise ValueError(f"two ledger keys have the number {part.code}")
        runs[part.code] = EntryRun(of_key[part.key].ledger_id, following[part.key], part.rows, part.last)
        following[part.key] += part.rows
    assert all(following[span.key] == span.last + 1 for span in spans), "as many as were counted"
    return found


def log_lines(rows: pa.Table, runs: Mapping[int, EntryRun], common: Mapping[str, Any]) -> pa.Table:
    """Rows with KEY as they stand in the log: in its place their ledger and entry, and what all have in common. `runs` by number of a
    ledger key."""
    ((ledgers, entries),) = numbers([(rows[KEY].combine_chunks(), None)], runs)
    same = {name: pa.repeat(value, len(rows)) for name, value in common.items()}
    return pa.table({"ledger_id": ledgers, "entry_id": entries, **same, **{n: rows[n] for n in rows.column_names if n != KEY}})


def numbers(
    blocks: Iterable[tuple[pa.Array, pa.StructArray | None]], runs: Mapping[int, EntryRun]
) -> Iterator[tuple[pa.Array, pa.Array]]:
    """Ledger and entry of each row of one Spark partition, a block after the other, from the numbers of the rows' ledger keys. `runs` as
    `log_lines`. Raises ValueError with OTHER_ROWS unless the rows are those of the runs: as many of each, with these last offsets, where blocks
    have offsets."""
    taken = dict.fromkeys(runs, 0)
    for codes, offsets in blocks:
        ledgers, entries = [pa.array([], pa.int64())], [pa.array([], pa.int64())]
        for begin, end in pairwise(begins_of([codes])):
            code = codes[begin].as_py()
            if (run := runs.get(code)) is None:
                raise ValueError(OTHER_ROWS)
            first = run.first + taken[code]
            ledgers.append(pa.repeat(pa.scalar(run.ledger_id, pa.int64()), end - begin))
            entries.append(pa.array(range(first, first + end - begin), pa.int64()))
            taken[code] += end - begin
            if offsets is not None and taken[code] >= run.rows and tuple(offsets[end - 1].as_py().values()) != run.last:
                raise ValueError(OTHER_ROWS)
        yield pa.concat_arrays(ledgers), pa.concat_arrays(entries)
    if any(taken[code] != run.rows for code, run in runs.items()):
        raise ValueError(OTHER_ROWS)
