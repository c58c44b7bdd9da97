"""A commit that this process puts into the `_delta_log` of a table: whole, if its version is absent.

On a local disk whoever calls holds the table's lock: Spark's own commit there is not put-if-absent.
"""

from __future__ import annotations

import json
import logging
import math
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from geo.delta.commits import checksum_file, commit_file
from geo.delta.store import Put, WritePath
from geo.errors import UnknownAnswerError
from geo.text import first_line

log = logging.getLogger(__name__)

TRIES = 3
FAR_TRIES, PAUSE_S = 8, 0.05
"""So often a commit is put of which no answer says whether it was made, and which is not there. On a store that is far with pauses that double,
since it may be busy: six seconds in all."""

_put_at: dict[WritePath, float] = {}


def put_commit(folder: WritePath, version: int, actions: Iterable[Mapping[str, Any]], files: Iterable[WritePath] = ()) -> bool:
    """Put a commit once `files`, which it names, are written out. False if that version is there, and another one.

    An answer that says so is not believed: the store's own library may have asked a second time for what the first one made. The commit is held
    against ours, which is told from any other by its transaction (`txnId`). Raises OSError, with nothing done, if it cannot be written;
    UnknownAnswerError if nobody can tell, and then it may be there, or come.
    """
    commit, checksum = folder / commit_file(version), folder / checksum_file(version)
    # Of a version of this number that went with an older copy of the log: readers would hold ours against it. Whoever puts the same
    # version meanwhile writes it behind the commit, so what is there before is not of theirs. (One that they put in the place of such
    # a one may go: a version without is whole.) On a store that is far that look is left out: ours takes its place a moment later.
    if (has_left := folder.store.is_near and checksum.is_there()) and commit.is_there():  # else the put tells
        return False
    content = "".join(f"{_line(action)}\n" for action in actions).encode()
    folder.store.write_out(map(str, files))
    if has_left:
        checksum.delete()
    try:
        return _put(commit, content)
    finally:
        if not folder.store.is_near:
            _put_at[folder] = time.monotonic()


def last_put_at(folder: WritePath) -> float:
    """Tells when this process last put a commit into a log on a store that is far, whatever came of it (monotonic); -inf: never."""
    return _put_at.get(folder, -math.inf)


def _put(commit: WritePath, content: bytes) -> bool:
    said = None
    is_near = commit.store.is_near
    for number in range(TRIES if is_near else FAR_TRIES):
        if number and not is_near:
            time.sleep(PAUSE_S * 2 ** (number - 1))
        try:
            said = commit.store.put_if_absent(str(commit), content)
        except OSError:
            if said is None:
                raise
            continue  # what was asked before may have been done
        if said is Put.MADE:
            return True
        try:
            return commit.unchecked() == content  # its sums may be on their way
        except FileNotFoundError:
            if said is Put.THERE and is_near:  # another one's: nobody near asks twice by itself
                return False
            # Elsewhere it is said too of a name that another request is about to make.
        except OSError as error:
            log.info("%s: whether it was made cannot be read: %s", commit, first_line(error))
    raise UnknownAnswerError(
        f"{commit}: the store does not say whether this commit was made; it may be. It is looked for at the next try."
    )


def put_checksum(folder: WritePath, version: int, checksum: Mapping[str, Any]) -> None:
    """Put the checksum beside a commit. A version without one is whole, and Spark looks it up then: so what fails here is no fault of
    the commit, which stands."""
    with suppress(OSError):
        folder.store.put(str(folder / checksum_file(version)), f"{_line(checksum)}\n".encode())


def _line(fields: Mapping[str, Any]) -> str:
    return json.dumps(fields, separators=(",", ":"))
