"""The named crash points: every window in which a process may die between two durable effects.

One list for the code, which calls `reach` there, and for the tests, which enumerate it. Without the environment variable
`GEO_CRASH` a point costs two attribute checks. `GEO_CRASH=<point>:<action>[:<nth>]` acts the nth time (default 1st) that the
point is reached.

- `raise` throws InjectedCrash.
- `kill` sends SIGKILL to the whole process group.
- `stop` halts it by SIGSTOP, so that a test can let another runner take over. Whoever reached the point goes on only after the
  whole group was continued.

`watched` lets a test do in a window what others may do there.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum


class CrashPoint(str, Enum):
    """Named windows, in the order in which one run passes them."""

    # claim, by whoever: owners row -> own fence file -> owners read again -> files of lower generations removed
    CLAIM_WON = "claim-won"
    CLAIM_FENCED = "claim-fenced"
    CLAIM_NEWEST = "claim-newest"
    # any append that this process commits without Spark: file of rows -> its check -> file of its commit -> commit -> its checksum
    APPEND_WRITTEN = "append-written"
    APPEND_CHECKED = "append-checked"
    COMMIT_WRITTEN = "commit-written"
    APPEND_COMMITTED = "append-committed"
    # a change of files without Spark: files found and written -> its check, and so on as above
    CHANGE_MADE = "change-made"
    # a table that this process makes as Spark made one before: file of its first commit, as above -> commit -> its checksum
    TABLE_COMMITTED = "table-committed"
    # publish: owners row -> ledgers row (-> columns that came in the source) -> log commit -> recorded end -> a stream's checkpoint, or the note of a source of ours
    PUBLISH_CLAIMED = "publish-claimed"
    COLUMNS_ADDED = "columns-added"
    PUBLISH_LEDGERS_OPENED = "publish-ledgers-opened"
    PUBLISH_BEFORE_APPEND = "publish-before-append"
    PUBLISH_AFTER_APPEND = "publish-after-append"
    PUBLISH_ENDS_RECORDED = "publish-ends-recorded"
    # topic: registry row -> log table
    TOPIC_REGISTERED = "topic-registered"
    # link: owners row -> fence -> reconcile commit -> start recorded -> [batch commit] -> state row
    LINK_CLAIMED = "link-claimed"
    LINK_FENCED = "link-fenced"
    LINK_BEFORE_RECONCILE_APPEND = "link-before-reconcile-append"
    LINK_AFTER_RECONCILE_APPEND = "link-after-reconcile-append"
    LINK_COMPARED = "link-compared"
    LINK_START_RECORDED = "link-start-recorded"
    LINK_BEFORE_APPEND = "link-before-append"
    LINK_AFTER_APPEND = "link-after-append"
    LINK_STATE_RECORDED = "link-state-recorded"
    # consume: owners row -> creation record -> [note of the attempt -> the user's function -> dead letters]; beside it acknowledgement records
    CONSUME_CREATED = "consume-created"
    CONSUME_ATTEMPTED = "consume-attempted"
    CONSUME_PROCESSED = "consume-processed"
    CONSUME_DEAD_LETTERED = "consume-dead-lettered"
    ACKS_BEFORE_FLUSH = "acks-before-flush"
    ACKS_AFTER_FLUSH = "acks-after-flush"
    # sink: rows and whose they are in one commit
    SINK_BEFORE_APPEND = "sink-before-append"
    SINK_AFTER_APPEND = "sink-after-append"
    # fold: a turn folded -> compact records -> cursors rows
    FOLD_FOLDED = "fold-folded"
    FOLD_COMPACTED = "fold-compacted"
    FOLD_CURSORS_WRITTEN = "fold-cursors-written"
    # version sync: news of the logs -> system/markers; beside it a batch heard -> system/version_starts -> markers in the logs -> checkpoint
    MARKERS_READ = "markers-read"
    MARKERS_COPIED = "markers-copied"
    CONTROLLERS_HEARD = "controllers-heard"
    CONTROLLERS_STARTS = "controllers-starts"
    CONTROLLERS_WRITTEN = "controllers-written"
    # several brokers: bundles of a namespace -> assignments; beside it owners row of bundles -> works; works have ended -> bundles released
    PLACEMENT_BUNDLES_WRITTEN = "placement-bundles-written"
    PLACEMENT_ASSIGNED = "placement-assigned"
    PLACEMENT_CLAIMED = "placement-claimed"
    PLACEMENT_ENDED = "placement-ended"
    PLACEMENT_RELEASED = "placement-released"
    # erase: rewritten rows -> a commit that links can begin at
    ERASE_UPDATED = "erase-updated"
    # backfill: claimed, fenced -> (a file copied -> all copied ->) a step appended
    BACKFILL_FENCED = "backfill-fenced"
    BACKFILL_FILE_COPIED = "backfill-file-copied"
    BACKFILL_COPIED = "backfill-copied"
    BACKFILL_APPENDED = "backfill-appended"
    # delete of a topic: owners rows -> registry row -> registry row that it removes -> ledgers closed, links and requests gone -> folders gone -> log gone
    DELETE_CLAIMED = "delete-claimed"
    DELETE_REGISTERED = "delete-registered"
    DELETE_REMOVES = "delete-removes"
    DELETE_ROWS_GONE = "delete-rows-gone"
    DELETE_FOLDERS_GONE = "delete-folders-gone"
    DELETE_LOG_GONE = "delete-log-gone"
    # any folder that goes: another name -> gone
    FOLDER_RENAMED = "folder-renamed"
    # removal of a cluster, in each other one: owners rows -> links gone -> requests gone
    REMOVE_CLAIMED = "remove-claimed"
    REMOVE_LINKS_GONE = "remove-links-gone"
    REMOVE_REQUESTS_GONE = "remove-requests-gone"
    # events, after what they tell: noted -> system/events
    EVENTS_BEFORE_APPEND = "events-before-append"
    EVENTS_AFTER_APPEND = "events-after-append"
    # rebuild: claimed -> rows appended
    REBUILD_APPENDED = "rebuild-appended"


class InjectedCrash(Exception):
    """Thrown by `raise`. No GeoError and no error of Spark's, so that nothing of ours takes it for a fault to be retried."""


