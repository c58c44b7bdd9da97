"""Subscriptions that somebody has forgotten: messages wait, and nobody consumes them in any region. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Protocol

from geo.ops.symptom import Symptom
from geo.reasons import Reason
from geo.text import counted
from geo.times import in_us, shown_time

FORGOTTEN_US = 86_400 * 1_000_000
"""A consumer that runs by a schedule runs once a day."""


class AsListed(Protocol):
    """A subscription as one cluster knows it (geo.subscription.status.Listed)."""

    @property
    def topic(self) -> str: ...
    @property
    def subscription(self) -> str: ...
    @property
    def cluster(self) -> str: ...
    @property
    def deleted(self) -> bool: ...
    @property
    def runs(self) -> bool: ...
    @property
    def replicated(self) -> bool: ...
    @property
    def backlog(self) -> int | None: ...
    @property
    def oldest_at(self) -> datetime | None: ...


def forgotten(listed: Iterable[AsListed], now_us: int) -> Iterator[Symptom]:
    """Judges subscriptions as all clusters know them. One that all regions share counts by where least waits: to others less of
    what was acknowledged may have come.
    """
    by_name: dict[tuple[str, str, str], list[AsListed]] = {}
    for one in listed:
        by_name.setdefault((one.topic, one.subscription, "" if one.replicated else one.cluster), []).append(one)
    for (topic, name, of_one), known in sorted(by_name.items()):
        if any(one.runs or one.deleted for one in known):
            continue
        counts = [(one.backlog, one.oldest_at) for one in known if one.backlog is not None]
        backlog, oldest = min(counts, key=lambda count: count[0], default=(0, None))
        if backlog and oldest is not None and now_us - in_us(oldest) > FORGOTTEN_US:
            where = f"subscription {name} of {topic}" + (f" in {of_one}" if of_one else "")
            what = f"nobody consumes it, and {counted(backlog, 'message')} wait, the oldest since {shown_time(oldest)}"
            named = f"--cluster {known[0].cluster} --topic {topic} --subscription {name}"
            fix = f"start its consumer, or if nobody needs it: geo subscriptions delete {named} --yes"
            yield Symptom("warn", where, what, fix, Reason.NO_OWNER, in_us(oldest))
