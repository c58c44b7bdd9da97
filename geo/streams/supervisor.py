"""Runs groups of works until they are done or stopped: each has a crew, and so a thread of its own.

Works that share a source are one group: a source that is away, or hangs, holds up its own works and nobody else's. What becomes
of works is in `crew.py`.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic

from geo.faults import FAULTS
from geo.streams import timetable
from geo.streams.crew import Crew
from geo.streams.life import Life, State
from geo.streams.work import Group, W

log = logging.getLogger(__name__)


def log_fault(group: object, work: object | None, life: Life) -> None:
    """Logs why something does not run, as `on_change`."""
    if life.reason is not None:
        what = group if work is None else work
        extra = {"event": life.state.value, "work": str(what), "reason": life.reason}
        log.warning("%s: %s: %s", what, life.state.value, life.reason, extra=extra)


def unfinished(ended: Iterable[tuple[Any, Any, Life]]) -> dict[str, str]:
    """State and reason, by name, of what did not come to its end, of what a run returned."""
    reasons = ((group if work is None else work, life) for group, work, life in ended if life.reason is not None)
    return {str(what): f"{life.state.value}: {life.reason}" for what, life in reasons}


class Supervisor(Generic[W]):
    """Runs the works of some groups; `run` until done or stopped.

    `once`: it ends when all there is has been done. `on_change` is told the life of a group, or of a work, whenever it changes,
    by the group's thread. `regroup` is asked all the time: the groups that are to run from now on, or None for those that do. One
    of them that runs already goes on undisturbed; one that is not among them is ended, before others are begun in its place.
    `faults`: what is a fault of the work or the group that raises it; anything else, and the end of Spark, ends the run.
    """

    def __init__(
        self,
        groups: Sequence[Group[W]],
        *,
        once: bool,
        on_change: Callable[[Group[W], W | None, Life], None] = lambda group, work, life: None,
        regroup: Callable[[], Sequence[Group[W]] | None] = lambda: None,
        faults: tuple[type[Exception], ...] = FAULTS,
    ) -> None:
        self._stop = threading.Event()
        self._once, self._on_change, self._regroup, self._faults = once, on_change, regroup, faults
        self._crews: list[Crew[W]] = []
        self._groups, self._has_regrouped = groups, False
        self._looks = 0
        self._silent: dict[int, float] = {}
        """Crews whose groups have not answered for long, and when they were asked."""

    def stop(self) -> None:
        """Let running batches end, then stop; callable from a signal handler."""
        self._stop.set()

    def look_now(self) -> Callable[[], bool]:
        """Ask all groups again what there is, at once. Returns what says whether all have been asked since."""
        self._looks += 1
        crews, look = list(self._crews), self._looks
        for crew in crews:
            crew.look = look
        return lambda: all(crew.looked >= look or not crew.thread.is_alive() for crew in crews)

    def works(self) -> list[tuple[Group[W], W, Life]]:
        """All works that are known now, and their lives; for other threads."""
        return [(crew.group, slot.work, slot.life) for crew in list(self._crews) for slot in list(crew.lives.slots.values())]

    def run(self) -> list[tuple[Group[W], W | None, Life]]:
        """Run until stopped, or `once` until all is done. Returns how each group and work ended.

        Raises, once everything has stopped: what refused all groups at the start (all is run by another process already, no registry can be read).
        A fault of this program; the end of Spark.
        """
        try:
            self._begin(self._groups)
            while not self._stop.is_set() and not (self._once and all(not crew.thread.is_alive() for crew in self._crews)):
                if self._crews:
                    for crew in self._crews:
                        crew.thread.join(timetable.SUPERVISOR_LOOK_S / len(self._crews))
                else:
                    self._stop.wait(timetable.SUPERVISOR_LOOK_S)
                self._name_the_silent()
                if any(crew.fault is not None for crew in self._crews) or self._refusal() is not None:
                    break
                if (groups := self._regroup()) is not None:
                    self._run_instead(groups)
        finally:
            self._stop.set()
            self._end(self._crews)
        for raised in (*(crew.fault for crew in self._crews), self._refusal()):
            if raised is not None:
                raise raised
        return [ended for crew in self._crews for ended in crew.lives.ended()]

    def _name_the_silent(self) -> None:
        """Say, once for each question, which groups have not answered for long."""
        now = time.monotonic()
        silent = {id(crew): at for crew in self._crews if (at := crew.asked_at) is not None and now - at > timetable.ANSWER_S}
        for crew in self._crews:
            if id(crew) in silent and self._silent.get(id(crew)) != silent[id(crew)]:
                why = "it was asked what there is, and has not answered yet"
                log.warning("%s: %s", crew.group, why, extra={"event": "silent", "work": str(crew.group), "reason": why})
        self._silent = silent

    def _begin(self, groups: Sequence[Group[W]]) -> None:
        for group in groups:
            crew = Crew(group, once=self._once, on_change=self._on_change, faults=self._faults)
            self._crews.append(crew)
            crew.thread.start()

    def _end(self, crews: Sequence[Crew[W]], *, unless: Callable[[], bool] = lambda: False) -> bool:
        """Let crews end, timetable.STOP_S at most, and wait no longer for who has not. False, and they are still waited for, if `unless`
        comes true meanwhile."""
        for crew in crews:
            crew.stop.set()
        deadline = time.monotonic() + timetable.STOP_S
        while (lives := [crew.thread for crew in crews if crew.thread.is_alive()]) and time.monotonic() < deadline:
            if unless():
                return False
            lives[0].join(timetable.SUPERVISOR_LOOK_S / 10)
        for crew in crews:
            crew.leave_behind(timetable.STOP_S)
        return True

    def _run_instead(self, groups: Sequence[Group[W]]) -> None:
        """End what is not among the groups, then begin those that do not run. A stop meanwhile ends all as ever."""
        self._has_regrouped = True
        wanted, running = {id(group) for group in groups}, {id(crew.group) for crew in self._crews}
        gone = [crew for crew in self._crews if id(crew.group) not in wanted]
        if not self._end(gone, unless=self._stop.is_set):
            return
        for group, work, life in (ended for crew in gone for ended in crew.lives.ended()):
            if life.state in (State.FAILED, State.DELAYED):
                self._on_change(group, work, Life())  # nobody is to see to it any more
        self._crews = [crew for crew in self._crews if crew not in gone or crew.fault is not None]
        self._begin([group for group in groups if id(group) not in running])

    def _refusal(self) -> BaseException | None:
        """Tells why nothing at all could be begun at the start; None if something was."""
        if self._has_regrouped:
            return None
        refusals = [crew.refusal for crew in self._crews]
        return None if None in refusals else next(iter(refusals), None)
