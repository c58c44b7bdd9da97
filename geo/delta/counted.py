"""Whether a commit that was put into a log without a lock counts: a log is cut, so its name may be free below what is there, and a process
that was halted before its put makes one that nobody ever reads.

Whoever cuts removes the oldest commits first. So a commit counts if the one that it was made for is still there after it, as it was read.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress

from geo.delta.commits import commit_file
from geo.delta.delta_log import read_folder
from geo.delta.delta_state import DeltaState, txn_id
from geo.delta.engine import UnsupportedError, attempt
from geo.delta.engines.native.active_files import active_files
from geo.delta.store import WritePath
from geo.errors import DamagedError, UnknownAnswerError
from geo.text import first_line


def counts(folder: WritePath, before: DeltaState, files: Collection[str]) -> bool:
    """Whether the commit after `before` counts, which this process has put and which adds these files. If not, it is removed again.

    Raises UnknownAnswerError where nobody can tell any more: the log was cut past the version that it was made for, and its files are gone.
    """
    ours = folder / commit_file(before.version + 1)
    try:
        with suppress(FileNotFoundError):
            if txn_id(folder, before.version) == before.checksum["txnId"]:
                return True
        later = read_folder(folder).commits
        if (above := [version for version in later if version > before.version + 1]) and above[0] != before.version + 2:
            ours.delete()  # what followed on another one of this number was cut off with it
            return False
        found = attempt(lambda: active_files(folder))
    except (OSError, ValueError, DamagedError) as error:
        raise UnknownAnswerError(f"{ours}: whether it counts cannot be read: {first_line(error)}") from None
    if not isinstance(found, UnsupportedError) and not {one["path"] for one in found[0]}.isdisjoint(files):
        return True
    raise UnknownAnswerError(
        f"{ours}: the log was cut past the version that this commit was made for; nobody can tell whether it counts."
    )
