"""Summaries of rows at hand (`geo.delta.summary`), and what of a file is known without reading its rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa

from geo.delta.data_file import DataFile
from geo.delta.predicate import columns_of, may_hold
from geo.delta.summary import GroupedBy, Groups, Summary

_AT = "_at"


def groups_of(summary: Summary, rows: pa.Table) -> Groups:
    """The groups of rows, which all fulfil the condition."""
    wanted = [*((name, "min") for name in summary.least), *((name, "max") for name in summary.greatest)]
    found = _numbered(rows).group_by(list(summary.by)).aggregate([*wanted, (_AT, "count")]).to_pylist()
    same = [_same(summary, rows, name) for name in summary.same]
    sums = {} if summary.summed is None else _sums(summary, rows, summary.summed)
    groups: Groups = {}
    for row in found:
        key = tuple(row[name] for name in summary.by)
        groups[key] = GroupedBy(
            tuple(row[f"{name}_min"] for name in summary.least),
            tuple(row[f"{name}_max"] for name in summary.greatest),
            tuple(values.get(key) for values in same),
            row[f"{_AT}_count"],
            sums.get(key, (0, 0)),
        )
    return groups


def joined(parts: Iterable[Groups]) -> Groups:
    """The groups of all parts."""
    found: Groups = {}
    for part in parts:
        for key, group in part.items():
            found[key] = found[key].joined(group) if key in found else group
    return found


def groups_from_stats(summary: Summary) -> Callable[[DataFile], Groups | None]:
    """Derives a file's group from what Delta's log says, if all its rows are of one and fulfil the condition. What all rows of a group
    have is read of one of them.

    None: the file's rows are to be read.
    """
    same: dict[tuple[Any, ...], tuple[Any, ...]] = {}

    def from_stats(file: DataFile) -> Groups | None:
        key = tuple(file.constant(name) for name in summary.by)
        least = tuple(file.statistics.get(f"min.{name}") for name in summary.least)
        greatest = tuple(file.statistics.get(f"max.{name}") for name in summary.greatest)
        count = file.statistics.get("num_records")
        if summary.summed is not None or count is None or None in (*key, *least, *greatest) or not _all_fulfil(summary, file):
            return None
        if key not in same:
            same[key] = tuple(file.first(name) for name in summary.same)
        return {key: GroupedBy(least, greatest, same[key], count)}

    return from_stats


def _all_fulfil(summary: Summary, file: DataFile) -> bool:
    nulls = {f"null_count.{name}": file.nulls(name) for name in columns_of(summary.where)}
    return not may_hold(~summary.where, {**file.statistics, **nulls})


def _same(summary: Summary, rows: pa.Table, name: str) -> dict[tuple[Any, ...], Any]:
    """Takes of each group one value that is not NULL."""
    some = _numbered(rows.filter(rows[name].is_valid()))
    first = some.group_by(list(summary.by)).aggregate([(_AT, "min")])
    keys = zip(*(first[column].to_pylist() for column in summary.by), strict=True)
    return dict(zip(keys, some[name].take(first[f"{_AT}_min"]).to_pylist(), strict=True))


def _sums(summary: Summary, rows: pa.Table, name: str) -> dict[tuple[Any, ...], tuple[int, int]]:
    """Sums each group, and the squares: as numbers of Python, which have no end."""
    found = rows.group_by(list(summary.by)).aggregate([(name, "list")])
    keys = zip(*(found[column].to_pylist() for column in summary.by), strict=True)
    lists = found[f"{name}_list"].to_pylist()
    return {key: (sum(listed), sum(one * one for one in listed)) for key, listed in zip(keys, lists, strict=True)}


def _numbered(rows: pa.Table) -> pa.Table:
    return rows.append_column(_AT, pa.array(range(len(rows)), pa.int64()))
