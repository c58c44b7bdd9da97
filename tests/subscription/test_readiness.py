"""What a failover would repeat, skip and lack, and how long a backlog lasts. Pure."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from geo.ids import MessageId
from geo.subscription.acks.ack_state import AckState, Epoch
from geo.subscription.acks.message_set import MessageSet
from geo.subscription.readiness import Done, Readiness, drained_in_s, readiness

entries = st.frozensets(st.integers(0, 12))


def messages(found: frozenset[int]) -> MessageSet:
    return MessageSet.of(MessageId("us", 7, entry) for entry in found)


def state(acked: frozenset[int], epoch: int) -> AckState:
    return AckState(Epoch(epoch), acked=messages(acked))


@given(entries, entries, entries, entries, entries, st.integers(0, 1), st.integers(0, 1))
def test_it_is_what_the_other_cluster_would_do_with_its_own_log(
    acked_here: frozenset[int], acked_there: frozenset[int], before: frozenset[int], here: frozenset[int], there: frozenset[int],
    epoch_here: int, epoch_there: int,
) -> None:  # fmt: skip
    """`here` and `there` are the logs, `before` what lies before the base in both."""
    waiting = here - acked_here - before
    found = readiness(
        "eu", Done(state(acked_here, epoch_here), messages(before)), Done(state(acked_there, epoch_there), messages(before)),
        messages(waiting), messages(there),
    )  # fmt: skip
    delivered = there - acked_there - before
    was_reset = epoch_there < epoch_here
    assert found == Readiness(
        "eu",
        len(delivered & (acked_here | before)),
        len((there & acked_there) - acked_here - before) if was_reset else 0,
        len(waiting - there),
    )


def test_a_cluster_that_does_not_know_it_would_repeat_all() -> None:
    held = messages(frozenset(range(5)))
    here = Done(state(frozenset({0, 1, 2}), 0), MessageSet())
    assert readiness("eu", here, Done(None, MessageSet()), messages(frozenset({3, 4})), held) == Readiness("eu", 3, 0, 0)


def test_a_cluster_that_does_not_know_of_a_reset_would_skip_what_was_done_before_it() -> None:
    held, nothing = messages(frozenset(range(5))), MessageSet()
    reset, before = Done(state(frozenset({4}), 1), nothing), Done(state(frozenset({0, 1, 4}), 0), nothing)
    waiting = messages(frozenset({0, 1, 2, 3}))
    assert readiness("eu", reset, before, waiting, held) == Readiness("eu", 0, 2, 0)
    acknowledged_there = Done(state(frozenset({0, 1, 4}), 1), nothing)
    assert readiness("eu", reset, acknowledged_there, waiting, held) == Readiness("eu", 0, 0, 0), "a link has still to bring it"


def test_a_backlog_lasts_as_long_as_what_comes_meanwhile_lets_it() -> None:
    assert drained_in_s(0, 0, 50, 300) == 0
    assert drained_in_s(600, 300, 0, 300) == 600
    assert drained_in_s(600, 300, 200, 300) == 1800
    assert drained_in_s(600, 300, 300, 300) is None
    assert drained_in_s(600, 0, 0, 300) is None, "nobody consumes"
