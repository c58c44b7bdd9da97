"""Happenings in a topic's controller, as they are counted. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from enum import Enum

from geo.subscription.pip33.controller_rows import Effect
from geo.subscription.pip33.markers import MarkerRefusal


class Happened(str, Enum):
    """Event that happened, or row that was passed over without a change, beside the refusals of `markers`."""

    STARTED = "snapshots begun"
    COMPLETED = "snapshots completed"
    GIVEN_UP = "snapshots given up"
    REPEATED = "heard before"
    OTHER_TABLE = "of a table that is gone"
    FORGED = "not of the cluster it names"
    UNREACHABLE = "asked by a cluster that no answer reaches"
    LATE = "answers nothing that is waited for"
    VOID = "of a snapshot that is void"
    OVERTAKEN = "a snapshot behind one that counts"
    NOT_ASKED = "holds messages of a cluster that was not asked"
    BEYOND = "beyond the end of this log"
    FULL = "subscriptions beyond the limit"
    UNKNOWN_SUBSCRIPTION = "progress of an unknown subscription"


_REFUSED = {why.value for why in (*MarkerRefusal, Happened.FORGED, Happened.LATE, Happened.VOID, Happened.BEYOND, Happened.FULL)}
"""Refusals that show a fault. UNREACHABLE is not among them: a link that leads one way replicates such requests all the time, and nothing is wrong.
Nor is OVERTAKEN: a controller that begins in the midst of its markers gets such rows, and lacks nothing; nor NOT_ASKED, which passes by itself.
"""


class Counts(Counter[str]):
    """Counts of what happened, by the reason's text."""

    def nothing(self, why: Happened) -> list[Effect]:
        """Counts a row that has no effect for this reason. Returns no effect."""
        self[why.value] += 1
        return []

    @property
    def refused(self) -> Mapping[str, int]:
        """Markers that changed nothing that should have, by the reason."""
        return {why: count for why, count in sorted(self.items()) if why in _REFUSED}
