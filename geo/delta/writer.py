"""Appends to a Delta table without Spark: files of rows, one commit that adds them, and the checksum beside it.

An append by Spark takes 200 to 300 ms whatever it appends, this one 2 to 5. It knows what an append needs of Delta's protocol and no more. A table
that uses anything else, or that was last written without a checksum, is left to Spark (geo.delta.delta_state). The checkpoints that come between
are written by `deltalake`, on a store where a look is a request mostly by this process (geo.delta.checkpoint). Where that is not there the commits
that are due one are Spark's.
"""

from __future__ import annotations

import json
import logging
import math
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Any

from geo.crash import CrashPoint, reach
from geo.delta.checkpoint import write_checkpoint
from geo.delta.commits import ENGINE
from geo.delta.counted import Counted, counted
from geo.delta.delta_log import POINTER, newest_seen, saw
from geo.delta.delta_state import DeltaState, forget_read, last_read, newest_state, state_of
from geo.delta.derived_checksum import checksum_with
from geo.delta.engine import UnsupportedError, attempt
from geo.delta.features import numbered, timed
from geo.delta.put_commit import put_checksum, put_commit
from geo.delta.row_files import Added, Written
from geo.delta.store import WritePath
from geo.delta.young import refuse_old
from geo.now import now_us
from geo.text import first_line

try:
    from deltalake import DeltaTable
except ImportError:  # the code came as a zip
    DeltaTable = None  # type: ignore[assignment, misc]

log = logging.getLogger(__name__)

COMMITTED_S = 10.0
"""So long what a process committed last is taken for the newest, until a commit fails on it."""

_committed: dict[WritePath, tuple[int, Mapping[str, Any], float]] = {}
"""Version, by `_delta_log`, that this process committed last, its checksum, and when (monotonic)."""

_checkpoints_of_spark: set[str] = set()
"""Ids of tables of which `deltalake` could not write a checkpoint."""


def is_due(state: DeltaState) -> bool:
    """Tells whether the next commit is to write a checkpoint."""
    return (state.version + 1) % state.checkpoint_interval == 0


def is_for_spark(folder: WritePath, state: DeltaState) -> bool:
    """Tells whether the next commit is to write a checkpoint that is not written here. Where all commits are this program's none is: the next one
    that is due tries again.
    """
    return folder.store.is_near and is_due(state) and (DeltaTable is None or state.table_id in _checkpoints_of_spark)


def may_add(folder: WritePath, state: DeltaState, written: Written) -> bool:
    """Tells whether the next commit may add the files here: it is the same table and still has their columns and partitions."""
    is_same = (state.table_id, state.partition_by) == (written.table_id, written.partition_by)
    return is_same and set(written.stored) <= set(state.stored) and not is_for_spark(folder, state)


