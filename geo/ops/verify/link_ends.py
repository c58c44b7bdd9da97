"""Ends of links as they say themselves, and until when what they have not replicated is in flight. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from geo.config.model import Link
from geo.names import Topic
from geo.text import counted
from geo.times import from_us, shown_time

PATIENCE_US = 600 * 1_000_000
"""A link that works records something each minute; clocks of two hosts differ by at most five."""


@dataclass(frozen=True, slots=True)
class End:
    """The newest row of a link and topic in `system/links`: up to `version` of the table `table_id` all has crossed; None:
    nothing yet."""

    state: str
    reason: str | None
    table_id: str | None
    version: int | None
    floors: Mapping[str, int]
    impossible: int | None
    """Rows of the source up to there that the link left out since no producer can have written them; None: it has not counted them."""
    updated_us: int | None = None
    """The time when it was written."""
    accepted: int = 0
    """Count of the impossible ones that somebody has accepted (`geo reconcile`)."""


Ends = dict[tuple[str, str, str], End]
"""Ends by target, source and topic."""


def not_accepted(end: End | None, count: int) -> int:
    """Counts, of the rows that no producer can have written and that a link left out, those that are a fault. They are all, unless somebody has
    accepted as many as it counted.
    """
    if end is None or end.impossible is None or end.impossible > end.accepted:
        return count
    return max(0, count - end.accepted)


def key(link: Link, topic: Topic) -> tuple[str, str, str]:
    return link.target, link.source, str(topic)


def floors_by_target(topic: Topic, links: Iterable[Link], ends: Ends) -> Mapping[str, dict[str, int]]:
    """The first entries wanted, by the target of these links and by ledger. An origin reaches a cluster by one link, so the floors of two
    links never meet in a ledger."""
    floors: dict[str, dict[str, int]] = defaultdict(dict)
    for link in links:
        if (end := ends.get(key(link, topic))) is not None:
            floors[link.target].update(end.floors)
    return floors


def due_before_us(end: End | None, now_us: int, outage_s: int) -> int | None:
    """Messages that were published before this time, in microseconds since 1970, and that a link has not replicated, are no
    longer in flight. None: there is no such time.

    `end` is the link's newest row, None: it has never run. `outage_s`: nothing is in flight for longer than the longest outage
    that the configuration allows, unless somebody paused the link. A FAILED link is a fault by itself.
    """
    long_ago = now_us - outage_s * 1_000_000
    if end is None:
        return long_ago
    if end.state in ("PAUSED", "FAILED"):
        return None
    if end.version is None or end.updated_us is None:  # its first comparison has not ended
        return long_ago
    if end.state == "STOPPED":  # whoever stopped it had brought what there was
        return max(long_ago, end.updated_us - PATIENCE_US)
    return long_ago if now_us - end.updated_us <= PATIENCE_US else max(long_ago, now_us - PATIENCE_US)


def limits(topic: Topic, links: Sequence[Link], ends: Ends, now_us: int, outage_s: int) -> dict[str, int]:
    """`due_before_us` of links by name, of those that have one."""
    found = {link.name: due_before_us(ends.get(key(link, topic)), now_us, outage_s) for link in links}
    return {name: limit for name, limit in found.items() if limit is not None}


def overdue(
    topic: Topic, links: Sequence[Link], ends: Ends, counts: Mapping[str, int], before_us: Mapping[str, int]
) -> Iterable[str]:
    """The fault of each link that has messages which are no longer in flight. `counts`: how many, by link."""
    for link in links:
        if count := counts.get(link.name):
            end, since = ends.get(key(link, topic)), from_us(before_us[link.name])
            state = "it has never run" if end is None else f"it is {end.state}"
            if end is not None and end.updated_us is not None:
                state += f", recorded last at {shown_time(from_us(end.updated_us))}"
            yield (
                f"{topic}: {link.name}: {counted(count, 'message')} in flight since before {shown_time(since)}; {state}. "
                f"See that somebody runs it: geo broker or geo replicate --cluster {link.target}; geo doctor"
            )
