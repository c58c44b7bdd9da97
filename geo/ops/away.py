"""Since when a region is away, and when it was there last, by what others tell of it. Since when it is away is not before that. Pure: no Spark,
clock or I/O."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from geo.journal.event_rate import Event, EventKind
from geo.ops.health import Finding, Health
from geo.streams.life import State
from geo.times import from_us, in_us, shown_time


def there_last(events: Iterable[Event], source: str) -> int | None:
    """Finds when a source was there last, by events of links from it. It was read for a link that began to run, or that had any health but AWAY.
    None: no event tells.
    """
    return max((in_us(one.at) for one in events if one.subject.startswith(f"{source}->") and _was_read(one)), default=None)


def _was_read(one: Event) -> bool:
    if one.kind is EventKind.HEALTH:
        return one.to_state != Health.AWAY.value
    return one.kind is EventKind.LINK and one.to_state == State.RUNNING.value


def met_since(source: str, links: Iterable[Finding]) -> int | None:
    """Since when the first of some links has met that the region that it reads is away. None: none has."""
    met = (one.since_us for one in links if one.health is Health.AWAY and (one.link or "").startswith(f"{source}->"))
    return min((at_us for at_us in met if at_us is not None), default=None)


def not_before(found: Finding, source: str, there_us: int | None) -> Finding:
    """The finding of what is away, because `source` is, and nobody met that: its sentence says when it was there last."""
    if found.since_us is not None or there_us is None:
        return found
    last = f"{source} was read last at {shown_time(from_us(there_us))}, as far as is known"
    return replace(found, reason=f"{found.reason}; {last}", there_us=there_us)
