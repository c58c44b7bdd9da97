"""An erasure on a local disk: files written first, one commit, and a change feed that tells the erased rows alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from geo import crash
from geo.crash import CrashPoint
from geo.ops.erase import erase
from geo.tables.commits import Kind
from tests.world import TOPIC, World

pytestmark = pytest.mark.spark


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
    state, detail = log.own_state(), log.delta().detail().collect()[0]
    assert state is not None
    assert (state.checksum["numFiles"], state.checksum["tableSizeBytes"]) == (detail["numFiles"], detail["sizeInBytes"])
    assert log.log_folder is not None
    lines = (log.log_folder / f"{commit.version:020}.json").read_text().splitlines()
    told_in = [json.loads(line)["cdc"]["path"] for line in lines if line.startswith('{"cdc"')]
    assert {path.parts[0] for path in map(Path, told_in)} == {"_change_data"}
    assert all((Path(log.name) / path).exists() for path in told_in)
    linked.replicate("eu")
    assert len(linked.arrived("eu")) == 22
