"""The storage's clock, as this process can tell it. It is the time when a write of this process came, by the storage, carried on by a steady clock
of this host.

What is compared between hosts is told by this clock: signs of life, claims, a leader's assignments. So two hosts' clocks are never compared. On a
local disk the write is a file without a name, which takes microseconds; elsewhere it is a sign of life.
"""

from __future__ import annotations

import os
import tempfile
import threading
from pathlib import Path

from geo.coordination.clock import SIGN_APART_US, HeldClock, refuse
from geo.coordination.signs import came_us, sign
from geo.delta.object_store import ObjectStore
from geo.journal.cluster import ClusterTables
from geo.now import now_us, steady_us

LOCAL_HOLD_US = 60 * 1_000_000
"""Time for which a comparison counts where comparing is a matter of microseconds."""

HOLD_US = 3600 * 1_000_000
"""The same elsewhere: a sign of life takes seconds there, and clocks drift by milliseconds an hour."""

_lock = threading.Lock()
_held: dict[str, HeldClock] = {}
"""Held clocks by the place of a cluster's tables."""

_asking: dict[str, threading.Lock] = {}
_told: dict[str, HeldClock] = {}
"""Held clocks as in `_held`, by what a store's answers say. Of several threads one asks a place."""


def storage_now_us(tables: ClusterTables, *, writes: bool = True) -> int:
    """Now by the storage's clock, in microseconds since 1970. Where the storage does not say what time it is, now by this host's.

    `writes=False` is for who only looks: nothing is written but a file without a name, where the disk takes it. A store is asked by a request once
    an hour.
    """
    held = _hold(tables, writes=writes)
    return now_us() if held is None else held.now_us(steady_us())


def checked_now_us(tables: ClusterTables, who: str, *, writes: bool = True) -> int:
    """Reads the time as `storage_now_us`, for what nobody can take back. Raises WrongClockError, which says of `who` what is not done, on a
    host whose clock is not the storage's."""
    held = _hold(tables, writes=writes)
    if held is None:
        return now_us()
    refuse(who, held.wrong())
    return held.now_us(steady_us())


def known_now_us(tables: ClusterTables, who: str) -> int | None:
    """Reads the time as `checked_now_us` where that takes no request. None: it takes one, and no `note` was taken within HOLD_US."""
    if not tables.is_near and _known(tables, HOLD_US) is None:
        return None
    return checked_now_us(tables, who)


def note(tables: ClusterTables, before_us: int, storage_us: int | None, who: str) -> HeldClock:
    """Take note that a write, begun when this host's clock said `before_us`, came at `storage_us` by the storage's. Raises as
    `checked_now_us`."""
    held = HeldClock(before_us, now_us(), steady_us(), storage_us)
    with _lock:
        _held[tables.place] = held
    refuse(who, held.wrong())
    return held


def renew(tables: ClusterTables) -> None:
    """Write a sign of life of this process now, by the storage's clock."""
    sign(tables, storage_now_us(tables))


def _known(tables: ClusterTables, most_us: int) -> HeldClock | None:
    held = _held.get(tables.place)
    return None if held is None or held.is_old(now_us(), steady_us(), most_us) else held


def _hold(tables: ClusterTables, *, writes: bool) -> HeldClock | None:
    """This host's clock held against the storage's, lately; None where that was not done."""
    if (held := _known(tables, LOCAL_HOLD_US if tables.is_near else HOLD_US)) is not None:
        return held
    if not writes and tables.port is not None:
        return _asked(tables.place, tables.port)
    held = _hold_anew(tables, writes=writes)
    return held if held is None or not held.took_long else _hold_anew(tables, writes=writes)


def _asked(place: str, port: ObjectStore) -> HeldClock:
    """Reads the time from a store's answers, to the second: for readers, and for nothing that is written."""
    with _asking.setdefault(place, threading.Lock()):
        held = _told.get(place)
        if held is None or held.is_old(now_us(), steady_us(), HOLD_US):
            before = now_us()
            told = port.s3.told_us()
            held = _told[place] = HeldClock(before, now_us(), steady_us(), told)
        return held


def _hold_anew(tables: ClusterTables, *, writes: bool) -> HeldClock | None:
    folder, before = tables.lock_folder, now_us()
    if folder is not None:
        came = _of_folder(folder, writes=writes)
    elif writes:
        # A sign by the host's clock alone would make a process that lives look silent: the one held last goes on beside it.
        known = _held.get(tables.place)
        sign(tables, before if known is None else known.now_us(steady_us()))
        came = came_us(tables)
    else:
        return None
    if came is None and not writes:
        return None
    held = HeldClock(before, now_us(), steady_us(), came)
    with _lock:
        _held[tables.place] = held
    if folder is None and held.apart_us > SIGN_APART_US and held.wrong() is None:
        sign(tables, held.now_us(steady_us()))
    return held


def _of_folder(folder: Path, *, writes: bool) -> int | None:
    """Reads the clock of the disk that has this folder.
    None: nothing can be written there, and nothing has to be."""
    try:
        if writes:
            folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            return os.fstat(file.fileno()).st_mtime_ns // 1000
    except OSError:
        if writes:
            raise
        return None
