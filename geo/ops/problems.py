"""Problems that a person has to do something about: findings that are one, worst first, and whether they make a verb fail.
Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from geo.ops.health import Finding, Health
from geo.ops.symptom import Symptom
from geo.reasons import Level, Reason


@dataclass(frozen=True, slots=True)
class Problem:
    """Findings that are one: the same health for the same reason of the same link. `first`: the one that has been so for longest.
    `count` of `of` topics of the link; 0 of 0: it is of a cluster."""

    first: Finding
    count: int = 0
    of: int = 0

    @property
    def level(self) -> Level:
        return self.first.level


def grouped(findings: Iterable[Finding], now_us: int) -> list[Problem]:
    """The problems among the findings of all topics of some links, worst first."""
    topics, groups = Counter[str | None](), dict[tuple[Health, str | None, str], list[Finding]]()
    for one in findings:
        topics[one.link] += 1
        if one.is_problem(now_us):
            groups.setdefault((one.health, one.link, one.code or one.reason), []).append(one)
    firsts = {key: min(group, key=lambda one: (_since(one), one.subject)) for key, group in groups.items()}
    return worst_first(Problem(first, len(groups[key]), topics[key[1]]) for key, first in firsts.items())


THIS_HOST = "this host"

Noted = Mapping[tuple[str, Reason], int]
"""Times by subject and code: since when events tell that it is so, in microseconds since 1970."""


def at_risk(found: Symptom, topic: str | None = None) -> Finding | None:
    """Makes of an error that a look found a finding of what goes on by now; None: it is no error."""
    if found.level != "error" or found.code is None:
        return None
    return Finding(_subject(found), None, topic, Health.AT_RISK, found.since_us, found.code, found.what, found.fix)


def dated(found: Finding, noted: Callable[[], Noted]) -> Finding:
    """The finding, since when events tell it if it does not know that itself: else they are not asked for."""
    if found.since_us is not None or found.code is None:
        return found
    return replace(found, since_us=noted().get((found.shown, found.code)))


def symptom_dated(found: Symptom, noted: Noted) -> Symptom:
    """Dates a symptom, as `dated` does a finding."""
    if found.since_us is not None or found.code is None or found.level == "ok":
        return found
    subject = THIS_HOST if found.code is Reason.CLOCK else _subject(found)
    return replace(found, since_us=noted.get((subject, found.code)))


def _subject(found: Symptom) -> str:
    """Subject as findings name it."""
    return found.where.removeprefix("cluster ")


def worst_first(problems: Iterable[Problem]) -> list[Problem]:
    """Sorts problems; of one health those that have been so for longest come first."""
    return sorted(problems, key=lambda one: (one.first.health.rank, _since(one.first), one.first.link or "", one.first.subject))


def fails(levels: Iterable[Level], fail_on: Level) -> bool:
    """Tells whether the findings make the exit code 1, of a verb that fails on "warn" or on "error"."""
    return any(level in ("error", fail_on) for level in levels)


def _since(one: Finding) -> float:
    return float("inf") if one.since_us is None else one.since_us
