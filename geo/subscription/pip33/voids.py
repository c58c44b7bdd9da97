"""Times in which a log is not in the order of replication by links: no snapshot begun before the end of one counts. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from geo.subscription.pip33.controller_rows import Invalidated


class Voids:
    """Voids of the log of one topic in one cluster."""

    def __init__(self) -> None:
        self._open: set[str] = set()
        self._voided = 0
        """The row at which a void began or ended last, or others were to be asked."""

    @property
    def open(self) -> str | None:
        """The name of a void that has begun and not ended; None: all have."""
        return min(self._open, default=None)

    def is_valid(self, begun: int) -> bool:
        """Tells whether a snapshot may be used that was begun at the row of this number."""
        return begun >= self._voided

    def void(self, seq: int) -> None:
        """Lets no snapshot be used that was begun before this row."""
        self._voided = seq

    def handle(self, row: Invalidated) -> bool:
        """Begins or ends a void. Returns whether that changes anything: to end what has not begun does not, unless the table is another one."""
        if row.begins:
            self._open.add(row.what)
        elif row.what in self._open:
            self._open.remove(row.what)
        elif row.table is None:
            return False
        self.void(row.seq)
        return True

    def to_state(self) -> dict[str, Any]:
        """Its part of the controller's state, for JSON."""
        return {"voided": self._voided, "open_voids": sorted(self._open)}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Takes what `to_state` gave."""
        self._voided, self._open = state["voided"], set(state["open_voids"])
