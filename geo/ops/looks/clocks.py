"""Clocks: this host's against that of each region's storage, and those of the storages against each other. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from geo.coordination.clock import CLOCK_TOLERANCE_US, SIGN_APART_US
from geo.ops.symptom import Symptom
from geo.reasons import Reason

_FIX = "set this host's clock (NTP)"


def of_host(where: str, ahead_us: int) -> Symptom:
    """Judges a host whose clock is so far ahead of the storage's; negative: behind."""
    apart = f"this host's clock is {abs(ahead_us) // 1_000_000:,} s {'ahead of' if ahead_us > 0 else 'behind'} the storage's"
    if abs(ahead_us) > CLOCK_TOLERANCE_US:
        return Symptom("error", where, f"{apart}: here nothing is owned, replicated or verified", _FIX, Reason.CLOCK)
    if abs(ahead_us) > SIGN_APART_US:
        return Symptom("warn", where, apart, _FIX, Reason.CLOCK)
    return Symptom("ok", where, "this host's clock is the storage's, but for some seconds")


def of_regions(ahead_us: Mapping[str, int]) -> Iterator[Symptom]:
    """Judges the storages of clusters, by how far this host's clock is ahead of each."""
    if len(ahead_us) < 2:
        return
    slow, fast = (pick(ahead_us, key=lambda name: ahead_us[name]) for pick in (max, min))
    if (apart := ahead_us[slow] - ahead_us[fast]) > SIGN_APART_US:
        what = f"the storage of {fast} says a time {apart // 1_000_000:,} s ahead of that of {slow}"
        means = "messages of one expire so much too early or too late in the other"
        fix = "set the clocks of the hosts that have these storages (NTP)"
        yield Symptom("error" if apart > CLOCK_TOLERANCE_US else "warn", "clocks", f"{what}: {means}", fix, Reason.CLOCK)
    else:
        yield Symptom("ok", "clocks", f"the storages of {', '.join(sorted(ahead_us))} say the same time, but for some seconds")
