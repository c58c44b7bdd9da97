"""The newest version of a table, for who commits to it without Spark."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from geo.delta.delta_state import DeltaState, newest_state, require_state
from geo.delta.engine import UnsupportedError, attempt
from geo.delta.store import WritePath
from geo.delta.writer import forget_committed, last_committed
from geo.delta.writer import state_to_follow as state_of_log_to_follow

if TYPE_CHECKING:
    from geo.delta.table import Table


def own_state(table: Table) -> DeltaState | None:
    """The newest version of a table to which this process can append without Spark. Where a look is a request it is the one that this process
    committed a moment ago. A commit that follows on it finds out whether another one came. None of another table.
    """
    folder = _own_log(table)
    return None if folder is None else last_committed(folder) or newest_state(folder)


def state_to_follow(table: Table) -> DeltaState | None:
    """State as `own_state`, for who is about to commit: also one that this process read a moment ago (`geo.delta.writer.state_to_follow`)."""
    folder = _own_log(table)
    return None if folder is None else state_of_log_to_follow(folder)


def state_with(table: Table, columns: Collection[str]) -> DeltaState | None:
    """State as `state_to_follow`, of a version that has these columns."""
    return state_for(table, lambda state: set(columns) <= set(state.schema.names))


def state_for(table: Table, is_for: Callable[[DeltaState], bool]) -> DeltaState | None:
    """State as `state_to_follow`, if it is for what is to be written. One that was known is looked for again: columns may have come since."""
    if (state := state_to_follow(table)) is not None and not is_for(state):
        forget_state(table)
        state = state_to_follow(table)
    return state if state is not None and is_for(state) else None


def _own_log(table: Table) -> WritePath | None:
    folder = table.log_folder
    if folder is None or (table.may_spark_commit and not table.driver.commits_by_itself):
        return None  # Spark is asked with which log store it was started
    return folder


def why_left_to_spark(table: Table) -> str | None:
    """Tells why a process that appends by itself to tables in such a place leaves this one to Spark; None: it does not."""
    if (folder := table.log_folder) is None:
        return None
    found = attempt(lambda: require_state(folder))
    return str(found) if isinstance(found, UnsupportedError) else None


def forget_state(table: Table) -> None:
    """Forget the version that this process committed or read last: another commit came, or may have come."""
    if not table.may_spark_commit and (folder := table.log_folder) is not None:
        forget_committed(folder)
