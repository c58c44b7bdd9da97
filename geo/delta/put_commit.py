"""A commit that this process puts into the `_delta_log` of a table on a local disk: whole, if its version is absent, and written out
before it has its name.

Whoever calls holds the table's lock: Spark's own commit on a local disk is not put-if-absent.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from geo.crash import CrashPoint, reach
from geo.delta.sums import put_sum, sum_of
from geo.disk import sync

UNNAMED = re.compile(r"\.\d{20}\.(json\.)?[0-9a-f-]{36}\.tmp|\.\.\d{20}\.json\.[0-9a-f-]{36}\.tmp\.crc")
"""What a process, or Spark in it, leaves that died before a commit had its name."""


def put_commit(
    folder: Path, version: int, transaction: str, actions: Iterable[Mapping[str, Any]], files: Iterable[Path] = ()
) -> bool:
    """Put the commit that the transaction made, once `files`, which it names, are written out. False if that version is there.

    Raises OSError, with nothing done, if it cannot be written, also where the file system has no links.
    """
    commit, new = folder / f"{version:020}.json", folder / f".{version:020}.{transaction}.tmp"
    # Of a version of this number that went with an older copy of the log: readers would hold ours against it. Whoever puts the same
    # version without the lock writes these behind the commit, so what is there before it is not of theirs. (One that they put meanwhile
    # in the place of such a one may go: a version without is whole.)
    checksum = folder / f"{version:020}.crc"
    others = (sum_of(commit), sum_of(folder / f"{version:020}.checkpoint.parquet"), checksum, sum_of(checksum))
    left = [path for path in others if path.exists()]
    if commit.exists():
        return False
    try:
        new.write_text("".join(f"{_line(action)}\n" for action in actions), encoding="utf-8")
        # A power cut may spare a name and take the content.
        sync([*(one for file in files for one in (file, sum_of(file))), new])
        for path in left:
            path.unlink(missing_ok=True)
        reach(CrashPoint.COMMIT_WRITTEN)
        _link(new, commit)
    except FileExistsError:
        return False
    finally:
        with suppress(OSError):
            new.unlink()
    with suppress(OSError):  # a commit without is whole
        put_sum(commit)
    return True


def _link(new: Path, commit: Path) -> None:
    try:
        os.link(new, commit)
    except OSError:
        # A network file system may lose the answer, or ask again for a link that it made: then it is ours.
        if not (commit.exists() and commit.samefile(new)):
            raise


def put_checksum(folder: Path, version: int, checksum: Mapping[str, Any]) -> None:
    """Put the checksum beside a commit. A version without one is whole, and Spark looks it up then: so what fails here is no fault of
    the commit, which stands."""
    new = folder / f".{version:020}.{checksum['txnId']}.crc.tmp"
    with suppress(OSError):
        new.write_text(_line(checksum) + "\n", encoding="utf-8")
        path = folder / f"{version:020}.crc"
        sum_of(path).unlink(missing_ok=True)
        new.replace(path)
        put_sum(path, writes_out=False)  # neither is: where they do not fit, it is as if there were none


def _line(fields: Mapping[str, Any]) -> str:
    return json.dumps(fields, separators=(",", ":"))
