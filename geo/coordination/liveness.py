"""Judges whether somebody lives whom this process cannot see: an owner, a broker, a leader, a consumer. Pure: no Spark, clock or I/O.

Two ways, and neither compares the clocks of two hosts. Signs of life have the storage's time, so whoever looks once holds the last
one against what the storage says now (`silent_s`). Whoever looks on and on sees that a sign has changed, by its own steady clock (`Signs`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import inf

from geo.coordination.clock import CLOCK_TOLERANCE_US


def silent_s(now_us: int, signs_us: Iterable[int]) -> float:
    """For how many seconds somebody gave no sign of life, by the signs there are and the storage's clock. Of a sign that is further
    ahead than a clock may be nothing can be said, so it does not count."""
    return max(0.0, (now_us - max((sign for sign in signs_us if sign <= now_us + CLOCK_TOLERANCE_US), default=0)) / 1e6)


class Signs:
    """The one who lives, as far as this process sees: whose row says something new within the timeout, by this process's own steady clock."""

    def __init__(self) -> None:
        self._heard: dict[str, tuple[int, float]] = {}
        """Sequence of the newest row by name, and when it was seen first."""
        self._since: float | None = None
        """Since when it has looked, without such pauses."""
        self._last = 0.0

    def watched_s(self, now: float) -> float:
        """For how long it has looked."""
        return 0.0 if self._since is None else now - self._since

    def observe(self, rows: Mapping[str, int], now: float, most_s: float = inf) -> None:
        """Take the newest rows' sequences, by name. If this process itself did not look for longer than `most_s`, what is beyond that does not
        count against anybody."""
        if self._since is None:
            self._since = now
        elif (unseen := now - self._last - most_s) > 0:
            self._since += unseen
            self._heard = {name: (sequence, at + unseen) for name, (sequence, at) in self._heard.items()}
        self._last = now
        for name, sequence in rows.items():
            if name not in self._heard or self._heard[name][0] != sequence:
                self._heard[name] = sequence, now
        self._heard = {name: seen for name, seen in self._heard.items() if name in rows}

    def living(self, now: float, timeout_s: float) -> set[str]:
        return {name for name, (_, at) in self._heard.items() if now - at <= timeout_s}
