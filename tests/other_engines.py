"""What other engines make of a topic's log on an S3 API, and delta-rs that keeps house in one beside a broker."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, QueryBuilder
from deltalake.exceptions import CommitFailedError
from pyspark.sql import SparkSession

from geo.delta.arrow_rows import plain_values
from tests.spark_master import Failed

_COLUMNS = (
    "origin",
    "ledger_id",
    "entry_id",
    "publish_time",
    "producer",
    "key",
    "properties",
    "payload",
    "marker",
    "publish_date",
)


def wait_for_table(place: str, storage: Mapping[str, str], within_s: float) -> None:
    """Raises Failed if none is made."""
    deadline = time.monotonic() + within_s
    while not DeltaTable.is_deltatable(place, storage_options=dict(storage)):
        if time.monotonic() > deadline:
            raise Failed(f"{place}: no table was made")
        time.sleep(1.0)


def kept_house(place: str, storage: Mapping[str, str], is_done: Callable[[DeltaTable], bool], within_s: float) -> str:
    """OPTIMIZE and VACUUM by delta-rs, again and again until the table has what is waited for. Raises Failed if that does not come."""
    deadline, optimised, files, met = time.monotonic() + within_s, 0, 0, 0
    while True:
        table = DeltaTable(place, storage_options=dict(storage))
        if is_done(table) and optimised:
            return (
                f"{optimised} OPTIMIZE by delta-rs took {files} files out, with VACUUM after each; {met} gave up before a commit"
            )
        if time.monotonic() > deadline:
            raise Failed(f"{place}: {optimised} OPTIMIZE, and what was waited for did not come")
        try:
            removed = table.optimize.compact()["numFilesRemoved"]
            table.vacuum(dry_run=False)
        except CommitFailedError:
            met += 1
            continue
        optimised, files = optimised + (removed > 0), files + removed
        time.sleep(0.5)


def read_alike(spark: SparkSession, place: str, storage: Mapping[str, str]) -> Iterator[str]:
    """Rows and what is skipped by statistics, by Spark, deltalake and polars. Raises Failed where they are not the same."""
    table = DeltaTable(place, storage_options=dict(storage))
    by_spark = spark.read.format("delta").load(place.replace("s3://", "s3a://", 1))
    rows = by_spark.select(*_COLUMNS).toArrow()
    found = {"Spark": _listed(rows), "deltalake": _listed(_asked(table, f"SELECT {', '.join(_COLUMNS)} FROM t"))}
    entries = rows["entry_id"]
    least = pc.quantile(entries, 0.75)[0].as_py()
    wanted = sum(one >= least for one in entries.to_pylist())
    skipped = {
        "Spark": by_spark.where(f"entry_id >= {least}").count(),
        "deltalake": _asked(table, f"SELECT entry_id FROM t WHERE entry_id >= {least}").num_rows,
    }
    try:
        import polars as pl
    except ImportError:
        yield "polars is not there: .venv/bin/pip install polars"
    else:
        scanned = pl.scan_delta(table)
        found["polars"] = _listed(scanned.select(_COLUMNS).collect().to_arrow())
        skipped["polars"] = scanned.filter(pl.col("entry_id") >= least).select(pl.len()).collect().item()
    if any(one != found["Spark"] for one in found.values()) or set(skipped.values()) != {wanted}:
        raise Failed(
            f"{place}: rows { ({who: len(one) for who, one in found.items()}) }, of {wanted} by statistics {skipped}, or they differ"
        )
    told = _told(table, rows)
    yield f"{', '.join(found)}: the same {len(rows)} rows, the same {wanted} of them by statistics, which tell of {told} files what is in them"


def _asked(table: DeltaTable, sql: str) -> pa.Table:
    return pa.table(QueryBuilder().register("t", table).execute(sql).read_all())


def _listed(rows: pa.Table) -> list[tuple[Any, ...]]:
    """Whatever each calls its types."""
    return sorted(zip(*(_plain(rows[name]) for name in _COLUMNS), strict=True), key=lambda row: row[:3])


def _plain(column: pa.ChunkedArray) -> list[Any]:
    if pa.types.is_large_list(column.type):  # polars has maps as lists of keys and values
        return [None if one is None else {pair["key"]: pair["value"] for pair in one} for one in column.to_pylist()]
    return plain_values(column)


def _told(table: DeltaTable, rows: pa.Table) -> int:
    """The files, of each of which statistics must tell what is in it. Raises Failed."""
    files = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    if sum(file["num_records"] for file in files) != len(rows):
        raise Failed(f"the log tells of {sum(file['num_records'] for file in files)} rows, and there are {len(rows)}")
    for name in ("entry_id", "ledger_id"):
        ends = pc.min_max(rows[name])
        least, most = (min(file[f"min.{name}"] for file in files), max(file[f"max.{name}"] for file in files))
        if (least, most) != (ends["min"].as_py(), ends["max"].as_py()):
            raise Failed(f"the log tells of {name} from {least} to {most}, and there is {ends}")
    nulls = sum(file["null_count.marker"] for file in files)
    if nulls != rows["marker"].null_count:
        raise Failed(f"the log tells of {nulls} rows without a marker, and there are {rows['marker'].null_count}")
    return len(files)
