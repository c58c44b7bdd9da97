"""Files that are taken whole: none of which the routing rule would leave a row out."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given
from hypothesis import strategies as st

from geo.delta.arrow_rows import rows_table
from geo.delta.data_file import DataFile
from geo.delta.delta_state import DeltaState
from geo.delta.disk_store import on_disk
from geo.delta.predicate import All, Compare, Predicate, TimeUs
from geo.ids import LedgerId
from geo.replication.gaps import Gap
from geo.replication.rule import Rule, Verdict, messages_wanted
from geo.replication.whole_files import Whole, _judged, without
from geo.times import from_us
from schemas import TOPIC_LOG
from tests.routed import RoutedRow, verdict

NOW, SECOND = 1_800_000_000_000_000, 1_000_000
LEDGER = LedgerId("us", 7)
RULE = Rule("us", "eu", frozenset({"us"}), message_ttl_s=100)
ALL = {LEDGER: [Gap(LEDGER, 0, 1_000)]}
DAY = from_us(NOW).date()
WANTED = messages_wanted(RULE, None, NOW)


def _row(entry: int, **changes: Any) -> dict[str, Any]:
    row = {"origin": "us", "ledger_id": 7, "entry_id": entry, "publish_time": NOW, "key": f"k{entry}", "payload": b"p", "producer": "p",
           "publish_date": DAY, "replicate_to": None, "marker": None}  # fmt: skip
    return {**row, **changes}


def _taken(
    rows: Sequence[Mapping[str, Any]],
    wanted: Predicate = WANTED,
    gaps: Mapping[LedgerId, Sequence[Gap]] = ALL,
    dropped: Sequence[str] = ("publish_date",),
) -> Whole | None:
    """What becomes of a file with these rows, without the columns `dropped`."""
    table = rows_table(
        TOPIC_LOG.types, [{**row, "publish_time": row["publish_time"] and from_us(row["publish_time"])} for row in rows]
    )
    told: dict[str, Any] = {"num_records": len(rows), "partition.publish_date": DAY}
    for name in ("origin", "ledger_id", "entry_id"):
        values = [row[name] for row in rows if row[name] is not None]
        told |= {f"min.{name}": min(values, default=None), f"max.{name}": max(values, default=None)}
        told[f"null_count.{name}"] = len(rows) - len(values)
    state = DeltaState(
        1, "table", table.schema, ("publish_date",), frozenset({"origin", "ledger_id", "entry_id", "publish_time"}), 10, {}
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "file.parquet"
        pq.write_table(table.drop_columns(list(dropped)), path)
        return _judged(DataFile(on_disk(path), told), state, wanted, gaps)


_CHANGES = st.fixed_dictionaries(
    {},
    optional={
        "origin": st.sampled_from(["us", "asia"]),
        "ledger_id": st.sampled_from([7, 8]),
        "entry_id": st.integers(0, 6),
        "marker": st.sampled_from([None, "SNAPSHOT", "SNAPSHOT_REQUEST"]),
        "replicate_to": st.sampled_from([None, [], ["eu"], ["asia"]]),
        "publish_time": st.sampled_from([NOW - 200 * SECOND, NOW - 100 * SECOND, NOW - 50 * SECOND, NOW, NOW + 90_000 * SECOND]),
    },
)


@given(
    changes=st.lists(_CHANGES, min_size=1, max_size=6),
    since=st.sampled_from([None, NOW - 50 * SECOND]),
    until=st.sampled_from([None, NOW]),
)
def test_of_a_file_that_is_taken_every_row_crosses_is_a_message_and_is_wanted_once(
    changes: list[dict[str, Any]], since: int | None, until: int | None
) -> None:
    rows = [_row(at, **change) for at, change in enumerate(changes)]
    times = [
        *([Compare("publish_time", ">=", TimeUs(since))] if since else []),
        *([Compare("publish_time", "<", TimeUs(until))] if until else []),
    ]
    taken = _taken(rows, All((WANTED, *times)))
    verdicts = [
        verdict(
            RULE, RoutedRow(r["origin"], r["replicate_to"], r["marker"], r["publish_time"], r["ledger_id"], r["entry_id"]), NOW
        )
        for r in rows
    ]
    if taken is not None:
        assert set(verdicts) == {Verdict.REPLICATE}
        assert all(row["marker"] is None for row in rows)
        assert all((since or 0) <= row["publish_time"] and (until is None or row["publish_time"] < until) for row in rows)
        assert sorted(row["entry_id"] for row in rows) == list(range(taken.first, taken.last + 1))
        assert {(row["origin"], row["ledger_id"]) for row in rows} == {(taken.ledger.origin, taken.ledger.ledger_id)}
    elif not any(changes) and since is None and until is None:
        raise AssertionError("a file of plain messages is taken")


def test_a_file_is_taken_only_if_the_target_lacks_all_of_it() -> None:
    rows = [_row(entry) for entry in range(10, 20)]
    taken = _taken(rows)
    assert taken is not None
    assert (taken.first, taken.last, taken.rows, taken.partition) == (10, 19, 10, (("publish_date", str(DAY)),))
    assert _taken(rows, gaps={LEDGER: [Gap(LEDGER, 10, 19)]}) is not None
    for gap in (Gap(LEDGER, 11, 30), Gap(LEDGER, 0, 18)):
        assert _taken(rows, gaps={LEDGER: [gap]}) is None
    assert _taken(rows, gaps={}) is None
    changes: list[dict[str, Any]] = [
        {"marker": "SNAPSHOT_REQUEST"},
        {"publish_time": NOW - 101 * SECOND},
        {"publish_time": None},
        {"replicate_to": []},
    ]
    for change in changes:
        assert _taken([*rows[:-1], _row(19, **change)]) is None, "of all of it, also of its last row"


def test_a_file_that_has_its_partition_as_a_column_too_is_taken_as_one_that_has_not() -> None:
    """As Spark writes them."""
    rows = [_row(entry) for entry in range(10, 20)]
    with_it, without_it = _taken(rows, dropped=()), _taken(rows)
    assert with_it is not None
    assert without_it is not None
    assert (with_it.first, with_it.last, with_it.partition) == (10, 19, (("publish_date", str(DAY)),))
    assert with_it.statistics == without_it.statistics


def test_the_statistics_are_those_that_the_target_names_and_its_partition_is_no_column() -> None:
    taken = _taken([_row(3)])
    assert taken is not None
    told = json.loads(taken.statistics)
    assert (told["numRecords"], told["minValues"]["entry_id"], told["nullCount"]["entry_id"]) == (1, 3, 0)
    assert told["minValues"].keys() == {"origin", "ledger_id", "entry_id", "publish_time"}


def test_what_is_left_of_the_gaps_is_all_that_no_file_has() -> None:
    def whole(first: int, last: int) -> Whole:
        return Whole(on_disk(Path("f")), LEDGER, first, last, (), 1, "")

    found = [Gap(LEDGER, 0, 99), Gap(LedgerId("us", 8), 0, 9), Gap(LEDGER, 200, 210, compare=True)]
    assert list(without(found, [whole(90, 99), whole(10, 19), whole(20, 29)])) == [
        Gap(LEDGER, 0, 9), Gap(LEDGER, 30, 89), Gap(LedgerId("us", 8), 0, 9), Gap(LEDGER, 200, 210, compare=True),
    ]  # fmt: skip
    assert list(without(found[:1], [whole(0, 99)])) == []


def test_a_file_with_a_column_that_the_target_has_otherwise_goes_by_rows() -> None:
    table = pa.table({"origin": ["us"], "ledger_id": [7], "entry_id": [0], "publish_time": [from_us(NOW)], "marker": pa.nulls(1, pa.string()),
                      "replicate_to": pa.nulls(1, pa.list_(pa.string())), "amount": pa.array([1], pa.int32())})  # fmt: skip
    told = {"num_records": 1, "partition.publish_date": DAY, **{f"{end}.{name}": value for end in ("min", "max") for name, value in
            (("origin", "us"), ("ledger_id", 7), ("entry_id", 0))}, "null_count.origin": 0, "null_count.ledger_id": 0}  # fmt: skip
    for kind, is_taken in ((pa.int32(), True), (pa.int64(), False)):
        columns = [pa.field(f.name, kind if f.name == "amount" else f.type) for f in table.schema]
        schema = pa.schema([*columns, pa.field("publish_date", pa.date32())])
        state = DeltaState(1, "table", schema, ("publish_date",), frozenset({"entry_id"}), 10, {})
        with tempfile.TemporaryDirectory() as folder:
            pq.write_table(table, f"{folder}/file.parquet")
            found = _judged(DataFile(on_disk(Path(f"{folder}/file.parquet")), told), state, WANTED, ALL)
        assert (found is not None) is is_taken
