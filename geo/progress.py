"""How far something long has come, as lines of the log: how much, of how much, how fast, and how long it will still take."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

EVERY_S = 5.0
"""Between two lines. What ends before the first says nothing."""


class Progress:
    """`what` is done piece by piece, `total` of them if that is known: `unit`s such as "messages". For several threads at
    once."""

    def __init__(
        self, log: logging.Logger, what: str, unit: str, total: int | None = None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._log, self._what, self._unit, self._total, self._clock = log, what, unit, total, clock
        self._done = 0
        self._began = self._told = clock()
        self._mutex = threading.Lock()

    def add(self, done: int, part: float | None = None) -> None:
        """So many more are done. `part`: which part of all this makes (0 to 1), where that is known and the total is not."""
        with self._mutex:
            self._done += done
            now = self._clock()
            if now - self._told < EVERY_S or self._done == self._total:
                return
            self._told = now
            if part is None and self._total:
                part = self._done / self._total
            self._log.info("%s", self._line(now - self._began, part))

    def _line(self, took_s: float, part: float | None) -> str:
        of = f" of {self._total:,}" if self._total is not None else ""
        rate = self._done / took_s
        text = f"{self._what}: {self._done:,}{of} {self._unit}, {rate:,.{0 if rate >= 10 else 1}f} a second"
        if part is None or not 0 < part < 1:
            return text
        left_s = round(took_s * (1 - part) / part)
        return f"{text}, {part:.0%}, {left_s // 60}:{left_s % 60:02} left"
