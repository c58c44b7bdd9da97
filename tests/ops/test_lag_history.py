"""The lag of a link at any time of before, told by both logs, is what was told then."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geo.ops.lag_history import LagHistory, Read, Recorded, Sample
from geo.replication.lag import Lag, due_of, lag_of
from geo.replication.link_start import look_at_target, standing
from geo.replication.rule import Rule
from geo.streams.life import State
from tests.examples import examples
from tests.model.log import Log, Row
from tests.model.world import MESSAGES, AgainError, FailedError, ReplacedError, Run, World

NOW_US = 1_800_000_000_000_000
SECOND_US = 1_000_000
LINK = "us->eu"
RULE = Rule("us", "eu", frozenset({"us"}))


class Sampled:
    """Two regions, and what a look at their link said at any moment; each commit and each row has the time at which it came."""

    def __init__(self) -> None:
        self.world = World({LINK: ("us",), "eu->us": ("eu",)})
        self.world.now_us = NOW_US
        self.rows: list[Recorded] = []
        self.live: list[Sample] = []
        self.sample()

    def log(self, cluster: str) -> Log:
        return self.world.clusters[cluster].logs[MESSAGES]

    def sample(self, after_us: int = SECOND_US) -> None:
        for cluster in ("us", "eu"):
            commits = self.log(cluster).commits
            for at in reversed(range(len(commits))):
                if commits[at].committed_us >= NOW_US:
                    break
                commits[at] = replace(commits[at], committed_us=self.world.now_us)
        row = self.world.clusters["eu"].rows.get(("us", MESSAGES))
        if row is not None and (not self.rows or self.rows[-1].state != row):
            self.rows.append(Recorded(self.world.now_us, row))
        self.live.append(self._now())
        self.world.now_us += after_us

    def _now(self) -> Sample:
        """As `geo links status` tells it."""
        now_us, source, target = self.world.now_us, self.log("us"), self.log("eu")
        row, looked = (self.rows[-1].state if self.rows else None), None
        if row is not None and row.target is not None:
            commits = target.between(row.target.version, target.newest)
            looked = look_at_target(LINK, row.target, target.table_id, target.newest, commits)
        cursor = standing(row, looked, LINK, RULE.origins).cursor
        at = -1 if cursor is None or cursor.table_id != source.table_id else cursor.version
        dues = (due_of(one, RULE) for one in source.between(at + 1, source.newest))
        return Sample(now_us, None if at < 0 else at, source.newest, lag_of(at, source.newest, dues, now_us))

    def run(self, run: Run, steps: int = 1_000) -> None:
        """So many steps of a run; then it is killed."""
        try:
            for _ in zip(range(steps), run, strict=False):
                self.sample()
        except (FailedError, AgainError, ReplacedError):
            pass
        self.sample()

    def history(self, source_first: int = 0, target_first: int = 0, rows_first: int = 0) -> LagHistory:
        source, target = self.log("us"), self.log("eu")
        return LagHistory(
            LINK,
            RULE,
            Read(source.table_id, source.between(source_first, source.newest)),
            Read(target.table_id, target.between(target_first, target.newest)),
            self.rows[rows_first:],
        )


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.integers(1, 5), st.sampled_from([None, ("eu",), ("asia",)])),
        st.tuples(st.just("link"), st.integers(0, 12), st.just(False)),
        st.tuples(st.just("link"), st.integers(0, 12), st.just(True)),
        st.tuples(st.just("outage"), st.integers(1, 10_000), st.none()),
        st.tuples(st.just("back"), st.integers(1, 4), st.none()),
        st.tuples(st.just("compact"), st.integers(0, 1), st.none()),
        st.tuples(st.just("restore"), st.integers(0, 3), st.none()),
    ),
    max_size=25,
)


def _played(steps: list[tuple[str, int, object]]) -> Sampled:
    played = Sampled()
    for what, number, more in steps:
        if what == "publish":
            rows = [Row(replicate_to=more) for _ in range(number)]  # type: ignore[arg-type]
            played.run(played.world.publish("us", rows))
        elif what == "link":  # killed after so many steps; a reset, or a reconcile that a person asked for
            played.run(played.world.link(LINK, accept_source=bool(more)), number)
        elif what == "outage":
            played.sample(number * SECOND_US)
        elif what == "back":
            played.run(played.world.publish("eu", [Row() for _ in range(number)]))
            played.run(played.world.link("eu->us"))
        elif what == "compact":
            played.log(("us", "eu")[number]).compact()
            played.sample()
        else:  # of what it makes nobody knows the rows
            played.log("us").restore(max(0, played.log("us").newest - number))
            played.sample()
    return played


def _tell(sample: Sample) -> tuple[int | None, int, Lag]:
    seconds = sample.lag.seconds
    return sample.cursor, sample.newest, replace(sample.lag, seconds=None if seconds is None else round(seconds))


@given(STEPS)
@settings(max_examples=examples(0.5))
def test_history_is_what_was_sampled(steps: list[tuple[str, int, object]]) -> None:
    played = _played(steps)
    history = played.history()
    assert history.since_us == (played.rows[0].at_us if played.rows else None)
    for live in played.live:
        then = history.at(live.at_us)
        if history.since_us is None or live.at_us < history.since_us:
            assert then is None
        else:
            assert then is not None
            assert _tell(then) == _tell(live)


@given(STEPS, st.data())
@settings(max_examples=examples(0.5))
def test_nothing_is_told_of_what_is_gone(steps: list[tuple[str, int, object]], data: st.DataObject) -> None:
    """Commits were cut and rows cleaned since: what is told is what was, or says that it is not all."""
    played = _played(steps)
    cuts = [data.draw(st.integers(0, most)) for most in (played.log("us").newest, played.log("eu").newest, len(played.rows))]
    history = played.history(*cuts)
    for live in played.live:
        if (then := history.at(live.at_us)) is None:
            continue
        assert (then.cursor, then.newest, then.lag.versions) == (live.cursor, live.newest, live.lag.versions)
        if then.lag.complete or not live.lag.complete:
            assert not then.lag.complete or _tell(then) == _tell(live)
        elif then.lag.messages is not None and live.lag.messages is not None:
            assert then.lag.messages <= live.lag.messages


@given(STEPS)
@settings(max_examples=examples(0.3))
def test_since_when_it_is_behind_is_when_it_last_lacked_nothing(steps: list[tuple[str, int, object]]) -> None:
    played = _played(steps)
    history, now_us = played.history(), played.live[-1].at_us
    told = [one for one in played.live if history.since_us is not None and one.at_us >= history.since_us]
    if not told:
        return
    last_zero = next((one.at_us for one in reversed(told) if one.is_zero), None)
    since = history.behind_since(now_us)
    if told[-1].is_zero or last_zero is None:
        assert since is None
    else:
        assert since is not None
        assert since > last_zero
        assert since - last_zero <= 10_000 * SECOND_US
        assert all(not one.is_zero for one in told if one.at_us >= since)


@pytest.mark.parametrize("steps", [1, 2, 4])
def test_a_killed_comparison_moves_nothing(steps: int) -> None:
    played = _played([("publish", 5, None), ("link", steps, False)])
    history = played.history()
    sample = history.at(played.live[-1].at_us)
    if sample is not None:
        assert sample.cursor is None
        assert sample.lag.messages == 5
        assert history.moved_at(played.live[-1].at_us) is None


def test_a_step_of_a_comparison_is_not_where_a_link_stands() -> None:
    played = _played([("publish", 5, None), ("link", 100, False), ("publish", 5, None), ("link", 3, True)])
    stood, now_us = played.rows[-1].state.cursor, played.live[-1].at_us
    history = played.history()
    sample = history.at(now_us)
    assert stood is not None
    assert sample is not None
    assert (sample.cursor, sample.lag.messages) == (stood.version, 5)
    assert history.compared_us == played.log("eu").commits[-1].committed_us


def test_nothing_is_told_of_the_time_before_a_row_whose_commit_is_gone() -> None:
    played = _played([("publish", 1, None), ("link", 4, False), ("back", 1, None), ("back", 1, None)])
    history = played.history(target_first=3)
    assert history.since_us is None
    assert played.history(target_first=2).since_us is not None


def test_when_it_moved_and_since_when_it_is_behind() -> None:
    played = _played([("publish", 5, None), ("link", 100, False), ("publish", 2, None)])
    caught_up = played.rows[-1]
    assert caught_up.state.state is State.STOPPED
    history, now_us = played.history(), played.live[-1].at_us
    assert history.moved_at(now_us) == caught_up.at_us
    assert history.behind_since(now_us) == played.log("us").commits[-1].committed_us
    assert history.stands_since(now_us) == caught_up.at_us
    (before, after) = [one.lag.messages for one in history.samples(now_us, 2, now_us - caught_up.at_us)]
    assert (before, after) == (0, 2)


def test_of_a_source_that_was_read_from_behind_its_cursor_on_nothing_tells_since_when_it_is_behind() -> None:
    played = _played([("publish", 5, None), ("link", 100, False), ("publish", 2, None), ("publish", 1, None)])
    now_us, (first, last) = played.live[-1].at_us, (one.committed_us for one in played.log("us").commits[-2:])
    assert played.history().behind_since(now_us) == first < last
    assert played.history(source_first=played.log("us").newest - 1).behind_since(now_us) == first
    assert played.history(source_first=played.log("us").newest).behind_since(now_us) is None


def test_of_a_source_that_says_no_time_nothing_is_told() -> None:
    played = _played([("publish", 5, None), ("link", 100, False)])
    untimed = [replace(one, committed_us=0) for one in played.log("us").commits]
    target = Read(played.log("eu").table_id, played.log("eu").commits)
    history = LagHistory(LINK, RULE, Read(played.log("us").table_id, untimed), target, played.rows)
    assert history.since_us is None
    assert history.at(played.world.now_us) is None


def test_a_link_that_begins_at_the_end_lacks_nothing_of_what_was_there() -> None:
    played = _played([("publish", 5, None), ("link", 1, False)])
    source = Read(played.log("us").table_id, played.log("us").commits)
    begun = [Recorded(one.at_us, replace(one.state, cursor=None, floors=None)) for one in played.rows]
    if not begun:
        played.run(played.world.link(LINK), 3)
        begun = [Recorded(one.at_us, replace(one.state, cursor=None, floors=None)) for one in played.rows]
    history = LagHistory(LINK, RULE, source, None, begun, starts_at_end=True)
    sample = history.at(played.world.now_us)
    assert sample is not None
    assert sample.lag == Lag(sample.newest + 1)
