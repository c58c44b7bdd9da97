"""A producer that goes on in another region (`--continue-from`), on real tables, with JSON lines: each line once, and loud where
nobody can tell. Kafka's offsets: sources/test_kafka_failover.py; there and back, and a region that is lost: scenarios/a-producer-moves.txt."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

import pytest

from geo.crash import CrashPoint
from geo.errors import AlreadyOwnedError, UsageError
from geo.log.failing_over import By
from geo.log.publish import PublishOptions, publish_json_lines
from geo.log.publish_stream import SourceStream
from geo.testing import dies_at
from tests.world import TOPIC, World

pytestmark = pytest.mark.spark


def _add(path: Path, first: int, end: int) -> None:
    with path.open("a") as file:
        file.writelines(f'{{"key": "{number}"}}\n' for number in range(first, end))


def _publish(world: World, cluster: str, path: Path, other: str | None = None) -> SourceStream:
    return world.publish_lines(cluster, path, producer="p", continue_from=other)


def _keys(world: World, origin: str) -> list[int]:
    """What the producer of a region published, in its order."""
    found = sorted(one for one in world.messages(origin) if one[0] == origin)
    return [int(world.messages(origin)[one]["key"]) for one in found]


@pytest.fixture
def lines(world: World) -> Path:
    """A file of which eu published 200 lines, and that has 100 more."""
    path = world.folder / "in.jsonl"
    _add(path, 0, 200)
    _publish(world, "eu", path)
    _add(path, 200, 300)
    return path


def test_the_first_messages_after_a_switch_are_all_there_once(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """Of the 200 lines that the other region published 150 have arrived."""
    path = world.folder / "in.jsonl"
    _add(path, 0, 150)
    _publish(world, "eu", path)
    world.replicate("us")
    _add(path, 150, 200)
    _publish(world, "eu", path)
    size = path.stat().st_size
    _add(path, 200, 300)
    before = world.versions()["eu"]
    with caplog.at_level(logging.INFO, "geo"):
        stream = _publish(world, "us", path, "eu")
    assert _keys(world, "us") == list(range(200, 300))
    (one,) = stream.continued
    assert (one.source, one.place[:2], one.by, one.may_repeat) == (str(path), [size, 200], By.RECORDED, False)
    assert (
        f"goes on where it stood in eu: {path} from line 201 (by the records of eu). Nothing is published again." in caplog.text
    )
    assert world.versions()["eu"] == before, "nothing was written there"
    for target in ("us", "eu"):
        world.replicate(target)
    world.assert_clean()
    assert sorted(int(row["key"]) for row in world.messages("us").values()) == list(range(300))


def test_what_was_read_and_not_published_is_not_reported_again(world: World) -> None:
    path = world.folder / "in.jsonl"
    path.write_text('{"key": "0"}\n\nno line\n')
    assert _publish(world, "eu", path).published.rejected == 1
    path.write_text('{"key": "0"}\n\nno line\n\nno line either\n')
    assert _publish(world, "eu", path).published.rejected == 1
    _add(path, 1, 2)
    done = _publish(world, "us", path, "eu").published
    assert (done.rows, done.rejected) == (1, 0)


@pytest.mark.parametrize("point", [p for p in CrashPoint if p.value.startswith("publish-")], ids=lambda p: p.value)
def test_a_switch_that_stops_here_goes_on_and_leaves_nothing_out(world: World, lines: Path, point: CrashPoint) -> None:
    with dies_at(point):
        _publish(world, "us", lines, "eu")
    _publish(world, "us", lines, "eu")
    assert _keys(world, "us") == list(range(200, 300))


def test_what_the_other_producer_committed_and_did_not_record_counts(world: World, lines: Path) -> None:
    with dies_at(CrashPoint.PUBLISH_AFTER_APPEND):
        _publish(world, "eu", lines)
    _add(lines, 300, 310)
    assert _publish(world, "us", lines, "eu").published.rows == 10
    assert _keys(world, "us") == list(range(300, 310))


def test_what_may_have_been_published_in_commits_that_are_gone_is_published_again(
    world: World, lines: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with dies_at(CrashPoint.PUBLISH_AFTER_APPEND):
        _publish(world, "eu", lines)
    world.clean_up("eu")
    stream = _publish(world, "us", lines, "eu")
    assert [(one.place[1], one.by, one.may_repeat) for one in stream.continued] == [(200, By.RECORDED, True)]
    assert (
        "But commits 2 to 2 of the log of eu were cleaned up, and it did not stop cleanly: what eu published from" in caplog.text
    )
    assert "what eu published from there on is published again here, and comes once more by the link from eu" in caplog.text
    assert _keys(world, "us") == list(range(200, 300))


def test_of_a_region_that_was_put_back_from_a_backup_it_is_said_that_lines_come_again(
    world: World, lines: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shutil.copytree(world.folder / "eu", world.folder / "backup")
    _publish(world, "eu", lines)
    world.replicate("us")
    shutil.rmtree(world.folder / "eu")
    (world.folder / "backup").rename(world.folder / "eu")
    stream = _publish(world, "us", lines, "eu")
    assert [(one.place[1], one.by, one.may_repeat) for one in stream.continued] == [(200, By.RECORDED, True)]
    assert (
        "ends at entry 199 there and ends at entry 299 here: it was put back from a backup: what eu published from" in caplog.text
    )
    assert _keys(world, "us") == list(range(200, 300)), "messages do not say their line"


# -- what is refused -------------------------------------------------------------------------------------------------------


def test_a_producer_that_lives_is_named_and_not_doubled(world: World, lines: Path) -> None:
    options = PublishOptions(trigger="1 second")
    running = publish_json_lines(world.spark, str(lines), TOPIC, world.config, "eu", producer="p", options=options)
    try:
        with pytest.raises(
            AlreadyOwnedError, match=rf"producer p of {TOPIC} in eu: already run by .* publish the same records twice"
        ):
            _publish(world, "us", lines, "eu")
    finally:
        running.stop()
    assert _keys(world, "us") == []
    assert _publish(world, "us", lines, "eu").published.rows == 0


def test_where_nobody_can_tell_nothing_is_published(world: World, lines: Path) -> None:
    world.log("eu").delta().restoreToVersion(0)
    with pytest.raises(
        UsageError, match=r"is a RESTORE .*: the log of eu need not hold what is recorded of it, and messages do not say the file"
    ):
        _publish(world, "us", lines, "eu")
    (world.folder / "eu").rename(world.folder / "away")
    with pytest.raises(
        UsageError, match=r"cannot go on in us from eu: eu cannot be read .* To begin anew leave --continue-from out"
    ):
        _publish(world, "us", lines, "eu")
    assert _keys(world, "us") == []


def test_a_source_that_the_other_producer_never_read_is_refused_before_anything_is_made(world: World) -> None:
    path, other = world.folder / "in.jsonl", world.folder / "other.jsonl"
    _add(path, 0, 3)
    with pytest.raises(UsageError, match=r"eu cannot be read \(.* is not there\)"):
        _publish(world, "us", path, "eu")
    world.write("eu", 0, 1)
    with pytest.raises(UsageError, match="eu has no record of producer p"):
        _publish(world, "us", path, "eu")
    _publish(world, "eu", path)
    _add(other, 0, 3)
    with pytest.raises(UsageError, match="it has published nothing of this source in eu"):
        _publish(world, "us", other, "eu")
    with pytest.raises(UsageError, match="--continue-from us: in its own cluster"):
        _publish(world, "us", path, "us")
    with pytest.raises(UsageError, match="mars"):
        _publish(world, "us", path, "mars")
    assert not world.log("us").exists()
