"""Asking what may never answer."""

from __future__ import annotations

import threading

import pytest

from geo.asking import ask_all
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
