"""Checks an object store before a process writes a cluster that lies on it. The store must keep what it says, and no program of before may write
there, which took itself for the only one.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass

from geo.coordination.clock import CLOCK_TOLERANCE_US
from geo.delta.object_store import ObjectStore
from geo.delta.probe import why_unfit
from geo.delta.process import Process
from geo.delta.store import StorePath, WritePath
from geo.errors import AlreadyOwnedError, UnsafeError
from geo.journal.cluster import ClusterTables
from geo.now import now_us
from geo.reasons import Reason

_FOR_EVER_S = 10**10
_LATER = "later-program"
"""The sign by which a program of before is refused: it reads one line of a file in a folder of this name."""

_lock = threading.Lock()
_admitted: set[WritePath] = set()
"""Roots."""


@dataclass(frozen=True, slots=True)
class Sign:
    """Sign of a program of before in `driver`: whose it is, when it was renewed, and for how long it counts."""

    process: Process
    renewed_us: int
    timeout_s: int

    @classmethod
    def decode(cls, line: str) -> Sign | None:
        """None for a line that no version of ours has written."""
        try:
            found = json.loads(line)
            process = Process.decode(found["process"])
            return None if process is None else cls(process, int(found["renewed_us"]), int(found["timeout_s"]))
        except (ValueError, KeyError, TypeError):
            return None

    def encode(self) -> str:
        return json.dumps({"process": self.process.encode(), "renewed_us": self.renewed_us, "timeout_s": self.timeout_s})

    def lives(self, at_us: int) -> bool:
        """True if its process may still write. The system is asked for a process of this host; another host's sign is believed for its own
        timeout, and five minutes for clocks."""
        if self.process.is_here:
            return self.process.lives
        return -CLOCK_TOLERANCE_US <= at_us - self.renewed_us <= self.timeout_s * 1_000_000 + CLOCK_TOLERANCE_US


def living(lines: Mapping[str, str], at_us: int) -> Sign | None:
    """Finds, among the signs in files by their paths below `driver`, one of a program of before that may still write.
    None: there is none."""
    found = (Sign.decode(line) for path, line in lines.items() if not path.startswith(_LATER))
    return next((sign for sign in found if sign is not None and sign.lives(at_us)), None)


def admit(tables: ClusterTables) -> None:
    """Be sure, once in a process, that a cluster may be written where it lies. Does nothing elsewhere than on an object store.

    Raises UnsafeError for a store that does not keep what it says, AlreadyOwnedError for a program of before that writes there.
    """
    root, port = tables.location, tables.port
    if root is None or port is None:
        return
    place: WritePath = StorePath(port, root)
    with _lock:
        if place in _admitted:
            return
        _probe(tables, place)
        _refuse_before(tables, port, place / "driver")
        _admitted.add(place)


def _probe(tables: ClusterTables, root: WritePath) -> None:
    """Tries the store once. The outcome is remembered beside the tables, with the place that was tried."""
    if is_probed(root):
        return
    if (why := why_unfit(root)) is not None:
        raise UnsafeError(
            f"cluster {tables.cluster.name}: the store of {root} is not fit for logs: {why}. Nothing was written. Use a store that keeps "
            "put-if-absent (If-None-Match: *), such as Amazon S3, MinIO, R2 or Ceph.",
            code=Reason.STORAGE,
        )
    root.store.put(str(_probed(root)), json.dumps(_where(root)).encode())


def is_probed(root: WritePath) -> bool:
    """True if a process tried the store, found it fit, and the store is still reached in the same way."""
    try:
        return bool(json.loads(_probed(root).get()) == _where(root))
    except (FileNotFoundError, ValueError):
        return False


def _probed(root: WritePath) -> WritePath:
    return root / "store.json"


def _where(root: WritePath) -> dict[str, str]:
    return {"endpoint": root.store.options.get("aws_endpoint_url", ""), "root": str(root)}


def _refuse_before(tables: ClusterTables, port: ObjectStore, folder: WritePath) -> None:
    """Refuse a program of before, and let one that starts later find a sign that refuses it. The sign comes first: of two that begin at
    once each sees the other's."""
    ours, there = f"{_LATER}/part-00000.txt", port.below(str(folder), least_bytes=1)
    if was_there := ours in there:
        if all(path.startswith(_LATER) for path in there):  # who starts later finds it
            return
    else:
        sign = Sign(Process("a host with a later version", 0, ""), now_us() - CLOCK_TOLERANCE_US, _FOR_EVER_S)
        port.put(f"{folder}/{ours}", f"{sign.encode()}\n".encode())
    put = port.head(f"{folder}/{ours}")
    lines = {path: (folder / path).get().decode("utf-8", "replace") for path in port.below(str(folder), least_bytes=1)}
    if (other := living(lines, now_us() if put is None else put.modified_us)) is not None:
        if not was_there:
            port.delete(f"{folder}/{ours}")  # it goes on undisturbed
        raise AlreadyOwnedError(
            f"cluster {tables.cluster.name}: is written by {other.process}, a program of a version that took itself for the only one there. "
            "Nothing was written. End it first: all processes of a cluster on S3 are stopped, and then started anew with this version."
        )
