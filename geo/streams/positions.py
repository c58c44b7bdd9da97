"""Positions of the works of a group are recorded: each minute of those that are up, and at an end, after which none is owned."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Generic

from geo.delta.locks import without_waiting
from geo.errors import LockedError
from geo.reasons import Reason
from geo.streams import timetable
from geo.streams.life import State
from geo.streams.lives import Lives, Slot
from geo.streams.work import W
from geo.text import first_line

log = logging.getLogger(__name__)


class Positions(Generic[W]):
    """Positions of the works of a group, as they are recorded."""

    def __init__(self, lives: Lives[W]) -> None:
        self._lives, self._group, self._faults = lives, lives.group, lives.faults
        self._recorded_at = time.monotonic()
        self._record_again_at = -math.inf
        """While somebody else writes where they are recorded, this is not tried before."""
        self._unrecorded: list[Slot[W]] = []

    def record_if_due(self) -> None:
        """Record all that are up, those of which something is done now as soon as it is done."""
        if time.monotonic() - self._recorded_at >= timetable.RECORD_S:
            self._recorded_at = time.monotonic()
            self._unrecorded = list(self._lives.slots.values())
        if time.monotonic() < self._record_again_at:
            return
        up = [slot for slot in self._unrecorded if slot.life.state is State.RUNNING]
        self._unrecorded = [slot for slot in up if slot.task is not None]
        if free := [slot for slot in up if slot.task is None]:
            try:
                # What is recorded meanwhile only makes the next start shorter: no work is held up for it.
                self.record(free, State.RUNNING, patience=without_waiting)
            except LockedError as error:
                self._unrecorded += free
                self._record_again_at = time.monotonic() + timetable.LOCKED_S
                log.info("%s: positions are not recorded now: %s", self._group, first_line(error))

    def record(
        self,
        slots: Sequence[Slot[W]],
        state: State,
        patience: Callable[[], AbstractContextManager[None]] = nullcontext,
        code: Reason | None = None,
    ) -> list[Slot[W]]:
        """Record works that moved, with that patience. Returns those of which everything is recorded now. Raises LockedError without."""
        try:
            with patience():
                failed = self._group.record_states([(slot.work, state) for slot in slots], code)
        except LockedError:
            raise
        except self._faults as error:
            log.warning("%s: positions could not be recorded, the next time says more: %s", self._group, first_line(error))
            return []
        for work, _ in failed:
            try:
                work.end()
            except self._faults as another:
                log.warning("%s: not stopped cleanly: %s", work, first_line(another))
        return self._lives.sort_out(slots, failed)

    def release(self, slots: Sequence[Slot[W]]) -> list[Slot[W]]:
        """Own works no longer that ended well and are recorded. Returns those that did."""
        try:
            failed = self._group.release([slot.work for slot in slots])
        except self._faults as error:
            failed = [(slot.work, error) for slot in slots]
        return self._lives.sort_out(slots, failed)