class _Plan:
    def __init__(self, spec: str) -> None:
        point, _, rest = spec.partition(":")
        action, _, nth = rest.partition(":")
        self.point, self.action, self.nth = CrashPoint(point), action or "kill", int(nth or 1)
        if self.action not in ("raise", "kill", "stop"):
            raise ValueError(f"GEO_CRASH={spec}: the action is one of raise, kill, stop")


_plan = _Plan(os.environ["GEO_CRASH"]) if os.environ.get("GEO_CRASH") else None
_watcher: Callable[[CrashPoint], None] | None = None
_reached: Counter[CrashPoint] = Counter()
_lock = threading.Lock()


def arm(spec: str | None) -> None:
    """Set or clear the plan of this process (what GEO_CRASH does at start-up) and forget what was reached."""
    global _plan
    with _lock:
        _plan = _Plan(spec) if spec else None
        _reached.clear()


@contextmanager
def watched(watcher: Callable[[CrashPoint], None]) -> Iterator[None]:
    """Meanwhile `watcher` is called at each point that this process reaches, by the thread that reaches it, before what is armed."""
    global _watcher
    _watcher = watcher
    try:
        yield
    finally:
        _watcher = None


def reach(point: CrashPoint) -> None:
    """Mark that the process is inside this window now."""
    if _watcher is not None:
        _watcher(point)
    if _plan is None:
        return
    with _lock:
        _reached[point] += 1
        due = point is _plan.point and _reached[point] == _plan.nth
    if not due:
        return
    if _plan.action == "raise":
        raise InjectedCrash(point.value)
    if _plan.action == "kill":
        os.killpg(os.getpgrp(), signal.SIGKILL)
    else:
        # A thread runs on after its own SIGSTOP until some thread of the process has taken it: milliseconds on a busy machine. So a
        # child sends it, is halted too, and is waited for.
        subprocess.run(["sh", "-c", "kill -STOP 0"], check=True)
