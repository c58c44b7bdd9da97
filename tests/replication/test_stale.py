"""A stale runner of a link changes nothing after a takeover, wherever it was stopped. (SIGSTOP on real processes: test_processes.)"""

from __future__ import annotations

import os
import shutil
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from geo import crash
from geo.coordination import storage_clock
from geo.coordination.claiming import _write_fences, claim
from geo.coordination.claims import fence_name
from geo.coordination.holders import RegionHolders
from geo.coordination.owners import owners_of
from geo.coordination.ownership import Ownership, release
from geo.coordination.runners import Runner, origin_runners
from geo.coordination.signs import signs
from geo.coordination.storage_clock import renew
from geo.crash import CrashPoint
from geo.delta import process as processes
from geo.delta.appending import append_frame
from geo.delta.committing import alone
from geo.delta.driver import Driver
from geo.delta.process import Process
from geo.delta.table import Table
from geo.errors import AlreadyOwnedError, FencedError, RetryableError, UnsafeError
from geo.journal.cluster import ClusterTables
from geo.names import Topic
from geo.reasons import Reason
from geo.replication.link_table import append_links
from geo.replication.topic_replicator import TopicReplicator
from geo.schemas import OWNERS, PROCESSES
from geo.streams.life import State, Why
from geo.testing import dies_at
from tests.clock_off import clock_off
from tests.rows import owner
from tests.running import running
from tests.world import SHAPES, TOPIC, World

pytestmark = pytest.mark.spark

stat = processes._stat


def _owned(link: TopicReplicator, holder: Process, age: timedelta = timedelta(0), generation: int = 100) -> None:
    """As a process that owns what the link owns, and has not released it."""
    link.target.journal(OWNERS).append([owner(link.runners[0].name, generation, holder=holder, age=age)])


def _on_shared_storage(world: World) -> Table:
    """The log of eu where no lock can be waited for."""
    return Table(Driver.of(world.spark), world.log("eu").name, by_path=True, lock=None)


def _taken_over(world: World, target: str = "eu") -> None:
    assert world.brought(target, take_over=True)[0] is State.STOPPED


def test_a_claimer_that_stopped_before_its_fence_was_written_gives_up_and_fences_nobody(linked: World) -> None:
    stale = linked.topic_replicator()
    with dies_at(CrashPoint.CLAIM_WON):
        claim(stale.target, [stale.runners])
    (won,) = owners_of(stale.target, stale.runners[0].name)
    new, ownership = linked.begun()
    with pytest.raises(AlreadyOwnedError, match="claimed at the same moment"):
        before = stale.target.journal(OWNERS).table.latest_version() - 1
        _write_fences(stale.target, stale.runners, won.generation, won.token, before)  # where the stopped one goes on
    folder = new.target.checkpoint("fences", new.runners[0].path)
    assert new.target.files.names(folder) == [fence_name(ownership.generation, ownership.token)]
    linked.write("us", 20, 25)
    new.running.run_turns(lambda: False)
    assert new.row.replicated == 5, "the true owner is not fenced off"
    release([ownership])
    linked.settle("us")


def test_no_two_claims_share_a_generation_also_when_the_table_of_owners_is_lost(linked: World) -> None:
    stale, before = linked.begun()
    shutil.rmtree(f"{linked.config.cluster('eu').root}/system/owners")
    _taken_over(linked)
    linked.write("us", 20, 25)
    with pytest.raises(FencedError):
        stale.running.run_turns(lambda: False)
    (after,) = owners_of(linked.tables("eu"), stale.runners[0].name)
    assert after.generation > before.generation
    before.abandon()


@pytest.mark.parametrize("has_lock", [True, False])
def test_of_claims_at_the_same_moment_one_owns_and_no_two_share_a_generation(
    linked: World, monkeypatch: pytest.MonkeyPatch, *, has_lock: bool
) -> None:
    if not has_lock:
        monkeypatch.setattr(ClusterTables, "lock_folder", None)
    tables, together = linked.tables("eu"), threading.Barrier(6)
    wanted = [
        origin_runners({"us"}, Topic.parse(f"persistent://shop/web/{name}"), "eu")
        for name in ("a", "b", "c", "both", "both", "both")
    ]

    def take(runners: list[Runner]) -> Ownership | None:
        together.wait()
        try:
            return claim(tables, [runners])[0]
        except AlreadyOwnedError:
            return None

    with ThreadPoolExecutor(6) as pool:
        taken = [owned for owned in pool.map(take, wanted) if owned is not None]
    assert sorted(str(owned) for owned in taken if owned.still_owns()) == sorted({runner.name for (runner,) in wanted})
    assert len({owned.generation for owned in taken}) == len(taken)
    release(taken)


