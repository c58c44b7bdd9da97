"""The end of a group: all of its works end side by side, and what has ended well is handed over."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future

from geo.reasons import Reason
from geo.streams import timetable
from geo.streams.life import State, Why, WorkEvent
from geo.streams.lives import Lives, Slot
from geo.streams.positions import Positions
from geo.streams.work import W
from geo.streams.workers import Workers

ENDS_AT_ONCE = 16
"""Works of a group that are ended side by side: each waits for its running batch."""


def end_all(
    lives: Lives[W], positions: Positions[W], take_back: Callable[[Slot[W]], None], left: threading.Event, *, hand_over: bool
) -> None:
    """Let running batches end, side by side, and hand over what has ended well. One that hangs holds up no other; the next start fences what
    is left.

    `take_back` takes back a task that is done, and raises what it raised. `left`: nobody waits any more.
    """
    enders = Workers(ENDS_AT_ONCE, f"geo-end-{lives.group}")
    waiting, ending, well = list(lives.slots.values()), list[tuple[Slot[W], Future[bool]]](), list[Slot[W]]()
    handed_over_at = time.monotonic()
    while (waiting or ending or well) and not left.is_set():
        for slot in [slot for slot in waiting if slot.task is None or slot.task.outcome.done()]:
            waiting.remove(slot)
            if slot.task is not None:
                with lives.its_faults(slot):
                    take_back(slot)
            ending.append((slot, enders.submit(slot.work.end)))
        for slot, end in [one for one in ending if one[1].done()]:
            ending.remove((slot, end))
            with lives.its_faults(slot):
                if not enders.result(end):
                    lives.happened(slot, WorkEvent.FAULT, why=Why("it was stopped in the middle of a batch", Reason.OTHER))
            if slot.life.state in (State.STOPPED, State.RUNNING) and slot.work.lease.is_held and hand_over:
                well.append(slot)
            elif not slot.work.lease.is_held:
                _let_go(lives, slot)
        now = time.monotonic()
        if well and (now - handed_over_at >= timetable.HAND_OVER_S or not (waiting or ending)):
            for slot in (handed := positions.release(positions.record(well, State.STOPPED))):
                _let_go(lives, slot)
            for slot in well:
                if slot not in handed and slot.life.state in (State.STOPPED, State.RUNNING):
                    lives.happened(slot, WorkEvent.FAULT, why=Why("its end could not be recorded", Reason.OTHER))
            well, handed_over_at = [], time.monotonic()
        elif waiting or ending:
            left.wait(timetable.TICK_S / 10)
    enders.close()


def _let_go(lives: Lives[W], slot: Slot[W]) -> None:
    """Note that a work was ended for good."""
    slot.is_over = True
    lives.happened(slot, WorkEvent.STOP)
