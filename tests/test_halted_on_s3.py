"""Owners on an object store that are halted by SIGSTOP, replaced by another host, and go on: real processes, without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from deltalake import DeltaTable

from geo.coordination.claiming import claim
from geo.coordination.claims import fence_name
from geo.coordination.owners import owner_of
from geo.coordination.ownership import release
from geo.coordination.runners import producer_runner
from geo.crash import CrashPoint
from geo.delta.commits import commit_file
from geo.delta.delta_log import read_folder, remove_below
from geo.delta.scan import data_files
from geo.delta.store import StorePath
from geo.errors import AlreadyOwnedError, RetryableError
from geo.names import Topic
from tests.clock_off import clock_off
from tests.far import Far
from tests.object_store import IF_ABSENT
from tests.object_store import ObjectStore as S3
from tests.waiting import until

pytestmark = [pytest.mark.crash, pytest.mark.slow]

LATER_S = 40 * 86_400
"""Longer than files stay that no commit names."""


@pytest.fixture(scope="module")
def far(s3: S3, tmp_path_factory: pytest.TempPathFactory) -> Far:
    """Where each test has a topic of its own."""
    return Far.made(s3, tmp_path_factory.mktemp("far"))


@pytest.fixture
def later(s3: S3, tmp_path: Path) -> Iterator[Far]:
    """Where the store's clock may go on."""
    yield Far.made(s3, tmp_path)
    s3.go_on(0)


def _begun(far: Far, name: str) -> Topic:
    """A topic of which a producer published ten messages."""
    far.publish(10, topic := Topic.parse(f"persistent://shop/halted/{name}"))
    return topic


def _assert_once(far: Far, topic: Topic, end: int) -> None:
    there = far.messages("us", topic)
    assert sorted(there.values()) == sorted(f"k{n}" for n in range(end))
    assert (len({ledger for ledger, _ in there}), sorted(entry for _, entry in there)) == (1, list(range(end)))


@pytest.mark.parametrize(
    ("point", "before"),
    [
        (CrashPoint.APPEND_CHECKED, CrashPoint.PUBLISH_BEFORE_APPEND),
        (CrashPoint.CLAIM_NEWEST, CrashPoint.CLAIM_FENCED),
    ],
)
def test_an_owner_that_was_halted_and_replaced_adds_nothing(far: Far, point: CrashPoint, before: CrashPoint) -> None:
    """At its fence, which it has found in place, and in its own claim."""
    topic = _begun(far, point.value)
    with far.halted("one", 30, topic, point, before=before) as halted:
        assert far.on_host("two").publish(20, topic, take_over=True) == 10
        version = far.log("us", topic).latest_version()
        told = halted.goes_on()
    assert (told["error"], "another runner took over" in told["text"]) == ("FencedError", True), told
    assert far.log("us", topic).latest_version() == version
    assert far.on_host("two").publish(40, topic) == 20
    _assert_once(far, topic, 40)


def test_who_looks_while_another_one_claims_replaces_nobody(far: Far, s3: S3) -> None:
    """What was claimed before it looked at the fences, and fenced since, has an owner who lives."""
    tables, other = far.tables("us"), far.on_host("two").tables("us")
    runner = producer_runner(tables, _begun(far, "looks"), "p")
    release(claim(other, [[producer_runner(other, _begun(far, "another"), "p")]]))
    assert owner_of(other, runner.name) is not None  # so that it knows what is there, and lists no more than fences
    before = s3.counts()["late"]
    s3.next_of("LIST", "late", seconds=1)
    with ThreadPoolExecutor(1) as pool:
        claiming = pool.submit(claim, other, [[runner]])
        until(lambda: s3.counts()["late"] > before)
        (owned,) = claim(tables, [[runner]])
        with pytest.raises(AlreadyOwnedError, match="already run by"):
            claiming.result()
    assert owned.still_owns()
    release([owned])


