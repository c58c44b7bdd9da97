"""Pausing and restarting links: what was asked last counts, for all that it names, also later and after a restart."""

from __future__ import annotations

import shutil
from typing import Any

import pytest

from geo.names import Topic
from geo.replication.link_requests import Action, Next, Request, Requests, what_next
from geo.replication.link_status import LinkStatus, high_watermarks, link_statuses
from geo.replication.request_table import ask, read_requests
from geo.schemas import REQUESTS
from geo.streams.life import State
from tests.running import Running, running
from tests.world import TOPIC, World

ORDERS = Topic.parse("persistent://shop/web/orders")
ALL = "persistent://*/*/*"


@pytest.mark.parametrize(
    ("state", "facts", "becomes"),
    [
        (State.RUNNING, {}, Next.NOTHING),
        (State.RUNNING, {"is_wanted": False}, Next.LEFT_OUT),
        (State.FAILED, {"is_wanted": False}, Next.LEFT_OUT),
        (State.PAUSED, {"is_wanted": False, "restarts": True}, Next.NOTHING),
        (State.PAUSED, {}, Next.WANTED),
        (State.RUNNING, {"restarts": True}, Next.AGAIN),
        (State.DELAYED, {"restarts": True}, Next.AGAIN),
        (State.FAILED, {"restarts": True, "recorded": State.FAILED}, Next.AGAIN),
        (State.FAILED, {"restarts": True, "is_replaced": True}, Next.NOTHING),
        (State.FAILED, {"recorded": State.FAILED}, Next.NOTHING),
        (State.FAILED, {}, Next.NOTHING),
        (State.FAILED, {"recorded": State.STOPPED}, Next.RESOLVED),
        (State.FAILED, {"recorded": State.STOPPED, "is_replaced": True}, Next.NOTHING),
    ],
)
def test_what_becomes_of_a_topic_of_a_link(state: State, facts: dict[str, Any], becomes: Next) -> None:
    given: dict[str, Any] = {"is_wanted": True, "restarts": False, "is_replaced": False, "recorded": None}
    assert what_next(state, **{**given, **facts}) is becomes


def _requests(*asked: tuple[str, str, Action]) -> list[Request]:
    return [Request(source, topics, one, number) for number, (source, topics, one) in enumerate(asked, 1)]


def _paused(requests: list[Request], source: str, topic: Topic) -> bool:
    return Requests(requests).is_paused(source, topic)


def test_of_the_requests_that_match_the_last_counts() -> None:
    requests = _requests(("us", ALL, Action.PAUSE), ("us", str(TOPIC), Action.RESUME), ("us", str(ORDERS), Action.RESTART))
    assert not _paused(requests, "us", TOPIC)
    assert _paused(requests, "us", ORDERS)
    assert not _paused(requests, "eu", ORDERS)
    assert (Requests(requests).last_restart("us", ORDERS), Requests(requests).last_restart("us", TOPIC)) == (3, 0)
    requests.append(Request("us", ALL, Action.PAUSE, 4))
    assert _paused(requests, "us", TOPIC)
    assert not _paused([], "us", TOPIC)


@pytest.mark.spark
def test_a_newer_request_of_a_glob_takes_the_place_of_the_older_and_a_restart_of_none(world: World) -> None:
    tables = world.tables("eu")
    for asked in (Action.PAUSE, Action.RESTART, Action.PAUSE, Action.RESUME):
        ask(tables, "us", ALL, asked)
    found = read_requests(tables)
    assert (found.is_paused("us", TOPIC), found.last_restart("us", TOPIC)) == (False, 2)
    assert sorted(row["sequence"] for row in tables.journal(REQUESTS).newest()) == [2, 4]
    (row,) = tables.journal(REQUESTS).newest(kind="pause")
    tables.journal(REQUESTS).append([{**row, "kind": "drain", "action": "drain", "sequence": 5}])
    assert not read_requests(tables).is_paused("us", TOPIC), "what a newer program asks for stops nobody"


def _row(world: World) -> tuple[State, int | None]:
    found = world.link_state("eu", "us")
    return found.state, None if found.cursor is None else found.cursor.version


def _said(links: Running, topic: Topic, state: State) -> int:
    return sum(1 for report in links.reports if (report.topic, report.state) == (str(topic), state))


