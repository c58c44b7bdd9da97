"""One driver at a time writes a cluster whose storage loses commits of two: a second one is refused by name.

Nothing here races on what the storage loses races on. Each driver puts a file of its own name into a folder and then lists the
folder: storage that shows a file in each list after it was made (S3 does, since 2020) shows the earlier of two drivers to the later
one, whichever that is. Who sees another one that lives takes its own file back; of two that see each other both do, and say so.

What this cannot see is a driver that was halted for longer than the owner timeout and goes on: it still takes itself for the only
one, until its next sign of life. So a host that halts processes is no place for such a cluster; storage that commits put-if-absent
needs none of this.
"""

from __future__ import annotations

import atexit
import json
import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone

from geo.errors import AlreadyOwnedError
from geo.tables.cluster import ClusterTables
from geo.tables.locks import JVM_END_S
from geo.tables.process import Process
from geo.text import first_line
from geo.times import from_us, in_us

log = logging.getLogger(__name__)

BEATS = 3
"""Signs of life in an owner timeout."""

_lock = threading.Lock()
_held: dict[str, _Sign] = {}
"""By the place of a cluster's tables: the file that says that this process is its driver."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What a driver's file says."""

    process: Process
    renewed_us: int

    @classmethod
    def decode(cls, line: str) -> Seen | None:
        try:
            found = json.loads(line)
            process = Process.decode(found["process"])
            return None if process is None else cls(process, int(found["renewed_us"]))
        except (ValueError, KeyError, TypeError):
            return None

    def encode(self) -> str:
        return json.dumps({"process": self.process.encode(), "renewed_us": self.renewed_us})

    def lives(self, now_us: int, timeout_s: float) -> bool:
        """Whether it may still write: one of this host is asked for, another one is believed for the owner timeout."""
        if self.process.is_here:
            return self.process.lives
        return now_us - self.renewed_us <= timeout_s * 1_000_000


def others(files: Mapping[str, str], mine: str, now_us: int, timeout_s: float) -> list[Seen]:
    """The drivers beside this one that live, by what their files say."""
    found = [seen for name, line in files.items() if name != mine and (seen := Seen.decode(line)) is not None]
    return [seen for seen in found if seen.lives(now_us, timeout_s)]


def be_sole_driver(tables: ClusterTables) -> None:
    """Be the driver that writes this cluster, for the rest of this process's life. Does nothing where two may write.

    Raises AlreadyOwnedError naming the other one, if one lives; then nothing of this process is left behind.
    """
    if not tables.is_for_one_driver:
        return
    with _lock:
        if tables.place not in _held:
            _held[tables.place] = _Sign.put_up(tables)


class _Sign:
    """The file of this process, renewed by a thread."""

    def __init__(self, tables: ClusterTables) -> None:
        self._tables, self._folder = tables, tables.checkpoint("driver")
        self._name = tables.me.name.replace(":", "-")
        self._ended = threading.Event()

    @classmethod
    def put_up(cls, tables: ClusterTables) -> _Sign:
        sign = cls(tables)
        sign._refuse_another()
        sign.renew()
        try:
            sign._refuse_another()
        except BaseException:
            sign.take_down()
            raise
        threading.Thread(target=sign._beat, name=f"geo-driver-{tables.cluster.name}", daemon=True).start()
        atexit.register(sign.take_down)
        return sign

    def renew(self) -> None:
        line = Seen(self._tables.me, in_us(datetime.now(timezone.utc))).encode()
        self._tables.files.replace(f"{self._folder}/{self._name}", [line])

    def take_down(self) -> None:
        self._ended.set()
        try:
            self._tables.files.remove(f"{self._folder}/{self._name}")
        except Exception as error:  # whatever it is: others wait for the owner timeout then
            log.info("%s: the sign of this driver stays: %s", self._tables.cluster.name, first_line(error))

    def _beat(self) -> None:
        while not self._ended.wait(self._tables.cluster.owner_timeout_s / BEATS):
            try:
                self.renew()
            except Exception as error:  # the next one may pass
                log.warning("%s: no sign of this driver could be written: %s", self._tables.cluster.name, first_line(error))

    def _refuse_another(self) -> None:
        tables, timeout_s = self._tables, self._tables.cluster.owner_timeout_s
        files = {name: "\n".join(tables.files.lines(f"{self._folder}/{name}")) for name in tables.files.names(self._folder)}
        for seen in others(files, self._name, in_us(datetime.now(timezone.utc)), timeout_s):
            raise AlreadyOwnedError(
                f"cluster {tables.cluster.name}: is written by {seen.process}, which gave a sign of life at "
                f"{from_us(seen.renewed_us):%Y-%m-%d %H:%M:%S} UTC, and its storage takes one driver at a time (single_driver). Nothing "
                f"was written. Do this in that process, or stop it; one on another host is forgotten {timeout_s:.0f} s after it was killed."
            )
        for name, line in files.items():
            found = Seen.decode(line)
            if name == self._name or found is None:
                continue
            if found.process.is_here and not found.process.wait_for_jvm_end(JVM_END_S):
                raise AlreadyOwnedError(
                    f"cluster {tables.cluster.name}: {found.process} is dead, its JVM {found.process.jvm_pid} still runs and may still "
                    "commit. Nothing was written. End it, then start again."
                )
            tables.files.remove(f"{self._folder}/{name}")
