"""Signs of life: by them a process is known to live that nobody can see from here.

On a store that this process writes a sign is one object of its process, `system/alive/<process>`, put over itself. It is one request, whose time
the store tells. Behind its first line the object has what the process has at hand (`geo.delta.hand`), for who looks. What a process of a moment
had, which gave no sign, is in `system/hand`. Elsewhere a sign is a row of `system/processes`, with the storage's time.
"""

from __future__ import annotations

import logging
import threading
from datetime import timedelta

from geo.delta.hand import Hand, take
from geo.delta.held_files import Below
from geo.delta.object_reads import modified_us
from geo.delta.object_store import ObjectStore
from geo.delta.process import Process
from geo.delta.store import read_each
from geo.delta.versions import committed_at
from geo.journal.cluster import ClusterTables
from geo.schemas import PROCESSES
from geo.text import first_line
from geo.times import from_us, in_us
from geo.version import program_version

log = logging.getLogger(__name__)

_lock = threading.Lock()
_signed: dict[str, int] = {}
"""The number of this process's newest row, by place. What was written last counts, whatever its time is."""
_hands: dict[str, Hand] = {}
"""Facts at hand, by the place of a cluster's tables."""

_MOST_HANDS, _BARE_BYTES = 3, 1024
"""The newest signs of a cluster that have more than so many bytes are read for what is in them, and so many at most. Each is a request."""

_ALIVE, _LEFT = "alive", "hand"
"""In `system`: the folder of the signs, and what the process left that ended last, one object, however many runs there are a day."""


def sign(tables: ClusterTables, at_us: int) -> None:
    """Give a sign of this process. Where the store does not tell when it came it is of `at_us`."""
    if (port := tables.port) is None:
        record(tables, at_us)
    else:
        port.put(_path(tables, tables.me.name), _content(tables, _in_hand(tables, port)))


def _content(tables: ClusterTables, in_hand: list[bytes]) -> bytes:
    """Content of this process's object: who it is, and behind that line what it has at hand."""
    return b"\n".join([tables.me.encode().encode(), *in_hand])


def _in_hand(tables: ClusterTables, port: ObjectStore) -> list[bytes]:
    """Facts that this process has at hand. A sign is given without them rather than not at all."""
    try:
        with _lock:
            return [_hands.setdefault(tables.place, Hand()).packed(port, str(tables.location))]
    except Exception as error:
        log.info("cluster %s: a sign of life without what is at hand: %s", tables.cluster.name, first_line(error))
        return []


def leave_hand(tables: ClusterTables) -> None:
    """Leave what this process, which ends, has at hand for who looks next. Nothing elsewhere than on a store that tells signs itself."""
    if (port := tables.port) is not None and (in_hand := _in_hand(tables, port)):
        port.put(f"{tables.location}/system/{_LEFT}", _content(tables, in_hand))


def take_hands(tables: ClusterTables, port: ObjectStore, below: Below) -> None:
    """Take up what the processes had at hand that gave the newest signs, or left last. `below` lists all that is below the cluster's system tables."""
    hands = {name: told for name, told in below.files.items() if name == _LEFT or name.startswith(f"{_ALIVE}/")}
    given = [(came_us, name) for name, (_, came_us, size) in hands.items() if size > _BARE_BYTES]
    newest = [f"{below.folder}/{name}" for _, name in sorted(given, reverse=True)[:_MOST_HANDS]]
    for content in read_each(port, newest, port.get):
        take(port, b"" if content is None else content.partition(b"\n")[2])


def record(tables: ClusterTables, at_us: int) -> None:
    """Append the row of this process to `system/processes`: on a store that tells signs itself, for people."""
    with _lock:
        number = _signed[tables.place] = max(at_us, _signed.get(tables.place, 0) + 1)
    row = {
        "process": tables.me.name, "holder": tables.me.encode(), "renewed_at": from_us(at_us), "sequence": number,
        "program": program_version() or None,
    }  # fmt: skip
    tables.journal(PROCESSES).append([row])


def came_us(tables: ClusterTables) -> int | None:
    """Tells when the storage says that this process's sign, which it has just given, came; None: it does not say."""
    if tables.port is not None:
        return tables.files.written_us(_path(tables, tables.me.name))
    table = tables.journal(PROCESSES).table
    return in_us(committed_at(table, table.latest_version()))


def signs(tables: ClusterTables) -> dict[str, tuple[int, Process | None]]:
    """Tells when each process gave its last sign, by name, by the storage's clock; and the process, where it is known whose it is."""
    if (port := tables.port) is not None:
        return {
            name: (at_us, tables.me.beside(name)) for name, at_us in modified_us(port.s3, port.lists, _folder(tables)).items()
        }
    rows = tables.journal(PROCESSES).newest()
    return {row["process"]: (in_us(row["renewed_at"]), Process.decode(row["holder"])) for row in rows}


def forget(tables: ClusterTables, now_us: int, silent_for: timedelta) -> None:
    """Remove the objects of processes that ended long ago. (Rows go as those of any journal.)"""
    if (port := tables.port) is not None:
        least_us = now_us - silent_for // timedelta(microseconds=1)
        port.delete_all([_path(tables, name) for name, (at_us, _) in signs(tables).items() if at_us < least_us])


def _folder(tables: ClusterTables) -> str:
    return f"{tables.location}/system/{_ALIVE}"


def _path(tables: ClusterTables, process: str) -> str:
    return f"{_folder(tables)}/{process}"
