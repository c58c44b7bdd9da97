"""Versions of a table by their commits: one that is known, when one came, and by what its file is recognized."""

from __future__ import annotations

from collections.abc import Hashable
from datetime import datetime
from typing import TYPE_CHECKING

from geo.delta.delta_log import commit_stamp
from geo.delta.writer import last_committed

if TYPE_CHECKING:
    from geo.delta.table import Table


def known_version(table: Table) -> int:
    """A version that is there: where a look is a request the one that this process committed a moment ago, else the newest."""
    known = None if (folder := table.log_folder) is None else last_committed(folder)
    return table.latest_version() if known is None else known.version


def is_asked_by_name(table: Table) -> bool:
    """True if `has_commit` is one request of this process's own."""
    return table.by_path and table.log_folder is not None and not table.is_near  # one in a catalog may not exist


def stamp_at(table: Table, version: int) -> Hashable:
    """Stamp of the file of a commit, by which it differs from any other that may take its place, without reading it. None where there is no such
    file, or nothing that could tell.
    """
    return None if table.log_folder is None else commit_stamp(table.log_folder, version)


def committed_at(table: Table, version: int) -> datetime | None:
    """Tells when the storage says that a commit came, by the clock of the storage. None if the commit is gone, and where there is no such clock:
    in-commit timestamps are a writer's."""
    return table.ask(lambda engine: engine.committed_at(version))
