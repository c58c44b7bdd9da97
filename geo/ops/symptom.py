"""One result of `geo doctor`. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from geo.ops.health import Health
from geo.reasons import Level, Reason


@dataclass(frozen=True, slots=True)
class Symptom:
    """One result. `fix` is empty where there is nothing to do.

    `code`: its cause; None of what is well, and of what no code is for. `since_us`: since when, in microseconds since 1970; None: that
    is not known. `health`: of topics of a link that are not well, as `geo status` says it; None of all else.
    """

    level: Level
    where: str
    what: str
    fix: str = ""
    code: Reason | None = None
    since_us: int | None = None
    health: Health | None = None
