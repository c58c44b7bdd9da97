"""Two that are followed as one: a loop beside another."""

from __future__ import annotations

import threading

import pytest

from geo.streams.loop import BatchLoop
from geo.streams.query_work import Both

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
