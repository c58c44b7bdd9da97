"""A table schema as a value that can be compared, printed and turned into DDL."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

VERSION_PROPERTY = "geo.schema.version"
KIND_PROPERTY = "geo.table"

CLUSTER_PROPERTY = "geo.cluster"
"""Property of a cluster's registry: the cluster's name and a UUID, which stand there once and for all."""

POLICIES_PROPERTY = "geo.policies"
"""Property of a topic log: the topic's policies in its cluster's registry, as JSON, for when that is put back from an older
backup. A log without it does not say them. (An older program reads the registry alone, and loses nothing by it that it did not
lose before.)
"""

BEFORE_RELEASE = {
    1: "Links kept their place in Spark's checkpoints then, which no start goes on from any more.",
    2: "A claim did not say then what may still be in flight.",
}
"""The reason why a table of a version that was never released is not read."""

_SECONDS = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400, "week": 604_800}
_DURATION = re.compile(rf"(?:interval )?(\d+) ({'|'.join(_SECONDS)})s?")


def duration_s(text: str) -> int | None:
    """The seconds of a table property that says how long something stays; None for one that says it in other words."""
    found = _DURATION.fullmatch(text.strip().lower())
    return int(found[1]) * _SECONDS[found[2]] if found else None


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its name, its Spark SQL type, whether it may be NULL, and what it means. `added`: tables were made before there
    was this column; of one without it all rows have NULL there."""

    name: str
    type: str
    comment: str
    nullable: bool = True
    added: bool = False


@dataclass(frozen=True, slots=True)
class TableSchema:
    """One kind of table. `properties` are Delta table properties beside the two of ours.

    `subject`: of a journal, the columns that say what a row is about; of one subject the newest row counts, by the columns
    `order`. A table of a version below `least_version` is not read.
    """

    kind: str
    version: int
    columns: tuple[Column, ...]
    partitioned_by: tuple[str, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    subject: tuple[str, ...] = ()
    order: tuple[str, ...] = ("sequence",)
    least_version: int = 1

    def order_of(self, row: Any) -> tuple[Any, ...]:
        """Key that orders the rows of one subject: the last counts."""
        return tuple(row[name] for name in self.order)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    @property
    def types(self) -> dict[str, str]:
        return {column.name: column.type for column in self.columns}

    @property
    def ddl(self) -> str:
        """The columns as Spark reads them in `createDataFrame(rows, schema)`."""
        return ", ".join(f"`{c.name}` {c.type}" for c in self.columns)

    @property
    def all_properties(self) -> dict[str, str]:
        return {**self.properties, KIND_PROPERTY: self.kind, VERSION_PROPERTY: str(self.version)}
