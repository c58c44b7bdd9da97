"""The life of a piece of work: which event leads where, and when it is tried again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geo.reasons import Reason
from geo.streams import timetable
from geo.streams.life import TRANSITIONS, TRIES, Life, State, Why, WorkEvent, backoff_s
from geo.streams.work import lag_words


def test_a_pause_doubles_up_to_a_minute() -> None:
    assert [backoff_s(attempt) for attempt in (1, 2, 3, 6, 7, 8, 100)] == [1, 2, 4, 32, 60, 60, 60]


def test_from_every_state_there_is_a_way_to_run_again_and_a_way_to_stop() -> None:
    assert TRANSITIONS.keys() == set(State)
    for state, ways in TRANSITIONS.items():
        assert WorkEvent.STOP in ways
        reached = {state}
        while not reached >= (more := {end for one in reached for end in TRANSITIONS[one].values()}):
            reached |= more
        assert State.RUNNING in reached
    assert {state for state, ways in TRANSITIONS.items() if ways[WorkEvent.STOP] is not State.STOPPED} == {
        State.DELAYED, State.FAILED, State.PAUSED,
    }, "why something is not running is not forgotten at a stop"  # fmt: skip


def test_what_needs_a_person_is_not_tried_again_by_itself() -> None:
    failed = Life().after(WorkEvent.REFUSED, now=5, why=Why("why", Reason.OTHER))
    assert (failed.state, failed.reason) == (State.FAILED, "why")
    assert not failed.is_ripe(10**9)
    with pytest.raises(KeyError):
        failed.after(WorkEvent.UP)
    resolved = failed.after(WorkEvent.RESOLVED)
    assert (resolved.state, resolved.reason) == (State.STOPPED, None)
    assert resolved.is_ripe(10**9)


def test_a_fault_is_tried_again_after_longer_and_longer() -> None:
    life, now = Life(), 100.0
    for pause in (1, 2, 4, 8):
        life = life.after(WorkEvent.FAULT, now=now, why=Why("away", Reason.OTHER))
        assert life.state is State.DELAYED
        assert not life.is_ripe(now + pause - 0.1)
        assert life.is_ripe(now + pause)
        now += pause
    steady = life.after(WorkEvent.UP).after(WorkEvent.FAULT, now=now + timetable.STEADY_S + 1, why=Why("again", Reason.OTHER))
    assert (steady.tries, steady.again_at) == (1, now + timetable.STEADY_S + 2)


def test_a_run_that_ends_gives_up_after_some_faults_unless_it_comes_further() -> None:
    life = Life()
    for number in range(1, TRIES + 1):
        life = life.after(WorkEvent.FAULT, now=0, ends=True)
        assert life.done == (number == TRIES)
    assert not life.is_ripe(10**9)
    life = Life()
    for _ in range(10):
        life = life.after(WorkEvent.FAULT, now=0, ends=True, moved=True)
        assert not life.done
    assert Life().after(WorkEvent.REFUSED, ends=True).done
    assert Life().after(WorkEvent.UP).after(WorkEvent.DONE).done


def test_what_nobody_supervises_is_given_up_when_faults_have_come_in_a_row_for_long() -> None:
    for took_s in (0.0, timetable.STEADY_S + 30):  # however long each takes to fail
        life, now, hopeless = Life(), 1000.0, []
        while now <= 1000.0 + timetable.PATIENCE_S + 200:
            life = life.after(WorkEvent.FAULT, now=now, ends=True)
            hopeless.append((now, life.is_hopeless(now)))
            now = life.again_at + took_s
        assert [given_up for at, given_up in hopeless] == [at - 1000.0 > timetable.PATIENCE_S for at, _ in hopeless]
        assert hopeless[-1][1]
        moved = life.after(WorkEvent.FAULT, now=now, ends=True, moved=True)
        assert not moved.is_hopeless(now), "what came further begins to count anew"


def test_paused_work_waits_until_it_is_wanted() -> None:
    paused = Life().after(WorkEvent.UP).after(WorkEvent.LEFT_OUT, why=Why("its policy leaves it out", Reason.OTHER))
    assert (paused.state, paused.reason) == (State.PAUSED, "its policy leaves it out")
    assert not paused.is_ripe(10**9)
    assert paused.after(WorkEvent.STOP) == paused
    assert paused.after(WorkEvent.WANTED).is_ripe(10**9)
    assert not paused.done
    assert Life().after(WorkEvent.LEFT_OUT, ends=True).done, "a run that ends waits for nobody"


def test_what_is_restarted_is_begun_at_once_whatever_it_waited_for() -> None:
    delayed = Life().after(WorkEvent.FAULT, now=100.0, why=Why("away", Reason.OTHER))
    assert not delayed.is_ripe(100.0)
    for life in (delayed, Life().after(WorkEvent.REFUSED, why=Why("restored", Reason.OTHER)), Life().after(WorkEvent.UP)):
        again = life.after(WorkEvent.RESTARTED, now=100.0)
        assert again.is_ripe(100.0)
        assert (again.tries, again.reason) == (0, None)


@given(st.lists(st.tuples(st.sampled_from(WorkEvent), st.floats(0, 100), st.booleans())), st.booleans())
def test_whatever_happens_a_reason_is_only_of_what_does_not_run(events: list[tuple[WorkEvent, float, bool]], ends: bool) -> None:
    life, now = Life(), 0.0
    for event, later, moved in events:
        now += later
        if event not in TRANSITIONS[life.state]:
            continue
        why = Why("why", Reason.OTHER) if event in (WorkEvent.FAULT, WorkEvent.REFUSED, WorkEvent.LEFT_OUT) else None
        life = life.after(event, now=now, why=why, ends=ends, moved=moved)
        assert (life.reason is None) == (life.code is None)
        assert (life.reason is not None) == (life.state in (State.DELAYED, State.FAILED, State.PAUSED))
        assert not (life.done and life.is_ripe(now))


def test_how_far_works_are_behind_is_said_of_those_that_are() -> None:
    assert lag_words([None, 0, 0]) == ""
    assert lag_words([3, None, 0, 11]) == "; 2 topics behind, by 14 commits at least"
    assert lag_words([1]) == "; 1 topic behind, by 1 commit at least"
