"""What logs hold, read from the tables alone, and what must be there. Everything but `read_held` and `link_appends` is pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from geo.log.ledgers import LINK_KEY
from geo.schemas.topic_log import ENVELOPE
from tests.foreign.place import Place

Id = tuple[str, int, int]
Row = tuple[object, ...]

_IDS = ("origin", "ledger_id", "entry_id")


@dataclass(frozen=True, slots=True)
class Held:
    """The rows of a log by message id, each as often as it is there; None where no engine can read it."""

    rows: Mapping[Id, Sequence[Row]]

    @property
    def ids(self) -> set[Id]:
        return set(self.rows)


def read_held(spark: SparkSession, path: str) -> Held:
    """All rows of a log: by deltalake, and by Spark where deltalake refuses the table's features. User columns that hold nothing are
    left out."""
    found: dict[Id, list[Row]] = {}
    try:
        rows = DeltaTable(path).to_pyarrow_table()
    except Exception:
        rows = spark.read.format("delta").load(path).toArrow()
    for row in rows.to_pylist():
        one = tuple(row[name] for name in _IDS)
        own = sorted((name, value) for name, value in row.items() if value is not None and name not in _NAMES)
        found.setdefault(one, []).append((*(_plain(row.get(name)) for name in _NAMES), *own))
    return Held({one: sorted(rows, key=repr) for one, rows in found.items()})


def ids_of(rows: pa.Table) -> list[Id]:
    """The ids of some rows, in their order."""
    return list(zip(*(rows[name].to_pylist() for name in _IDS), strict=True))


_NAMES = tuple(column.name for column in ENVELOPE)


def _plain(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value


@dataclass(frozen=True, slots=True)
class Effect:
    """What a foreign commit did to the messages of a log."""

    new: frozenset[Id]
    repeated: frozenset[Id]
    removed: frozenset[Id]
    changed: frozenset[Id]
    beside: frozenset[Id]
    """Of those that changed: what was there is there, and something else under the same id."""

    @classmethod
    def of(cls, before: Held, after: Held) -> Effect:
        both = before.ids & after.ids
        other = {one for one in both if set(before.rows[one]) != set(after.rows[one])}
        more = {one for one in both - other if len(after.rows[one]) != len(before.rows[one])}
        beside = {one for one in other if set(before.rows[one]) < set(after.rows[one])}
        return cls(*map(frozenset, (after.ids - before.ids, more, before.ids - after.ids, other, beside)))

    def takes_from(self, origin: str) -> frozenset[Id]:
        """Messages of an origin that are gone, or are not what they were."""
        return frozenset(one for one in self.removed | self.changed if one[0] == origin)


def differences(due: Held, there: Held, origin: str, doubled: Held | None = None) -> list[str]:
    """In what a log that should hold the messages of an origin, each once, differs; nothing if it holds just these. `doubled`: what it
    held when somebody had put some of them into it again: as often they may be there."""
    once: Sequence[Row] = [()]
    wanted = {one: rows for one, rows in due.rows.items() if one[0] == origin}
    found = {one: rows for one, rows in there.rows.items() if one[0] == origin}
    both = wanted.keys() & found.keys()
    kinds = {
        "missing": wanted.keys() - found.keys(),
        "too many": found.keys() - wanted.keys(),
        "twice": {one for one in found if len(found[one]) > len(doubled.rows.get(one, once) if doubled is not None else once)},
        "other": {one for one in both if not set(found[one]) <= set(wanted[one])},
        "ambiguous": {one for one in both if len(set(wanted[one])) > 1},
    }
    return [f"{len(ids)} {name} (such as {':'.join(map(str, min(ids)))})" for name, ids in kinds.items() if ids]


Append = tuple[bool, Sequence[Sequence[Id]]]
"""A commit of a link: whether it was a step of a comparison, and the ids of its files, in their order."""


def link_appends(path: str, after: int) -> Iterator[Append]:
    """The commits of links above a version of a log."""
    for said, files in _appends(path, after):
        if f'"{LINK_KEY}"' in said:
            yield "reconciling" in json.loads(said), files


def ids_put(path: str, after: int) -> set[Id]:
    """What is in the files that commits above a version added, without a record of ours."""
    return {one for said, files in _appends(path, after) if '"geo.' not in said for file in files for one in file}


def _appends(path: str, after: int) -> Iterator[tuple[str, Sequence[Sequence[Id]]]]:
    """The userMetadata of each commit above a version, and the ids of the files that it added."""
    names = dict(zip(_IDS, _IDS, strict=True))
    for file in sorted(Path(path).glob("_delta_log/*.json")):
        if not file.stem.isdigit():
            continue
        actions = [json.loads(line) for line in file.read_text().splitlines() if line.strip()]
        for action in actions:
            if "metaData" in action:
                names = _physical(action["metaData"]["schemaString"])
        info: dict[str, Any] = next((action["commitInfo"] for action in actions if "commitInfo" in action), {})
        said = info.get("userMetadata") or ""
        if int(file.stem) > after:
            files: list[list[Id]] = []
            for action in actions:
                if "add" in action:
                    table = pq.ParquetFile(Path(path) / unquote(action["add"]["path"])).read([names[name] for name in _IDS])
                    files.append(list(zip(*(table[names[name]].to_pylist() for name in _IDS), strict=True)))
            yield said, files


def _physical(schema: str) -> dict[str, str]:
    """Names of the id columns in the files."""
    fields = {field["name"]: field["metadata"] for field in json.loads(schema)["fields"]}
    return {name: fields.get(name, {}).get("delta.columnMapping.physicalName", name) for name in _IDS}


def disorder(appends: Sequence[Append]) -> list[str]:
    """Where a link brought the entries of a ledger in another order than they have: within a file, and over those of its commits
    that are no comparison's. (The files of a commit have no order.)"""
    found = []
    ends: dict[tuple[str, int], int] = {}
    for is_comparison, files in appends:
        reached: dict[tuple[str, int], int] = {}
        for file in files:
            own = {} if is_comparison else dict(ends)
            for origin, ledger, entry in file:
                if entry <= own.get((origin, ledger), -1):
                    found.append(f"{origin}:{ledger}:{entry} behind {own[origin, ledger]}")
                own[origin, ledger] = entry
                reached[origin, ledger] = max(entry, reached.get((origin, ledger), -1))
        if not is_comparison:
            ends |= {ledger: max(end, ends.get(ledger, -1)) for ledger, end in reached.items()}
    return found


def ids_brought(appends: Sequence[Append]) -> list[Id]:
    """All messages that links appended."""
    return [one for _, files in appends for file in files for one in file]


def held(place: Place) -> Held | None:
    """As `read_held`; None where the log cannot be read."""
    try:
        return read_held(place.spark, place.path)
    except Exception:
        return None
