"""Whether a run came further. Pure."""

from __future__ import annotations

import pytest

from geo.subscription.consumer.consumed import Consumed


@pytest.mark.parametrize(
    ("more", "is_further"),
    [
        (Consumed(delivered=1), True),
        (Consumed(acknowledged=1), True),
        (Consumed(delivered=1, acknowledged=1, dead_lettered=1), True),
        (Consumed(delivered=2, redelivered=1), True),
        (Consumed(delivered=2, redelivered=2), False),
        (Consumed(refused=5), False),
        (Consumed(), False),
    ],
)
def test_a_run_comes_further_by_what_is_new_to_it_or_acknowledged(more: Consumed, is_further: bool) -> None:
    before = Consumed(delivered=7, redelivered=2, acknowledged=3)
    assert ((before + more).progress > before.progress) is is_further
