"""Rows that are held: what is said of them, and the entries they get, beside a naive model. No Spark."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, groupby, pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from geo.log.admission import ERROR
from geo.log.ledgers import LedgerKey, Span
from geo.log.numbering.holding import (
    KEY,
    OFFSET_PART,
    OTHER_ROWS,
    TEXT_PART,
    EntryRun,
    Holding,
    Report,
    are_apart,
    joined,
    log_lines,
    numbers,
    runs_of,
)
from geo.log.numbering.tallies import Alike
from geo.log.source_identity import HASH, PUBLISHED, SOURCE

_SCHEMA = pa.schema(
    [
        (SOURCE, pa.string()), (HASH, pa.int64()), (ERROR, pa.string()), (PUBLISHED, pa.bool_()), (KEY, pa.int64()),
        (f"{OFFSET_PART}0", pa.int64()), (f"{TEXT_PART}0", pa.string()), ("key", pa.string()), ("replicate_to", pa.list_(pa.string())),
    ]
)  # fmt: skip
_AIMS = (None, (), ("us",))

Row = tuple[str, int, int, bool, bool]
"""Source, offset, number of its aims, whether it is bad, whether it is published."""

_rows = st.lists(
    st.tuples(st.sampled_from("ab"), st.integers(0, 30), st.integers(0, 2), st.booleans(), st.booleans()), max_size=25
)


def _block(rows: Sequence[Row]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(
        [
            {
                SOURCE: source, HASH: offset * 7 + 1, ERROR: "bad" if bad else None, PUBLISHED: published,
                KEY: hash((source, aims)), f"{OFFSET_PART}0": offset, f"{TEXT_PART}0": str(offset), "key": f"{source}{offset}",
                "replicate_to": _AIMS[aims],
            }
            for source, offset, aims, bad, published in rows
        ],
        _SCHEMA,
    )  # fmt: skip


def _held(rows: Sequence[Row], block_rows: int, file: str = "", number: int = 0) -> tuple[Report | None, Holding]:
    blocks = (_block(rows[at : at + block_rows]) for at in range(0, len(rows), block_rows))
    holding = Holding(file, number, ["key", "replicate_to"], rising=SOURCE)
    return joined(holding.hold(blocks)), holding


def _ordered(rows: Sequence[Row]) -> bool:
    return all(
        [row[1] for row in rows if row[0] == source] == sorted({row[1] for row in rows if row[0] == source}) for source in "ab"
    )


@given(_rows, st.integers(1, 7))
def test_rows_that_do_not_rise_within_their_source_are_found_out(rows: list[Row], block_rows: int) -> None:
    found, _ = _held(rows, block_rows)
    assert (found is not None) == _ordered(rows)


@given(_rows, st.integers(1, 7), st.integers(0, 3), st.booleans())
def test_what_is_held_gets_the_entries_of_its_ledger_in_the_order_of_offsets(
    tmp_path_factory: pytest.TempPathFactory, rows: list[Row], block_rows: int, files: int, falling: bool
) -> None:
    """Spark partitions as they lie after a sort, each with a range of offsets, in a file each, their numbers rising or falling with them; or
    all in memory."""
    count = max(1, files)
    ordered = sorted({(row[1], row[0]): row for row in rows}.values(), key=lambda row: row[1])
    bounds = [31 * part // count for part in range(count + 1)]
    partitions = [[row for row in ordered if low <= row[1] < high] for low, high in pairwise(bounds)]
    partitions = partitions[::-1] if falling else partitions
    folder = tmp_path_factory.mktemp("held")
    held = [_held(part, block_rows, f"{folder}/{at}" if files else "", at) for at, part in enumerate(partitions)]
    parts = [part for found, _ in held if found is not None for part in found[0]]
    rejected = [one for found, _ in held if found is not None for one in found[1]]
    assert are_apart(parts, SOURCE)

    new = [row for row in ordered if not row[3] and not row[4]]
    ledgers = {
        key: sorted(row[1] for row in of_key)
        for key, of_key in groupby(sorted(new, key=lambda row: (row[0], row[2])), key=lambda row: (row[0], row[2]))
    }
    spans = [
        Span(LedgerKey.of(source, _AIMS[aims]), 100 + number, 5, 4 + len(offsets))
        for number, ((source, aims), offsets) in enumerate(ledgers.items())
    ]
    expected = {
        f"{source}{offset}": (100 + number, 5 + at)
        for number, ((source, _), offsets) in enumerate(ledgers.items())
        for at, offset in enumerate(offsets)
    }
    found: dict[str, tuple[int, int]] = {}
    for partition, runs in runs_of(parts, spans).items():
        read = pa.ipc.open_file(pa.memory_map(f"{folder}/{partition}") if files else held[0][1].memory).read_all()
        written = log_lines(read, runs, {"origin": "eu"})
        assert written.column_names == ["ledger_id", "entry_id", "origin", "key", "replicate_to"]
        found |= {row["key"]: (row["ledger_id"], row["entry_id"]) for row in written.to_pylist()}
    assert found == expected
    assert sorted(one.offset[0] for one in rejected) == sorted(str(row[1]) for row in ordered if row[3] and not row[4])
    assert _sums((part.bad, part.is_published, part.rows, part.hash) for part in parts) == _sums(
        (row[3], row[4], 1, row[1] * 7 + 1) for row in ordered
    )


def _sums(told: Iterable[tuple[bool, bool, int, int]]) -> dict[tuple[bool, bool], tuple[int, int]]:
    """Rows and their hashes together, by whether they are bad and published."""
    found: dict[tuple[bool, bool], tuple[int, int]] = {}
    for bad, published, rows, hashed in told:
        before = found.get((bad, published), (0, 0))
        found[bad, published] = before[0] + rows, before[1] ^ hashed
    return found


def _part(partition: int, first: int, last: int, source: str = "a", to: tuple[str, ...] | None = None) -> Alike:
    key = LedgerKey(source, to)
    return Alike(
        file="f", partition=partition, code=1, key=key, bad=False, is_published=False, rows=1, hash=0, first=(first,), last=(last,), last_text=(str(last),),
    )  # fmt: skip


def test_ranges_that_overlap_are_not_apart_and_nor_are_equal_ends() -> None:
    assert are_apart([_part(1, 0, 4), _part(0, 5, 9), _part(2, 0, 9, "b")], SOURCE)
    assert not are_apart([_part(0, 0, 5), _part(1, 5, 9)], SOURCE)
    assert not are_apart([_part(0, 0, 9), _part(1, 3, 4)], SOURCE)
    assert are_apart([_part(0, 0, 9), _part(1, 3, 4, to=("us",))], KEY), "of each ledger"


def test_rows_without_an_order_of_their_own_are_numbered_as_they_lie() -> None:
    found = runs_of([_part(1, 0, 0), _part(0, 0, 0)], [Span(LedgerKey("a", None), 100, 5, 6)])
    assert found == {0: {1: EntryRun(100, 5, 1, (0,))}, 1: {1: EntryRun(100, 6, 1, (0,))}}


# -- rows that stay where they are ------------------------------------------------------------------------------------------


def _numbers(rows: Sequence[tuple[int, int]], runs: Mapping[int, EntryRun], sizes: Sequence[int]) -> list[tuple[int, int]]:
    """Of rows by ledger key and offset."""
    cuts = [0, *(cut for cut in accumulate(sizes) if cut < len(rows)), len(rows)]
    blocks = (
        (pa.array([key for key, _ in part], pa.int64()), pa.StructArray.from_arrays([pa.array([at for _, at in part], pa.int64())], ["o0"]))
        for part in (rows[begin:end] for begin, end in pairwise(cuts))
    )  # fmt: skip
    return [one for columns in numbers(blocks, runs) for one in zip(*(column.to_pylist() for column in columns), strict=True)]


@given(st.lists(st.integers(1, 3), max_size=20), st.lists(st.integers(0, 4), max_size=8))
def test_rows_get_the_entries_of_their_ledger(keys: list[int], sizes: list[int]) -> None:
    rows = [(key, at) for at, key in enumerate(keys)]
    last = dict(rows)
    runs = {key: EntryRun(100 + key, 10 * key, keys.count(key), (last[key],)) for key in last}
    assert _numbers(rows, runs, sizes) == [(100 + key, 10 * key + keys[:at].count(key)) for key, at in rows]


@pytest.mark.parametrize(
    "rows",
    [
        [],
        [(1, 1), (1, 2)],
        [(1, 1), (1, 2), (2, 3), (2, 4)],
        [(1, 1), (1, 2), (2, 4)],
        [(1, 1), (1, 3), (2, 3)],
        [(1, 1), (2, 2), (2, 3)],
        [(1, 1), (1, 2), (3, 3)],
    ],
)
def test_other_rows_than_were_counted_are_refused(rows: list[tuple[int, int]]) -> None:
    runs = {1: EntryRun(7, 0, 2, (2,)), 2: EntryRun(8, 5, 1, (3,))}
    assert _numbers([(1, 1), (1, 2), (2, 3)], runs, [2]) == [(7, 0), (7, 1), (8, 5)]
    with pytest.raises(ValueError, match=OTHER_ROWS):
        _numbers(rows, runs, [2])
