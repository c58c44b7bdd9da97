"""One supervisor for many works: side by side, each with its own faults, groups that hang beside groups that do not."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from py4j.protocol import Py4JNetworkError

from geo.delta.locks import table_lock
from geo.delta.process import this_process
from geo.errors import AlreadyOwnedError, FencedError, NoProgressError, RetryableError, SchemaError, SourceChangedError
from geo.names import Topic
from geo.reasons import Reason
from geo.streams import crew, timetable
from geo.streams.crew import AT_ONCE
from geo.streams.lease import Lease, Owned
from geo.streams.life import TRIES, Life, State, Why
from geo.streams.lives import SPARK_ENDED
from geo.streams.supervisor import Supervisor
from geo.streams.work import Found
from geo.streams.workers import waiting
from tests.waiting import InThread

Known = Mapping[Hashable, tuple["Job", State]]

LIMIT_S = 20.0
TOPIC = Topic("shop", "web", "clicks")


@dataclass(eq=False)
class Job:
    """A piece of work that does what it is told and notes what happens to it."""

    name: str
    faults: list[BaseException] = field(default_factory=list)
    """Raised by one `start` after another."""
    follows: Callable[[], None] = lambda: None
    due: Callable[[], None] | None = None
    ends: Callable[[], bool | None] = lambda: True
    waits_for: threading.Event | None = None
    hangs: Callable[[], tuple[Job, BaseException] | None] = lambda: None
    gives_up: Callable[[], None] = lambda: None
    progress_marker: int | None = 0
    places: Iterator[int | None] = field(default_factory=lambda: itertools.repeat(0))
    """How far it comes, by one `start` after another."""
    topic: Topic = TOPIC
    noted: list[str] = field(default_factory=list)
    lease: Lease[Owned] = field(default_factory=Lease)

    def __post_init__(self) -> None:
        self.faults = [*self.faults]  # a test that is run twice has the same ones again

    def __str__(self) -> str:
        return self.name

    def own(self, stopped: Callable[[], bool]) -> None:
        self.lease.start_claim()
        self.lease.hold(OwnJob(self))

    def start(self, owned: Owned, stopped: Callable[[], bool]) -> None:
        self.noted.append("up")
        self.progress_marker = next(self.places)
        while self.waits_for is not None and not self.waits_for.wait(0.01):
            if stopped():
                return
        if self.faults:
            raise self.faults.pop(0)

    def follow(self) -> Callable[[], None] | None:
        self.follows()
        return self.due

    def replacement(self) -> tuple[Job, BaseException] | None:
        return self.hangs()

    def end(self) -> bool:
        self.noted.append("end")
        return bool(self.ends())

    def give_up(self, owned: Owned, state: State, why: Why) -> None:
        self.noted.append(f"give up {state.value}")
        self.gives_up()


@dataclass
class OwnJob:
    """What a job owns."""

    job: Job

    def abandon(self) -> None:
        self.job.noted.append("abandon")

    def refuse_if_replaced(self) -> None: ...


@dataclass(eq=False)
class Jobs:
    """A group of them."""

    jobs: list[Job]
    name: str = "jobs"
    asked: Callable[[], None] = lambda: None
    found: Callable[[Known], dict[str, Any]] = lambda known: {}
    refuses: Mapping[str, BaseException] = field(default_factory=dict)
    """By name of a job: why it cannot be owned."""
    turns_out: Mapping[str, BaseException] = field(default_factory=dict)
    """By name of a job: what is found when it is released."""
    records: Callable[[], None] = lambda: None
    """What recording comes to."""
    released: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return self.name

    def discover(self, known: Known) -> Found[Job]:
        self.asked()
        fresh = [(job.name, job) for job in self.jobs if job.name not in known]
        return Found(fresh, **self.found(known))

    def claim(self, works: Sequence[Job]) -> list[tuple[Job, BaseException]]:
        for job in works:
            if job.name not in self.refuses:
                job.own(lambda: False)
        return [(job, self.refuses[job.name]) for job in works if job.name in self.refuses]

    def record_states(self, works: Sequence[tuple[Job, State]], code: Reason | None = None) -> list[tuple[Job, BaseException]]:
        self.records()
        for job, state in works:
            job.noted.append(f"record {state.value}")
        return []

    def release(self, works: Sequence[Job]) -> list[tuple[Job, BaseException]]:
        for job in works:
            job.lease.give_back()
            if job.name not in self.turns_out:
                self.released.append(job.name)
        return [(job, self.turns_out[job.name]) for job in works if job.name in self.turns_out]


class Running(InThread[Any]):
    """A supervisor, and what it reported."""

    every_s, limit_s = 0.005, LIMIT_S

    def __init__(self, *groups: Jobs) -> None:
        self.changes: list[tuple[str, State, str | None]] = []
        self.instead: list[list[Jobs]] = []
        """What is to run from now on, once."""
        self.supervisor = Supervisor[Job](
            groups, once=False, on_change=self._changed, regroup=lambda: self.instead.pop() if self.instead else None
        )
        super().__init__(self.supervisor.run, self.supervisor.stop, lambda: self.changes)

    def _changed(self, group: Any, job: Job | None, life: Life) -> None:
        self.changes.append((str(group if job is None else job), life.state, life.reason))

    def states(self, name: str) -> list[State]:
        return [state for who, state, _ in self.changes if who == name]

    def until_is(self, state: State, *names: str) -> None:
        """Until this is the state in which each of these came last."""
        self.until(lambda: all(self.states(name)[-1:] == [state] for name in names))


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Intervals only: so that nobody waits ten seconds for nothing."""
    monkeypatch.setattr(timetable, "SUPERVISOR_LOOK_S", 0.002)
    monkeypatch.setattr(timetable, "TICK_S", 0.002)
    monkeypatch.setattr(timetable, "DISCOVERY_S", 0.01)
    monkeypatch.setattr(timetable, "HAND_OVER_S", 0.01)
    monkeypatch.setattr(timetable, "MOST_BACKOFF_S", 0.002)


