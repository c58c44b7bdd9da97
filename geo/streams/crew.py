"""The works of one group: discovered, started side by side, followed, tried again, recorded, handed over, by a thread of their own.

The meaning of a state and an event is in `life.py`; what a piece of work does is its own business.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Generic

from geo.delta.locks import without_waiting
from geo.delta.mirror import may_be_old
from geo.errors import AlreadyOwnedError, LockedError, RetryableError
from geo.faults import needs_person, reason_of, session_is_gone
from geo.reasons import Reason
from geo.streams import timetable
from geo.streams.life import Life, State, Why, WorkEvent
from geo.streams.work import Failed, Group, W, Work
from geo.streams.workers import Workers
from geo.text import first_line

log = logging.getLogger(__name__)

AT_ONCE = 4
"""Works of a group that are started side by side; more only queue up for the cores."""

DUES_AT_ONCE = 64
"""Works of a group of which what is due is done side by side: as many as a link may have fetchers."""

ENDS_AT_ONCE = 16
"""Works of a group that are ended side by side: each waits for its running batch."""

SPARK_ENDED = "Spark in this process ended before its work had (a SIGTERM or SIGKILL of its JVM); the next start goes on"
"""Why a work does not run. Its own error would only say that nobody answers."""


@dataclass(frozen=True, slots=True, eq=False)
class Task:
    """Task of one of some workers for a piece of work: start it, do what is due, or end it."""

    workers: Workers
    outcome: Future[Any]
    ends_as: tuple[WorkEvent, Why | None] | None = None
    """It is its end, and what that is."""


@dataclass(slots=True, eq=False)
class Slot(Generic[W]):
    """A piece of work and its life."""

    work: W
    life: Life = field(default_factory=Life)
    task: Task | None = None
    """Task that is under way for it."""
    is_over: bool = False
    """It was ended for good: handed over, or left to whoever continues it."""
    last_progress: Hashable = None
    """Progress marker at its last fault."""


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
        self.group, self._once, self._on_change, self._faults = group, once, on_change, faults
        self.stop = threading.Event()
        """Turns end after the one they are in."""
        self.slots: dict[Hashable, Slot[W]] = {}
        self.life = Life()
        """Life of the group itself: whether it can be asked what there is."""
        self.fault: BaseException | None = None
        """A fault of this program, or the end of Spark: it ends the whole run."""
        self.refusal: BaseException | None = None
        """Because of which nothing of it could be begun at the start, and a person must act."""
        self.look = self.looked = 0
        """Another thread counts `look` up to have the group asked at once; it was, since, once `looked` is as much."""
        self.asked_at: float | None = None
        """When the group was asked what there is, of a question that has no answer yet."""
        self._left = threading.Event()
        """Nobody waits for it any more."""
        self._ask_at: float | None = None
        """When the group is asked next; None: it never was."""
        self._recorded_at = time.monotonic()
        self._record_again_at = -math.inf
        """While somebody else writes where they are recorded, this is not tried before."""
        self._unrecorded: list[Slot[W]] = []
        self._to_end: dict[Hashable, tuple[WorkEvent, Why | None]] = {}
        """Works to end as soon as no task of theirs is under way: left out, and why, or to restart."""
        self._starts, self._dues = Workers(AT_ONCE, f"geo-start-{group}"), Workers(DUES_AT_ONCE, f"geo-due-{group}")
        self.thread = threading.Thread(target=self._main, name=f"geo-{group}", daemon=True)

    def ended(self) -> list[tuple[Group[W], W | None, Life]]:
        """Endings of the group, if it could not be asked, and of its works."""
        own: list[tuple[Group[W], W | None, Life]] = []
        if self.life.state is State.DELAYED:
            own.append((self.group, None, self.life))
        return own + [(self.group, slot.work, slot.life) for slot in self.slots.values()]

    def leave_behind(self, waited_s: float) -> None:
        """Own nothing any more: it was waited for so long. What was handed over is owned no longer already."""
        self._left.set()
        for slot in list(self.slots.values()):
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
            self._end_all(hand_over=self.fault is None)
        except BaseException as error:
            self.fault = self.fault or error
        finally:
            if self._left.is_set():  # nobody has waited for what came since
                for slot in self.slots.values():
                    slot.work.lease.abandon()
            for workers in (self._starts, self._dues):
                workers.close()

    def _run(self) -> None:
        while not self.stop.is_set():
            self._ask_if_due()
            for key, slot in list(self.slots.items()):
                if self.stop.is_set():
                    return
                if slot.task is not None or (end := self._to_end.pop(key, None)) is None:
                    self._step(key, slot)
                elif end[0] is WorkEvent.RESTARTED or slot.life.state is not State.PAUSED:  # it may have ended since it was found
                    # That waits for its running batch, so it holds up no other.
                    slot.task = Task(self._dues, self._dues.submit(slot.work.end), end)
            if self._once and self.life.done and all(slot.life.done for slot in self.slots.values()):
                return
            self._record_if_due()
            self.stop.wait(min(timetable.TICK_S, timetable.LEAST_TICK_S + timetable.OF_A_WORK_S * len(self.slots)))

    def _record_if_due(self) -> None:
        """Record all that are up, those of which something is done now as soon as it is done."""
        if time.monotonic() - self._recorded_at >= timetable.RECORD_S:
            self._recorded_at = time.monotonic()
            self._unrecorded = list(self.slots.values())
        if time.monotonic() < self._record_again_at:
            return
        up = [slot for slot in self._unrecorded if slot.life.state is State.RUNNING]
        self._unrecorded = [slot for slot in up if slot.task is not None]
        if free := [slot for slot in up if slot.task is None]:
            try:
                # What is recorded meanwhile only makes the next start shorter: no work is held up for it.
                self._record(free, State.RUNNING, patience=without_waiting)
            except LockedError as error:
                self._unrecorded += free
                self._record_again_at = time.monotonic() + timetable.LOCKED_S
                log.info("%s: positions are not recorded now: %s", self.group, first_line(error))

    # -- which works -------------------------------------------------------------------------------------------------

    def _ask_if_due(self) -> None:
        look = self.look
        try:
            self._ask(hurry=look > self.looked)
        finally:
            self.looked = look

    def _ask(self, *, hurry: bool) -> None:
        now, first = time.monotonic(), self._ask_at is None
        if self.life.done or not (hurry or self._ask_at is None or now >= self._ask_at):
            return
        self._ask_at, self.asked_at = now + timetable.DISCOVERY_S, now
        try:
            with may_be_old(0.0 if hurry or first or self._once else timetable.REMOTE_DISCOVERY_S):
                found = self.group.discover({key: (slot.work, slot.life.state) for key, slot in self.slots.items()})
        except self._faults as error:
            if session_is_gone(error):
                raise
            why = Why(first_line(error), reason_of(error))
            self._set_own_life(self.life.after(WorkEvent.FAULT, now=now, why=why, error=error, ends=self._once))
            self._ask_at = self.life.again_at
            if first and needs_person(error):
                self.refusal = error
            return
        finally:
            self.asked_at = None
        self.refusal = None
        self._set_own_life(self.life.after(WorkEvent.DONE if self._once else WorkEvent.UP))
        for key in found.resolved:
            self._happened(self.slots[key], WorkEvent.RESOLVED)
        for key in found.wanted:
            self._happened(self.slots[key], WorkEvent.WANTED)
        self._to_end = {
            **{key: end for key, end in self._to_end.items() if end[0] is WorkEvent.RESTARTED},
            **dict.fromkeys(found.again, (WorkEvent.RESTARTED, None)),
            **{key: (WorkEvent.LEFT_OUT, why) for key, why in found.left_out.items()},
        }
        for key, work in found.done:
            self.slots[key] = slot = Slot(work)
            self._happened(slot, WorkEvent.DONE)
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
        self.slots |= slots
        if not self._sort_out(list(slots.values()), failed) and first:
            errors = [error for _, error in failed]
            self.refusal = next((one for one in errors if needs_person(one) or isinstance(one, AlreadyOwnedError)), None)

    def _take_end(self, slot: Slot[W], end: Task, event: WorkEvent, why: Why | None) -> None:
        """It has ended: record its state, and own it no longer."""
        try:
            well = end.workers.result(end.outcome)
            if well and slot.life.state in (State.STOPPED, State.RUNNING) and slot.work.lease.is_held:
                state = State.PAUSED if event is WorkEvent.LEFT_OUT else State.STOPPED
                self._release(self._record([slot], state, code=None if why is None else why.code))
        except self._faults as error:
            log.warning("%s: not stopped cleanly: %s", slot.work, first_line(error))
        finally:
            # Whatever is not known to have ended cleanly stays owned, so that whoever continues fences it first.
            slot.work.lease.abandon()
        self._happened(slot, event, why=why)

    # -- running -------------------------------------------------------------------------------------------------------

    def _step(self, key: Hashable, slot: Slot[W]) -> None:
        """Do what is due for one work now. Its faults are its own; a fault of this program, or the end of Spark, ends the run."""
        try:
            if slot.task is not None and slot.task.outcome.done():
                self._take_back(slot)
            elif (slot.task is not None or slot.life.state is State.RUNNING) and (other := slot.work.instead()) is not None:
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
            self._failed(slot, error)

    def _go_on_with(self, slot: Slot[W], work: W, error: BaseException) -> None:
        """Another work takes the place of one that hangs, whose thread is left to itself. What was to be its end is that."""
        task, slot.task = slot.task, None
        if task is not None:
            task.workers.lose()
        if task is None or task.ends_as is None:
            self._failed(slot, error, instead=work)
        else:
            slot.work.lease.abandon()
            slot.work = work
            event, why = task.ends_as
            self._happened(slot, event, why=why)

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
            self._happened(slot, WorkEvent.DONE if self._once else WorkEvent.UP)

    def _failed(self, slot: Slot[W], error: BaseException, *, instead: W | None = None) -> None:
        """FAILED if a person is needed, else DELAYED. `instead`: what goes on in its place."""
        event = WorkEvent.REFUSED if needs_person(error) else WorkEvent.FAULT
        far = slot.work.progress_marker
        moved = far is not None and far != slot.last_progress
        slot.last_progress = slot.last_progress if far is None else far
        reason = str(error) if event is WorkEvent.REFUSED else SPARK_ENDED if session_is_gone(error) else first_line(error)
        state, why = State.FAILED if event is WorkEvent.REFUSED else State.DELAYED, Why(reason, reason_of(error))
        if (owned := slot.work.lease.lose(error)) is not None:
            # What a person must see to is recorded however long that takes; a fault comes again, and holds up no other work.
            patience = nullcontext if event is WorkEvent.REFUSED else without_waiting
            try:
                with patience():
                    slot.work.give_up(owned, state, why)
            except self._faults as another:
                log.warning("%s: its state could not be recorded: %s", slot.work, first_line(another))
        slot.work = slot.work if instead is None else instead
        self._happened(slot, event, why=why, error=error, moved=moved)  # reported when whoever resolves it can

    def _record(
        self,
        slots: Sequence[Slot[W]],
        state: State,
        patience: Callable[[], AbstractContextManager[None]] = nullcontext,
        code: Reason | None = None,
    ) -> list[Slot[W]]:
        """Record works that moved, with that patience. Returns those of which everything is recorded now. Raises LockedError without."""
        try:
            with patience():
                failed = self.group.record_states([(slot.work, state) for slot in slots], code)
        except LockedError:
            raise
        except self._faults as error:
            log.warning("%s: positions could not be recorded, the next time says more: %s", self.group, first_line(error))
            return []
        for work, _ in failed:
            try:
                work.end()
            except self._faults as another:
                log.warning("%s: not stopped cleanly: %s", work, first_line(another))
        return self._sort_out(slots, failed)

    def _release(self, slots: Sequence[Slot[W]]) -> list[Slot[W]]:
        """Own works no longer that ended well and are recorded. Returns those that did."""
        try:
            failed = self.group.release([slot.work for slot in slots])
        except self._faults as error:
            failed = [(slot.work, error) for slot in slots]
        return self._sort_out(slots, failed)

    def _sort_out(self, slots: Sequence[Slot[W]], failed: Failed[W]) -> list[Slot[W]]:
        """Let those that failed have failed. Returns the others."""
        errors = {id(work): error for work, error in failed}
        for slot in slots:
            if (error := errors.get(id(slot.work))) is not None:
                self._failed(slot, error)
        return [slot for slot in slots if id(slot.work) not in errors]

    def _happened(
        self, slot: Slot[W], event: WorkEvent, *, why: Why | None = None, error: BaseException | None = None, moved: bool = False
    ) -> None:
        before = slot.life
        slot.life = before.after(event, now=time.monotonic(), why=why, error=error, ends=self._once, moved=moved)
        if (slot.life.state, slot.life.reason) != (before.state, before.reason) or event is WorkEvent.DONE:
            self._on_change(self.group, slot.work, slot.life)

    def _set_own_life(self, life: Life) -> None:
        before, self.life = self.life, life
        if (before.state is State.DELAYED) != (life.state is State.DELAYED) or life.reason != before.reason:
            self._on_change(self.group, None, life)

    # -- the end -----------------------------------------------------------------------------------------------------

    def _end_all(self, *, hand_over: bool) -> None:
        """Let running batches end, side by side, and hand over what has ended well; the rest is left to the next start, which
        fences it. One that hangs holds up no other."""
        enders = Workers(ENDS_AT_ONCE, f"geo-end-{self.group}")
        waiting, ending, well = list(self.slots.values()), list[tuple[Slot[W], Future[bool]]](), list[Slot[W]]()
        handed_over_at = time.monotonic()
        while (waiting or ending or well) and not self._left.is_set():
            for slot in [slot for slot in waiting if slot.task is None or slot.task.outcome.done()]:
                waiting.remove(slot)
                if slot.task is not None:
                    with self._its_faults(slot):
                        self._take_back(slot)
                ending.append((slot, enders.submit(slot.work.end)))
            for slot, end in [one for one in ending if one[1].done()]:
                ending.remove((slot, end))
                with self._its_faults(slot):
                    if not enders.result(end):
                        self._happened(slot, WorkEvent.FAULT, why=Why("it was stopped in the middle of a batch", Reason.OTHER))
                if slot.life.state in (State.STOPPED, State.RUNNING) and slot.work.lease.is_held and hand_over:
                    well.append(slot)
                elif not slot.work.lease.is_held:
                    self._let_go(slot)
            now = time.monotonic()
            if well and (now - handed_over_at >= timetable.HAND_OVER_S or not (waiting or ending)):
                for slot in (handed := self._release(self._record(well, State.STOPPED))):
                    self._let_go(slot)
                for slot in well:
                    if slot not in handed and slot.life.state in (State.STOPPED, State.RUNNING):
                        self._happened(slot, WorkEvent.FAULT, why=Why("its end could not be recorded", Reason.OTHER))
                well, handed_over_at = [], time.monotonic()
            elif waiting or ending:
                self._left.wait(timetable.TICK_S / 10)
        enders.close()

    @contextmanager
    def _its_faults(self, slot: Slot[W]) -> Iterator[None]:
        """A fault is the work's own."""
        try:
            yield
        except self._faults as error:
            self._failed(slot, error)

    def _let_go(self, slot: Slot[W]) -> None:
        """It was ended for good."""
        slot.is_over = True
        self._happened(slot, WorkEvent.STOP)


def _start(work: Work, stopped: Callable[[], bool]) -> None:
    """Own the work, and start it."""
    if not work.lease.is_held:
        work.own(stopped)
    if (owned := work.lease.held) is None:
        raise RetryableError(f"{work}: it was left behind while it began.")
    work.bring_up(owned, stopped)
