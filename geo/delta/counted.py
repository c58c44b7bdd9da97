"""Tells whether a commit counts that was put into a log without a lock. A log is cut, so its name may be free below what is there. A process that was
halted before its put makes one that nobody ever reads.

Whoever cuts removes the oldest commits first. So a commit counts if the one that it was made for is still there after it, as it was read.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from enum import Enum

from geo.delta.commits import commit_file
from geo.delta.delta_log import read_folder
from geo.delta.delta_state import DeltaState, txn_id
from geo.delta.engine import UnsupportedError, attempt
from geo.delta.engines.native.active_files import active_files
from geo.delta.store import WritePath
from geo.errors import DamagedError, UnknownAnswerError
from geo.text import first_line


class Counted(Enum):
    """Fate of a commit that was put."""

    NEXT = "next"
    """It counts, and follows on the version that it was made for."""
    LONG_AGO = "long ago"
    """It counts, and the log has gone on and was cut since: nothing is known of the version after it but that."""
    NOT = "not"
    """It does not, and is removed again."""


def counted(folder: WritePath, before: DeltaState, files: Collection[str]) -> Counted:
    """Finds the fate of the commit after `before`, which this process has put and which adds these files.

    Raises UnknownAnswerError where nobody can tell any more, and it may count. Then the log was cut past the version that it was made for and its
    files are gone. Or it is another log, which has gone on behind it.
    """
    ours, version = folder / commit_file(before.version + 1), before.version + 1
    try:
        is_other = False
        with suppress(FileNotFoundError):
            if txn_id(folder, before.version) == before.checksum["txnId"]:
                return Counted.NEXT
            is_other = True
        there = read_folder(folder)
        above = [one for one in there.commits if one > version]
        # Where it was cut off it had counted: the oldest commits go first, and one that is below a gap was put there after the cut.
        is_below_a_gap = bool(above) and above[0] != version + 1
        is_last_of_another = not above and (is_other or not any(one > before.version for one in there.checkpoints))
        if version in there.commits and (is_below_a_gap or is_last_of_another):
            ours.delete()
            return Counted.NOT
        found = None if is_other else attempt(lambda: active_files(folder))
    except (OSError, ValueError, DamagedError) as error:
        raise UnknownAnswerError(f"{ours}: whether it counts cannot be read: {first_line(error)}") from None
    if found is not None and not isinstance(found, UnsupportedError) and not {one["path"] for one in found[0]}.isdisjoint(files):
        return Counted.LONG_AGO
    raise UnknownAnswerError(
        f"{ours}: the log was cut past the version that this commit was made for, or is another one now; nobody can tell whether it counts."
    )
