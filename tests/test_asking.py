"""Asking what may never answer."""

from __future__ import annotations

import threading

import pytest

from geo.asking import Late, ask_all
from geo.errors import RetryableError, UsageError


def test_what_answers_late_counts_as_away_and_the_others_count() -> None:
    released = threading.Event()

    def fails() -> bool:
        raise UsageError("no")

    found = ask_all({"us": lambda: True, "de": fails, "eu": released.wait}, 0.2)
    released.set()
    assert found["us"].result() is True
    with pytest.raises(UsageError, match="no"):
        found["de"].result()
    with pytest.raises(RetryableError, match=r"eu has not answered for 0\.2 s"):
        found["eu"].result()


def test_nobody_to_ask_is_no_answer() -> None:
    assert ask_all({}, 60.0) == {}


def test_who_hangs_is_asked_again_only_once_its_thread_has_ended() -> None:
    released, late, asked = threading.Event(), Late(), list[int]()

    def hangs() -> int:
        asked.append(1)
        assert released.wait(60)
        return len(asked)

    for _ in range(3):
        with pytest.raises(RetryableError, match=r"eu has not answered for 0\.05 s"):
            ask_all({"eu": hangs, "us": lambda: 1}, 0.05, late)["eu"].result()
    assert (len(asked), set(late)) == (1, {"eu"})
    released.set()
    assert late["eu"][0].result(60) == 1
    assert ask_all({"eu": hangs}, 60.0, late)["eu"].result() == 2
    assert late == {}
