"""Rate at which a topic of a link may replicate: Pulsar's dispatch rate as a bucket of tokens. Pure: no Spark, clock or I/O.

As Pulsar's AsyncTokenBucket it may be overdrawn: whoever has any tokens takes a batch, whatever its size, and waits then until the debt is paid.
Commits are whole, so no batch could be cut to fit.
"""

from __future__ import annotations

from dataclasses import dataclass

from geo.config.model import DispatchRate

BURST_S = 1.0
"""Seconds' worth that may be saved up while nothing is replicated (Pulsar's ratePeriodInSecond)."""

TURN_S = 10.0
"""Seconds' worth that a turn of a topic whose rate is limited replicates at most: what is owed then holds nobody up for long."""


@dataclass(slots=True)
class _Bucket:
    per_s: float
    tokens: float
    at: float

    def fill(self, now: float) -> None:
        self.tokens = min(self.per_s * BURST_S, self.tokens + self.per_s * max(0.0, now - self.at))
        self.at = max(self.at, now)


class Allowance:
    """Allowance of one topic, by the seconds of any clock that does not go back."""

    def __init__(self, rate: DispatchRate, now: float) -> None:
        self.rate = rate
        self._messages = _bucket(rate.messages_per_second, now)
        self._bytes = _bucket(rate.bytes_per_second, now)

    @property
    def turn_messages(self) -> int | None:
        """Messages of a turn, at most; None: any number."""
        return _of_turn(self.rate.messages_per_second)

    @property
    def turn_bytes(self) -> int | None:
        """Bytes of a turn, at most; None: any number."""
        return _of_turn(self.rate.bytes_per_second)

    def wait_s(self, now: float) -> float:
        """Seconds until it may replicate more; 0: now."""
        waits = [0.0]
        for bucket in self._buckets:
            bucket.fill(now)
            waits.append(-bucket.tokens / bucket.per_s)
        return max(waits)

    def took(self, messages: int, size: int, now: float) -> None:
        """Take what was replicated out of the buckets."""
        for bucket, taken in ((self._messages, messages), (self._bytes, size)):
            if bucket is not None:
                bucket.fill(now)
                bucket.tokens -= taken

    @property
    def _buckets(self) -> list[_Bucket]:
        return [bucket for bucket in (self._messages, self._bytes) if bucket is not None]


def _bucket(per_s: int | None, now: float) -> _Bucket | None:
    return None if per_s is None else _Bucket(float(per_s), per_s * BURST_S, now)


def _of_turn(per_s: int | None) -> int | None:
    return None if per_s is None else max(1, int(per_s * TURN_S))
