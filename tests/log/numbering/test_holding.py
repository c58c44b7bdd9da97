"""Rows that are held: what is said of them, and the entries they get, beside a naive model. No Spark."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby, pairwise
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from geo.log.admission import ERROR
from geo.log.ledgers import LedgerKey, Span
from geo.log.numbering.holding import (
    KEY,
    OFFSET_PART,
    TEXT_PART,
    HeldPart,
    Holding,
    are_apart,
    entries_of,
    numbers_of,
    parsed_reports,
)
from geo.log.numbering.tallies import Rejected
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


def _held(rows: Sequence[Row], block_rows: int, file: Path) -> tuple[list[HeldPart], list[Rejected]] | None:
    blocks = (_block(rows[at : at + block_rows]) for at in range(0, len(rows), block_rows))
    holding = Holding(str(file), int(file.name), ["key", "replicate_to"], unique=True)
    return parsed_reports([line for report in holding.hold(blocks) for line in report.to_pylist()])


def _ordered(rows: Sequence[Row]) -> bool:
    return all(
        [row[1] for row in rows if row[0] == source] == sorted({row[1] for row in rows if row[0] == source}) for source in "ab"
    )


@given(_rows, st.integers(1, 7))
def test_rows_that_do_not_rise_within_their_source_are_found_out(
    tmp_path_factory: pytest.TempPathFactory, rows: list[Row], block_rows: int
) -> None:
    found = _held(rows, block_rows, tmp_path_factory.mktemp("held") / "0")
    assert (found is not None) == _ordered(rows)


@given(_rows, st.integers(1, 7), st.integers(1, 3))
def test_what_is_held_gets_the_entries_of_its_ledger_in_the_order_of_offsets(
    tmp_path_factory: pytest.TempPathFactory, rows: list[Row], block_rows: int, count: int
) -> None:
    """Spark partitions as they lie after a sort: each has a range of offsets."""
    ordered = sorted({(row[1], row[0]): row for row in rows}.values(), key=lambda row: row[1])
    bounds = [31 * part // count for part in range(count + 1)]
    partitions = [[row for row in ordered if low <= row[1] < high] for low, high in pairwise(bounds)]
    folder = tmp_path_factory.mktemp("held")
    held = [_held(part, block_rows, folder / str(number)) for number, part in enumerate(partitions)]
    parts = [part for found in held if found is not None for part in found[0]]
    rejected = [one for found in held if found is not None for one in found[1]]
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
        with pa.memory_map(file) as source:
            read = pa.ipc.open_file(source).read_all()
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
    def part(partition: int, first: int, last: int, source: str = "a") -> HeldPart:
        key = LedgerKey.of(source, None)
        return HeldPart(
            file="f", partition=partition, code=1, key=key, bad=False, is_published=False, rows=1, hash=0, first=((True, first),),
            last=((True, last),), last_text=(str(last),),
        )  # fmt: skip

    assert are_apart([part(1, 0, 4), part(0, 5, 9), part(2, 0, 9, "b")])
    assert not are_apart([part(0, 0, 5), part(1, 5, 9)])
    assert not are_apart([part(0, 0, 9), part(1, 3, 4)])
