"""Commits of this process to a table, without Spark: what was written is added, or files are exchanged for others."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from geo.crash import CrashPoint, reach
from geo.delta.change import Change, commit_change, conflict_since, may_change
from geo.delta.committing import COMMIT_ATTEMPTS, committing
from geo.delta.delta_log import commit_stamp
from geo.delta.delta_state import DeltaState
from geo.delta.local_state import forget_state, own_state, state_to_follow
from geo.delta.row_files import Added, Written, remove_files
from geo.delta.spark_commits import leave_to_spark
from geo.delta.store import WritePath
from geo.delta.writer import commit_files, may_add
from geo.delta.young import refuse_gone
from geo.disk import full_at
from geo.errors import GeoError, RetryableError, UnknownAnswerError
from geo.reasons import Reason
from geo.text import first_line

if TYPE_CHECKING:
    from geo.delta.table import Table

log = logging.getLogger(__name__)


def commit_written(
    table: Table,
    written: Written,
    user_metadata: str | None = None,
    refuse: Callable[[], None] = lambda: None,
    transaction: tuple[str, int] | None = None,
) -> bool:
    """Add files that were written, in one commit without Spark; False, and nothing was done, where Spark is to do it. With
    `transaction` they are removed instead if its number, or a higher one, was used.

    `refuse` raises unless they may be added. They are removed then, and where the lock is not to be had. It is asked after the
    version is known on which the commit follows, and, where there is a lock, while nobody of ours can commit.
    """
    return add_written(table, written, user_metadata, refuse, transaction)[0]


def add_written(
    table: Table, written: Written, user_metadata: str | None, refuse: Callable[[], None], transaction: tuple[str, int] | None
) -> tuple[bool, int | None]:
    """Commits as `commit_written`, with the version that added them, if one did."""
    folder, made = table.log_folder, list[int]()
    assert folder is not None, "they were written into it"

    def commit(state: DeltaState) -> bool | None:
        if not may_add(folder, state, written):
            return None
        refuse()
        reach(CrashPoint.APPEND_CHECKED)
        if transaction is not None:
            if "setTransactions" not in state.checksum:
                return None
            if (used := state.highest_used(transaction[0])) is not None and used >= transaction[1]:
                remove_written(table, written)
                return True
        if written.files:
            if not commit_files(folder, state, written.files, user_metadata, transaction):
                return False
            made.append(state.version + 1)
        return True

    return commit_here(table, commit, written.files, written.version), made[0] if made else None


def commit_here(
    table: Table, commit: Callable[[DeltaState], bool | None], files: Sequence[Added] = (), written_at: int | None = None
) -> bool:
    """Commit by `commit`, under the lock, after the newest version, again if another commit came between. `commit` says False then, and None where
    it is not to be. False, and nothing was done, in that case, and where it cannot be. Where it is refused, or the lock is not to be had, `files`
    are removed, which were written at version `written_at` or later."""
    is_made, met = False, Counter[int]()
    try:
        with committing(table):
            try:
                while (state := state_to_follow(table)) is not None:
                    if files and state.version != written_at:
                        _refuse_gone(table, files)
                    if (made := commit(state)) is None:
                        break
                    if made:
                        is_made = True
                        return True  # what fails from here on takes no file of it away
                    forget_state(table)
                    met[state.version] += 1
                    if met[state.version] > COMMIT_ATTEMPTS:
                        raise RetryableError(
                            f"{table}: no commit follows on version {state.version}. Nothing was written. Try again."
                        )
                    log.info("%s: another commit came between, trying again", table)
            except OSError as error:
                full = full_at(error, table)
                if full is not None or not table.may_spark_commit:
                    _remove(table, files)
                    raise full or error from None
                log.info("%s: could not be committed to without Spark: %s", table, first_line(error))
    except UnknownAnswerError:
        forget_state(table)
        raise  # a commit may name them
    except GeoError:  # it was refused, the lock was not to be had, or a commit that came since cannot be read
        if not is_made:
            _remove(table, files)
        raise
    return False


def _refuse_gone(table: Table, files: Iterable[Added]) -> None:
    if (folder := table.log_folder) is not None:
        refuse_gone(folder.parent, [folder.parent / file.path for file in files])


def change_here(table: Table, make: Callable[[DeltaState], Change | None], user_metadata: str | None = None) -> Change | None:
    """Take files out and put others in, in one commit without Spark. None, and nothing was done, where Spark is to do it.

    A change that takes none makes no commit.

    `make` finds and writes the files, given the newest version, before the lock is taken. It is asked again
    if another commit took one of them, or added to what is to go. None of it: Spark is to do it. Raises RetryableError after
    COMMIT_ATTEMPTS of that.
    """
    for _ in range(COMMIT_ATTEMPTS):
        folder, state = table.log_folder, own_state(table)
        if folder is None or state is None:
            return None
        if (why := state.why_not_change) is not None:
            leave_to_spark(table, why)
            return None
        stamp = commit_stamp(folder, state.version)
        if (change := make(state)) is None:
            return None
        if not change.taken:
            return change
        reach(CrashPoint.CHANGE_MADE)
        files = (*change.added, *change.feed)
        try:
            if commit_here(table, partial(_commit_change, folder, state, stamp, change, user_metadata), files, change.version):
                return change
        except _MetError as met:
            log.info("%s: another commit came between, trying again: %s", table, met)
            forget_state(table)
            continue
        _remove(table, files)
        return None
    raise RetryableError(
        f"{table}: {COMMIT_ATTEMPTS} changes in a row met another writer's; nothing was written. Try again.",
        code=Reason.CONFLICT,
    )


def remove_written(table: Table, written: Written) -> None:
    """Remove files that no commit will add."""
    _remove(table, written.files)


def _remove(table: Table, files: Iterable[Added]) -> None:
    if (folder := table.log_folder) is not None:
        remove_files(folder.parent, files)


class _MetError(RetryableError):
    """Another commit came with which a change does not go."""


def _commit_change(
    folder: WritePath, before: DeltaState, stamp: Hashable, change: Change, user_metadata: str | None, now: DeltaState
) -> bool | None:
    """Commit a change that was made for the table as it was `before`, whose commit had this stamp. None where Spark is to do it."""
    if not may_change(folder, now, before, change):
        return None
    if commit_stamp(folder, before.version) != stamp:
        raise _MetError(f"version {before.version} is another one, or gone")
    if (why := conflict_since(folder, change, now.version)) is not None:
        raise _MetError(why)
    return commit_change(folder, now, change, user_metadata)