def test_a_plan_made_before_a_takeover_and_run_after_it_fails(linked: World) -> None:
    _, ownership = linked.begun()
    linked.write("us", 20, 25)
    log = linked.log("eu")
    rows = linked.log("us").read().where("origin = 'us' AND entry_id >= 20").where(ownership.check)
    rows.explain()  # the plan is made, with the fence's files as they are
    _taken_over(linked)
    before = log.latest_version()
    with pytest.raises((PySparkException, Py4JError)):
        append_frame(log, rows)
    assert log.latest_version() == before
    ownership.abandon()
    linked.settle("us")


def test_a_comparison_that_was_taken_over_right_before_its_append_adds_nothing(world: World) -> None:
    world.write("us", 0, 40)
    versions = list[int]()

    def take_over(point: CrashPoint) -> None:
        if point is CrashPoint.LINK_BEFORE_RECONCILE_APPEND and not versions:
            versions.append(-1)
            assert world.brought("eu", take_over=True) == (State.STOPPED, 40)
            versions[0] = world.log("eu").latest_version()

    with crash.watched(take_over):
        (report,) = world.replicate("eu")
    assert report.state is State.FAILED
    assert "another runner took over" in (report.reason or "")
    assert [world.log("eu").latest_version()] == versions
    world.write("us", 40, 60)
    world.settle("eu")


def test_a_stale_runner_stops_at_a_batch_that_brings_no_row_and_at_its_next_row(linked: World) -> None:
    stale, ownership = linked.begun()
    _taken_over(linked)
    linked.write("eu", 20, 21)
    linked.replicate("us")  # an echo: nothing of it crosses back
    known = linked.link_state("eu", "us")
    with pytest.raises(FencedError):
        stale.running.run_turns(lambda: False)
    with pytest.raises(FencedError):
        stale.running.progressed(State.RUNNING)
    with pytest.raises(FencedError):
        stale.flush_failure(ownership, State.DELAYED, Why("storage was away", Reason.NO_ANSWER))
    with pytest.raises(FencedError):
        stale.prepare(ownership, known)
    assert linked.link_state("eu", "us") == known
    ownership.abandon()


def test_a_row_that_was_in_flight_at_a_takeover_does_not_count(linked: World) -> None:
    stale, ownership = linked.begun()
    linked.write("us", 20, 25)
    stale.running.run_turns(lambda: False)
    in_flight = stale.running.progressed(State.RUNNING)
    assert in_flight is not None
    linked.write("us", 25, 30)
    _taken_over(linked)
    known = linked.link_state("eu", "us")
    append_links(linked.tables("eu"), [in_flight])
    assert linked.link_state("eu", "us") == known
    ownership.abandon()
    linked.write("us", 30, 31)
    linked.settle("eu", "us")


def test_a_stale_runner_with_another_configuration_keeps_nothing_from_crossing(world: World) -> None:
    """b -> c carried b alone; a new one carries a too and takes over. What the old one still reads is not lost for the new."""
    clusters, links = SHAPES["hub"]
    world.rewrite(clusters, [links[0], ("b", "c")])
    world.write("a", 0, 5)
    world.write("b", 0, 5)
    world.run_links("b", "c")
    stale, ownership = world.begun("b", "c")
    world.rewrite(clusters, links)
    _taken_over(world, "c")
    world.write("a", 5, 8)
    world.replicate("b")
    with pytest.raises(FencedError):
        stale.running.run_turns(lambda: False)
    world.replicate("c")
    ownership.abandon()
    world.assert_clean()


def test_another_link_that_takes_an_origin_over_stops_the_one_that_had_it(world: World) -> None:
    """A rolling update moves origin a from the hub's link to a direct one, and the old process still runs."""
    clusters, links = SHAPES["hub"]
    world.rewrite(clusters, links)
    world.write("a", 0, 5)
    world.run_links("b", "c")
    stale, ownership = world.begun("b", "c")
    world.rewrite(clusters, [links[0], ("b", "c"), ("a", "c")])
    with pytest.raises(AlreadyOwnedError, match="origin a of"):
        world.replicate("c", source="a")
    world.write("a", 5, 8)
    world.replicate("b")
    assert world.brought("c", source="a", take_over=True) == (State.STOPPED, 3)
    with pytest.raises(FencedError):
        stale.running.run_turns(lambda: False)
    ownership.abandon()
    rows = world.log("c").read().where("origin = 'a'")
    assert (rows.count(), rows.select("entry_id").distinct().count()) == (8, 8)


