"""Two that are followed as one: a loop beside another; and what a group of works finds: what is its share, and what failed long ago."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable, Mapping
from functools import partial
from typing import Any

import pytest

from geo.errors import RetryableError
from geo.names import Topic
from geo.reasons import Reason
from geo.streams.life import State
from geo.streams.loop import BatchLoop
from geo.streams.query_work import Both, QueryWork, QueryWorks
from geo.streams.work import Found

Known = Mapping[Hashable, tuple[QueryWork[Any], State]]

_SOON_S = 10.0


def _goes_on() -> BatchLoop:
    return BatchLoop("goes on", lambda: True, lambda: None, every_s=3600.0)


def _fails() -> BatchLoop:
    def step() -> bool:
        raise ValueError("no")

    return BatchLoop("fails", step, lambda: None, every_s=None)


@pytest.mark.parametrize("once", [False, True])
@pytest.mark.parametrize("first", [False, True])
def test_one_that_fails_ends_both(first: bool, once: bool) -> None:
    failing, other = _fails(), _goes_on()
    both = Both(failing, other, once=once) if first else Both(other, failing, once=once)
    assert failing.wait(_SOON_S)
    assert other.is_active
    assert both.wait(0.0)
    assert (both.is_active, both.ended_well, str(both.error)) == (False, False, "no")
    both.stop()
    assert other.wait(0.0)
    assert str(both.error) == "no"


def test_one_that_was_stopped_ends_both_in_a_run_without_an_end() -> None:
    one, other = _goes_on(), _goes_on()
    both = Both(one, other, once=False)
    assert both.is_active
    one.stop()
    assert (both.is_active, both.ended_well, both.error) == (False, False, None)
    both.stop()
    assert (both.is_active, both.ended_well, both.error) == (False, True, None)


def test_in_a_run_that_ends_both_do_what_there_is() -> None:
    go_on = threading.Event()

    def step() -> bool:
        assert go_on.wait(_SOON_S)
        return False

    done, other = (BatchLoop(name, one, lambda: None, every_s=None) for name, one in (("x", lambda: False), ("y", step)))
    both = Both(done, other, once=True)
    assert done.wait(_SOON_S)
    assert both.is_active
    assert not both.wait(0.0)
    go_on.set()
    assert both.wait(_SOON_S)
    assert (both.is_active, both.ended_well, both.error) == (False, True, None)


class Works(QueryWorks[QueryWork[Any]]):
    def discover(self, known: Known) -> Found[QueryWork[Any]]:
        return self._found(known)


def _work(name: str = "clicks") -> QueryWork[Any]:
    return QueryWork(lambda take_over, stopped: None, Topic("shop", "web", name), once=False, take_over=False)


def test_who_begins_is_told_whether_to_take_over_and_how_to_ask_whether_it_is_stopped() -> None:
    told: list[object] = []

    def begin(take_over: bool, stopped: Callable[[], bool]) -> Any:
        told.extend((take_over, stopped()))
        raise RetryableError("it is away")

    with pytest.raises(RetryableError):
        QueryWork(begin, Topic("shop", "web", "clicks"), once=False, take_over=True).own(lambda: True)
    assert told == [True, True]


def test_a_failed_work_is_due_once_its_time_has_passed_and_then_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    works, work = Works(again_s=10.0), _work()
    failed: Known = {"a": (work, State.FAILED)}
    fine: Known = {"a": (work, State.RUNNING)}
    due = list[object]()
    for at, known in ((100.0, failed), (109.0, failed), (110.0, failed), (110.0, failed), (119.0, fine), (121.0, failed)):
        monkeypatch.setattr(time, "monotonic", partial(float, at))
        due.append(works.discover(known).resolved)
    assert due == [[], [], ["a"], [], [], []], "it is told once, and failed anew just now"


def test_what_is_another_processes_rests_until_it_is_this_ones_again_whoever_had_it() -> None:
    class Mine:
        def elsewhere(self, topic: Topic) -> str | None:
            return f"{topic.name} is not ours" if topic.name == "c" else None

        def takes_over(self, topic: Topic) -> bool:
            return topic.name == "a"

    works = Works(Mine(), again_s=0.0)
    known: Known = {
        name: (_work(name), state) for name, state in {"a": State.PAUSED, "b": State.PAUSED, "c": State.FAILED}.items()
    }
    known["a"][0].lease.is_replaced = True
    found = works.discover(known)
    assert (list(found.wanted), found.left_out, list(found.resolved)) == (
        ["a", "b"],
        {"c": ("c is not ours", Reason.PLACED_ELSEWHERE)},
        [],
    )
    assert [known[name][0].lease.start_claim() for name in "ab"] == [True, False]
    assert not known["a"][0].lease.is_replaced
