"""What `geo doctor` found: one result. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from geo.reasons import Reason

Level = Literal["ok", "warn", "error"]


@dataclass(frozen=True, slots=True)
class Symptom:
    """One result. `fix` is empty where there is nothing to do.

    `code`: its cause; None of what is well, and of what no code is for. `since_us`: since when, in microseconds since 1970; None: that
    is not known.
    """

    level: Level
    where: str
    what: str
    fix: str = ""
    code: Reason | None = None
    since_us: int | None = None
