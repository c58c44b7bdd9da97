"""One driver at a time writes a cluster whose storage loses commits of two: a second one is refused by name.

Nothing here races on what the storage loses races on. Each driver puts up a sign of its own name in one folder, `driver` beside the
tables, and then lists that folder: storage that shows a file in each list after it was made (S3 does, since 2020) shows the earlier of
two drivers to the later one, whichever that is. Who sees another one that lives takes its own sign back; of two that see each other
both do. A sign is two files, written in turn, so that one always stands while the other is made anew.

No fence stands behind this. A driver that was halted, or could not renew its sign, for longer than its owner timeout and five minutes
for clocks is taken for gone. When it goes on it meets its successor's sign at its next own one: it says so, and claims nothing more;
what it commits until then may be lost, or replace what the successor commits. So a host that halts processes is no place for such a
cluster.
"""

from __future__ import annotations

import atexit
import json
import logging
import math
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass

from geo.asking import ask_all
from geo.coordination.clock import CLOCK_TOLERANCE_US, SIGN_APART_US
from geo.coordination.heartbeat import BEATS
from geo.coordination.storage_clock import note, storage_now_us
from geo.delta.locks import JVM_END_S
from geo.delta.process import Process
from geo.errors import AlreadyOwnedError
from geo.journal.cluster import ClusterTables
from geo.now import now_us
from geo.text import first_line
from geo.times import from_us

log = logging.getLogger(__name__)

AT_EXIT_S = 10.0
"""How long the end of a process waits for its signs to be taken down; one that stays is forgotten like that of a killed one."""

_lock = threading.Lock()
_signs: dict[str, _Sign] = {}
"""By the place of a cluster's tables: the sign that this process is its driver."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What a sign says: whose it is, when it was renewed, and for how long it counts."""

    process: Process
    renewed_us: int
    timeout_s: int

    @classmethod
    def decode(cls, line: str) -> Seen | None:
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
        """Whether it may still write. One of this host is asked for; another one is believed for its own timeout, and five minutes
        for a first sign, or a program, that had its host's time; of a sign that is further ahead nothing can be said."""
        if self.process.is_here:
            return self.process.lives
        return -CLOCK_TOLERANCE_US <= at_us - self.renewed_us <= self.timeout_s * 1_000_000 + CLOCK_TOLERANCE_US


def others(files: Mapping[str, str], me: Process, at_us: int) -> tuple[list[Seen], dict[str, Seen]]:
    """Of the signs of other processes those that live, and the files of those that do not."""
    found = {name: seen for name, line in files.items() if (seen := Seen.decode(line)) is not None and seen.process != me}
    living = [seen for seen in found.values() if seen.lives(at_us)]
    of_living = {seen.process for seen in living}
    return living, {name: seen for name, seen in found.items() if seen.process not in of_living}


def be_sole_driver(tables: ClusterTables) -> None:
    """Be the driver that writes this cluster, until this process ends. Does nothing where two may write.

    Raises WrongClockError on a host whose clock is not the storage's, AlreadyOwnedError naming the other one, if one lives; then no sign of this process is left.
    """
    if not tables.is_for_one_driver:
        return
    with _lock:
        sign = _signs.get(tables.place)
        if sign is None:
            _signs[tables.place] = sign = _Sign(tables)
            try:
                sign.put_up()
            except BaseException:
                del _signs[tables.place]
                raise
        else:
            sign.check(tables)


class _Sign:
    """The sign of this process, renewed by a thread."""

    def __init__(self, tables: ClusterTables) -> None:
        self._tables, self._me, self._beats = tables, tables.me, 0
        self._folder = f"{tables.cluster.root}/driver" if tables.cluster.root is not None else tables.checkpoint("driver")
        self._name = self._me.name.replace(":", "-")
        self._every_s = tables.cluster.owner_timeout_s / BEATS
        self._renewed_at = -math.inf
        self._ended = threading.Event()

    def put_up(self) -> None:
        self._refuse_another()
        before_us = now_us()
        self.renew()
        try:
            # Before anything else is written, and before anybody is taken for gone.
            came_us = self._tables.files.written_us(f"{self._folder}/{self._name}-0")
            if note(self._tables, before_us, came_us, f"{self._tables.cluster.name}: is not written").apart_us > SIGN_APART_US:
                self.renew()
            gone = self._refuse_another()
        except BaseException:
            self.take_down()
            raise
        for name in gone:
            self._tables.files.remove(f"{self._folder}/{name}")
        threading.Thread(target=self._beat, name=f"geo-driver-{self._tables.cluster.name}", daemon=True).start()

    def check(self, tables: ClusterTables) -> None:
        """Once more, by a session that lives: nothing is asked while the sign is fresh."""
        self._tables = tables
        if time.monotonic() - self._renewed_at > 2 * self._every_s:
            self._refuse_another()
            self.renew()
            self._refuse_another()

    def renew(self) -> None:
        line = Seen(self._me, storage_now_us(self._tables, writes=False), self._tables.cluster.owner_timeout_s).encode()
        self._tables.files.replace(f"{self._folder}/{self._name}-{self._beats % 2}", [line])
        self._beats += 1
        self._renewed_at = time.monotonic()

    def take_down(self) -> None:
        self._ended.set()
        for number in range(min(2, self._beats)):
            self._tables.files.remove(f"{self._folder}/{self._name}-{number}")

    def _beat(self) -> None:
        while not self._ended.wait(self._every_s):
            try:
                self.renew()
                self._refuse_another()
            except AlreadyOwnedError as error:
                log.error("%s", error)
            except Exception as error:  # the next one may pass
                log.warning("%s: no sign of this driver could be written: %s", self._tables.cluster.name, first_line(error))

    def _refuse_another(self) -> list[str]:
        """The files of drivers that are gone. Raises AlreadyOwnedError where one lives, or its JVM does."""
        cluster, files = self._tables.cluster.name, self._tables.files
        there = {name: "\n".join(files.lines(f"{self._folder}/{name}")) for name in files.names(self._folder)}
        living, gone = others(there, self._me, storage_now_us(self._tables, writes=False))
        for seen in living:
            self._renewed_at = -math.inf  # what claims next looks again
            raise AlreadyOwnedError(
                f"cluster {cluster}: is written by {seen.process}, which gave a sign of life at {from_us(seen.renewed_us):%Y-%m-%d %H:%M:%S} "
                "UTC, and its storage takes one driver at a time (single_driver). Nothing more is written from here. End that process "
                "first, a broker or a notebook: verbs that write run while none does. Or start all with a log store that is put-if-absent."
            )
        for process in {seen.process for seen in gone.values() if seen.process.is_here and seen.process.jvm != self._me.jvm}:
            if not process.wait_for_jvm_end(JVM_END_S):
                raise AlreadyOwnedError(
                    f"cluster {cluster}: {process} is dead, its JVM {process.jvm_pid} still runs and may still commit. Nothing was "
                    "written. End it, then start again."
                )
        return list(gone)


@atexit.register
def take_all_down(limit_s: float = AT_EXIT_S) -> None:
    """The end of the process: after what this process still commits, which was registered later."""
    signs = {name: sign.take_down for name, sign in _signs.items()}
    _signs.clear()
    for name, answer in ask_all(signs, limit_s).items():
        if (error := answer.exception()) is not None:
            log.info("%s: the sign of its driver stays: %s", name, first_line(error))
