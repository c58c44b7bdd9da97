"""What regions on an object store ask while nothing happens, and that nothing is missed by it. Spark is never started."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from geo.coordination.claiming import claim
from geo.coordination.claims import OWNED, Owner
from geo.coordination.ownership import release
from geo.coordination.runners import Runner
from geo.coordination.signs import forget, sign, signs
from geo.coordination.storage_clock import storage_now_us
from geo.delta import held_files
from geo.delta.commits import checksum_file, commit_file
from geo.delta.ddl import set_property
from geo.delta.mirror import may_be_old
from geo.delta.predicate import Among
from geo.delta.writer import forget_committed
from geo.disk import local_path
from geo.errors import AlreadyOwnedError
from geo.fleet.replicator import Replicator
from geo.journal import upkeep
from geo.journal.events import SETTING, flush_all, read_events
from geo.journal.journal import Journal
from geo.log.housekeeping import (
    FILES,
    FILES_OF_WRITERS,
    HousekeepingThread,
    after_last_run,
    keep_journals,
    remove_held,
    wait_for_cleaning,
)
from geo.log.topics import ensure_topic
from geo.names import Topic
from geo.now import now_us
from geo.reasons import Reason
from geo.replication.link_table import read_links
from geo.replication.link_topics import LinkReport
from geo.replication.topic_replicator import TopicReplicator
from geo.schemas import OWNERS, PROCESSES
from geo.streams import timetable
from geo.streams.life import State
from geo.subscription.consumer.ack_exchange import look_every_s
from geo.times import EPOCH, in_us
from tests.delta.on_s3 import opened_on
from tests.far import Far
from tests.object_store import ObjectStore as S3
from tests.rows import owner

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def far(s3: S3, tmp_path_factory: pytest.TempPathFactory) -> Far:
    return Far.made(s3, tmp_path_factory.mktemp("far"))


_PASS = ("replicate", "--cluster", "eu", "--trigger", "available-now")


def _no_spark() -> SparkSession:
    raise AssertionError("Spark is started")


def _pass(far: Far, topic: Topic) -> LinkReport:
    (report,) = Replicator(_no_spark, far.config, "eu", topics=str(topic)).run()
    return report


def test_the_first_pass_of_a_new_link_compares_both_logs_and_brings_what_is_missing(far: Far) -> None:
    topic = Topic.parse("persistent://shop/web/begins")
    far.publish(10, topic)
    first = _pass(far, topic)
    assert (first.state, first.replicated) == (State.STOPPED, 10)
    assert far.messages("eu", topic) == far.messages("us", topic)


def test_a_pass_of_a_link_without_news_owns_nothing_and_the_next_one_with_news_brings_them(far: Far, s3: S3) -> None:
    topic = Topic.parse("persistent://shop/web/rests")
    far.publish(10, topic)
    assert far.replicate(topic) == 10
    first = _pass(far, topic)
    assert (first.state, first.replicated, first.source_version) == (State.STOPPED, 0, far.log("us", topic).latest_version())
    claims, before = far.tables("eu").journal(OWNERS).table.latest_version(), s3.counts()
    again = _pass(far, topic)
    assert (s3.counts() - before).total() <= 30
    assert (again.state, again.replicated, again.source_version) == (State.STOPPED, 0, first.source_version)
    assert far.tables("eu").journal(OWNERS).table.latest_version() == claims
    far.publish(25, topic)
    assert _pass(far, topic).replicated == 15
    assert far.log("eu", topic).snapshot() is not None
    claims = far.tables("eu").journal(OWNERS).table.latest_version()
    set_property(far.log("eu", topic), "geo.test", "somebody was here")
    assert _pass(far, topic).replicated == 0
    assert far.tables("eu").journal(OWNERS).table.latest_version() > claims, "a start looks at what came into the target"


def test_a_pass_in_which_one_link_has_no_news_and_another_is_someone_else_s_tells_of_both(far: Far) -> None:
    rests, taken = (Topic.parse(f"persistent://shop/both/{name}") for name in ("rests", "taken"))
    for topic in (rests, taken):
        far.publish(10, topic)
        far.replicate(topic)

    def reports() -> dict[str, State]:
        return {one.topic: one.state for one in Replicator(_no_spark, far.config, "eu", topics="persistent://shop/both/*").run()}

    assert set(reports().values()) == {State.STOPPED}
    two = far.on_host("two")
    other = TopicReplicator(two.tables("eu"), two.tables("us"), two.config, two.config.link("us", "eu"), taken)
    owned = claim(other.target, [other.runners])
    far.publish(20, taken)
    assert reports() == {str(rests): State.STOPPED, str(taken): State.DELAYED}
    release(owned)


def test_what_becomes_of_a_link_is_an_event_and_a_pass_without_news_tells_and_asks_nothing(
    far: Far, s3: S3, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(SETTING)
    topic = Topic.parse("persistent://shop/told/clicks")

    def told() -> list[tuple[str, str | None, str, Reason | None]]:
        flush_all()
        rows = [one for one in read_events(far.tables("eu"), EPOCH) if str(topic) in one.subject]
        return [(one.kind.value, one.from_state, one.to_state, one.reason_code) for one in rows]

    far.publish(10, topic)
    assert _pass(far, topic).replicated == 10
    before = s3.counts()
    assert _pass(far, topic).replicated == 0
    assert (s3.counts() - before).total() <= 30
    assert told() == []
    two = far.on_host("two")
    other = TopicReplicator(two.tables("eu"), two.tables("us"), two.config, two.config.link("us", "eu"), topic)
    owned = claim(other.target, [other.runners])
    far.publish(20, topic)
    with pytest.raises(AlreadyOwnedError):
        _pass(far, topic)
    release(owned)
    assert told() == [("LINK", None, "DELAYED", Reason.OWNED_ELSEWHERE)]
    owned = claim(other.target, [other.runners])
    report = Replicator(_no_spark, far.config, "eu", topics=str(topic), take_over=True).run()
    assert [one.state for one in report] == [State.STOPPED]
    kinds = {kind: (code, to_state) for kind, _, to_state, code in told()}
    assert kinds["OWNER"] == (Reason.TAKEN_OVER, str(far.tables("eu").me))
    flush_all()
    before = s3.counts()
    flush_all()
    assert (s3.counts() - before).total() == 0
    for ownership in owned:
        ownership.abandon()


def test_a_link_that_fails_and_messages_that_are_gone_are_events_and_its_row_says_since_when(
    far: Far, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(SETTING)
    topic = Topic.parse("persistent://shop/told/lost")
    for end in (10, 20):
        far.publish(end, topic)
        assert _pass(far, topic).replicated == 10
    log = far.log("us", topic).log_folder
    assert log is not None
    for name in log.names():
        if name.startswith(commit_file(2).partition(".")[0]):
            (log / name).delete()
    forget_committed(log)
    assert _pass(far, topic).state is State.FAILED
    flush_all()
    told = [one for one in read_events(far.tables("eu"), EPOCH) if one.topic == str(topic)]
    assert {(one.kind.value, one.to_state, one.reason_code) for one in told} == {
        ("GAP", "lost", Reason.SOURCE_ROWS_GONE),
        ("LINK", "FAILED", Reason.SOURCE_RESTORED),
    }
    row = read_links(far.tables("eu"))["us", str(topic)]
    assert (row.state, row.reason_code) == (State.FAILED, Reason.SOURCE_RESTORED)
    assert row.state_since is not None
    assert abs(in_us(row.state_since) - now_us()) < 60 * 1_000_000
    assert _pass(far, topic).state is State.FAILED
    assert read_links(far.tables("eu"))["us", str(topic)].state_since == row.state_since


def test_a_row_of_a_link_that_could_not_be_recorded_is_due_again_and_else_it_rests(far: Far, s3: S3) -> None:
    topic = Topic.parse("persistent://shop/web/unrecorded")
    far.publish(10, topic)
    link = TopicReplicator(far.tables("eu"), far.tables("us"), far.config, far.config.link("us", "eu"), topic)
    ensure_topic(link.target, topic)
    (ownership,) = claim(link.target, [link.runners])
    running = link.prepare(ownership, None)
    assert running is not None
    running.run_turns(lambda: False)
    due = running.progressed(State.RUNNING)
    assert due is not None
    assert running.progressed(State.RUNNING) == due
    link.row.append(due)
    assert running.progressed(State.RUNNING) is None
    before = s3.counts()
    assert running.progressed(State.RUNNING) is None
    assert not (s3.counts() - before).total()
    release([ownership])


def test_a_commit_of_a_producer_that_runs_is_five_requests_and_what_it_records_now_and_then_is_eight(far: Far, s3: S3) -> None:
    writer = far.producer(Topic.parse("persistent://shop/web/runs"))
    assert far.append(writer, 300) == 300
    before = s3.counts()
    for end in (600, 900, 1_200):
        assert far.append(writer, end) == 300
        writer.record_ends_if_due()
    assert (s3.counts() - before).total() == 15
    writer.record_ends()
    assert (s3.counts() - before).total() <= 23
    writer.close()


def test_a_consumer_looks_for_acknowledgements_where_that_is_a_request_as_often_as_for_messages() -> None:
    found = [look_every_s(1.0, every_s) for every_s in ([5.0], [0.2], [5.0, 2.0], [3_600.0])]
    assert found == [5.0, 1.0, 2.0, 5.0], "a reset is heard in any case"
    assert (look_every_s(10.0, [5.0]), look_every_s(0.0, [5.0])) == (10.0, 0.1), "a catalog's history, a local disk"


def _tokens(journal: Journal) -> dict[str, tuple[int, str]]:
    return {one.runner: (one.generation, one.state) for one in journal.read(Owner)}


def test_a_system_table_is_kept_small_without_spark(s3: S3, tmp_path: Path) -> None:
    far = Far.made(s3, tmp_path)
    journal, other = far.tables("us").journal(OWNERS), far.tables("us").journal(OWNERS)
    for number in range(4):
        journal.append([owner("a", number), owner("b", 9 - number)])
    other.append([owner("c", 1)])
    assert (upkeep.count_files(journal), upkeep.clean(journal, dry_run=True), upkeep.count_files(journal)) == (5, 6, 5)
    assert upkeep.clean(journal) == 6
    assert (upkeep.count_files(journal), _tokens(journal), _tokens(other)) == (
        1,
        _tokens(other),
        {"a": (3, OWNED), "b": (9, OWNED), "c": (1, OWNED)},
    )
    log = journal.table.log_folder
    assert log is not None
    (log / checksum_file(journal.table.latest_version())).delete()
    assert upkeep.count_files(journal) == 1, "also while a writer is between its commit and its checksum, or died there"
    assert upkeep.clean(journal, ~Among("runner", frozenset({"a"}))) == 1
    assert _tokens(other).keys() == {"b", "c"}
    assert upkeep.clean(journal) == 0
    assert upkeep.clean(journal, Among("runner", frozenset({"nobody"}))) == 2
    assert (upkeep.count_files(journal), journal.newest()) == (0, [])
    journal.append([owner("d", 1)])
    assert _tokens(other).keys() == {"d"}


def test_a_process_that_writes_nothing_keeps_house_each_hour(s3: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    far = Far.made(s3, tmp_path)
    journal = far.tables("us").journal(OWNERS)
    journal.append([owner("a", 1)])
    house = HousekeepingThread(far.tables("us"), far.config)
    house.stop()
    assert not house.is_due()
    journal.append([owner("a", 2)])
    assert house.is_due()
    house.round()
    assert not house.is_due()
    monkeypatch.setattr(timetable, "IDLE_HOUSE_ROUND_S", 0.0)
    assert house.is_due()


def test_a_system_table_that_grows_by_this_process_s_own_commits_is_kept_small_at_the_next_look(s3: S3, tmp_path: Path) -> None:
    far = Far.made(s3, tmp_path)
    tables = far.tables("us")
    journal, house = tables.journal(OWNERS), HousekeepingThread(tables, far.config)
    house.stop()
    for number in range(FILES):
        journal.append([owner("a", number)])
    before = s3.counts()
    house.keep_grown()
    assert not (s3.counts() - before).total()
    journal.append([owner("a", FILES)])
    ended = Far(far.path)
    ended._me = replace(far._me, started="0")
    sign(ended.tables("us"), 0)
    assert ended.tables("us").me.name < tables.me.name, "it would have the turn if it lived"
    house.keep_grown()
    assert (upkeep.count_files(journal), _tokens(journal)["a"][0]) == (1, FILES)
    sign(far.on_host("0").tables("us"), 0)
    for number in range(1, FILES_OF_WRITERS):
        journal.append([owner("a", FILES + number)])
    house.keep_grown()
    assert upkeep.count_files(journal) == FILES_OF_WRITERS, "it is another's turn"
    journal.append([owner("a", FILES + FILES_OF_WRITERS)])
    house.keep_grown()
    assert upkeep.count_files(journal) == 1, "who may write nothing"
    before = s3.counts()
    house.keep_grown()
    assert not (s3.counts() - before).total()


def test_what_is_asked_again_and_again_may_be_old_but_for_what_this_process_wrote(s3: S3, tmp_path: Path) -> None:
    far = Far.made(s3, tmp_path)
    journal, other = far.tables("us").journal(OWNERS), far.on_host("two").tables("us").journal(OWNERS)
    missing = far.tables("us").journal(PROCESSES)
    other.append([owner("a", 1)])
    assert not missing.exists()
    assert _tokens(journal).keys() == {"a"}
    with may_be_old(60):
        assert not missing.exists()
        before = s3.counts()
        assert (set(_tokens(journal)), missing.exists()) == ({"a"}, False)
        assert not (s3.counts() - before).total()
        journal.append([owner("b", 1)])
        assert _tokens(journal).keys() == {"a", "b"}
    journal.append([owner("b", 2)])
    assert _tokens(journal)["b"][0] == 2
    assert _tokens(far.tables("us").journal(OWNERS))["b"][0] == 2


def test_what_was_found_before_somebody_wrote_is_looked_for_again(s3: S3, tmp_path: Path) -> None:
    journal = Far.made(s3, tmp_path).tables("us").journal(OWNERS)
    folder = journal.table.log_folder
    assert folder is not None
    other = Journal(opened_on(s3, folder.parent), OWNERS)
    other.append([owner("a", 1)])
    assert journal.exists()
    other.append([owner("b", 1)])
    with may_be_old(60):
        assert _tokens(journal).keys() == {"a"}, "as it was found"
    assert _tokens(journal).keys() == {"a", "b"}


def test_who_publishes_again_asks_for_nothing_twice(far: Far, s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    """A claim with its fence, what the producer has published, what the other region has of it, rows, and the ends: 16 of them are puts."""
    monkeypatch.setattr(held_files, "FRESH_S", 60.0)  # of a machine that is busy too
    topic = Topic.parse("persistent://shop/web/again")
    far.publish(10, topic)
    assert far.replicate(topic) == 10
    far.publish(20, topic)
    before = s3.counts()
    assert far.publish(30, topic) == 10
    asked = s3.counts() - before
    assert asked["PUT"] == 16
    assert asked.total() <= 34
    tables = far.tables("us")
    assert len(tables.files.names(tables.checkpoint("fences/publish", topic.path, "p"))) == 1, (
        "those of the claims before are gone"
    )


def test_of_system_tables_that_are_not_there_nothing_is_asked_when_they_are_kept_small(s3: S3, tmp_path: Path) -> None:
    far = Far.made(s3, tmp_path)
    far.publish(10)
    tables = far.tables("us")
    keep_journals(tables, 60)
    before = s3.counts()
    keep_journals(tables, 60)
    assert (s3.counts() - before)["LIST"] == (s3.counts() - before).total() == 4, "which are there, and each of those"


def test_a_process_that_owns_something_has_one_object_that_says_when_it_lived(far: Far, s3: S3) -> None:
    tables, other = far.tables("us"), far.on_host("two").tables("us")
    assert other.me.name not in signs(tables)
    before = s3.counts()
    for _ in range(3):
        sign(other, 0)
    assert (s3.counts() - before).total() == 3
    assert abs(signs(tables)[other.me.name][0] - now_us()) < 5_000_000, "by the store's clock, whatever it was told"
    sign(tables, 0)
    assert signs(tables).keys() == {tables.me.name, other.me.name}
    forget(tables, now_us(), timedelta(minutes=1))
    assert signs(tables).keys() == {tables.me.name, other.me.name}
    forget(tables, now_us() + 3_600_000_000, timedelta(minutes=1))
    assert not signs(tables)
    assert not tables.journal(PROCESSES).exists()


def test_rows_that_a_killed_publisher_held_on_its_own_disk_go_when_they_are_old(s3: S3, tmp_path: Path) -> None:
    tables = Far.made(s3, tmp_path).tables("eu")
    held = Path(local_path(tables.run_checkpoint("held", "a/b/c", "p")) or "", "1.arrow")
    held.parent.mkdir(parents=True)
    held.write_text("rows")
    remove_held(tables, 3600.0)
    assert held.exists(), "a publisher may be writing it"
    remove_held(tables, -1.0)
    assert not held.parent.exists()


def test_who_has_many_runners_is_asked_for_once(s3: S3, tmp_path: Path) -> None:
    far = Far.made(s3, tmp_path)
    runners = [[Runner(f"r{number}", f"r/{number}", f"r.{number}")] for number in range(10)]
    owned = claim(far.on_host("two").tables("eu"), runners)
    tables = far.tables("eu")
    storage_now_us(tables)
    before = s3.counts()
    with pytest.raises(AlreadyOwnedError):
        claim(tables, runners)
    assert (s3.counts() - before)["HEAD"] <= 3
    release(owned)


def test_the_signs_of_short_runs_go_with_a_later_one(s3: S3, tmp_path: Path) -> None:
    far = Far.made(s3, tmp_path)
    tables, other = far.tables("us"), far.on_host("two").tables("us")
    sign(other, 0)
    s3.go_on(2 * 86_400)
    try:
        after_last_run(tables, far.config)
        wait_for_cleaning()
        assert other.me.name not in signs(tables)
    finally:
        s3.go_on(0)


def test_what_short_runs_leave_makes_the_next_pass_and_the_looks_few_requests(
    s3: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(SETTING)
    far = Far.made(s3, tmp_path, [("us", "eu")])
    topic = Topic.parse("persistent://shop/short/clicks")

    def asked(*words: str) -> Counter[str]:
        before = s3.counts()
        done = subprocess.run(
            [sys.executable, "-m", "geo", *words, "--config", str(far.path)], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return s3.counts() - before

    for end in (5, 10):
        far.publish(end, topic)
        after_last_run(far.tables("us"), far.config)
        wait_for_cleaning()
        asked(*_PASS)
    eu = far.tables("eu")
    assert eu.port is not None
    left = [name for name in eu.port.all_below(f"{eu.location}/system").files if "hand" in name]
    assert left == ["hand"], "one object, however many runs there were"
    for words in (_PASS, ("status",)):
        assert asked(*words).total() <= 30
