"""Faults beside messages: links that do not do what they should, and what others mention and is not there.

A fault makes a report not clean, also where no message can be said to be missing.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence

from geo.config.model import Link
from geo.log.topics import Registered
from geo.names import Topic
from geo.ops.verify.comparison import End, Ends, key
from geo.text import counted
from geo.times import from_us

PATIENCE_US = 600 * 1_000_000
"""A link that works records something each minute; clocks of two hosts differ by at most five."""


def due_before_us(end: End | None, now_us: int, outage_s: int) -> int | None:
    """Messages that were published before this time, in microseconds since 1970, and that a link has not brought, are no longer
    in flight. None: there is no such time.

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
                state += f", recorded last at {from_us(end.updated_us):%Y-%m-%d %H:%M:%S} UTC"
            yield (
                f"{topic}: {link.name}: {counted(count, 'message')} in flight since before {since:%Y-%m-%d %H:%M:%S} UTC; {state}. "
                f"See that somebody runs it: geo broker or geo replicate --cluster {link.target}; geo doctor"
            )


def faults(
    topic: Topic,
    registries: Mapping[str, Mapping[Topic, Registered]],
    logs: Container[str],
    links: Sequence[Link],
    ends: Ends,
) -> Iterable[str]:
    """What is wrong with a topic in some cluster or link. `ends` tell what links have read and written."""
    for name, registry in registries.items():
        if (one := registry.get(topic)) is None or one.is_deleted:
            continue
        used = any(
            of == str(topic) and name in (target, source) and e.version is not None for (target, source, of), e in ends.items()
        )
        if name not in logs and used:
            yield f"{topic}: its log is not in {name}, though links read or wrote it. Put it back."
        elif one.is_unknown:
            yield (
                f"{topic}: its log is in {name} and system/topics lacks it, so that an older copy of that was put back. Whoever "
                f"publishes into it, or replicates into {name}, registers it again."
            )
    for link in links:
        end = ends.get(key(link, topic))
        if end is not None and end.state == "FAILED":
            yield f"{topic}: {link.name} is FAILED: {end.reason or 'no reason recorded'}"


def gone(registries: Mapping[str, Mapping[Topic, Registered]], ends: Ends) -> Iterable[str]:
    """Clusters that have nothing, though others have read them."""
    for name, registry in registries.items():
        readers = sorted({target for (target, source, _), end in ends.items() if source == name and end.version is not None})
        if readers and not any(not one.is_unknown for one in registry.values()):
            yield f"{name}: nothing is registered there, and {', '.join(readers)} replicated from it. Put its folder back."
