"""Progress of something long, as lines of the log: how much, of how much, how fast, and how long it will still take."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping

Counts = Mapping[str, int]
"""Counts since the start, by what was done, such as "published"."""

_step = ""


def set_step(what: str) -> None:
    """Sets the step that this process is at now, for who asks how it goes."""
    global _step
    _step = what


def step() -> str:
    """The step that this process was at last; empty if it never set one."""
    return _step


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
            took_s = now - self._began
            said = {"event": "progress", "work": self._what, "messages": self._done, "seconds": round(took_s, 3)}
            self._log.info("%s", self._line(took_s, part), extra=said)

    def _line(self, took_s: float, part: float | None) -> str:
        of = f" of {self._total:,}" if self._total is not None else ""
        text = f"{self._what}: {self._done:,}{of} {self._unit}, {_rate(self._done / took_s)} a second"
        if part is None or not 0 < part < 1:
            return text
        return f"{text}, {part:.0%}, {elapsed(took_s * (1 - part) / part)} left"


def _rate(rate: float) -> str:
    return f"{rate:,.{0 if rate >= 10 else 1}f}"


def elapsed(seconds: float) -> str:
    """A duration as people read it: 0:05, 12:30, 3:12:04."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}" if minutes >= 60 else f"{minutes}:{rest:02}"


def rates(now: Counts, before: Counts, seconds: float) -> str:
    """Words for the counts since the start, and for their rates since `before`, so many seconds ago; without these, for the
    counts alone.
    """
    return ", ".join(
        f"{count:,} {what}" + (f" ({_rate((count - before.get(what, 0)) / seconds)} a second)" if seconds > 0 else "")
        for what, count in now.items()
    )