def test_a_running_process_that_was_replaced_does_not_come_back(linked: World) -> None:
    """It may have another configuration; its other topics go on."""
    with running(linked, "eu") as links:
        linked.write("us", 20, 22)
        links.until(lambda: len(linked.arrived("eu")) == 22)
        _taken_over(linked)
        links.until(lambda: links.last(TOPIC)[0] is State.FAILED)
        # Twice it looks for new topics, so also for what somebody has resolved; the other runner has stopped cleanly by now.
        for topic in map(Topic.parse, ("persistent://shop/web/orders", "persistent://shop/web/returns")):
            linked.write("us", 0, 1, topic=topic)
            links.until(lambda: links.last(topic)[0] is State.RUNNING)  # noqa: B023
        assert links.last(TOPIC)[0] is State.FAILED
        linked.write("us", 22, 25)
    (report,) = [one for one in linked.replicate("eu") if one.topic == str(TOPIC)]
    assert (report.state, report.replicated) == (State.STOPPED, 3)


def test_whoever_was_abandoned_while_it_was_at_it_appends_no_more(linked: World) -> None:
    """A broker gave it up and waits for nobody; the thread that had it goes on."""
    link, ownership = linked.begun()
    linked.write("us", 20, 25)
    ownership.abandon()
    with pytest.raises(RetryableError, match="owned here no longer"):
        link.running.run_turns(lambda: False)
    assert linked.brought("eu") == (State.STOPPED, 5)


def test_a_fence_that_cannot_be_found_is_no_takeover(linked: World) -> None:
    """Its storage is away for a moment."""
    link, ownership = linked.begun()
    folder = Path(link.target.checkpoint("fences"))
    aside = folder.rename(linked.folder / "aside")
    with pytest.raises(RetryableError, match="is not there"):
        link.running.progressed(State.RUNNING)
    aside.rename(folder)
    assert ownership.still_owns()
    release([ownership])


@pytest.mark.parametrize("minutes", [10, -10])
def test_a_claim_that_is_refused_for_its_clock_leaves_the_runner_to_whoever_has_it(
    linked: World, monkeypatch: pytest.MonkeyPatch, minutes: int
) -> None:
    link, ownership = linked.begun()
    monkeypatch.setattr(storage_clock, "_held", {})
    monkeypatch.setattr(ClusterTables, "lock_folder", None)  # else it is refused before it claims
    with clock_off(60 * minutes), pytest.raises(UnsafeError, match="ahead of" if minutes > 0 else "behind"):
        claim(link.target, [link.runners], take_over=True)
    monkeypatch.undo()
    assert ownership.still_owns()
    with pytest.raises(AlreadyOwnedError):
        claim(link.target, [link.runners])
    linked.write("us", 20, 25)
    link.running.run_turns(lambda: False)
    assert link.row.replicated == 5
    release([ownership])
    linked.settle("eu", "us")


