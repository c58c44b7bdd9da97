"""A second process that is to run what another one runs: it is refused, and tries again and again. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from geo.journal.event_rate import Event, EventKind
from geo.ops.symptom import Symptom
from geo.reasons import Reason
from geo.times import in_us

LATELY_US = 600 * 1_000_000
"""The one who starts one again and again does that sooner."""

_BROKER = re.compile(r"broker (?:(\S+) )?of ")
"""The subject of what a broker tells of itself, and its name where several share a cluster."""


def refused(cluster: str, events: Iterable[Event], owned_since_us: Iterable[int], now_us: int) -> Iterator[Symptom]:
    """Judges processes that are refused again and again what others own in a cluster: once is told by the exit code alone.
    `owned_since_us`: since when each process that lives there owns something; of one that came later it is over.
    """
    told = [one for one in events if one.kind is EventKind.OWNER and one.reason_code is Reason.OWNED_ELSEWHERE]
    if not told or now_us - in_us(told[-1].at) > LATELY_US or all(us > in_us(told[-1].at) for us in owned_since_us):
        return
    first, times = told[-1], 0
    for one in reversed(told):
        if in_us(first.at) - in_us(one.at) > LATELY_US:
            break
        first, times = one, times + one.count
    if times > 1:
        why = (told[-1].reason or "").partition(". ")[0]
        what = f"a second process is to run what another one runs, and was refused {times:,} times ({told[-1].by}): {why}"
        fix = f"end the one of both that is not to run it; if that is the first: {_take_over(cluster, told[-1])}"
        yield Symptom("error", f"cluster {cluster}", what, fix, Reason.OWNED_ELSEWHERE, in_us(first.at))


def _take_over(cluster: str, one: Event) -> str:
    """The verb that was refused, as it ends the process that it met."""
    if (broker := _BROKER.match(one.subject)) is None and not one.to_state.startswith("broker "):
        return f"geo replicate --cluster {cluster} --take-over"
    name = f" --name {broker[1]}" if broker is not None and broker[1] is not None else ""
    return f"geo broker --cluster {cluster}{name} --take-over"
