"""A loop over batches: when it ends, what it says of itself, and that a stop waits for its batch."""

from __future__ import annotations

import threading
from collections.abc import Callable

from geo.streams.loop import BatchLoop


def _steps(*answers: bool | BaseException) -> tuple[Callable[[], bool], list[int]]:
    done: list[int] = []

    def step() -> bool:
        answer = answers[len(done)]
        done.append(len(done))
        if isinstance(answer, BaseException):
            raise answer
        return answer

    return step, done


def test_without_an_interval_it_ends_when_there_is_nothing() -> None:
    closed = threading.Event()
    step, done = _steps(True, True, False)
    loop = BatchLoop("x", step, closed.set, every_s=None)
    assert loop.wait(10)
    assert (done, loop.ended_well, loop.error, loop.in_batch, loop.is_active) == ([0, 1, 2], True, None, False, False)
    assert closed.is_set()


def test_what_a_batch_raises_ends_it_and_is_kept() -> None:
    closed = threading.Event()
    step, done = _steps(True, ValueError("no"))
    loop = BatchLoop("x", step, closed.set, every_s=0.001)
    assert loop.wait(10)
    assert (done, loop.ended_well, loop.in_batch) == ([0, 1], False, True)
    assert str(loop.error) == "no"
    assert closed.is_set(), "what it has open is closed all the same"


def test_a_stop_waits_for_the_batch_and_not_for_the_interval() -> None:
    inside, go_on, done = threading.Event(), threading.Event(), []

    def step() -> bool:
        inside.set()
        assert go_on.wait(10)
        done.append(1)
        return True

    loop = BatchLoop("x", step, lambda: None, every_s=3600.0)
    assert inside.wait(10)
    stopping = threading.Thread(target=loop.stop)
    stopping.start()
    assert loop.is_active
    assert not loop.wait(0)
    go_on.set()
    stopping.join(10)
    assert (done, loop.is_active, loop.ended_well) == ([1], False, True)


def test_what_its_end_raises_is_kept_too() -> None:
    def close() -> None:
        raise ValueError("not closed")

    step, _ = _steps(False)
    loop = BatchLoop("x", step, close, every_s=None)
    assert loop.wait(10)
    assert (str(loop.error), loop.ended_well, loop.in_batch) == ("not closed", False, False)