def _wait(event: threading.Event) -> None:
    event.wait(LIMIT_S)


def _raise(error: BaseException) -> None:
    raise error


def _in(state: State, known: Known) -> list[Hashable]:
    return [key for key, (_, its) in known.items() if its is state]


class Hang:
    """Whoever calls it has `entered`, and waits until it is `over`."""

    def __init__(self) -> None:
        self.entered, self.over = threading.Event(), threading.Event()

    def __call__(self) -> None:
        self.entered.set()
        _wait(self.over)


def _hang(job: Job, until: threading.Event) -> None:
    job.noted.append("hangs")
    _wait(until)


def run_once(*groups: Jobs) -> dict[str, Life]:
    ended = Supervisor[Job](groups, once=True).run()
    return {str(group if job is None else job): life for group, job, life in ended}


def test_a_run_that_ends_does_all_there_is_and_hands_it_over() -> None:
    group = Jobs([Job(f"j{number}") for number in range(10)])
    lives = run_once(group)
    assert {life.state for life in lives.values()} == {State.STOPPED}
    assert len(lives) == 10
    for job in group.jobs:
        assert job.noted == ["up", "end", "record STOPPED"]
    assert sorted(group.released) == sorted(lives)


def test_starts_run_side_by_side_and_no_more_than_so_many() -> None:
    at_once, most, lock = 0, 0, threading.Lock()
    gate = threading.Event()

    class Counting(Job):
        def start(self, owned: Owned, stopped: Callable[[], bool]) -> None:
            nonlocal at_once, most
            with lock:
                at_once += 1
                most = max(most, at_once)
                if at_once == AT_ONCE:
                    gate.set()
            assert gate.wait(LIMIT_S)
            with lock:
                at_once -= 1

    run_once(Jobs([Counting(str(number)) for number in range(3 * AT_ONCE)]))
    assert most == AT_ONCE


def test_one_that_fails_stops_no_other_and_is_tried_again() -> None:
    away, changed = RetryableError("away"), SourceChangedError("it was restored: geo reconcile")
    group = Jobs([Job("good"), Job("shaky", [away]), Job("bad", [changed]), Job("lasting", [away] * 100)])
    lives = run_once(group)
    assert {name: (life.state, life.reason) for name, life in lives.items()} == {
        "good": (State.STOPPED, None),
        "shaky": (State.STOPPED, None),
        "bad": (State.FAILED, "it was restored: geo reconcile"),
        "lasting": (State.DELAYED, "away"),
    }
    jobs = {job.name: job for job in group.jobs}
    assert jobs["lasting"].noted.count("up") == TRIES
    assert jobs["bad"].noted == ["up", "give up FAILED", "end"]
    assert sorted(group.released) == ["good", "shaky"], "what failed is left to the next start"


