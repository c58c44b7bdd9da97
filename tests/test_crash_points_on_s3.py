"""Exactly once through the crash points on an object store, where no lock keeps processes apart: those that need no Spark. The others:
`./run storages points`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from geo.coordination.claiming import claim
from geo.coordination.ownership import release
from geo.coordination.runners import filling_runners
from geo.crash import CrashPoint, InjectedCrash, arm, watched
from geo.delta.commits import EXPIRED
from geo.errors import AlreadyOwnedError
from geo.log.topics import registered_topics
from geo.names import Topic
from geo.now import utc_now
from geo.ops.date_files import date_files, remove_dates
from geo.testing import crash_points, dies_at
from tests.far import Far
from tests.object_store import ObjectStore as S3

pytestmark = pytest.mark.slow

APPEND_POINTS = crash_points("append-")
PUBLISH_POINTS = [*crash_points("claim-", "publish-", "topic-", "table-"), *APPEND_POINTS]
LINK_POINTS = [*crash_points("link-"), *APPEND_POINTS]
FILES_ADDED = [CrashPoint.APPEND_COMMITTED, CrashPoint.BACKFILL_APPENDED]
FILE_POINTS = [*crash_points("claim-", "topic-", "table-", "backfill-"), CrashPoint.APPEND_CHECKED, CrashPoint.APPEND_COMMITTED]
CHANGE_POINTS = [CrashPoint.CHANGE_MADE, CrashPoint.APPEND_COMMITTED]


@pytest.fixture(scope="module")
def far(s3: S3, tmp_path_factory: pytest.TempPathFactory) -> Far:
    """Where each point has a topic of its own."""
    return Far.made(s3, tmp_path_factory.mktemp("far"))


@contextmanager
def _dies_at(point: CrashPoint, before: CrashPoint) -> Iterator[None]:
    """As `dies_at`; at a point of any append in that one which comes behind the point `before`: it is of the log."""
    if point not in APPEND_POINTS:
        with dies_at(point):
            yield
        return

    def look(at: CrashPoint) -> None:
        if at is before:
            arm(f"{point.value}:raise")

    with watched(look), pytest.raises(InjectedCrash, match=point.value):
        yield
    arm(None)


def _topic(what: str, point: CrashPoint) -> Topic:
    return Topic.parse(f"persistent://shop/{what}/{point.value}")


@pytest.mark.parametrize("point", PUBLISH_POINTS, ids=lambda point: point.value)
def test_a_publish_that_stops_here_goes_on_where_it_was(far: Far, point: CrashPoint) -> None:
    topic = _topic("published", point)
    with _dies_at(point, CrashPoint.PUBLISH_BEFORE_APPEND):
        far.publish(30, topic)
    far.publish(40, topic)
    there = far.messages("us", topic)
    assert sorted(there.values()) == sorted(f"k{n}" for n in range(40))
    assert (len({ledger for ledger, _ in there}), sorted(entry for _, entry in there)) == (1, list(range(40)))
    assert far.publish(40, topic) == 0, "complete: nothing is added"


@pytest.mark.parametrize("point", LINK_POINTS, ids=lambda point: point.value)
def test_a_link_that_stops_here_brings_everything_once_after_a_restart(far: Far, point: CrashPoint) -> None:
    """Twice where a run brings what is new, so that the stop meets the append's own cursor too."""
    topic = _topic("linked", point)
    far.publish(20, topic)
    if turns := point in (CrashPoint.LINK_BEFORE_APPEND, CrashPoint.LINK_AFTER_APPEND, CrashPoint.LINK_START_RECORDED):
        assert far.replicate(topic) == 20
        far.publish(40, topic)
    if point is CrashPoint.LINK_START_RECORDED:
        with dies_at(CrashPoint.LINK_AFTER_APPEND):
            far.replicate(topic)
    with _dies_at(point, CrashPoint.LINK_BEFORE_RECONCILE_APPEND):
        far.replicate(topic)
    end = 60 if turns else 20
    far.publish(end, topic)
    far.replicate(topic)
    assert sorted(entry for _, entry in far.messages("eu", topic)) == list(range(end))
    assert far.messages("eu", topic) == far.messages("us", topic)
    assert far.replicate(topic) == 0


@pytest.mark.parametrize("point", FILE_POINTS, ids=lambda point: point.value)
def test_a_backfill_by_files_that_stops_here_brings_all_once_when_it_is_run_again(far: Far, point: CrashPoint) -> None:
    """Into a region without the topic, whose log is made under the claim."""
    topic = _topic("filled", point)
    far.publish(10, topic)
    far.publish(20, topic)
    with _dies_at(point, CrashPoint.BACKFILL_COPIED):
        far.backfill(topic)
    is_there = bool(far.messages("eu", topic))
    assert is_there is (point in FILES_ADDED)
    if not is_there:
        filled = far.backfill(topic)
        assert (filled.messages, filled.by_file, filled.complete) == (20, 20, True)
    assert far.messages("eu", topic) == far.messages("us", topic)
    assert len(far.messages("eu", topic)) == 20
    assert far.replicate(topic) == 0, "the link finds nothing missing"


def test_a_backfill_that_is_refused_makes_nothing(far: Far) -> None:
    topic = Topic.parse("persistent://shop/filled/refused")
    far.publish(3, topic)
    other = far.on_host("elsewhere").tables("eu")
    (held,) = claim(other, [filling_runners({"us"}, topic, "eu")])  # as another backfill does, or who deletes the topic
    with pytest.raises(AlreadyOwnedError):
        far.backfill(topic)
    assert not far.log("eu", topic).exists()
    assert topic not in {one.topic for one in registered_topics(far.tables("eu"))}
    release([held])
    assert far.backfill(topic).messages == 3


@pytest.mark.parametrize("point", CHANGE_POINTS, ids=lambda point: point.value)
def test_an_expiry_that_stops_here_is_done_once(far: Far, point: CrashPoint) -> None:
    topic, today, record = _topic("expired", point), utc_now().date(), f'{{"{EXPIRED}": 1}}'
    far.publish(30, topic)
    log = far.log("us", topic)
    with dies_at(point):
        remove_dates(log, [today], record)
    assert bool(far.messages("us", topic)) is (point is CrashPoint.CHANGE_MADE)
    version = log.latest_version()
    remove_dates(log, [today], record)
    assert (far.messages("us", topic), date_files(log)) == ({}, {})
    assert log.latest_version() == version + (point is CrashPoint.CHANGE_MADE), "what is gone makes no commit"
    assert far.publish(40, topic) == 10, "and the producer goes on"
