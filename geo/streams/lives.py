"""The works of one group, and what becomes of each: its life changes with what happens to it, and a change is reported.

The meaning of a state and an event is in `life.py`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Generic

from geo.delta.locks import without_waiting
from geo.faults import needs_person, reason_of, session_is_gone
from geo.streams.life import Life, State, Why, WorkEvent
from geo.streams.work import Failed, Group, W
from geo.streams.workers import Workers
from geo.text import first_line

log = logging.getLogger(__name__)

SPARK_ENDED = "Spark in this process ended before its work had (a SIGTERM or SIGKILL of its JVM); the next start goes on"
"""The reason why a work does not run. Its own error would only say that nobody answers."""


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


class Lives(Generic[W]):
    """The works of a group, by their keys, and the life of the group itself. Only one thread changes what becomes of them."""

    def __init__(
        self,
        group: Group[W],
        *,
        once: bool,
        on_change: Callable[[Group[W], W | None, Life], None],
        faults: tuple[type[Exception], ...],
    ) -> None:
        self.group, self.once, self._on_change, self.faults = group, once, on_change, faults
        self.slots: dict[Hashable, Slot[W]] = {}
        self.life = Life()
        """Life of the group itself: whether it can be asked what there is."""

    def ended(self) -> list[tuple[Group[W], W | None, Life]]:
        """Endings of the group, if it could not be asked, and of its works."""
        own: list[tuple[Group[W], W | None, Life]] = []
        if self.life.state is State.DELAYED:
            own.append((self.group, None, self.life))
        return own + [(self.group, slot.work, slot.life) for slot in self.slots.values()]

    def happened(
        self, slot: Slot[W], event: WorkEvent, *, why: Why | None = None, error: BaseException | None = None, moved: bool = False
    ) -> None:
        """Change the life of a work by an event, and report what has changed."""
        before = slot.life
        slot.life = before.after(event, now=time.monotonic(), why=why, error=error, ends=self.once, moved=moved)
        if (slot.life.state, slot.life.reason) != (before.state, before.reason) or event is WorkEvent.DONE:
            self._on_change(self.group, slot.work, slot.life)

    def failed(self, slot: Slot[W], error: BaseException, *, replacement: W | None = None) -> None:
        """FAILED if a person is needed, else DELAYED. `replacement`: what goes on in its place."""
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
            except self.faults as another:
                log.warning("%s: its state could not be recorded: %s", slot.work, first_line(another))
        slot.work = slot.work if replacement is None else replacement
        self.happened(slot, event, why=why, error=error, moved=moved)  # reported when whoever resolves it can

    def sort_out(self, slots: Sequence[Slot[W]], failed: Failed[W]) -> list[Slot[W]]:
        """Let those that failed have failed. Returns the others."""
        errors = {id(work): error for work, error in failed}
        for slot in slots:
            if (error := errors.get(id(slot.work))) is not None:
                self.failed(slot, error)
        return [slot for slot in slots if id(slot.work) not in errors]

    @contextmanager
    def its_faults(self, slot: Slot[W]) -> Iterator[None]:
        """A fault is the work's own."""
        try:
            yield
        except self.faults as error:
            self.failed(slot, error)

    def group_lives(self, life: Life) -> None:
        """Set the life of the group itself, and report it if it is delayed now, or is no longer."""
        before, self.life = self.life, life
        if (before.state is State.DELAYED) != (life.state is State.DELAYED) or life.reason != before.reason:
            self._on_change(self.group, None, life)