@pytest.mark.parametrize(("places", "ends"), [(itertools.count(1), State.STOPPED), (itertools.cycle([5, None]), State.DELAYED)])
def test_only_one_that_comes_further_each_time_is_tried_on_and_on(places: Iterator[int | None], ends: State) -> None:
    job = Job("far", [RetryableError("away") for _ in range(3 * TRIES)], places=places)
    assert run_once(Jobs([job]))["far"].state is ends


def test_a_group_that_cannot_be_asked_is_delayed_and_the_others_continue() -> None:
    away = OSError("no route to the region")
    lives = run_once(Jobs([Job("a")]), Jobs([Job("b")], "link us->eu", asked=partial(_raise, away)))
    assert (lives["a"].state, lives["link us->eu"].state) == (State.STOPPED, State.DELAYED)
    assert lives["link us->eu"].reason == "no route to the region"


def test_a_group_that_hangs_holds_up_its_own_works_only_and_continues_by_itself() -> None:
    hangs, steps = threading.Event(), list[None]()
    stuck = Jobs([Job("b", follows=partial(_wait, hangs))], "stuck")
    with Running(Jobs([Job("a", follows=partial(steps.append, None))]), stuck) as running:
        running.until_is(State.RUNNING, "a", "b")
        before = len(steps)
        running.until(lambda: len(steps) > before + 20)
        hangs.set()
    assert [life.state for _, _, life in running.ended] == [State.STOPPED] * 2
    assert stuck.released == ["b"]


def test_one_that_hangs_for_ever_is_left_behind_owned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timetable, "STOP_S", 0.05)
    hangs = threading.Event()
    group = Jobs([Job("b", follows=partial(_wait, hangs))])
    with Running(group) as running:
        running.until_is(State.RUNNING, "b")
        time.sleep(0.05)
    assert group.released == []
    assert group.jobs[0].noted == ["up", "abandon"]
    hangs.set()


def test_another_takes_the_place_of_one_that_hangs_and_the_rest_goes_on() -> None:
    """All workers hang at once: none is missing afterwards."""
    hangs, went_on, away = threading.Event(), list[str](), RetryableError("it hung")
    group = Jobs([])
    for number in range(AT_ONCE):
        job, fresh = Job(f"stuck{number}"), Job(f"fresh{number}", due=partial(went_on.append, f"fresh{number}"))
        job.due = partial(_hang, job, hangs)
        job.hangs = lambda job=job, fresh=fresh: (fresh, away) if job.noted[-1:] == ["hangs"] else None  # type: ignore[misc]
        group.jobs.append(job)
    with mock.patch.object(crew, "DUES_AT_ONCE", AT_ONCE), Running(group) as running:
        running.until(lambda: len(set(went_on)) == AT_ONCE)
        stuck = group.jobs[:]
        group.jobs = []
        assert {job.noted[-1] for job in stuck} == {"give up DELAYED"}
        assert next(change[1:] for change in running.changes if change[0] == "fresh0") == (State.DELAYED, "it hung")
        hangs.set()
    assert sorted(str(job) for _, job, _ in running.ended) == [f"fresh{n}" for n in range(AT_ONCE)]
    assert {one.state for _, _, one in running.ended} == {State.STOPPED}


@pytest.mark.parametrize(("found", "becomes"), [("left_out", State.PAUSED), ("again", State.RUNNING)])
def test_one_that_hangs_while_it_is_to_end_is_left_and_ends_as_it_was_to(found: str, becomes: State) -> None:
    hangs, wanted = threading.Event(), threading.Event()
    fresh, job = Job("fresh"), Job("stuck")
    job.ends = partial(_hang, job, hangs)
    job.hangs = lambda: (fresh, RetryableError("it hung")) if job.noted[-1:] == ["hangs"] else None

    def asks(known: Known) -> dict[str, Any]:
        if not wanted.is_set() or known["stuck"][0] is not job:
            return {}
        return {"left_out": {"stuck": Why("asked to", Reason.ASKED_TO_PAUSE)}} if found == "left_out" else {"again": ["stuck"]}

    with Running(Jobs([job], found=asks)) as running:
        running.until_is(State.RUNNING, "stuck")
        wanted.set()
        running.until(lambda: becomes in running.states("fresh"))
        hangs.set()
    assert job.noted[-1] == "abandon"


