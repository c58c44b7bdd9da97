"""How much a topic may bring per second, by a clock that the test turns."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geo.config.model import DispatchRate
from geo.errors import UsageError
from geo.fleet.rate import BURST_S, Allowance

_TAKEN = st.lists(st.tuples(st.integers(0, 5_000), st.integers(0, 500_000), st.floats(0, 20)), max_size=30)


def test_who_has_any_tokens_takes_a_batch_and_then_waits_until_the_debt_is_paid() -> None:
    allowance = Allowance(DispatchRate(messages_per_second=100), now=0.0)
    assert allowance.wait_s(0.0) == 0
    allowance.took(350, 0, 0.0)
    assert allowance.wait_s(0.0) == pytest.approx(2.5)
    assert allowance.wait_s(2.5) == 0
    allowance.took(1, 0, 2.5)
    assert allowance.wait_s(2.5) == pytest.approx(0.01)


def test_of_messages_and_bytes_the_slower_counts() -> None:
    allowance = Allowance(DispatchRate(100, 1_000), now=0.0)
    allowance.took(200, 11_000, 0.0)
    assert allowance.wait_s(0.0) == pytest.approx(10)
    allowance = Allowance(DispatchRate(bytes_per_second=1_000), now=0.0)
    allowance.took(10**9, 500, 0.0)
    assert allowance.wait_s(0.0) == 0


def test_a_turn_is_no_larger_than_some_seconds_of_the_rate() -> None:
    allowance = Allowance(DispatchRate(messages_per_second=7), now=0.0)
    assert (allowance.turn_messages, allowance.turn_bytes) == (70, None)
    assert Allowance(DispatchRate(), now=0.0).wait_s(0.0) == 0


@given(per_second=st.integers(1, 1_000), taken=_TAKEN)
def test_over_any_time_no_more_comes_than_the_rate_a_burst_and_a_batch(
    per_second: int, taken: list[tuple[int, int, float]]
) -> None:
    """Whoever takes only when it need not wait brings at most the rate times the time, what was saved up, and the last batch."""
    allowance, now, came, largest = Allowance(DispatchRate(messages_per_second=per_second), now=0.0), 0.0, 0, 0
    for messages, _, passes in taken:
        now += passes
        if allowance.wait_s(now) == 0:
            allowance.took(messages, 0, now)
            came, largest = came + messages, max(largest, messages)
    assert came <= per_second * (now + BURST_S) + largest + 1e-6


def test_a_rate_at_which_nothing_would_come_is_refused() -> None:
    with pytest.raises(UsageError, match="messages_per_second 0; expected: 1 or more"):
        DispatchRate(messages_per_second=0)
