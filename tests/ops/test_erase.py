"""An erasure on a local disk: files written first, one commit, and a change feed that tells the erased rows alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from geo import crash
from geo.crash import CrashPoint
from geo.delta.commits import Kind
from geo.delta.local_state import own_state
from geo.ops.erase import erase
from geo.testing import dies_at
from tests.delta.logs import actions_of
from tests.test_crash_points import CHANGE_POINTS
from tests.world import TOPIC, World

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("point", CHANGE_POINTS, ids=lambda point: point.value)
def test_an_erasure_that_stops_here_changed_nothing_and_is_done_when_it_is_asked_for_again(
    linked: World, point: CrashPoint
) -> None:
    log = linked.log("us")
    before = log.latest_version(), log.read().toArrow().sort_by("entry_id").to_pylist()
    with dies_at(point):
        erase(linked.spark, linked.config, "us", TOPIC, "key = 'k7'")
    assert (log.latest_version(), log.read().toArrow().sort_by("entry_id").to_pylist()) == before
    assert erase(linked.spark, linked.config, "us", TOPIC, "key = 'k7'").messages == 2
    assert {row["entry_id"] for row in log.read().where("payload IS NULL").collect()} == {7}


def test_an_erasure_changes_the_chosen_rows_alone_beside_who_appends(linked: World) -> None:
    log, appended = linked.log("us"), list[int]()

    def append(point: CrashPoint) -> None:
        if point is CrashPoint.CHANGE_MADE and not appended:
            appended.append(1)
            linked.write("us", 20, 22)

    with crash.watched(append):
        done = erase(linked.spark, linked.config, "us", TOPIC, "key IN ('k7', 'k9') AND origin = 'us'")
    assert done.messages == 2
    (commit,) = [one for one in log.commits(0, log.latest_version()) if one.kind is Kind.ERASURE]
    assert (commit.operation, commit.metrics["numUpdatedRows"], commit.metrics["numCopiedRows"]) == ("UPDATE", 2, 18)
    rows = {(row["origin"], row["entry_id"]): row for row in log.read().collect()}
    assert len(rows) == 42
    assert {entry for (_, entry), row in rows.items() if row["payload"] is None} == {7, 9}
    assert rows["us", 7]["properties"] == {"geo.erased": "true"}
    feed = linked.spark.read.format("delta").options(
        readChangeFeed="true", startingVersion=str(commit.version), endingVersion=str(commit.version)
    )
    told = sorted((row["_change_type"], row["entry_id"], row["payload"] is None) for row in feed.load(log.name).collect())
    assert told == [(f"update_{what}", entry, what == "postimage") for what in ("postimage", "preimage") for entry in (7, 9)]
    state, detail = own_state(log), log.delta().detail().collect()[0]
    assert state is not None
    assert (state.checksum["numFiles"], state.checksum["tableSizeBytes"]) == (detail["numFiles"], detail["sizeInBytes"])
    told_in = [feed["path"] for feed in actions_of(log, commit.version, "cdc")]
    assert {path.parts[0] for path in map(Path, told_in)} == {"_change_data"}
    assert all((Path(log.name) / path).exists() for path in told_in)
    linked.replicate("eu")
    assert len(linked.arrived("eu")) == 22
