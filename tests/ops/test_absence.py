"""What should be there and is not: every verb that looks names it, with exit code 1."""

from __future__ import annotations

import json
import shutil
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from geo.cli.main import main
from geo.log.topics import create_topic, registered_topics
from geo.names import Topic
from geo.now import now_us
from geo.ops.verify import verify
from geo.schemas import LINKS, TOPICS
from geo.streams.life import State
from tests.world import TOPIC, World

pytestmark = pytest.mark.spark

OTHER = Topic.parse("persistent://shop/web/other")


class Verbs:
    """Verbs as a user types them, on one world."""

    def __init__(self, world: World, capsys: pytest.CaptureFixture[str]) -> None:
        self._world, self._capsys = world, capsys

    def __call__(self, *args: str) -> tuple[int, Any]:
        """Exit code and JSON."""
        self._capsys.readouterr()
        code = main([*args, "--config", str(self._world.path), "-o", "json"])
        return code, json.loads(self._capsys.readouterr().out)

    def findings(self) -> dict[str, str]:
        """What each verb that looks says, where its exit code is 1."""
        found = {}
        for verb in (("doctor",), ("topics",), ("links", "status"), ("verify", "--quick")):
            engine = () if verb[0] == "doctor" else ("--engine", "native")
            code, said = self(*verb, *engine)
            assert code in (0, 1), (verb, said)
            if code:
                found[" ".join(verb)] = json.dumps(said)
        return found


@pytest.fixture
def verbs(world: World, capsys: pytest.CaptureFixture[str]) -> Verbs:
    return Verbs(world, capsys)


def _with_older_registry(world: World, cluster: str) -> Path:
    """The registry of a cluster as it is before it gets TOPIC."""
    create_topic(world.tables(cluster), OTHER)
    older = world.folder / f"older-{cluster}"
    shutil.copytree(world.folder / cluster / "system" / "topics", older)
    return older


def _put_back(world: World, cluster: str, older: Path) -> None:
    there = world.folder / cluster / "system" / "topics"
    shutil.rmtree(there)
    shutil.copytree(older, there)


def test_a_topic_that_the_registry_lost_is_named_carried_and_registered_by_publishing(world: World, verbs: Verbs) -> None:
    older = _with_older_registry(world, "us")
    world.publish("us", 5)
    world.replicate("eu")
    world.publish("us", 10)
    assert verbs.findings() == {}
    _put_back(world, "us", older)

    found = verbs.findings()
    assert set(found) == {"doctor", "topics", "links status", "verify --quick"}
    assert all("lacks it" in said and str(TOPIC) in said and "registers it again" in said for said in found.values())
    (status,) = [one for one in verbs("links", "status")[1] if (one["topic"], one["link"]) == (str(TOPIC), "us->eu")]
    assert (status["lag_messages"], status["in_sync"]) == (5, True)

    (report,) = [one for one in world.replicate("eu") if one.topic == str(TOPIC)]
    assert (report.state, report.replicated) == (State.STOPPED, 5), "a link that finds its log carries it"
    assert str(TOPIC) not in map(str, (one.topic for one in registered_topics(world.tables("us")))), "a link writes no source"

    world.publish("us", 12)
    assert [one.topic for one in registered_topics(world.tables("us"))] == [TOPIC, OTHER]
    world.replicate("eu")
    assert verbs.findings() == {}
    world.assert_clean()


def test_a_link_registers_what_the_registry_of_its_target_lost(world: World, verbs: Verbs) -> None:
    older = _with_older_registry(world, "eu")
    world.publish("us", 5)
    world.replicate("eu")
    _put_back(world, "eu", older)
    assert set(verbs.findings()) == {"doctor", "topics", "links status", "verify --quick"}
    world.replicate("eu")
    assert [one.topic for one in registered_topics(world.tables("eu"))] == [TOPIC, OTHER]
    assert verbs.findings() == {}


def test_a_topic_that_never_crossed_and_that_the_registry_lost_is_found_by_its_folder(world: World, verbs: Verbs) -> None:
    older = _with_older_registry(world, "us")
    world.publish("us", 5)
    _put_back(world, "us", older)
    assert set(verbs.findings()) == {"doctor", "topics", "links status", "verify --quick"}
    assert (str(TOPIC), 5) in {(report.topic, report.replicated) for report in world.replicate("eu")}