@pytest.mark.parametrize(("fault", "claims"), [("lost", 1), ("conflict", 2)])
def test_of_a_fence_is_known_that_it_was_made_or_another_one_is(far: Far, s3: S3, fault: str, claims: int) -> None:
    tables = far.tables("us")
    runner = producer_runner(tables, _begun(far, f"fence-{fault}"), "p")
    before = owner_of(tables, runner.name)
    assert before is not None
    s3.next_of(IF_ABSENT, "lost")  # the claim, which is read then
    s3.next_of(IF_ABSENT, fault)
    (owned,) = claim(tables, [[runner]])
    assert (owned.generation - before.generation, owned.in_flight, owned.still_owns()) == (claims, claims == 2, True)
    assert tables.files.names(tables.checkpoint("fences", runner.path)) == [fence_name(owned.generation, owned.token)]
    s3.next_of(IF_ABSENT, "lost")
    release([owned])


def test_a_claim_of_which_no_fence_is_known_is_refused_and_the_next_one_takes_it(far: Far, s3: S3) -> None:
    tables = far.tables("us")
    runner = producer_runner(tables, _begun(far, "fenceless"), "p")
    for _ in range(5):
        s3.next_of(IF_ABSENT, "lost")  # the claim
        s3.next_of(IF_ABSENT, "conflict")
    with pytest.raises(RetryableError, match="did not say 5 times whether the fence was made"):
        claim(tables, [[runner]])
    (owned,) = claim(tables, [[runner]])
    assert owned.still_owns()
    release([owned])


def test_what_a_halted_owner_puts_below_a_cut_does_not_count(far: Far, s3: S3) -> None:
    """Its successor's commits were cut past the version that it is about to make: that name is free."""
    topic = _begun(far, "cut")
    log = far.log("us", topic)
    assert (folder := log.log_folder) is not None
    with far.halted("one", 30, topic, CrashPoint.APPEND_CHECKED, before=CrashPoint.PUBLISH_BEFORE_APPEND) as halted:
        free = log.latest_version() + 1
        for end in (12, 14, 20):
            assert far.on_host("two").publish(end, topic, take_over=True)
        DeltaTable(log.name, storage_options=s3.options()).create_checkpoint()
        newest = log.latest_version()
        assert remove_below(folder, read_folder(folder), newest) == newest > free
        before = s3.counts()
        told = halted.goes_on()
        asked = s3.counts() - before
        assert asked["PUT"], "it was put"
    assert told["error"] == "FencedError", told
    assert not (folder / commit_file(free)).is_there(), "and is removed"
    _assert_once(far, topic, 20)
    assert far.on_host("two").publish(40, topic, take_over=True) == 20
    _assert_once(far, topic, 40)


@pytest.mark.parametrize("is_replaced", [False, True])
def test_who_is_halted_between_data_and_commit_names_nothing_that_was_cleaned_up(later: Far, s3: S3, is_replaced: bool) -> None:
    far, topic, before = later, _begun(later, "cleaned-up"), CrashPoint.PUBLISH_BEFORE_APPEND
    with far.halted("one", 30, topic, CrashPoint.APPEND_CHECKED, before=before, ahead_s=LATER_S) as halted:
        s3.go_on(LATER_S)
        with clock_off(LATER_S):
            if is_replaced:
                far.on_host("two").publish(20, topic, take_over=True)
            table = DeltaTable(far.log("us", topic).name, storage_options=s3.options())
            gone = table.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False, full=True)
            assert len(gone) == 1
            told = halted.goes_on()
            assert (told["error"], "is gone" in told["text"]) == ("RetryableError", True), told
            _assert_all_there(far, topic)
            assert far.on_host("two").publish(40, topic, take_over=True) == (20 if is_replaced else 30)
            _assert_once(far, topic, 40)
            _assert_all_there(far, topic)


def _assert_all_there(far: Far, topic: Topic) -> None:
    """Every file that the log names."""
    log = far.log("us", topic)
    files = data_files(log, log.latest_version())
    assert files
    assert all(StorePath(file.path.store, file.path.location).is_there() for file in files)