def test_one_that_failed_is_not_asked_whether_it_hangs() -> None:
    """What it was at when it failed may look as if it went on for ever."""
    job = Job("bad", [SourceChangedError("it was restored")])
    job.hangs = lambda: (Job("other"), RetryableError("it hung")) if "give up FAILED" in job.noted else None
    steps: list[None] = []
    with Running(Jobs([job, Job("good", follows=partial(steps.append, None))])) as running:
        running.until_is(State.FAILED, "bad")
        begun = len(steps)
        running.until(lambda: len(steps) > begun + 20)
    assert running.states("other") == []


def test_what_only_waits_holds_up_no_start() -> None:
    """Four wait for ever, beside those that are begun."""
    gate = threading.Event()

    class Waiting(Job):
        def start(self, owned: Owned, stopped: Callable[[], bool]) -> None:
            super().start(owned, stopped)
            with waiting():
                assert gate.wait(LIMIT_S)

    waits, others = ([f"{kind}{number}" for number in range(AT_ONCE)] for kind in "wj")
    with Running(Jobs([*map(Waiting, waits), *map(Job, others)])) as running:
        running.until_is(State.RUNNING, *others)
        gate.set()
        running.until_is(State.RUNNING, *waits)


def test_one_that_hangs_at_the_same_place_again_may_be_a_persons() -> None:
    hangs = threading.Event()
    job = Job("stuck", due=partial(_wait, hangs), hangs=lambda: (Job("fresh"), NoProgressError("twice")))
    with Running(Jobs([job])) as running:
        running.until_is(State.FAILED, "fresh")
        hangs.set()
    assert running.changes[-1][1:] == (State.FAILED, "twice")


def test_a_stop_is_heard_while_works_are_brought_up() -> None:
    group = Jobs([Job(str(number), waits_for=threading.Event()) for number in range(20)])
    with Running(group) as running:
        running.until(lambda: sum("up" in job.noted for job in group.jobs) == AT_ONCE)
    assert sum("up" in job.noted for job in group.jobs) == AT_ONCE, "those that waited were not begun"
    assert len(group.released) == 20


def test_one_that_is_followed_fails_and_comes_back() -> None:
    faults: list[BaseException] = [RetryableError("a moment")]
    group = Jobs([Job("a", follows=lambda: _raise(faults.pop()) if faults else None)])
    with Running(group) as running:
        running.until(lambda: running.states("a") == [State.RUNNING, State.DELAYED, State.RUNNING])
    assert group.jobs[0].noted == ["up", "give up DELAYED", "up", "end", "record STOPPED"]
    assert running.states("a")[-1] is State.STOPPED


def test_what_needs_a_person_waits_for_one() -> None:
    job, resolved = Job("a", [SourceChangedError("restored")]), threading.Event()
    asked = list[Hashable]()

    def found(known: Known) -> dict[str, Any]:
        asked.extend(failed := _in(State.FAILED, known))
        return {"resolved": failed if resolved.is_set() else []}

    with Running(Jobs([job], found=found)) as running:
        running.until(lambda: len(asked) > 3)
        assert running.states("a") == [State.FAILED]
        resolved.set()
        running.until_is(State.RUNNING, "a")


def test_what_a_policy_leaves_out_is_paused_and_given_back() -> None:
    left_out = threading.Event()

    def found(known: Known) -> dict[str, Any]:
        if left_out.is_set():
            return {"left_out": dict.fromkeys(_in(State.RUNNING, known), Why("a policy", Reason.POLICY))}
        return {"wanted": _in(State.PAUSED, known)}

    group = Jobs([Job("a")], found=found)
    with Running(group) as running:
        running.until_is(State.RUNNING, "a")
        left_out.set()
        running.until_is(State.PAUSED, "a")
        assert group.jobs[0].noted == ["up", "end", "record PAUSED"]
        assert group.released == ["a"]
        left_out.clear()
        running.until_is(State.RUNNING, "a")


def test_what_is_left_out_again_while_it_ends_is_paused_once() -> None:
    left_out, ends, asked = threading.Event(), threading.Event(), list[State]()

    def found(known: Known) -> dict[str, Any]:
        if not left_out.is_set():
            return {}
        asked.extend(state for _, state in known.values())
        return {"left_out": dict.fromkeys(known.keys() - _in(State.PAUSED, known), Why("a policy", Reason.POLICY))}

    with Running(Jobs([Job("a", ends=lambda: ends.wait(LIMIT_S))], found=found)) as running:
        running.until_is(State.RUNNING, "a")
        left_out.set()
        running.until(lambda: asked.count(State.RUNNING) > 2)
        ends.set()
        running.until(lambda: asked.count(State.PAUSED) > 2)
    assert running.states("a")[:2] == [State.RUNNING, State.PAUSED]


