"""What a person has to do something about: findings that are one, worst first, and whether they make a verb fail. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from geo.ops.health import Finding, Health
from geo.reasons import Level


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


def worst_first(problems: Iterable[Problem]) -> list[Problem]:
    """Of one health those that have been so for longest come first."""
    return sorted(problems, key=lambda one: (one.first.health.rank, _since(one.first), one.first.link or "", one.first.subject))


def fails(levels: Iterable[Level], fail_on: Level) -> bool:
    """Whether what was found makes the exit code 1, of a verb that fails on "warn" or on "error"."""
    return any(level in ("error", fail_on) for level in levels)


def _since(one: Finding) -> float:
    return float("inf") if one.since_us is None else one.since_us