def test_a_claim_that_is_refused_for_its_clock_forgets_nothing_that_may_be_in_flight(
    linked: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An older copy of the table of owners was put back, in which the runner is released; only its fence tells of the owner since."""
    link = linked.topic_replicator()
    release([linked.begun()[1]])
    log = Path(f"{linked.config.cluster('eu').root}/system/owners")
    older = shutil.copytree(log, linked.folder / "older")
    linked.begun()[1].abandon()
    shutil.rmtree(log)
    older.rename(log)
    monkeypatch.setattr(storage_clock, "_held", {})
    monkeypatch.setattr(ClusterTables, "lock_folder", None)
    with clock_off(600), pytest.raises(UnsafeError):
        claim(linked.tables("eu"), [link.runners])
    monkeypatch.undo()
    (ownership,) = claim(linked.tables("eu"), [link.runners])
    assert ownership.in_flight
    release([ownership])


def test_an_owner_on_another_host_is_taken_over_once_it_is_silent(linked: World) -> None:
    tables, link = linked.tables("eu"), linked.topic_replicator()
    elsewhere = replace(tables.me, host="another-host")
    _owned(link, elsewhere, timedelta(hours=1))
    now = datetime.now(timezone.utc)
    beat = {"process": elsewhere.name, "holder": elsewhere.encode(), "renewed_at": now - timedelta(minutes=4), "sequence": 1}
    tables.journal(PROCESSES).append([beat])
    with pytest.raises(AlreadyOwnedError, match="gave a sign of life lately"):
        claim(tables, [link.runners])
    tables.journal(PROCESSES).append([{**beat, "renewed_at": now - timedelta(minutes=6), "sequence": 2}])
    (ownership,) = claim(tables, [link.runners])
    assert ownership.generation == 101
    release([ownership])


def _elsewhere(world: World, cluster: str = "eu") -> ClusterTables:
    """The tables of a cluster as a process on another host has them."""
    me = replace(world.tables(cluster).me, host="another-host")
    return ClusterTables(Driver(lambda: world.spark, lambda: me), world.config.cluster(cluster))


@pytest.mark.parametrize("owner_off_s", [-299, 0, 299])
def test_nobody_who_lives_is_replaced_however_the_clocks_of_owner_and_taker_are_off(linked: World, owner_off_s: int) -> None:
    link = linked.topic_replicator()
    with clock_off(owner_off_s):
        (ownership,) = claim(_elsewhere(linked), [link.runners])
    for off_s in (-299, 0, 299):
        with clock_off(off_s), pytest.raises(AlreadyOwnedError, match="gave a sign of life lately"):
            claim(linked.tables("eu"), [link.runners])
        with clock_off(off_s):
            assert RegionHolders(linked.tables("eu")).why_not_run(link.runners[0].name) == ""
    with clock_off(owner_off_s):
        renew(_elsewhere(linked))
        at_us, _ = signs(linked.tables("eu"))[_elsewhere(linked).me.name]
        assert abs(time.time() - owner_off_s - at_us / 1e6) < 30
        release([ownership])


def test_a_clock_that_is_off_on_storage_without_a_lock_is_told_from_the_claim_itself(
    linked: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The claim has the host's time; a sign of life with the storage's follows at once."""
    monkeypatch.setattr(ClusterTables, "lock_folder", None)
    monkeypatch.setattr(storage_clock, "_held", {})
    link = linked.topic_replicator()
    for off_s in (-600, 600):
        with clock_off(off_s), pytest.raises(UnsafeError, match="the storage's"):
            claim(linked.tables("eu"), [link.runners])
    with clock_off(-299):
        (ownership,) = claim(_elsewhere(linked), [link.runners])
    with pytest.raises(AlreadyOwnedError, match="gave a sign of life lately"), clock_off(299):
        claim(linked.tables("eu"), [link.runners])
    release([ownership])


def test_an_owner_that_the_system_hides_is_judged_by_its_signs_of_life_and_fenced(
    linked: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables, link = linked.tables("eu"), linked.topic_replicator()
    hidden = replace(tables.me, pid=os.getppid(), started="1")  # its process id is some process's
    monkeypatch.setattr(processes, "_stat", lambda pid: ("", "") if pid == hidden.pid else stat(pid))
    _owned(link, hidden, timedelta(minutes=4))
    with pytest.raises(AlreadyOwnedError, match="gave a sign of life lately"):
        claim(tables, [link.runners])
    _owned(link, hidden, timedelta(minutes=6), 101)
    (ownership,) = claim(tables, [link.runners])
    assert ownership.in_flight
    release([ownership])


def test_whoever_begins_waits_for_a_commit_that_is_under_way_whatever_is_known_of_the_last_owner(linked: World) -> None:
    link, log = linked.topic_replicator(), linked.log("eu")
    release([linked.begun()[1]])
    (clean,) = claim(link.target, [link.runners])
    assert not clean.in_flight
    fencing = threading.Thread(target=clean.fence, args=(log,))
    with alone(log):
        fencing.start()
        fencing.join(0.3)
        assert fencing.is_alive()
    fencing.join()
    release([clean])


def test_where_no_lock_can_be_waited_for_an_append_in_flight_at_a_takeover_fails(linked: World, tmp_path: Path) -> None:
    """Shared storage: the append's plan has asked for its fence, its rows are being computed, and the metadata change makes Delta refuse
    a blind append whose snapshot is older."""
    (stale, ownership), begun, go_on = linked.begun(), str(tmp_path / "begun"), str(tmp_path / "go-on")
    shared = _on_shared_storage(linked)

    @F.udf("boolean")  # which takes no annotations of such a function
    def wait(_):  # type: ignore[no-untyped-def]
        open(begun, "w").close()
        while not os.path.exists(go_on):
            time.sleep(0.01)
        return True

    before = shared.read().count()
    with ThreadPoolExecutor(1) as pool:
        append = pool.submit(ownership.append, shared, linked.entries("us", 20, 25).where(wait("entry_id")))
        while not os.path.exists(begun):
            assert not append.done(), append.exception()
            time.sleep(0.01)
        (taker,) = claim(stale.target, [stale.runners], take_over=True)
        taker.fence(shared)
        open(go_on, "w").close()
        with pytest.raises(FencedError):
            append.result()
    assert shared.read().count() == before
    release([taker])


def test_where_no_lock_can_be_waited_for_an_append_planned_after_a_takeover_finds_its_fence_gone(linked: World) -> None:
    """It was looked at right before; the takeover, with its metadata change, came between that and the plan."""
    stale, ownership = linked.begun()
    shared = _on_shared_storage(linked)
    before = shared.read().count()

    def taken_over() -> None:
        (taker,) = claim(stale.target, [stale.runners], take_over=True)
        taker.fence(shared)
        release([taker])

    with pytest.raises(FencedError):
        ownership.append(shared, linked.entries("us", 20, 25), refuse=taken_over)
    assert shared.read().count() == before


def test_where_no_lock_can_be_waited_for_the_log_gets_the_token(linked: World) -> None:
    stale, ownership = linked.begun()
    ownership.abandon()
    shared = _on_shared_storage(linked)
    (taker,) = claim(stale.target, [stale.runners])
    taker.fence(shared)
    assert shared.properties()["geo.fence.origin.us"] == taker.token
    release([taker])
    (clean,) = claim(stale.target, [stale.runners])
    before = shared.latest_version()
    clean.fence(shared)
    assert shared.latest_version() == before, "after a clean stop nothing can be in flight"
    release([clean])


@pytest.mark.parametrize("gone", ["released", "dead"])
def test_what_a_taker_that_went_before_it_fenced_had_to_fence_is_fenced_by_the_next(linked: World, gone: str) -> None:
    """Else an append of the owner before both, on shared storage, could still land after the second one has read the log's end."""
    link = linked.topic_replicator()
    linked.begun()[1].abandon()
    (taker,) = claim(link.target, [link.runners])
    assert taker.in_flight
    if gone == "released":
        release([taker])
    else:
        taker.abandon()
        dead = replace(link.target.me, started="0", jvm_started="0").encode()
        (one,) = owners_of(link.target, link.runners[0].name)
        link.target.journal(OWNERS).append([replace(one, holder=dead, sequence=1)])
    (next_one,) = claim(link.target, [link.runners])
    assert next_one.in_flight
    next_one.fence(linked.log("eu"))
    release([next_one])
    (last,) = claim(link.target, [link.runners])
    assert not last.in_flight
    release([last])


@pytest.mark.parametrize("jvm", ["ended", "unknown", "mine"])
def test_after_an_owner_that_died_on_this_host_the_log_needs_no_token_if_its_jvm_has_ended(linked: World, jvm: str) -> None:
    """The claim has waited for the end of its JVM, so nothing is in flight; not if it is the claimer's own, which goes on."""
    link = linked.topic_replicator()
    tables, log = link.target, linked.log("eu")
    jvms = {"ended": (tables.me.jvm_pid, "0"), "unknown": (0, ""), "mine": tables.me.jvm}
    jvm_pid, jvm_started = jvms[jvm]
    dead = replace(tables.me, started="0", jvm_pid=jvm_pid, jvm_started=jvm_started)
    _owned(link, dead)
    (taker,) = claim(tables, [link.runners])
    before = log.latest_version()
    taker.fence(_on_shared_storage(linked))
    assert (taker.generation, log.latest_version()) == (101, before if jvm == "ended" else before + 1)
    release([taker])


def test_an_owner_of_the_same_name_in_another_container_is_not_taken_for_dead(linked: World) -> None:
    """Its process ids mean nothing here."""
    link = linked.topic_replicator()
    tables = link.target
    there = replace(tables.me, started="0", jvm_pid=0, system="another boot")
    _owned(link, there)
    with pytest.raises(AlreadyOwnedError, match="gave a sign of life lately"):
        claim(tables, [link.runners])
