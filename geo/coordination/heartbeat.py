"""The thread that gives signs of life (`signs.py`) while this process owns something in a cluster. A claim is one, too."""

from __future__ import annotations

import logging
import math
import threading
import time

from geo.coordination.signs import record
from geo.coordination.storage_clock import renew, storage_now_us
from geo.journal.cluster import ClusterTables, Housekeeper
from geo.text import first_line

log = logging.getLogger(__name__)

BEATS = 3
"""Signs of life in an owner timeout: two may fail or come late."""

RECORD_S = 3600.0
"""Period in which a process shows people in `system/processes` that it lives, where its signs are objects."""

_lock = threading.Lock()
_beating: dict[str, _Heart] = {}
"""Heartbeats by the place of a cluster's tables."""


class _Heart:
    """The thread that renews this process's sign in one cluster, as long as something there is owned. Keeping house is another
    thread's: a table that is long locked must not make this process look dead."""

    def __init__(self, tables: ClusterTables) -> None:
        self._tables, self.owned, self._stop = tables, 0, threading.Event()
        self.housekeeper: Housekeeper | None = None
        threading.Thread(target=self._beat, name=f"geo-alive-{tables.cluster.name}", daemon=True).start()

    def stop(self) -> None:
        self._stop.set()
        if self.housekeeper is not None:
            self.housekeeper.stop()

    def _beat(self) -> None:
        record_at = time.monotonic() if self._tables.port is not None else math.inf
        while not self._stop.wait(self._tables.cluster.owner_timeout_s / BEATS):
            try:
                renew(self._tables)
                if time.monotonic() >= record_at:
                    record_at = time.monotonic() + RECORD_S
                    record(self._tables, storage_now_us(self._tables))
            except Exception as error:  # whatever it is, the next one may pass; others take over if none does
                log.warning("%s: no sign of life could be written: %s", self._tables.cluster.name, first_line(error))


def keep_alive(tables: ClusterTables, owned: int) -> None:
    """Count so many things more that this process owns in the cluster."""
    with _lock:
        heart = _beating.get(tables.place)
        if heart is None:
            heart = _beating[tables.place] = _Heart(tables)
        if heart.housekeeper is None and tables.start_housekeeper is not None:
            heart.housekeeper = tables.start_housekeeper(tables)
        heart.owned += owned


def restart_housekeeper(tables: ClusterTables) -> None:
    """Restart what keeps the cluster small here, with the configuration by which `tables` were last opened for writing."""
    with _lock:
        heart = _beating.get(tables.place)
        if heart is not None and heart.housekeeper is not None and tables.start_housekeeper is not None:
            heart.housekeeper.stop()
            heart.housekeeper = tables.start_housekeeper(tables)


def leave(tables: ClusterTables) -> None:
    """Count one thing less that this process owns. Its signs of life end with the last one."""
    with _lock:
        heart = _beating.get(tables.place)
        if heart is None:
            return
        heart.owned -= 1
        if heart.owned > 0:
            return
        heart.stop()
        del _beating[tables.place]
    if heart.housekeeper is not None:
        heart.housekeeper.clean_once(tables)