@pytest.mark.spark
def test_a_paused_link_rests_over_restarts_and_goes_on_where_it_stood(linked: World) -> None:
    tables = linked.tables("eu")
    with running(linked, "eu") as links:
        links.until(lambda: links.last(TOPIC)[0] is State.RUNNING)
        ask(tables, "us", ALL, Action.PAUSE)
        links.until(lambda: links.last(TOPIC)[0] is State.PAUSED)
        assert "geo links resume --source us --target eu" in (links.last(TOPIC)[1] or "")
        linked.write("us", 20, 25)
        linked.write("us", 0, 5, topic=ORDERS)
        links.until(lambda: links.last(ORDERS)[0] is State.PAUSED)
    assert linked.link_state("eu", "us").state is State.PAUSED, "it is told to all who look"
    reports = linked.replicate("eu")
    assert {(report.topic, report.state, report.replicated) for report in reports} == {
        (str(TOPIC), State.PAUSED, 0),
        (str(ORDERS), State.PAUSED, 0),
    }
    ask(tables, "us", str(TOPIC), Action.RESUME)
    with running(linked, "eu") as links:
        links.until(lambda: links.last(TOPIC)[0] is State.RUNNING and links.last(ORDERS)[0] is State.PAUSED)
        ask(tables, "us", str(ORDERS), Action.RESUME)
        links.until(lambda: links.last(ORDERS)[0] is State.RUNNING)
    assert {row[0] for row in linked.log("eu", ORDERS).read().select("entry_id").collect()} == set(range(5))
    linked.settle("us")


@pytest.mark.spark
def test_a_restart_begins_a_running_link_anew_and_takes_a_failed_one_up(linked: World) -> None:
    tables = linked.tables("eu")
    with running(linked, "eu") as links:
        links.until(lambda: links.last(TOPIC)[0] is State.RUNNING)
        ask(tables, "us", ALL, Action.RESTART)
        links.until(lambda: _said(links, TOPIC, State.RUNNING) >= 2)
        begun = _said(links, TOPIC, State.RUNNING)
        linked.log("us").delta().restoreToVersion(0)
        links.until(lambda: links.last(TOPIC)[0] is State.FAILED)
        failed = _said(links, TOPIC, State.FAILED)
        ask(tables, "us", ALL, Action.RESTART)
        links.until(lambda: _said(links, TOPIC, State.FAILED) > failed)
        assert _said(links, TOPIC, State.RUNNING) == begun, "what was wrong still is"


def _statuses(world: World) -> dict[str, LinkStatus]:
    sources = world.all_tables()
    found = [one for name in sources for one in link_statuses(world.tables(name), sources, world.config, ALL)]
    return {one.link.name: one for one in found}


@pytest.mark.spark
def test_the_lag_of_links_is_told_by_the_tables_whether_or_not_they_run(world: World) -> None:
    world.rewrite(("a", "b", "c"))
    world.write("a", 0, 10)
    world.replicate("b")
    world.write("a", 10, 15)
    found = _statuses(world)
    assert set(found) == {"a->b", "a->c", "b->a", "b->c"}, "c has no topic yet"
    behind, never = found["a->b"], found["a->c"]
    assert behind.lag is not None
    assert never.lag is not None
    assert (behind.at, behind.newest, behind.lag.versions, behind.lag.messages) == (1, 2, 1, 5)
    assert 0 < (behind.lag.seconds or 0) < 60
    assert (behind.lag.bytes or 0) > 0
    assert (never.at, never.state, never.reason, never.lag.messages) == (None, State.STOPPED, "it has never run", 15)
    back = found["b->a"].lag
    assert back is not None
    assert (back.messages, back.seconds) == (0, 0.0), "what b got goes back nowhere"
    assert high_watermarks(found.values(), in_sync=False)["a", TOPIC] is None, "c holds nothing"
    assert high_watermarks(found.values(), in_sync=True)["a", TOPIC] == 1
    with running(world, "b") as links:  # its row is older than what it has brought
        links.until(lambda: _statuses(world)["a->b"].at == 2)
    world.replicate("c")
    found = _statuses(world)
    assert {(one.lag.messages, one.lag.seconds) for one in found.values() if one.lag} == {(0, 0.0)}
    assert {name for name, one in found.items() if one.in_sync} == {"a->b", "a->c", "b->c"}
    assert found["c->a"].reason == "it has never run"
    assert high_watermarks(found.values(), in_sync=False)["a", TOPIC] == 2
    away = [world.config.link("a", "b")]
    assert high_watermarks(found.values(), away, in_sync=False)["a", TOPIC] is None, "b could not be asked"
    world.log("b").delta().restoreToVersion(0)
    restored = _statuses(world)["a->b"]
    assert (restored.at, restored.in_sync) == (None, False)
    assert "its next start compares both logs: the target was changed: RESTORE" in (restored.reason or "")
    shutil.rmtree(world.config.cluster("a").root or "")
    gone = _statuses(world)
    assert (gone["a->c"].lag, gone["a->c"].newest, gone["a->c"].in_sync) == (None, None, False)
    assert "a cannot be read" in (gone["a->c"].reason or "")
    assert gone["b->c"].lag is not None, "what is away hides no other link"