def commit_files(
    folder: WritePath,
    state: DeltaState,
    added: Sequence[Added],
    user_metadata: str | None,
    transaction: tuple[str, int] | None = None,
) -> bool:
    """Commit the files as the version after `state`, and that this number of a transaction's application was used: False and errors as
    `put_commit`."""
    rows, size = sum(file.rows for file in added), sum(file.size for file in added)
    told: dict[str, Any] = {
        "operation": "WRITE",
        "operationParameters": {"mode": "Append", "partitionBy": json.dumps(list(state.partition_by))},
        "isBlindAppend": True,
        "operationMetrics": {"numFiles": str(len(added)), "numOutputRows": str(rows), "numOutputBytes": str(size)},
    }
    files, domains = numbered(state.checksum, state.version + 1, ((file.action, file.rows) for file in added))
    actions = [*({"add": file} for file in files), *({"domainMetadata": one} for one in domains)]
    changed = dict[str, Any]()
    if domains:
        named = {one["domain"] for one in domains}
        kept = (other for other in state.checksum["domainMetadata"] if other["domain"] not in named)
        changed["domainMetadata"] = [*kept, *domains]
    if transaction is not None:
        one = {"appId": transaction[0], "version": transaction[1], "lastUpdated": now_us() // 1000}
        actions.insert(0, {"txn": one})
        others = (other for other in state.checksum["setTransactions"] if other["appId"] != transaction[0])
        changed["setTransactions"] = [*others, one]
    return commit_actions(folder, state, told, actions, user_metadata, changed)


def commit_actions(
    folder: WritePath,
    state: DeltaState,
    told: Mapping[str, Any],
    actions: Sequence[Mapping[str, Any]],
    user_metadata: str | None,
    changed: Mapping[str, Any] = MappingProxyType({}),
) -> bool:
    """Commit actions as the version after `state`; `told` is what its `commitInfo` says of them. `changed`: what its checksum says otherwise
    than the one before, beside files. False and errors as `put_commit`; raises RetryableError for files that are no longer young."""
    version, transaction, now_ms = state.version + 1, str(uuid.uuid4()), now_us() // 1000
    time_of = timed(state.checksum, now_ms)
    info: dict[str, Any] = {
        **time_of,
        "timestamp": now_ms,
        **told,
        "readVersion": state.version,
        "isolationLevel": "Serializable",
        **({"userMetadata": user_metadata} if user_metadata is not None else {}),
        "engineInfo": ENGINE,
        "txnId": transaction,
    }
    added = [action["add"] for action in actions if "add" in action]
    taken = {action["remove"]["path"]: action["remove"]["size"] for action in actions if "remove" in action}
    paths = [file["path"] for file in added]
    # Large ones are on the disk already. Small ones are quicker written out with the commit, all at once.
    files = [folder.parent / path for path in paths]
    if named := [*files, *(folder.parent / action["cdc"]["path"] for action in actions if "cdc" in action)]:
        # Of files of the feed, which are written last, no commit says when that was.
        refuse_old(folder.parent, state.configuration, named, min((file["modificationTime"] for file in added), default=0) * 1000)
    if not put_commit(folder, version, [{"commitInfo": info}, *actions], files):
        return False
    # Where there is a lock, nobody cuts the log meanwhile.
    became = Counted.NEXT if folder.store.is_near else counted(folder, state, paths)
    if became is Counted.NOT:
        return False
    reach(CrashPoint.APPEND_COMMITTED)
    if became is Counted.LONG_AGO:
        forget_committed(folder)
        return True
    checksum = {**checksum_with(state.checksum, added, taken), **changed, "txnId": transaction}
    if time_of:
        checksum["inCommitTimestampOpt"] = time_of["inCommitTimestamp"]
    put_checksum(folder, version, checksum)
    if not folder.store.is_near:
        _committed[folder] = version, checksum, time.monotonic()
        saw(folder, version)
    if is_due(state):
        _write_checkpoint(folder, version, state.table_id, checksum)
    return True


def last_committed(folder: WritePath) -> DeltaState | None:
    """The version that this process committed last, on a store where a look is a request, if that was a moment ago. Another one may be newer:
    the next commit finds that out, and asks no more (`forget_committed`). None: it is not known."""
    version, checksum, at = _committed.get(folder, (-1, {}, -math.inf))
    if time.monotonic() - at < COMMITTED_S:
        return state_of(version, checksum)
    _committed.pop(folder, None)
    return None


def state_to_follow(folder: WritePath) -> DeltaState | None:
    """A version that a commit may follow on. Where a look is a request it is the newest one that this process committed or read a moment ago, else
    the newest. None: the table is left to Spark.

    Another commit may have come since, a fence among them. Then the put finds its version taken, and whoever commits looks again
    (`forget_committed`), and asks once more whether it still may. One that went away with its log is found after the put (`counted`).
    """
    known = [one for one in (last_committed(folder), last_read(folder, COMMITTED_S)) if one is not None]
    newest = max(known, key=lambda one: one.version, default=None)
    return newest_state(folder) if newest is None or newest.version < newest_seen(folder) else newest


def files_committed(folder: WritePath) -> int:
    """Counts the files that a table on a store where a look is a request had after this process's last commit. 0: that is not known."""
    _, checksum, _ = _committed.get(folder, (-1, {"numFiles": 0}, -math.inf))
    return int(checksum["numFiles"])


def forget_committed(folder: WritePath) -> None:
    """Forgets what is known of the newest version."""
    _committed.pop(folder, None)
    forget_read(folder)


def _write_checkpoint(folder: WritePath, version: int, table_id: str, checksum: Mapping[str, Any]) -> None:
    """Write one of the newest version, which has this checksum. What fails here is no fault of the commit; those of that table are Spark's
    from then on."""
    try:
        if not folder.store.is_near:
            why = attempt(lambda: write_checkpoint(folder, version, checksum))
            if not isinstance(why, UnsupportedError):
                return
            log.info("%s: deltalake writes its checkpoint: %s", folder.parent, why)
        checkpoint = str(folder / f"{version:020}.checkpoint.parquet")
        for path in (checkpoint, str(folder / POINTER)):
            folder.store.forget(path)
        DeltaTable(str(folder.parent), storage_options=dict(folder.store.options)).create_checkpoint()
        with suppress(OSError):  # another commit came between
            folder.store.adopt(checkpoint)
    except Exception as error:  # of deltalake, whatever it is
        if folder.store.is_near:
            _checkpoints_of_spark.add(table_id)
        log.warning("%s: no checkpoint was written: %s", folder.parent, first_line(error))