def test_groups_are_asked_at_once_by_another_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timetable, "DISCOVERY_S", 3600.0)
    asked, hangs = list[str](), threading.Event()
    groups = [Jobs([Job("a")], name="one", asked=lambda: asked.append("one")), Jobs([Job("b")], name="other")]
    groups[1].asked = lambda: asked.append("other") if "other" not in asked else _wait(hangs)
    with Running(*groups) as running:
        running.until(lambda: len(asked) == 2)
        all_have = running.supervisor.look_now()
        running.until(lambda: asked.count("one") == 2)
        assert not all_have()
        hangs.set()
        running.until(all_have)
        assert {str(work): life.state for _, work, life in running.supervisor.works()}.keys() == {"a", "b"}


def test_who_is_owned_by_another_is_waited_for_beside_the_others() -> None:
    owned = AlreadyOwnedError("another one runs it")
    group = Jobs([Job("a"), Job("b")], refuses={"b": owned})
    lives = run_once(group, Jobs([Job("c")], "other", refuses={"c": owned}))
    # Brought up it owns itself: the other one has ended by then.
    assert {name: life.state for name, life in lives.items()} == dict.fromkeys("abc", State.STOPPED)
    assert group.jobs[0].noted.count("up") == 1


def test_what_refuses_all_at_the_start_ends_the_run() -> None:
    taken, newer = AlreadyOwnedError("another one runs it"), SchemaError("a newer version wrote it")
    owned = Jobs([Job(name, [taken] * 100) for name in "ab"], refuses={"a": taken, "b": taken})
    unreadable = Jobs([], "link us->eu", asked=partial(_raise, newer))
    for groups, error in (([owned], taken), ([unreadable, owned], newer), ([unreadable], newer)):
        with pytest.raises(type(error), match=str(error)):
            run_once(*groups)
    with Running(Jobs([Job("c")], "other"), unreadable) as running:
        running.until_is(State.RUNNING, "c")
        running.until_is(State.DELAYED, "link us->eu")


def test_what_is_resolved_and_left_out_at_once_is_paused() -> None:
    job = Job("a", [SourceChangedError("restored")])

    def found(known: Known) -> dict[str, Any]:
        failed = _in(State.FAILED, known)
        return {"resolved": failed, "left_out": dict.fromkeys(failed, Why("a policy", Reason.POLICY))}

    with Running(Jobs([job], found=found)) as running:
        running.until_is(State.PAUSED, "a")


@pytest.mark.parametrize(
    ("does", "turns_out", "state", "reason"),
    [
        ({"faults": [FencedError("replaced")]}, {}, State.FAILED, "replaced"),
        ({"ends": partial(_raise, SourceChangedError("restored"))}, {}, State.FAILED, "restored"),
        ({"ends": partial(_raise, OSError("away"))}, {}, State.DELAYED, "away"),
        # Spark's end, as when a SIGTERM went to all processes of a job below spark-submit, is said as what it is.
        ({"ends": partial(_raise, ConnectionRefusedError(111, "Connection refused"))}, {}, State.DELAYED, SPARK_ENDED),
        ({"ends": partial(_raise, Py4JNetworkError("Answer from Java side is empty"))}, {}, State.DELAYED, SPARK_ENDED),
        ({"ends": lambda: False}, {}, State.DELAYED, "it was stopped in the middle of a batch"),
        ({}, {"a": SourceChangedError("restored")}, State.FAILED, "restored"),
    ],
)
def test_what_did_not_end_well_is_told_and_not_handed_over(
    does: dict[str, Any], turns_out: dict[str, BaseException], state: State, reason: str
) -> None:
    group = Jobs([Job("a", **does), Job("b")], turns_out=turns_out)
    lives = run_once(group)
    assert {name: (life.state, life.reason) for name, life in lives.items()} == {"a": (state, reason), "b": (State.STOPPED, None)}
    assert (group.released, group.jobs[0].lease.is_held) == (["b"], False)


