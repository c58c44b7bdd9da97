"""The works of one group: discovered, started side by side, followed, tried again, recorded, handed over, by a thread of their own.

The meaning of a state and an event is in `life.py`; what a piece of work does is its own business.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from functools import partial
from typing import Generic

from geo.delta.mirror import may_be_old
from geo.errors import AlreadyOwnedError, RetryableError
from geo.faults import needs_person, reason_of, session_is_gone
from geo.reasons import Reason
from geo.streams import timetable
from geo.streams.life import Life, State, Why, WorkEvent
from geo.streams.lives import Lives, Slot, Task
from geo.streams.positions import Positions
from geo.streams.shutdown import end_all
from geo.streams.work import Group, W, Work
from geo.streams.workers import Workers
from geo.text import first_line

log = logging.getLogger(__name__)

AT_ONCE = 4
"""Works of a group that are started side by side; more only queue up for the cores."""

DUES_AT_ONCE = 64
"""Works of a group of which what is due is done side by side: as many as a link may have fetchers."""


class Crew(Generic[W]):
    """The thread of a group, and the works it runs. Only this thread changes what becomes of them."""

    def __init__(
        self,
        group: Group[W],
        *,
        once: bool,
        on_change: Callable[[Group[W], W | None, Life], None],
        faults: tuple[type[Exception], ...],
    ) -> None:
        self.group, self._once, self._faults = group, once, faults
        self.lives = Lives(group, once=once, on_change=on_change, faults=faults)
        self._positions = Positions(self.lives)
        self.stop = threading.Event()
        """Turns end after the one they are in."""
        self.fault: BaseException | None = None
        """A fault of this program, or the end of Spark: it ends the whole run."""
        self.refusal: BaseException | None = None
        """Because of which nothing of it could be begun at the start, and a person must act."""
        self.look = self.looked = 0
        """Another thread counts `look` up to have the group asked at once; it was, since, once `looked` is as much."""
        self.asked_at: float | None = None
        """The time when the group was asked what there is, of a question that has no answer yet."""
        self._left = threading.Event()
        """Nobody waits for it any more."""
        self._ask_at: float | None = None
        """The time when the group is asked next; None: it never was."""
        self._to_end: dict[Hashable, tuple[WorkEvent, Why | None]] = {}
        """Works to end as soon as no task of theirs is under way: left out, and why, or to restart."""
        self._starts, self._dues = Workers(AT_ONCE, f"geo-start-{group}"), Workers(DUES_AT_ONCE, f"geo-due-{group}")
        self.thread = threading.Thread(target=self._main, name=f"geo-{group}", daemon=True)

    def leave_behind(self, waited_s: float) -> None:
        """Own nothing any more: it was waited for so long. What was handed over is owned no longer already."""
        self._left.set()
        for slot in list(self.lives.slots.values()):
            if slot.is_over:
                continue
            slot.work.lease.abandon()
            if self.fault is None and slot.life.state in (State.RUNNING, State.STOPPED):
                reason = f"it did not stop within {waited_s:.0f} s, and is fenced by whoever continues it"
                slot.life = replace(slot.life, state=State.DELAYED, reason=reason, code=Reason.OTHER)
                log.warning("%s: %s", slot.work, reason)

    def _main(self) -> None:
        try:
            try:
                self._run()
            except BaseException as error:
                self.fault = error
            self.stop.set()
            end_all(self.lives, self._positions, self._take_back, self._left, hand_over=self.fault is None)
        except BaseException as error:
            self.fault = self.fault or error
        finally:
            if self._left.is_set():  # nobody has waited for what came since
                for slot in self.lives.slots.values():
                    slot.work.lease.abandon()
            for workers in (self._starts, self._dues):
                workers.close()

    def _run(self) -> None:
        while not self.stop.is_set():
            self._ask_if_due()
            for key, slot in list(self.lives.slots.items()):
                if self.stop.is_set():
                    return
                if slot.task is not None or (end := self._to_end.pop(key, None)) is None:
                    self._step(key, slot)
                elif end[0] is WorkEvent.RESTARTED or slot.life.state is not State.PAUSED:  # it may have ended since it was found
                    # That waits for its running batch, so it holds up no other.
                    slot.task = Task(self._dues, self._dues.submit(slot.work.end), end)
            if self._once and self.lives.life.done and all(slot.life.done for slot in self.lives.slots.values()):
                return
            self._positions.record_if_due()
            self.stop.wait(min(timetable.TICK_S, timetable.LEAST_TICK_S + timetable.OF_A_WORK_S * len(self.lives.slots)))

    # -- which works -------------------------------------------------------------------------------------------------

    def _ask_if_due(self) -> None:
        look = self.look
        try:
            self._ask(hurry=look > self.looked)
        finally:
            self.looked = look

    def _ask(self, *, hurry: bool) -> None:
        now, first = time.monotonic(), self._ask_at is None
        if self.lives.life.done or not (hurry or self._ask_at is None or now >= self._ask_at):
            return
        self._ask_at, self.asked_at = now + timetable.DISCOVERY_S, now
        try:
            with may_be_old(0.0 if hurry or first or self._once else timetable.REMOTE_DISCOVERY_S):
                found = self.group.discover({key: (slot.work, slot.life.state) for key, slot in self.lives.slots.items()})
        except self._faults as error:
            if session_is_gone(error):
                raise
            why = Why(first_line(error), reason_of(error))
            self.lives.group_lives(self.lives.life.after(WorkEvent.FAULT, now=now, why=why, error=error, ends=self._once))
            self._ask_at = self.lives.life.again_at
            if first and needs_person(error):
                self.refusal = error
            return
        finally:
            self.asked_at = None
        self.refusal = None
        self.lives.group_lives(self.lives.life.after(WorkEvent.DONE if self._once else WorkEvent.UP))
        for key in found.resolved:
            self.lives.happened(self.lives.slots[key], WorkEvent.RESOLVED)
        for key in found.wanted:
            self.lives.happened(self.lives.slots[key], WorkEvent.WANTED)
        self._to_end = {
            **{key: end for key, end in self._to_end.items() if end[0] is WorkEvent.RESTARTED},
            **dict.fromkeys(found.again, (WorkEvent.RESTARTED, None)),
            **{key: (WorkEvent.LEFT_OUT, why) for key, why in found.left_out.items()},
        }
        for key, work in found.done:
            self.lives.slots[key] = slot = Slot(work)
            self.lives.happened(slot, WorkEvent.DONE)
        self._take_up(found.fresh, first=first and not found.done)

    def _take_up(self, fresh: Sequence[tuple[Hashable, W]], *, first: bool) -> None:
        if not fresh or self.stop.is_set():  # it may have been asked for a long time
            return
        slots = {key: Slot(work) for key, work in fresh}
        works = [work for _, work in fresh]
        try:
            failed = self.group.claim(works)
        except self._faults as error:
            failed = [(work, error) for work in works]
        self.lives.slots |= slots
        if not self.lives.sort_out(list(slots.values()), failed) and first:
            errors = [error for _, error in failed]
            self.refusal = next((one for one in errors if needs_person(one) or isinstance(one, AlreadyOwnedError)), None)

    def _take_end(self, slot: Slot[W], end: Task, event: WorkEvent, why: Why | None) -> None:
        """It has ended: record its state, and own it no longer."""
        try:
            well = end.workers.result(end.outcome)
            if well and slot.life.state in (State.STOPPED, State.RUNNING) and slot.work.lease.is_held:
                state = State.PAUSED if event is WorkEvent.LEFT_OUT else State.STOPPED
                self._positions.release(self._positions.record([slot], state, code=None if why is None else why.code))
        except self._faults as error:
            log.warning("%s: not stopped cleanly: %s", slot.work, first_line(error))
        finally:
            # Whatever is not known to have ended cleanly stays owned, so that whoever continues fences it first.
            slot.work.lease.abandon()
        self.lives.happened(slot, event, why=why)

    # -- running -------------------------------------------------------------------------------------------------------

    def _step(self, key: Hashable, slot: Slot[W]) -> None:
        """Do what is due for one work now. Its faults are its own; a fault of this program, or the end of Spark, ends the run."""
        try:
            if slot.task is not None and slot.task.outcome.done():
                self._take_back(slot)
            elif (slot.task is not None or slot.life.state is State.RUNNING) and (other := slot.work.replacement()) is not None:
                self._go_on_with(slot, *other)
            elif slot.task is not None:
                pass
            elif slot.life.state is State.RUNNING:
                if (due := slot.work.follow()) is not None and self._dues.has_room:
                    slot.task = Task(self._dues, self._dues.submit(due))
            elif slot.life.is_ripe(time.monotonic()) and self._starts.has_room:
                slot.work.lease.expect()
                start = partial(_start, slot.work, partial(self._is_stopping, key))
                slot.task = Task(self._starts, self._starts.submit(start))
        except self._faults as error:
            if session_is_gone(error):
                raise
            self.lives.failed(slot, error)

    def _go_on_with(self, slot: Slot[W], work: W, error: BaseException) -> None:
        """Another work takes the place of one that hangs, whose thread is left to itself. What was to be its end is that."""
        task, slot.task = slot.task, None
        if task is not None:
            task.workers.lose()
        if task is None or task.ends_as is None:
            self.lives.failed(slot, error, replacement=work)
        else:
            slot.work.lease.abandon()
            slot.work = work
            event, why = task.ends_as
            self.lives.happened(slot, event, why=why)

    def _is_stopping(self, key: Hashable) -> bool:
        """Tells whether the task of a work is to end after the turn it is in."""
        return self.stop.is_set() or key in self._to_end

    def _take_back(self, slot: Slot[W]) -> None:
        """The task is done. Raises what it raised."""
        task, slot.task = slot.task, None
        assert task is not None
        if task.ends_as is not None:
            self._take_end(slot, task, *task.ends_as)
            return
        task.workers.result(task.outcome)
        self.refusal = None
        if task.workers is self._starts and self.stop.is_set():
            slot.life = slot.life.after(WorkEvent.DONE)  # it has stopped between two steps
        elif task.workers is self._starts:
            self.lives.happened(slot, WorkEvent.DONE if self._once else WorkEvent.UP)


def _start(work: Work, stopped: Callable[[], bool]) -> None:
    """Own the work, and start it."""
    if not work.lease.is_held:
        work.own(stopped)
    if (owned := work.lease.held) is None:
        raise RetryableError(f"{work}: it was left behind while it began.")
    work.start(owned, stopped)
