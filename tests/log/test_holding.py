"""Rows that are held: what is said of them, and the entries they get, beside a naive model. No Spark."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from geo.log.admission import ERROR
from geo.log.holding import KEY, OFFSET_PART, TEXT_PART, Holding, Part, are_apart, entries_of, heard, numbers_of
from geo.log.ledgers import LedgerKey, Span
from geo.log.source_identity import HASH, PUBLISHED, SOURCE
from geo.log.tallies import Rejected

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


def _held(rows: Sequence[Row], block_rows: int, partition: int = 0) -> tuple[tuple[list[Part], list[Rejected]] | None, pa.Buffer]:
    sink = pa.BufferOutputStream()
    blocks = (_block(rows[at : at + block_rows]) for at in range(0, len(rows), block_rows))
    holding = Holding(str(partition), partition, ["key", "replicate_to"], unique=True)
    lines = [line for said in holding.hold(blocks, sink) for line in said.to_pylist()]
    return heard(lines), sink.getvalue()


def _ordered(rows: Sequence[Row]) -> bool:
    return all(
        [row[1] for row in rows if row[0] == source] == sorted({row[1] for row in rows if row[0] == source}) for source in "ab"
    )


@given(_rows, st.integers(1, 7))
def test_rows_that_do_not_rise_within_their_source_are_found_out(rows: list[Row], block_rows: int) -> None:
    found, _ = _held(rows, block_rows)
    assert (found is not None) == _ordered(rows)


@given(_rows, st.integers(1, 7), st.integers(1, 3))
def test_what_is_held_gets_the_entries_of_its_ledger_in_the_order_of_offsets(
    rows: list[Row], block_rows: int, count: int
) -> None:
    """Spark partitions as they lie after a sort: each has a range of offsets."""
    ordered = sorted({(row[1], row[0]): row for row in rows}.values(), key=lambda row: row[1])
    bounds = [31 * part // count for part in range(count + 1)]
    partitions = [[row for row in ordered if low <= row[1] < high] for low, high in pairwise(bounds)]
    held = {str(number): _held(part, block_rows, number) for number, part in enumerate(partitions)}
    parts = [part for found, _ in held.values() if found is not None for part in found[0]]
    rejected = [one for found, _ in held.values() if found is not None for one in found[1]]
    assert are_apart(parts)

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
    for file, first in entries_of(parts, spans).items():
        read = pa.ipc.open_file(pa.BufferReader(held[file][1])).read_all()
        numbers = numbers_of(read[KEY].combine_chunks(), first)
        found |= dict(zip(read["key"].to_pylist(), zip(*(n.to_pylist() for n in numbers), strict=True), strict=True))
    assert found == expected
    assert sorted(one.offset[0] for one in rejected) == sorted(str(row[1]) for row in ordered if row[3] and not row[4])

    def tally(bad: bool, published: bool) -> tuple[int, int]:
        own = [row for row in ordered if (row[3], row[4]) == (bad, published)]
        combined = 0
        for row in own:
            combined ^= row[1] * 7 + 1
        return len(own), combined

    for bad in (False, True):
        for published in (False, True):
            own = [part for part in parts if (part.bad, part.is_published) == (bad, published)]
            combined = 0
            for part in own:
                combined ^= part.hash
            assert (sum(part.rows for part in own), combined) == tally(bad, published)


def test_ranges_that_overlap_are_not_apart_and_nor_are_equal_ends() -> None:
    def part(partition: int, first: int, last: int, source: str = "a") -> Part:
        key = LedgerKey.of(source, None)
        return Part("f", partition, 1, key, False, False, 1, 0, ((True, first),), ((True, last),), (str(last),))

    assert are_apart([part(1, 0, 4), part(0, 5, 9), part(2, 0, 9, "b")])
    assert not are_apart([part(0, 0, 5), part(1, 5, 9)])
    assert not are_apart([part(0, 0, 9), part(1, 3, 4)])


def test_a_file_is_held_on_a_disk_as_in_memory(tmp_path: Path) -> None:
    rows: list[Row] = [("a", number, 0, False, False) for number in range(10)]
    holding = Holding(str(tmp_path / "held"), 0, ["key"], unique=True)
    said: list[dict[str, Any]] = [line for one in holding.hold(iter([_block(rows)])) for line in one.to_pylist()]
    assert [line["rows"] for line in said] == [10]
    with pa.memory_map(str(tmp_path / "held")) as source:
        assert pa.ipc.open_file(source).read_all()["key"].to_pylist() == [f"a{number}" for number in range(10)]
