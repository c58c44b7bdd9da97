"""What a piece of work owns: who was replaced does not come back by itself, and nothing stays claimed that nobody waits for."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from geo.errors import FencedError, RetryableError
from geo.streams.lease import Lease

AWAY = RetryableError("away")


class Own:
    def __init__(self, *, was_taken: bool = False) -> None:
        self.was_taken, self.is_abandoned = was_taken, False

    def abandon(self) -> None:
        self.is_abandoned = True

    def refuse_if_replaced(self) -> None:
        if self.was_taken:
            raise FencedError("taken over")


def _held(own: Own, *, take_over: bool = False, within_s: float = 60.0) -> Lease[Own]:
    lease = Lease[Own](take_over=take_over, within_s=within_s)
    assert lease.start_claim() == (take_over and within_s > 0)
    lease.hold(own)
    return lease


def test_what_was_lost_is_claimed_again_unless_somebody_took_it_over() -> None:
    own = Own()
    lease = _held(own)
    assert lease.lose(AWAY) is own
    assert (lease.is_held, lease.is_replaced, lease.last) == (False, False, own)
    lease.abandon()
    lease.expect()
    own.was_taken = True
    for fault in (FencedError("taken over"), AWAY):
        assert lease.lose(AWAY) is None, "of a start that failed before it claimed"
        with pytest.raises(FencedError):
            lease.start_claim()
        assert lease.lose(fault) is None
        assert lease.is_replaced
    lease.restart(take_over=False)
    assert (lease.start_claim(), lease.is_replaced) == (False, False)
    assert not own.is_abandoned, "it was its taker's to give up"


def test_who_is_told_that_it_was_replaced_knows() -> None:
    lease = _held(Own())
    lease.lose(FencedError("taken over"))
    assert lease.is_replaced


@pytest.mark.parametrize("ends", [lambda lease: lease.give_back(), lambda lease: lease.abandon()])
def test_what_was_given_back_or_abandoned_is_claimed_again_whoever_had_it(ends: Callable[[Lease[Own]], object]) -> None:
    own = Own(was_taken=True)
    lease = _held(own)
    ends(lease)
    assert (lease.start_claim(), lease.is_held, lease.lose(AWAY)) == (False, False, None)


def test_what_is_claimed_for_nobody_is_given_back_at_once() -> None:
    late, again = Own(), Own()
    lease = Lease[Own]()
    lease.abandon()
    lease.hold(late)
    assert (lease.is_held, late.is_abandoned) == (False, True)
    lease.expect()
    lease.hold(again)
    assert (lease.held, again.is_abandoned) == (again, False)


def test_an_owner_that_lives_is_replaced_until_it_was_held_once() -> None:
    lease = Lease[Own](take_over=True)
    assert (lease.start_claim(), lease.start_claim()) == (True, True)
    lease.hold(Own())
    assert lease.takes_over
    assert not lease.start_claim()
    lease.restart(take_over=True)
    assert lease.start_claim()


def test_who_asked_to_replace_it_too_long_ago_replaces_nobody() -> None:
    _held(Own(), take_over=True, within_s=-1.0)
