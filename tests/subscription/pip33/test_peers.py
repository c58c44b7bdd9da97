"""What a peer on an object store says, and since when that may be otherwise. Spark is never started."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import wait
from pathlib import Path

import pytest

from geo.delta.ddl import set_property
from geo.delta.mirror import may_be_old
from geo.log.topic_policies import set_replication_clusters
from geo.log.topics import known_topics
from geo.schemas import PROCESSES, TOPICS
from geo.streams import timetable
from geo.subscription.pip33.peers import Peer
from geo.subscription.pip33.version_sync import Versions
from geo.subscription.versions.version_subscriptions import create
from tests.another_process import another_process
from tests.far import TOPIC, Far
from tests.object_store import ObjectStore as S3

pytestmark = pytest.mark.slow


@pytest.fixture
def far(s3: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Far]:
    monkeypatch.setattr(timetable, "MARKERS_PEERS_LOOK_S", 0.0)
    far = Far.made(s3, tmp_path)
    far.publish(1)
    yield far
    s3.refuse()


def _look(peer: Peer) -> None:
    """Take the answer to the newest question, and ask again."""
    wait([peer.asked], 60)
    peer.look()


def _replicates_to(peer: Peer) -> tuple[str, ...] | None:
    return peer.said.policies[TOPIC].replication_clusters


def _said_elsewhere(far: Far, monkeypatch: pytest.MonkeyPatch, *clusters: str) -> None:
    """As another process, which shares no memory with this one, says where the topic replicates."""
    with another_process():
        set_replication_clusters(far.on_host("two").tables("us"), far.config, TOPIC, clusters)


def test_an_answer_that_was_kept_is_dated_by_when_it_was_read(far: Far, monkeypatch: pytest.MonkeyPatch) -> None:
    peer = Peer(far.tables("us"))
    _look(peer)
    assert peer.has_answered
    read_at = peer.said_at
    _said_elsewhere(far, monkeypatch, "us")
    _look(peer)
    assert (_replicates_to(peer), peer.said_at) == (None, read_at)
    monkeypatch.setattr(timetable, "REMOTE_MARKERS_PEERS_LOOK_S", 0.0)
    _look(peer)
    _look(peer)
    assert _replicates_to(peer) == ("us",)
    assert peer.said_at > read_at


def test_a_first_answer_is_not_what_others_in_this_process_have_read_lately(far: Far, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = far.tables("us")
    known_topics(tables)
    _said_elsewhere(far, monkeypatch, "us")
    with may_be_old(60):
        assert [one.replication_clusters for one in known_topics(tables)] == [None]
    peer = Peer(tables)
    _look(peer)
    assert _replicates_to(peer) == ("us",)


def test_a_subscription_that_a_peer_has_by_now_is_found_when_that_is_asked(far: Far, monkeypatch: pytest.MonkeyPatch) -> None:
    for period in ("REMOTE_VERSIONS_LOOK_S", "REMOTE_MARKERS_PEERS_LOOK_S"):
        monkeypatch.setattr(timetable, period, 0.0)
    versions = Versions(far.tables("eu"), far.config, "1 second")
    for _ in range(2):
        assert not versions.discover({}).fresh
    create(far.on_host("two").tables("us"), TOPIC, "reports")
    assert any(versions.discover({}).fresh for _ in range(5)), (
        "an answer that takes longer than is waited for is taken at the next look"
    )


def test_a_look_that_failed_is_none(far: Far, s3: S3) -> None:
    tables = far.tables("us")
    missing = tables.journal(PROCESSES)
    peer = Peer(tables)
    assert not missing.exists()
    _look(peer)
    wait([peer.asked], 60)
    read_at = peer.said_at
    set_property(tables.journal(TOPICS).table, "geo.test", "this process was here")
    s3.refuse("AccessDenied", 403, "PUT")
    with pytest.raises(PermissionError):
        missing.append([{}])
    s3.refuse("AccessDenied", 403)
    _look(peer)
    for _ in range(3):
        _look(peer)
        assert (peer.unreadable is None, peer.said_at) == (False, read_at)
        with may_be_old(60), pytest.raises(PermissionError):
            missing.exists()
    s3.refuse()
    _look(peer)
    _look(peer)
    assert peer.unreadable is None
