"""What a log has of each ledger at a version: its first entry, its last, and how many. Read only."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta

import pyarrow as pa
from pyspark.sql import functions as F

from geo.delta.engines.native.read import DataFile, scan
from geo.delta.predicate import ROUNDED_US, to_sql
from geo.delta.table import Table
from geo.ids import LedgerId
from geo.log.ledgers import LedgerPart
from geo.log.topic_log import IS_MESSAGE, published_since

_KEY = ["origin", "ledger_id"]

Ranges = dict[LedgerId, tuple[int, int]]
"""Of each ledger its first and last entry."""


def ledger_parts(log: Table, version: int, since: datetime | None = None) -> dict[LedgerId, LedgerPart]:
    """The ledgers of a log at a version; with `since`, a time with its zone, only messages that were published then or later.
    Without Spark where this process may read the files (`native.scan`)."""
    wanted = IS_MESSAGE & published_since(since)
    aims: dict[LedgerId, tuple[str, ...] | None] = {}

    def told(file: DataFile) -> list[tuple[LedgerId, LedgerPart]] | None:
        return _of_statistics(file, since, aims)

    parts = scan(log, version, [*_KEY, "entry_id", "marker", "publish_time", "replicate_to"], _parts, where=wanted, told=told)
    if parts is not None:
        return _joined(part for batch in parts for part in batch)
    rows = (
        log.read(version)  # before any condition: Spark may start here
        .where(to_sql(wanted))
        .groupBy(*_KEY)
        .agg(
            F.min("entry_id").alias("first"),
            F.max("entry_id").alias("last"),
            F.count("*").alias("entries"),
            F.first("replicate_to", ignorenulls=True).alias("to"),
        )
        .collect()
    )
    return _joined((LedgerId(r[0], r[1]), LedgerPart(r["first"], r["last"], r["entries"], _tuple(r["to"]))) for r in rows)


def few_ranges(
    log: Table,
    version: int,
    columns: Sequence[str],
    wanted: Callable[[pa.Table], pa.Table],
    told: Callable[[DataFile], Ranges | None],
) -> Ranges | None:
    """Ledger → first and last entry, as `topic_log.ledger_ranges`, of the rows of a log at a version that `wanted` leaves. None where only
    Spark can (`native.scan`). `columns`: what `wanted` reads, the ID among them. A file of which `told` gives ranges is not read."""
    parts = scan(log, version, columns, lambda rows: _ranges(wanted(rows)), told=told)
    if parts is None:
        return None
    found: Ranges = {}
    for part in parts:
        for ledger, (first, last) in part.items():
            known = found.get(ledger, (first, last))
            found[ledger] = min(first, known[0]), max(last, known[1])
    return found


def _ranges(rows: pa.Table) -> Ranges:
    found = rows.select([*_KEY, "entry_id"]).drop_null().group_by(_KEY).aggregate([("entry_id", "min"), ("entry_id", "max")])
    return {LedgerId(row["origin"], row["ledger_id"]): (row["entry_id_min"], row["entry_id_max"]) for row in found.to_pylist()}


def stated_ranges(file: DataFile) -> Ranges | None:
    """What `only_ledger` says of a file, for `few_ranges`."""
    if (only := only_ledger(file)) is None:
        return None
    ledger, first, last = only
    return {ledger: (first, last)}


def only_ledger(file: DataFile) -> tuple[LedgerId, int, int] | None:
    """The ledger, first and last entry of a file whose rows are all of one; None: they are not, or its statistics do not say."""
    origin, ledger_id = file.constant("origin"), file.constant("ledger_id")
    first, last = (file.statistics.get(f"{end}.entry_id") for end in ("min", "max"))
    if origin is None or ledger_id is None or first is None or last is None:
        return None
    return LedgerId(origin, ledger_id), first, last


def _of_statistics(
    file: DataFile, since: datetime | None, aims: dict[LedgerId, tuple[str, ...] | None]
) -> list[tuple[LedgerId, LedgerPart]] | None:
    """What a file has, if it is of one ledger, has no marker, and lies on one side of `since`; None: it must be read. `aims`: the
    `replicate_to` of ledgers that are known by now."""
    found, count = only_ledger(file), file.statistics.get("num_records")
    if found is None or count is None:
        return None
    ledger, first, last = found
    if since is not None:
        least, most = (file.statistics.get(f"{end}.publish_time") for end in ("min", "max"))
        if least is None or most is None or least < since <= most + timedelta(microseconds=ROUNDED_US):
            return None
        if most < since:
            return []
    if file.nulls("marker") != count:
        return None
    if ledger not in aims:
        aims[ledger] = _tuple(file.first("replicate_to"))
    return [(ledger, LedgerPart(first, last, count, aims[ledger]))]


def _parts(rows: pa.Table) -> list[tuple[LedgerId, LedgerPart]]:
    found = rows.group_by(_KEY).aggregate([("entry_id", "min"), ("entry_id", "max"), ("entry_id", "count")]).to_pylist()
    aimed = rows.filter(rows["replicate_to"].is_valid())
    aimed = aimed.append_column("at", pa.array(range(len(aimed)), pa.int64()))
    one_of_each = aimed.group_by(_KEY).aggregate([("at", "min")])
    aims = aimed["replicate_to"].take(one_of_each["at_min"]).to_pylist()
    of_each = zip(one_of_each["origin"].to_pylist(), one_of_each["ledger_id"].to_pylist(), aims, strict=True)
    to = {LedgerId(origin, ledger_id): tuple(aim) for origin, ledger_id, aim in of_each}
    ledgers = [LedgerId(row["origin"], row["ledger_id"]) for row in found]
    return [
        (ledger, LedgerPart(row["entry_id_min"], row["entry_id_max"], row["entry_id_count"], to.get(ledger)))
        for ledger, row in zip(ledgers, found, strict=True)
    ]


def _joined(parts: Iterable[tuple[LedgerId, LedgerPart]]) -> dict[LedgerId, LedgerPart]:
    found: dict[LedgerId, LedgerPart] = {}
    for ledger, part in parts:
        found[ledger] = found[ledger].joined(part) if ledger in found else part
    return found


def _tuple(names: list[str] | None) -> tuple[str, ...] | None:
    return None if names is None else tuple(names)
