"""Rows that are still in files of a table, for who reads them where they are needed, as Spark's tasks do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from geo.delta.delta_state import DeltaState
from geo.delta.predicate import ANY_ROW, Predicate
from geo.delta.store import ReadPath


@dataclass(frozen=True, slots=True)
class RowsFile:
    """A plain file of a table, every row of which counts: the values of its partition, and its bytes."""

    path: ReadPath
    partition: Mapping[str, str]
    size: int


@dataclass(frozen=True, slots=True)
class FileRows:
    """Those rows of files of a table in this state that fulfil `where`."""

    state: DeltaState
    files: tuple[RowsFile, ...]
    where: Predicate = ANY_ROW
