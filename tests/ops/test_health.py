"""How a link's topic is doing, rule by rule."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from geo.coordination.claims import OWNED, Liveness, Owner
from geo.coordination.holder import Holder
from geo.errors import RetryableError
from geo.faults import wrong_of
from geo.ops.health import (
    APART_US,
    PAUSED_LONG_US,
    SAMPLES,
    Finding,
    Health,
    LinkBefore,
    LinkNow,
    judge,
    judge_now,
    longest_rest_us,
)
from geo.ops.lag_history import Sample
from geo.reasons import Reason, Wrong
from geo.replication.lag import Lag
from geo.streams.life import State
from geo.times import from_us

NOW_US = 1_800_000_000_000_000
SECOND_US = 1_000_000
HOUR_US, DAY_US = 3600 * SECOND_US, 24 * 3600 * SECOND_US

LINK = LinkNow("us", "eu", "persistent://shop/web/orders", State.RUNNING, lag=Lag())


def _holder(liveness: Liveness, last_us: int | None = NOW_US, halted: tuple[int, ...] = ()) -> Holder:
    """Process 12 on vm, which ended, or was heard of last, then."""
    claim = Owner("r", 1, "t", "h", OWNED, False, from_us(last_us or 0))
    return Holder(claim, "process 12 on vm", liveness, last_us, 0.0, halted)


LIVES = _holder(Liveness.LIVES)
OLD = Lag(3, 30, 300, 1200.0)
"""What has been lacking for twenty minutes."""


def _samples(lags: Sequence[int | Lag], cursors: Sequence[int | None]) -> tuple[Sample, ...]:
    """Looks a minute apart, the last one of now, at what was lacking (messages, each in a version) and where the link stood."""
    found = []
    for at, (lacks, cursor) in enumerate(zip(lags, cursors, strict=True)):
        lag = Lag(lacks, lacks, lacks, 1200.0 if lacks else 0.0) if isinstance(lacks, int) else lacks
        at_us = NOW_US - (len(lags) - 1 - at) * APART_US
        found.append(Sample(at_us, cursor, (cursor if cursor is not None else -1) + (lag.versions or 0), lag))
    return tuple(found)


def _judged(before: LinkBefore, lag: Lag = OLD, link: LinkNow = LINK) -> Finding:
    return judge(replace(link, lag=lag), replace(before, owner=before.owner or LIVES), NOW_US)


STILL, MOVING = (7,) * SAMPLES, tuple(range(100, 100 + SAMPLES))

BY_SAMPLES: list[tuple[str, Sequence[int | Lag], Sequence[int | None], Health]] = [
    ("it lacked nothing a moment ago", (0, 0, 0, 0, 0, 0, 0, 0, 3, 30), STILL, Health.CATCHING_UP),
    ("it lacked nothing nine minutes ago", (0, 9, 9, 9, 9, 9, 9, 9, 9, 30), STILL, Health.CATCHING_UP),
    ("the source moves and the cursor does not", range(21, 31), STILL, Health.STALLED),
    ("neither moves, and something is lacking", (30,) * SAMPLES, STILL, Health.STALLED),
    ("it has never stood anywhere", (30,) * SAMPLES, (None,) * SAMPLES, Health.STALLED),
    ("it moves, and lacks more and more", range(21, 31), MOVING, Health.BEHIND),
    ("it moves, and lacks always the same", (30,) * SAMPLES, MOVING, Health.BEHIND),
    ("it moves, and lacks less and less", range(40, 30, -1), MOVING, Health.CATCHING_UP),
    ("a saw that comes nearer", (40, 60, 35, 55, 50, 30, 50, 25, 45, 30), MOVING, Health.CATCHING_UP),
    ("a saw that does not", (40, 60, 35, 55, 50, 40, 50, 35, 45, 50), MOVING, Health.BEHIND),
    ("it moved once, and since then it lacks more", (*range(21, 30), 30), (7,) * 5 + (8,) * 5, Health.BEHIND),
    ("the logs do not reach back: it began lately", range(26, 31), MOVING[:5], Health.CATCHING_UP),
    ("what nobody counted is not nothing", [Lag(0, None, None, None, False)] * SAMPLES, STILL, Health.STALLED),
    ("what was cut off is not nothing", [Lag(5, 0, 0, 0.0, False)] * SAMPLES, STILL, Health.STALLED),
    ("of what nobody counts the versions tell", [Lag(n, None, None, None, False) for n in range(10)], MOVING, Health.BEHIND),
    ("and that they become less", [Lag(20 - n, None, None, None, False) for n in range(10)], MOVING, Health.CATCHING_UP),
    ("what was cut since is no less than it was", [Lag(30 - n, n, n, 1.0, n > 5) for n in range(10)], MOVING, Health.CATCHING_UP),
]  # fmt: skip


@pytest.mark.parametrize(("what", "lags", "cursors", "health"), BY_SAMPLES, ids=[one[0] for one in BY_SAMPLES])
def test_how_it_moved_decides(what: str, lags: Sequence[int | Lag], cursors: Sequence[int | None], health: Health) -> None:
    found = _judged(LinkBefore(_samples(lags, cursors)))
    assert found.health is health, what
    assert found.is_problem(NOW_US) == (health is not Health.CATCHING_UP)
    assert (found.code is None) == (health is Health.CATCHING_UP)


def test_at_rest_and_with_the_first_message_after_a_rest_it_is_ok() -> None:
    for lag in (Lag(), Lag(5), Lag(1, 1, 10, 29.0)):
        found = judge_now(replace(LINK, lag=lag))
        assert found is not None
        assert (found.health, found.code, found.do, found.is_problem(NOW_US)) == (Health.OK, None, None, False)
    assert judge_now(replace(LINK, lag=Lag(1, 1, 10, 31.0))) is None, "how it moved has to be looked at"
    assert judge_now(replace(LINK, state=State.STOPPED, lag=Lag())) is not None, "who runs it need not be asked"


RECONCILE = "geo reconcile --source us --target eu --topic persistent://shop/web/orders"
PAUSED_FIRST = f"geo links pause {(ENDS := RECONCILE.partition(' reconcile ')[2])}; once it is PAUSED {RECONCILE}; then geo links resume {ENDS}"


@pytest.mark.parametrize(
    ("state", "lag", "do"),
    [
        (State.STOPPED, Lag(), RECONCILE),
        (State.PAUSED, Lag(), RECONCILE),
        (State.RUNNING, Lag(), PAUSED_FIRST),
        (State.RUNNING, Lag(1, 1, 10, 100.0), PAUSED_FIRST),
        (State.RUNNING, OLD, PAUSED_FIRST),
    ],
)
def test_what_a_link_left_out_is_never_ok_until_it_is_accepted(state: State, lag: Lag, do: str) -> None:
    link = replace(LINK, state=state, left_out=2, left_out_since_us=NOW_US - HOUR_US)
    found = _judged(LinkBefore(_samples((30,) * SAMPLES, MOVING) if lag is OLD else ()), lag, link)
    assert (found.health, found.code, found.since_us) == (Health.BEHIND, Reason.IMPOSSIBLE_ROWS, NOW_US - HOUR_US)
    assert (found.level, found.is_problem(NOW_US), found.do) == ("error", True, do)
    assert found.reason.startswith("it left out 2 rows of us that no producer can have written")
    assert ("does not become less" in found.reason) == (lag is OLD), "what else is so is said too"
    uncounted = _judged(LinkBefore(), lag, replace(link, left_out=None, left_out_since_us=None))
    assert (uncounted.code, uncounted.since_us) == (Reason.IMPOSSIBLE_ROWS, None)
    assert "is unknown" in uncounted.reason


def test_what_is_worse_than_rows_that_were_left_out_comes_first() -> None:
    failed = replace(LINK, state=State.FAILED, code=Reason.SOURCE_CHANGED, left_out=2)
    assert _judged(LinkBefore(), Lag(), failed).code is Reason.SOURCE_CHANGED
    still = LinkBefore(_samples((30,) * SAMPLES, STILL))
    assert _judged(still, OLD, replace(LINK, left_out=2)).health is Health.STALLED


UNKNOWN = [Lag(1, None, None, None, False), Lag(1, 1, 10, None), Lag(3, 0, 0, 0.0, False)]


@pytest.mark.parametrize("lag", UNKNOWN)
def test_what_nobody_knows_is_not_ok(lag: Lag) -> None:
    assert judge_now(replace(LINK, lag=lag)) is None
    assert _judged(LinkBefore(), lag).health is Health.BEHIND, "and nothing tells how it moved"


def test_a_target_that_may_lack_something_is_not_ok_though_its_cursor_is_at_the_end() -> None:
    stale = replace(LINK, stale="its next start compares both logs: a reconcile did not come to its end")
    assert judge_now(stale) is None
    still = LinkBefore(_samples((0,) * SAMPLES, STILL))
    found = _judged(still, Lag(), stale)
    assert (found.health, found.code) == (Health.STALLED, Reason.STALE_CURSOR)
    assert "did not come to its end" in found.reason
    assert found.do == "geo links restart --source us --target eu --topic persistent://shop/web/orders"
    comparing = replace(still, compared_us=NOW_US - 60 * SECOND_US)
    assert _judged(comparing, Lag(), stale).health is Health.CATCHING_UP, "its comparison goes on"
    assert _judged(replace(still, compared_us=NOW_US - HOUR_US), Lag(), stale).health is Health.STALLED


def test_what_is_not_there_is_never_ok() -> None:
    lost = Wrong(Reason.SOURCE_GONE, "nothing is registered at /us: it was moved away", "Put its folder back")
    for lag in (None, Lag()):
        found = judge_now(replace(LINK, lag=lag, away=lost))
        assert found is not None
        assert (found.health, found.code, found.since_us) == (Health.AWAY, Reason.SOURCE_GONE, None)
        assert (found.reason, found.do) == (lost.what, lost.do)
    met = judge_now(
        replace(
            LINK, lag=None, state=State.DELAYED, since_us=5, away=wrong_of(RetryableError("no answer", code=Reason.NO_ANSWER))
        )
    )
    assert met is not None
    assert met.since_us == 5, "who runs it met it then"
    assert met.do == Reason.NO_ANSWER.do
    of_another_fault = replace(LINK, lag=None, state=State.DELAYED, since_us=5, code=Reason.TARGET_DISK_FULL)
    assert (found := judge_now(of_another_fault)) is not None
    assert found.since_us is None, "what it met then was something else"
    unsaid = judge_now(replace(LINK, lag=None))
    assert unsaid is not None
    assert (unsaid.health, unsaid.code) == (Health.AWAY, Reason.SOURCE_UNREADABLE)


FAILURES = [
    (Reason.SOURCE_RECREATED, "geo links resolve --source us --target eu --topic persistent://shop/web/orders"),
    (Reason.SCHEMA, f"{Reason.SCHEMA.do}, then geo links restart --source us --target eu --topic persistent://shop/web/orders"),
    (Reason.COLUMNS, "geo links resolve --source us --target eu --topic persistent://shop/web/orders --accept-type"),
    (None, "geo links restart --source us --target eu --topic persistent://shop/web/orders"),
    (
        Reason.TARGET_DISK_FULL,
        "free space there; it goes on by itself, then geo links restart --source us --target eu --topic persistent://shop/web/orders",
    ),
]


@pytest.mark.parametrize(("code", "do"), FAILURES)
def test_a_failure_stays_one_also_where_nothing_is_lacking(code: Reason | None, do: str) -> None:
    failed = replace(LINK, state=State.FAILED, reason="versions 0-9 are of another table", code=code, since_us=NOW_US - HOUR_US)
    for lag in (OLD, Lag()):
        found = judge_now(replace(failed, lag=lag))
        assert found is not None
        assert (found.health, found.since_us, found.do) == (Health.FAILED, NOW_US - HOUR_US, do)
        assert found.code is (code or Reason.OTHER)
        assert found.reason == "versions 0-9 are of another table"
        assert (found.level, found.is_problem(NOW_US)) == ("error", True)


def test_a_source_that_ends_before_what_was_read_is_rewound() -> None:
    found = judge_now(replace(LINK, rewound=Reason.SOURCE_RESTORED, stale="the source ends at version 3"))
    assert found is not None
    assert (found.health, found.code) == (Health.REWOUND, Reason.SOURCE_RESTORED)
    assert found.do == "geo reconcile --source us --target eu --topic persistent://shop/web/orders"


def test_a_target_that_was_put_back_is_rewound_whoever_runs_it_and_by_whichever_schedule() -> None:
    back = replace(LINK, lag=Lag(), rewound=Reason.STALE_CURSOR, stale="the target ends at version 3: an older copy was put back")
    assert judge_now(back) is None, "what ends it depends on who runs it"
    running = judge(back, LinkBefore(owner=LIVES), NOW_US)
    assert (running.health, running.code) == (Health.REWOUND, Reason.STALE_CURSOR)
    assert running.do == "geo links restart --source us --target eu --topic persistent://shop/web/orders"
    for owner in (DEAD, ENDED, None):
        nobody = judge(back, LinkBefore(owner=owner, rests_us=DAY_US), NOW_US)
        assert (nobody.health, nobody.code, nobody.do) == (Health.REWOUND, Reason.STALE_CURSOR, "geo replicate --cluster eu")
        assert "an older copy was put back" in nobody.reason


@pytest.mark.parametrize(
    ("ago_us", "is_problem"), [(HOUR_US, False), (PAUSED_LONG_US, False), (PAUSED_LONG_US + 1, True), (None, True)]
)
def test_a_rest_that_somebody_wanted_is_a_finding_after_a_day(ago_us: int | None, is_problem: bool) -> None:
    since_us = None if ago_us is None else NOW_US - ago_us
    found = judge_now(replace(LINK, state=State.PAUSED, lag=OLD, since_us=since_us))
    assert found is not None
    assert (found.health, found.since_us, found.is_problem(NOW_US)) == (Health.PAUSED, since_us, is_problem)
    assert found.do == "geo links resume --source us --target eu --topic persistent://shop/web/orders"
    assert found.level == "warn"


DEAD, ENDED = _holder(Liveness.DEAD, NOW_US - HOUR_US), _holder(Liveness.ENDED, NOW_US - HOUR_US)

NOBODY: list[tuple[str, LinkBefore, Health, Reason | None, int | None]] = [
    ("its owner died", LinkBefore(owner=DEAD), Health.STOPPED, Reason.NO_OWNER, NOW_US - 1200 * SECOND_US),
    (
        "its owner died after something had come",
        LinkBefore(owner=DEAD, behind_us=NOW_US - 2 * HOUR_US),
        Health.STOPPED,
        Reason.NO_OWNER,
        NOW_US - HOUR_US,
    ),
    ("its owner is silent", LinkBefore(owner=replace(DEAD, liveness=Liveness.SILENT)), Health.STOPPED, Reason.OWNER_SILENT, None),
    ("when it died nobody knows", LinkBefore(owner=replace(DEAD, last_us=None)), Health.STOPPED, Reason.NO_OWNER, None),
    (
        "its broker died",
        LinkBefore(owner=DEAD, by_broker=True, broker=DEAD),
        Health.NO_BROKER,
        Reason.NO_OWNER,
        NOW_US - 1200 * SECOND_US,
    ),
    (
        "its broker is silent",
        LinkBefore(broker=replace(DEAD, liveness=Liveness.SILENT)),
        Health.NO_BROKER,
        Reason.OWNER_SILENT,
        None,
    ),
    ("another one runs the broker's links", LinkBefore(owner=DEAD, broker=DEAD), Health.STOPPED, Reason.NO_OWNER, None),
    ("the broker lives and does not take it up", LinkBefore(owner=DEAD, broker=LIVES), Health.STOPPED, Reason.NO_OWNER, None),
    (
        "the broker lives, and has taken it up in a moment",
        LinkBefore(owner=replace(DEAD, last_us=NOW_US - APART_US), broker=LIVES),
        Health.CATCHING_UP,
        None,
        None,
    ),
    ("it runs each day, and did an hour ago", LinkBefore(owner=DEAD, rests_us=DAY_US), Health.CATCHING_UP, None, None),
    ("and each half hour", LinkBefore(owner=ENDED, rests_us=HOUR_US // 2), Health.STOPPED, Reason.NO_OWNER, None),
    ("and each forty minutes and more", LinkBefore(owner=ENDED, rests_us=HOUR_US * 2 // 3), Health.CATCHING_UP, None, None),
    (
        "the broker itself runs each day",
        LinkBefore(owner=ENDED, by_broker=True, broker=ENDED, rests_us=DAY_US),
        Health.CATCHING_UP,
        None,
        None,
    ),
]


@pytest.mark.parametrize(("what", "before", "health", "code", "since_us"), NOBODY, ids=[one[0] for one in NOBODY])
def test_who_is_not_there(what: str, before: LinkBefore, health: Health, code: Reason | None, since_us: int | None) -> None:
    found = judge(replace(LINK, lag=OLD, state=State.STOPPED), before, NOW_US)
    assert (found.health, found.code) == (health, code), what
    assert since_us is None or found.since_us == since_us
    assert found.is_problem(NOW_US) == (health in (Health.STOPPED, Health.NO_BROKER))
    if found.is_problem(NOW_US):
        verb = "broker" if health is Health.NO_BROKER else "replicate"
        assert found.do == f"geo {verb} --cluster eu"


def test_what_nobody_has_ever_run_is_stopped_and_has_no_broker_to_lack() -> None:
    never = replace(LINK, lag=OLD, state=State.STOPPED, reason="it has never run")
    found = judge(never, LinkBefore(), NOW_US)
    assert (found.health, found.code, found.since_us) == (Health.STOPPED, Reason.NEVER_RAN, NOW_US - 1200 * SECOND_US)
    assert judge(never, LinkBefore(broker=DEAD), NOW_US).health is Health.NO_BROKER
    assert judge(never, LinkBefore(rests_us=DAY_US), NOW_US).health is Health.CATCHING_UP, "its first run is still to come"
    assert (
        judge(replace(never, lag=replace(OLD, seconds=130_000.0)), LinkBefore(rests_us=DAY_US), NOW_US).health is Health.STOPPED
    )


def test_what_begins_at_the_end_and_never_ran_is_not_in_sync() -> None:
    unbegun = replace(LINK, state=State.STOPPED, lag=Lag(5), unbegun=True)
    assert judge_now(unbegun) is None
    found = judge(unbegun, LinkBefore(), NOW_US)
    assert (found.health, found.code, found.since_us) == (Health.STOPPED, Reason.NEVER_RAN, None)
    for begins in (LinkBefore(broker=LIVES), LinkBefore(owner=LIVES)):
        assert judge(unbegun, begins, NOW_US).health is Health.CATCHING_UP
    assert judge(unbegun, LinkBefore(broker=DEAD), NOW_US).health is Health.NO_BROKER


def test_one_that_says_that_it_cannot_go_on_is_believed() -> None:
    full = replace(LINK, state=State.DELAYED, code=Reason.TARGET_DISK_FULL, reason="No space left on device", since_us=NOW_US - 9)
    found = _judged(LinkBefore(_samples((0,) * 9 + (30,), STILL)), OLD, full)
    assert (found.health, found.code, found.since_us) == (Health.STALLED, Reason.TARGET_DISK_FULL, NOW_US - 9)
    assert found.reason == "it lacks 30 messages, the oldest for 20 min: No space left on device"
    assert found.do == Reason.TARGET_DISK_FULL.do
    assert judge_now(replace(full, lag=Lag())) is not None, "nothing is to be done"
    dead = judge(replace(full, lag=OLD), LinkBefore(owner=DEAD), NOW_US)
    assert (dead.health, dead.code) == (Health.STOPPED, Reason.TARGET_DISK_FULL)
    assert "No space left" in dead.reason


def test_an_owner_that_is_halted_is_named() -> None:
    found = _judged(LinkBefore(_samples((0,) * 9 + (30,), STILL), owner=_holder(Liveness.HALTED, halted=(12, 13))))
    assert (found.health, found.code, found.do) == (Health.STALLED, Reason.OWNER_SILENT, "kill -CONT 12 13")
    broker = LinkBefore(owner=DEAD, by_broker=True, broker=_holder(Liveness.HALTED, halted=(12,)))
    found = judge(replace(LINK, lag=OLD), broker, NOW_US)
    assert (found.health, found.code, found.do) == (Health.STALLED, Reason.OWNER_SILENT, "kill -CONT 12"), "it takes nothing up"


def test_one_that_stands_still_is_stalled_though_few_of_its_commits_were_read() -> None:
    few = LinkBefore(_samples((30,), (7,)), stands_us=NOW_US - HOUR_US)
    assert (_judged(few).health, _judged(few).code) == (Health.STALLED, Reason.NOT_MOVING)
    assert _judged(replace(few, stands_us=NOW_US - APART_US)).health is Health.CATCHING_UP, "it has moved"
    assert _judged(few, Lag(1, 1, 1, 60.0)).health is Health.CATCHING_UP, "what it lacks has just come"
    assert _judged(replace(few, compared_us=NOW_US - APART_US)).health is Health.CATCHING_UP, "it compares"


def test_who_has_just_begun_is_given_time() -> None:
    for cursors in (STILL, MOVING):
        begun = LinkBefore(_samples((30,) * SAMPLES, cursors), begun_us=NOW_US - APART_US)
        assert _judged(begun).health is Health.CATCHING_UP
        assert "began 60 s ago" in _judged(begun).reason
        assert _judged(replace(begun, begun_us=NOW_US - HOUR_US)).is_problem(NOW_US)
        assert _judged(replace(begun, begun_us=None)).is_problem(NOW_US), "one start follows the other"


def test_since_when_it_stands_still_is_when_both_had_happened() -> None:
    samples = _samples((30,) * SAMPLES, STILL)
    behind, moved = NOW_US - 3 * HOUR_US, NOW_US - 2 * HOUR_US
    assert _judged(LinkBefore(samples, moved, behind)).since_us == moved
    assert _judged(LinkBefore(samples, behind, moved)).since_us == moved
    assert _judged(LinkBefore(samples)).since_us == NOW_US - 1200 * SECOND_US, "the age of the oldest that is lacking"


def test_the_longest_rest_is_between_two_runs() -> None:
    assert longest_rest_us([], 0) is None
    assert longest_rest_us([(1, 0), (1, HOUR_US)], 2 * HOUR_US) is None, "a link that runs on and has nothing to bring"
    runs = [(1, 0), (1, 5), (2, DAY_US), (2, DAY_US + 5), (3, DAY_US + 9)]
    assert longest_rest_us(runs, DAY_US + 9) == longest_rest_us(runs, DAY_US + HOUR_US) == DAY_US - 5
    assert longest_rest_us(runs, 3 * DAY_US) is None, "who ran for longer than it rested runs on, and was away once"


def test_a_region_that_runs_by_a_schedule_is_fine_for_a_week_and_missed_when_it_is_late() -> None:
    """Each day at two it is run for five minutes; messages come all the time. It is looked at each half hour."""
    runs: list[tuple[int, int]] = []
    problems = []
    for at_us in range(0, 9 * DAY_US, HOUR_US // 2):
        day, time_us = divmod(at_us, DAY_US)
        if time_us == 2 * HOUR_US and day < 7:
            runs += [(day, at_us), (day, at_us + 300 * SECOND_US)]
        if not runs:
            continue
        ended = _holder(Liveness.ENDED, runs[-1][1])
        lag = Lag(5, 50, 500, max(0.0, (at_us - runs[-1][1]) / 1e6))
        rests_us = longest_rest_us(runs, runs[-1][1]) or DAY_US  # before its second run nobody knows but who configured it
        found = judge(replace(LINK, state=State.STOPPED, lag=lag), LinkBefore(owner=ended, rests_us=rests_us), at_us)
        if found.is_problem(at_us):
            problems.append(at_us)
    last_run = 6 * DAY_US + 2 * HOUR_US
    assert problems
    assert last_run + 3 * DAY_US // 2 - HOUR_US <= problems[0] <= last_run + 3 * DAY_US // 2 + HOUR_US


def test_twenty_minutes_at_rest_and_the_first_message_after_an_hour_are_no_finding() -> None:
    """A link that brings what comes within two seconds, looked at each second; nothing comes for an hour, then one message."""
    for second in range(0, 3700, 1):
        came = second - 3600  # the message comes then
        lag = Lag(1, 1, 10, float(came)) if 0 <= came < 2 else Lag()
        found = judge_now(replace(LINK, lag=lag))
        assert found is not None
        assert found.health is Health.OK


def test_words_are_in_the_order_of_how_bad_they_are() -> None:
    assert sorted(Health, key=lambda one: one.rank) == list(Health)
    assert (Health.AWAY.rank, Health.OK.rank) == (0, len(Health) - 1)
