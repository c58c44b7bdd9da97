"""What `geo doctor` found: one result. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Level = Literal["ok", "warn", "error"]


@dataclass(frozen=True, slots=True)
class Symptom:
    """One result. `fix` is empty where there is nothing to do."""

    level: Level
    where: str
    what: str
    fix: str = ""
