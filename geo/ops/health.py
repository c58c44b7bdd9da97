"""How a link's topic, or a cluster, is doing: one word for each, what it is judged by, and what a person does about it. Pure: no Spark,
clock or I/O.

Who is behind, and for how long, tells nothing by itself: what is judged is how it moved. The rules are those of Burrow, of Kafka's
consumers, for cursors of ours.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Literal

from geo.reasons import Reason

PAUSED_LONG_US = 24 * 3600 * 1_000_000
"""Who paused something for longer has forgotten it."""


class Health(str, Enum):
    """How it is doing. Worst first."""

    AWAY = "AWAY"
    """Others' tables mention it, and it is not there; or it does not answer, so nothing is known of it."""
    FAILED = "FAILED"
    """It has stopped, and goes on only once a person has acted."""
    REWOUND = "REWOUND"
    """The target holds less of the source than it did, or the source ends before what was read of it."""
    NO_BROKER = "NO_BROKER"
    """There is work in a cluster, and no process runs anything there, though one did."""
    STOPPED = "STOPPED"
    """There is work, and nobody owns it."""
    STALLED = "STALLED"
    """Somebody owns it, the source moved, the cursor did not."""
    BEHIND = "BEHIND"
    """The cursor moves, and never reached the end of the source nor came nearer to it."""
    PAUSED = "PAUSED"
    """A person, or a policy, wants it to rest."""
    CATCHING_UP = "CATCHING_UP"
    """It lacks something, and comes nearer; or what it lacks has just come."""
    OK = "OK"
    """The target holds all there is, or did a moment ago."""

    @property
    def rank(self) -> int:
        """The place in that order: 0 is the worst."""
        return list(Health).index(self)


_WARNS = (Health.BEHIND, Health.PAUSED)
_FINE = (Health.OK, Health.CATCHING_UP)


@dataclass(frozen=True, slots=True)
class Finding:
    """How one thing is doing.

    `subject`: what it is, as it is shown: a topic of a link, or a cluster. `since_us`: since when it has been so, in microseconds
    since 1970, by the clock of who says so; None: nobody knows. `code` and `reason` (a sentence): why; None and empty where there is
    nothing to say. `do`: the verb to type, whole, or what else a person does; None: nothing.
    """

    subject: str
    link: str | None
    topic: str | None
    health: Health
    since_us: int | None
    code: Reason | None
    reason: str
    do: str | None

    def is_problem(self, now_us: int) -> bool:
        """Whether a person has to do something. A rest that somebody wanted is one after a day, and if nobody knows for how long it has been."""
        if self.health is Health.PAUSED:
            return self.since_us is None or now_us - self.since_us > PAUSED_LONG_US
        return self.health not in _FINE

    @property
    def level(self) -> Literal["ok", "warn", "error"]:
        """How bad it is, if it is a problem."""
        return "ok" if self.health in _FINE else "warn" if self.health in _WARNS else "error"