def test_one_for_which_something_is_always_due_is_recorded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timetable, "RECORD_S", 0.01)
    job = Job("a", due=lambda: None)
    with Running(Jobs([job])) as running:
        running.until(lambda: job.noted.count("record RUNNING") > 3)


def test_what_cannot_be_recorded_without_waiting_holds_up_no_work_and_is_recorded_the_next_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timetable, "RECORD_S", 0.01)
    monkeypatch.setattr(timetable, "LOCKED_S", 0.002)
    lock, tried, followed = tmp_path / "x.lock", list[None](), list[None]()

    def record() -> None:
        tried.append(None)
        with table_lock(lock, this_process(0)):
            pass

    job = Job("a", follows=partial(followed.append, None))
    with Running(Jobs([job], records=record)) as running:
        with table_lock(lock, this_process(0)):
            running.until(lambda: len(tried) > 3)
            before = len(followed)
            running.until(lambda: len(followed) > before + 20)
            assert not [note for note in job.noted if note.startswith("record")]
            assert running.states("a") == [State.RUNNING]
        running.until(lambda: "record RUNNING" in job.noted)
    assert job.noted[-1] == "record STOPPED", "at a stop it is waited for"


def test_a_fault_that_cannot_be_recorded_without_waiting_holds_up_no_work(tmp_path: Path) -> None:
    lock, recorded = tmp_path / "x.lock", threading.Event()

    def record() -> None:
        with table_lock(lock, this_process(0)):
            recorded.set()

    away, wrong = RetryableError("away"), SourceChangedError("restored")
    jobs = [Job("a", faults=[away], gives_up=record), Job("b")]
    with table_lock(lock, this_process(0)), Running(Jobs(jobs)) as running:
        running.until(lambda: running.states("a")[-2:] == [State.DELAYED, State.RUNNING])
        assert not recorded.is_set()
    refused = Job("c", faults=[wrong], gives_up=record)
    with Running(Jobs([refused])) as running:
        with table_lock(lock, this_process(0)):
            running.until(lambda: "give up FAILED" in refused.noted)
        running.until(recorded.is_set)


def test_what_is_to_begin_again_does_once_nothing_is_done_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timetable, "DISCOVERY_S", 0.01)
    hang, asked = Hang(), list[bool]()
    busy, failed = Job("busy", due=hang), Job("failed", [SourceChangedError("restored")])

    def found(known: Known) -> dict[str, Any]:
        asks = not any(asked) and known.get("failed", (failed, State.STOPPED))[1] is State.FAILED and hang.entered.is_set()
        asked.append(asks)
        return {"again": ["busy", "failed"] if asks else []}

    with Running(Jobs([busy, failed], found=found)) as running:
        running.until(lambda: failed.noted.count("up") == 2)
        asked_before = len(asked)
        running.until(lambda: len(asked) > asked_before + 3)
        assert busy.noted.count("up") == 1, "something is done for it"
        busy.due = None
        hang.over.set()
        running.until(lambda: busy.noted.count("up") == 2)
        running.until_is(State.RUNNING, "failed")


def test_groups_come_and_go_and_those_that_stay_are_not_disturbed() -> None:
    stays, goes, comes = Jobs([Job("a")], "stays"), Jobs([Job("b")], "goes"), Jobs([Job("b")], "comes")
    begun_after: list[list[str]] = []
    comes.asked = lambda: begun_after.append(list(goes.released))
    with Running(stays, goes) as running:
        running.until_is(State.RUNNING, "a", "b")
        running.instead.append([stays, comes])
        running.until(lambda: comes.jobs[0].lease.is_held)
        assert begun_after[0] == ["b"], "what goes has given up what it owned"
        assert stays.jobs[0].noted == ["up"]
        running.instead.append([])
        running.until(lambda: stays.released == ["a"] and comes.released == ["b"])
        running.instead.append([stays])
        running.until(lambda: stays.jobs[0].noted.count("up") == 2)
    assert [life.state for _, _, life in running.ended] == [State.STOPPED]


def test_what_failed_in_a_group_that_goes_is_told_to_have_ended() -> None:
    """Else it would be taken for one that somebody has still to see to."""
    goes = Jobs([Job("refused", faults=[SchemaError("no")]), Job("away", faults=[RetryableError("no")] * 999)], "goes")
    with Running(Jobs([Job("a")], "stays"), goes) as running:
        running.until_is(State.FAILED, "refused")
        running.until(lambda: State.DELAYED in running.states("away"))
        running.instead.append([Jobs([Job("c")], "comes")])
        running.until_is(State.RUNNING, "c")
        assert running.changes[-1][0] == "c", "before what comes begins"
        assert [running.states(name)[-1] for name in ("refused", "away")] == [State.STOPPED, State.STOPPED]