def test_a_log_that_is_gone_is_named(world: World, verbs: Verbs) -> None:
    world.publish("us", 5)
    world.replicate("eu")
    (world.folder / "us" / "topics" / TOPIC.path).rename(world.folder / "log-away")
    found = verbs.findings()
    assert set(found) == {"doctor", "topics", "links status", "verify --quick"}
    assert all("Put it back" in said for said in found.values())
    (row,) = [one for one in verbs("topics")[1] if one["cluster"] == "us"]
    assert (row["messages"], row["version"]) == (None, None), "unknown is not 0"


def test_a_region_that_was_moved_away_is_named(world: World, verbs: Verbs, capsys: pytest.CaptureFixture[str]) -> None:
    world.publish("us", 5)
    world.replicate("eu")
    (world.folder / "us").rename(world.folder / "us-away")
    found = verbs.findings()
    assert set(found) == {"doctor", "topics", "links status", "verify --quick"}
    assert all("replicated from it" in said or "registry" in said for said in found.values())
    assert verbs("links", "list")[0] == 1
    code, said = verbs("subscriptions", "status", "--topic", str(TOPIC), "--subscription", "s", "--engine", "native")
    assert code == 1
    assert any("replicated from it" in str(one) for one in said)
    world.path.write_text(world.path.read_text() + "placement: {}\n")
    for noun in ("brokers", "bundles"):
        assert main([noun, "list", "--cluster", "us", "--config", str(world.path), "--engine", "native"]) == 1
        assert "replicated from it" in capsys.readouterr().err


def test_the_target_of_a_one_way_link_that_was_moved_away_is_named(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    world = World(tmp_path, links=[("us", "eu")], spark=spark)
    verbs = Verbs(world, capsys)
    world.publish("us", 5)
    world.replicate("eu")
    registry = world.tables("us").journal(TOPICS)
    (row,) = registry.newest(topic=str(TOPIC))
    an_hour_ago = row["created_at"] - timedelta(hours=1)
    registry.append([{**row, "created_at": an_hour_ago, "sequence": row["sequence"] + 1}])
    assert verbs.findings() == {}
    (world.folder / "eu").rename(world.folder / "eu-away")
    found = verbs.findings()
    assert {"links status", "verify --quick"} <= set(found)
    assert all("geo replicate --cluster eu" in said or "folder" in said for said in found.values())
    (world.folder / "eu").mkdir()  # a volume that is not mounted
    found = verbs.findings()
    assert {"links status", "verify --quick"} <= set(found)
    assert all("it was moved away" in said and "put its folder back" in said for said in found.values())


def test_a_failed_link_is_not_in_sync_and_has_exit_code_1(world: World, verbs: Verbs) -> None:
    world.publish("us", 5)
    world.replicate("eu")
    world.publish("us", 10)
    world.log("us").delta().update("entry_id = 9", {"key": F.lit("other")})
    assert {report.state for report in world.replicate("eu")} == {State.FAILED}
    found = verbs.findings()
    assert set(found) == {"doctor", "topics", "links status", "verify --quick"}
    of_topics = {one["cluster"]: one["failed_links"] for one in verbs("topics")[1]}
    assert (of_topics["us"], [one["link"] for one in of_topics["eu"]]) == ([], ["us->eu"]), "beside the topic, not among topics"
    (status,) = [one for one in verbs("links", "status")[1] if one["link"] == "us->eu"]
    assert (status["in_sync"], status["lag_messages"]) == (False, None), "nobody knows how many an UPDATE changes"
    assert verbs("links", "list")[0] == 1


def test_what_is_due_for_longer_than_its_link_explains_is_no_longer_in_flight(
    world: World, verbs: Verbs, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.publish("us", 5)
    world.replicate("eu")
    world.publish("us", 10)
    links = world.tables("eu").journal(LINKS)
    (row,) = links.newest(source="us", topic=str(TOPIC))
    links.append([{**row, "state": "RUNNING", "sequence": row["sequence"] + 1}])
    assert verbs("verify", "--quick")[0] == 0
    in_an_hour = now_us() + 3600 * 1_000_000
    monkeypatch.setattr(verify, "checked_now", lambda clusters: in_an_hour)
    for verb in (("verify", "--quick"), ("verify",)):
        code, said = verbs(*verb)
        assert (code, said["totals"]["in_flight"]) == (1, 5), verb
        (fault,) = said["faults"]
        assert "5 messages in flight since before" in fault
        assert "it is RUNNING" in fault
