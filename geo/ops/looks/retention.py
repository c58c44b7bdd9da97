"""Judges whether a topic's log keeps commits and files for as long as a link may be away, or has been. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from geo.ops.symptom import Symptom
from geo.reasons import Reason
from geo.schemas import TOPIC_LOG
from geo.schemas.topic_log import DELTAS_OWN, RETENTION_PROPERTIES, retention_days

HEADROOM = 2
"""So many times as long as a link is behind a log should keep what it has not read."""


def of_log(
    where: str, properties: Mapping[str, str], longest_outage_s: float, how_to_set: Callable[[str, str], str]
) -> Iterator[Symptom]:
    """Judges a log's properties that differ from those with which this program makes one."""
    for key, wanted in TOPIC_LOG.properties.items():
        have = properties.get(key)
        if key in RETENTION_PROPERTIES:
            days = retention_days(have or DELTAS_OWN[key])
            if days is not None and days * 86_400 < longest_outage_s:
                least = f"interval {-(-int(longest_outage_s) // 86_400)} days"
                what = (
                    f"{key} is {have or 'not set: ' + DELTAS_OWN[key]}, shorter than longest_outage ({longest_outage_s / 86_400:g} days): a "
                    "link that is away so long finds its place gone"
                )
                yield Symptom(
                    "error",
                    where,
                    what,
                    how_to_set(key, max(wanted, least, key=lambda one: retention_days(one) or 0)),
                    Reason.SHORT_RETENTION,
                )
                continue
            if have is not None and (days or 0) >= (retention_days(wanted) or 10**9):
                continue
        if have != wanted:
            what = f"{key} is {have!r}, this program creates topics with {wanted!r}"
            code = Reason.SHORT_RETENTION if key in RETENTION_PROPERTIES else None
            yield Symptom("warn", where, what, how_to_set(key, wanted), code)


def of_lag(
    where: str, properties: Mapping[str, str], behind_s: float, how_to_set: Callable[[str, str], str]
) -> Iterator[Symptom]:
    """Judges the log of a source. `behind_s`: seconds since the oldest message came that a link has not replicated."""
    for key in RETENTION_PROPERTIES:
        days = retention_days(properties.get(key) or DELTAS_OWN[key])
        if days is not None and behind_s * HEADROOM > days * 86_400:
            what = f"it has not brought what came {behind_s / 86_400:.1f} days ago, and its source keeps that for {days:g} days ({key})"
            wanted = f"interval {-(-int(behind_s * HEADROOM) // 86_400)} days"
            yield Symptom("warn", where, what, how_to_set(key, wanted), Reason.SHORT_RETENTION)
