"""What is noted of a cluster is written beside whoever notes it, whom nothing of it holds up. No Spark."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geo.config.cluster import Cluster
from geo.config.secret import Secret
from geo.crash import CrashPoint
from geo.delta.delta_log import newest_version
from geo.delta.disk_store import on_disk
from geo.delta.locks import table_lock
from geo.delta.process import this_process
from geo.faults import reason_of
from geo.journal import events, upkeep
from geo.journal.cluster import ClusterTables, without_spark
from geo.journal.event_rate import Event, EventKind
from geo.journal.events import KEPT, SETTING, Events, flush_all, read_events
from geo.now import utc_now
from geo.reasons import Reason
from geo.replication.link_table import read_links
from geo.schemas import EVENTS, TOPICS
from geo.streams.life import State
from geo.testing import crash_points
from geo.times import EPOCH
from tests.delta.on_s3 import cluster_on
from tests.examples import examples
from tests.object_store import KEY, SECRET
from tests.object_store import ObjectStore as S3
from tests.processes import environment


def region(cluster: Cluster) -> ClusterTables:
    """A cluster with a registry."""
    tables = without_spark(cluster)
    row = {"topic": "persistent://shop/web/clicks", "created_at": EPOCH, "typed": False, "policies": None, "sequence": 1}
    tables.journal(TOPICS).append([row])
    return tables


@pytest.fixture
def eu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ClusterTables:
    monkeypatch.delenv(SETTING)
    return region(Cluster("eu", root=str(tmp_path / "eu")))


def _read(tables: ClusterTables) -> list[Event]:
    return read_events(without_spark(tables.cluster), EPOCH)


def test_what_is_noted_can_be_read(eu: ClusterTables) -> None:
    noted = Events(eu)
    noted.note(
        EventKind.LINK,
        "us->eu clicks",
        "FAILED",
        topic="clicks",
        from_state="RUNNING",
        code=Reason.SOURCE_GONE,
        reason="it is gone",
    )
    noted.note(EventKind.OWNER, "broker of eu", "RUNNING")
    assert noted.flush()
    link, owner = _read(eu)
    assert (link.cluster, link.kind, link.subject, link.topic) == ("eu", EventKind.LINK, "us->eu clicks", "clicks")
    assert (link.from_state, link.to_state, link.reason_code, link.reason) == (
        "RUNNING",
        "FAILED",
        Reason.SOURCE_GONE,
        "it is gone",
    )
    assert timedelta() <= utc_now() - link.at < timedelta(minutes=1)
    assert (owner.kind, owner.reason_code, owner.count) == (EventKind.OWNER, None, 1)
    assert str(os.getpid()) in owner.by
    assert newest_version(on_disk(Path(eu.journal(EVENTS).table.name)) / "_delta_log") == 1, "all in one commit"


def test_ten_thousand_flaps_in_a_minute_are_some_rows_and_hold_up_nobody(eu: ClusterTables) -> None:
    noted = Events(eu)
    for number in range(10_000):
        noted.note(EventKind.LINK, "us->eu clicks", "DELAYED" if number % 2 else "RUNNING")
    assert noted.flush()
    rows = _read(eu)
    assert sum(one.count for one in rows) == 10_000
    assert len(rows) <= 2, "one, or two where a minute begins meanwhile"


@contextmanager
def _locked(eu: ClusterTables) -> Iterator[None]:
    assert eu.lock_folder is not None
    with table_lock(eu.lock_folder / "system" / "events.lock", this_process(0)):
        yield


@contextmanager
def _in_a_loop(eu: ClusterTables) -> Iterator[None]:
    folder = Path(eu.journal(EVENTS).table.name)
    kept = folder.rename(folder.with_name("kept"))
    folder.symlink_to(folder)
    yield
    folder.unlink()
    kept.rename(folder)


@contextmanager
def _full(eu: ClusterTables) -> Iterator[None]:
    folder = Path(eu.journal(EVENTS).table.name)
    kept = folder.rename(folder.with_name("kept"))
    folder.mkdir()
    if os.geteuid() or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=128k", "none", str(folder)], check=False).returncode:
        pytest.skip("no disk can be mounted here")
    try:
        shutil.copytree(kept, folder, dirs_exist_ok=True)
        with open(folder / "filler", "wb", buffering=0) as filler, suppress(OSError):
            while filler.write(b"x" * 4096):
                pass
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)
    folder.rmdir()
    kept.rename(folder)


@pytest.mark.parametrize("in_the_way", [_locked, _in_a_loop, _full])
def test_what_cannot_be_written_is_written_with_what_comes_next(
    eu: ClusterTables,
    in_the_way: Callable[[ClusterTables], AbstractContextManager[None]],
) -> None:
    noted = Events(eu)
    noted.note(EventKind.LINK, "before", "RUNNING")
    assert noted.flush()
    with in_the_way(eu):
        noted.note(EventKind.LINK, "meanwhile", "FAILED")
        assert not noted.flush()
        assert not noted.flush()
    noted.note(EventKind.LINK, "after", "RUNNING")
    assert noted.flush()
    assert [one.subject for one in _read(eu)] == ["before", "meanwhile", "after"]


def test_a_full_disk_is_told_with_its_place(eu: ClusterTables) -> None:
    noted = Events(eu)
    noted.note(EventKind.LINK, "before", "RUNNING")
    assert noted.flush()
    journal = eu.journal(EVENTS)
    with _full(eu), pytest.raises(OSError, match="No space left") as met:
        journal.append(_read(eu))
    assert str(met.value).endswith(f"'{journal.table.name}'")
    assert reason_of(met.value) is Reason.TARGET_DISK_FULL


def test_where_there_are_no_keys_nothing_is_written_and_who_notes_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SETTING)
    keys: dict[str, str | Secret] = {"aws_access_key_id": "key", "aws_secret_access_key": Secret("secret://env/GEO_NOT_SET")}
    noted = Events(without_spark(Cluster("eu", root="s3a://b/t", storage=keys)))
    for _ in range(2):
        noted.note(EventKind.LINK, "us->eu clicks", "FAILED")
        assert not noted.flush()


def test_nothing_is_made_where_the_region_is_not(eu: ClusterTables) -> None:
    noted, root = Events(eu), Path(eu.place)
    moved = root.rename(root.with_name("moved"))
    noted.note(EventKind.LINK, "us->eu clicks", "FAILED")
    assert not noted.flush()
    assert not root.exists()
    moved.rename(root)
    noted.note(EventKind.LINK, "us->eu views", "FAILED")
    assert noted.flush()
    assert len(_read(eu)) == 2


def test_nothing_is_written_into_another_cluster_that_the_configuration_calls_by_this_name(eu: ClusterTables) -> None:
    noted = Events(without_spark(replace(eu.cluster, name="us")))
    noted.note(EventKind.LINK, "eu->us clicks", "FAILED")
    assert not noted.flush()
    assert not eu.journal(EVENTS).exists()


def test_many_files_become_one_without_what_is_old(eu: ClusterTables, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "FILES", 4)
    noted, old = Events(eu), utc_now() - KEPT - timedelta(hours=1)
    noted.note(EventKind.VERB, "long ago", "pause", at=old)
    for number in range(events.FILES + 1):
        noted.note(EventKind.VERB, str(number), "pause")
        assert noted.flush()
    assert upkeep.count_files(eu.journal(EVENTS)) <= 2
    assert {one.subject for one in _read(eu)} == {str(number) for number in range(events.FILES + 1)}


def test_who_notes_gets_no_fault_of_any_kind(eu: ClusterTables, monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken:
        def __str__(self) -> str:
            raise RuntimeError("a fault of this program")

    Events(eu).note(EventKind.LINK, "us->eu", "FAILED", topic=Broken())  # type: ignore[arg-type]  # it is what is shown
    monkeypatch.setattr(events, "utc_now", lambda: 1 / 0)
    Events(eu).note(EventKind.LINK, "us->eu", "FAILED")


def test_switched_off_nothing_is_written(eu: ClusterTables, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SETTING, "off")
    noted = Events(eu)
    noted.note(EventKind.LINK, "us->eu clicks", "FAILED")
    assert noted.flush()
    assert not eu.journal(EVENTS).exists()


@settings(max_examples=examples(0.1))
@given(
    st.lists(
        st.tuples(st.text(st.characters(), max_size=40), st.text(st.characters(), max_size=40)), unique_by=lambda one: one[0]
    )
)
def test_any_text_can_be_noted_and_read(tmp_path_factory: pytest.TempPathFactory, texts: list[tuple[str, str]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv(SETTING)
        eu = region(Cluster("eu", root=str(tmp_path_factory.mktemp("texts"))))
        noted = Events(eu)
        for subject, reason in texts:
            noted.note(EventKind.LINK, subject, "FAILED", reason=reason)
        assert noted.flush()
        assert sum(one.count for one in _read(eu)) == len(texts)
        encoded = {tuple(text.encode(errors="replace").decode() for text in one) for one in texts}
        assert {(one.subject, one.reason) for one in _read(eu)} <= encoded


_KILLED = """
import sys
from geo.config.cluster import Cluster
from geo.config.secret import Secret
from geo.journal.cluster import without_spark
from geo.journal.event_rate import EventKind
from geo.journal.events import events_of
from geo.names import Topic
from geo.reasons import Reason
from geo.replication.link_row import LinkRow
from geo.streams.life import State, Why
eu = without_spark(Cluster("eu", root=sys.argv[1]))
row = LinkRow(eu, "us", Topic.parse("persistent://shop/web/clicks"), ("us",))
row.begin(None, 1)
row.append(row.failed(State.FAILED, Why("it was made again", Reason.SOURCE_RECREATED)))
events_of(eu).note(EventKind.LINK, "us->eu clicks", "FAILED", code=Reason.SOURCE_RECREATED)
events_of(eu).flush(60)
"""


@pytest.mark.slow
@pytest.mark.parametrize("point", crash_points("events-"), ids=lambda point: point.value)
def test_who_is_killed_here_has_told_the_state_and_at_most_no_event(eu: ClusterTables, point: CrashPoint) -> None:
    env = environment(GEO_CRASH=f"{point.value}:kill")
    done = subprocess.run([sys.executable, "-c", _KILLED, eu.place], env=env, check=False, start_new_session=True)
    assert done.returncode < 0
    (state,) = read_links(without_spark(eu.cluster)).values()
    assert (state.state, state.reason_code) == (State.FAILED, Reason.SOURCE_RECREATED)
    assert state.state_since is not None
    assert [one.to_state for one in _read(eu)] == (["FAILED"] if point is CrashPoint.EVENTS_AFTER_APPEND else [])


@pytest.mark.slow
def test_on_an_object_store_events_are_written_in_a_commit_and_ask_nothing_at_rest(
    s3: S3, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(SETTING)
    monkeypatch.setenv("GEO_TEST_KEY", KEY)
    monkeypatch.setenv("GEO_TEST_SECRET", SECRET)
    eu = region(cluster_on(s3, bucket))
    noted = Events(eu)
    noted.note(EventKind.LINK, "us->eu clicks", "RUNNING")
    assert noted.flush(60)
    before = s3.counts()
    for subject in ("clicks", "views", "orders"):
        noted.note(EventKind.LINK, f"us->eu {subject}", "FAILED")
    assert noted.flush(60)
    written = s3.counts()
    assert (written - before).total() <= 7
    flush_all()
    assert (s3.counts() - written).total() == 0
    assert sum(one.count for one in _read(eu)) == 4