def test_what_comes_up_after_its_group_was_left_behind_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timetable, "STOP_S", 0.05)
    hang = Hang()
    goes = Jobs([Job("b")], "goes", asked=hang)
    with Running(Jobs([Job("a")], "stays"), goes) as running:
        running.until(hang.entered.is_set)
        running.instead.append([Jobs([Job("c")], "comes")])
        running.until_is(State.RUNNING, "c")
        hang.over.set()
        running.until(lambda: not any(thread.name == "geo-goes" for thread in threading.enumerate()))
    assert not goes.jobs[0].lease.is_held
    assert goes.jobs[0].noted == [], "it is not even claimed"


def test_with_faults_of_every_kind_one_work_or_group_ends_no_other() -> None:
    wrong = partial(_raise, ValueError("a fault of this program"))
    group = Jobs([Job("a", follows=wrong), Job("b")])
    running = Supervisor[Job]([group, Jobs([], "wrong", asked=wrong)], once=True, faults=(Exception,))
    lives = {str(group if job is None else job): life for group, job, life in running.run()}
    assert lives["b"].state is State.STOPPED
    assert (lives["wrong"].state, lives["wrong"].reason) == (State.DELAYED, "a fault of this program")
    with pytest.raises(ValueError, match="of this program"):
        run_once(Jobs([], "wrong", asked=wrong))


def test_the_end_of_spark_ends_the_run() -> None:
    gone = Py4JNetworkError("Answer from Java side is empty")
    with Running(Jobs([Job("a", follows=partial(_raise, gone))]), Jobs([Job("b")], "other")) as running:
        running.join()
        with pytest.raises(Py4JNetworkError):
            _ = running.ended


def test_whatever_hangs_for_ever_holds_up_no_other_and_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timetable, "STOP_S", 0.5)
    hangs, steps = {where: Hang() for where in ("brought up", "due", "ended")}, list[None]()

    class Hanging(Job):
        def start(self, owned: Owned, stopped: Callable[[], bool]) -> None:
            super().start(owned, stopped)
            hangs["brought up"]()

    stuck = [Hanging("brought up"), Job("due", due=hangs["due"]), Job("ended", ends=hangs["ended"])]
    group = Jobs([*stuck, Job("good", follows=partial(steps.append, None))])
    with Running(group) as running:
        running.until_is(State.RUNNING, "good", "ended")
        running.until(lambda: hangs["brought up"].entered.is_set() and hangs["due"].entered.is_set())
        before = len(steps)
        running.until(lambda: len(steps) > before + 20)
    lives = {str(job): life for _, job, life in running.ended}
    assert hangs["ended"].entered.is_set()
    assert lives.pop("good").state is State.STOPPED
    assert {name: life.state for name, life in lives.items()} == dict.fromkeys(hangs, State.DELAYED)
    assert [name for name, life in lives.items() if "did not stop" not in str(life.reason)] == []
    assert (group.released, [job.lease.is_held for job in stuck]) == (["good"], [False] * 3)
    assert all(thread.daemon for thread in threading.enumerate() if thread.name.startswith("geo-"))
    for hang in hangs.values():
        hang.over.set()


def test_a_fault_of_this_program_ends_everything_and_hands_nothing_over_of_its_group() -> None:
    group, other = Jobs([Job("a", [ZeroDivisionError("bug")]), Job("b")]), Jobs([Job("c")], "other")
    with Running(group, other) as running:
        running.join()
        with pytest.raises(ZeroDivisionError):
            _ = running.ended
    assert group.released == []
    assert other.released == ["c"]


def test_a_group_that_does_not_answer_is_named_once_for_each_question(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(timetable, "ANSWER_S", 0.05)
    hang = Hang()
    with Running(Jobs([], "link us->eu", asked=hang), Jobs([Job("well")], "link ap->eu")) as running:
        running.until(lambda: "not answered" in caplog.text)
        hang.over.set()
        running.until_is(State.RUNNING, "well")
    said = [record.getMessage() for record in caplog.records if "not answered" in record.getMessage()]
    assert said == ["link us->eu: it was asked what there is, and has not answered yet"]
