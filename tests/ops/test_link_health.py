"""How links are doing by real tables, of two regions on an S3 API: what is read for it, and what `geo links status` says. Spark is never started."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from geo.cli.main import main
from geo.config.model import Config
from geo.coordination.claiming import claim
from geo.coordination.ownership import release
from geo.log.ledger_writer import LedgerWriter
from geo.log.topics import ensure_topic
from geo.names import Topic
from geo.now import now_us
from geo.ops.health import Health
from geo.ops.link_health import link_findings
from geo.reasons import Reason
from geo.replication.link_requests import Action
from geo.replication.link_status import link_statuses
from geo.replication.request_table import ask
from geo.replication.topic_replicator import TopicReplicator
from tests.far import Far
from tests.object_store import ObjectStore as S3

pytestmark = pytest.mark.slow

AGO_S = 240
"""By how much a producer's clock is late here: less than a clock may be."""

Typed = Callable[[str], tuple[int, Any]]


@pytest.fixture(scope="module")
def far(s3: S3, tmp_path_factory: pytest.TempPathFactory) -> Far:
    return Far.made(s3, tmp_path_factory.mktemp("health"))


@pytest.fixture
def topic(far: Far, request: pytest.FixtureRequest) -> Topic:
    """One of its own for each test, of which ten messages crossed."""
    made = Topic.parse(f"persistent://shop/{request.node.name[5:25].replace('_', '-')}/clicks")
    publish_long_ago(far, 10, made)
    far.replicate(made)
    return made


@pytest.fixture
def typed(far: Far, topic: Topic, capsys: pytest.CaptureFixture[str]) -> Typed:
    def typed(command: str) -> tuple[int, Any]:
        """Exit code and JSON."""
        capsys.readouterr()
        more = ["--topic", str(topic), "--config", str(far.path), "--engine", "native", "-o", "json"]
        code = main(["links", "status", *command.split(), *more])
        return code, json.loads(capsys.readouterr().out)

    return typed


def publish_long_ago(far: Far, end: int, topic: Topic) -> None:
    tables = far.tables("us")
    ensure_topic(tables, topic)
    writer = LedgerWriter(
        tables, far.config, topic, "p", tables.log(topic), clock=lambda: now_us() - AGO_S * 1_000_000, take_over=False
    )
    far.append(writer, end)
    writer.close()


def _asked(s3: S3, far: Far, glob: object, look: Callable[[Any, Any, Config, str], Any]) -> tuple[int, list[Any]]:
    """How many requests a look at some topics takes, and what it finds."""
    clusters, before = {name: far.tables(name) for name in ("us", "eu")}, sum(s3.counts().values())
    found = list(look(clusters["eu"], clusters, far.config, str(glob)))
    return sum(s3.counts().values()) - before, found


def test_of_what_is_in_sync_nothing_is_read_beside_its_status(s3: S3, far: Far, topic: Topic) -> None:
    _asked(s3, far, topic, link_statuses)
    requests, _ = _asked(s3, far, topic, link_statuses)
    with_findings, [(_, found, history)] = _asked(s3, far, topic, link_findings)
    assert with_findings == requests
    assert (found.health, found.code, history) == (Health.OK, None, None)


def test_of_many_that_nobody_runs_owners_are_read_once(s3: S3, far: Far, topic: Topic) -> None:
    for one in (topic, Topic.parse(f"{topic}-too")):
        publish_long_ago(far, 20, one)
    _asked(s3, far, f"{topic}*", link_statuses)
    requests, _ = _asked(s3, far, f"{topic}*", link_statuses)
    with_findings, found = _asked(s3, far, f"{topic}*", link_findings)
    assert [(how.health, how.code) for _, how, _ in found] == [
        (Health.STOPPED, Reason.NO_OWNER),
        (Health.STOPPED, Reason.NEVER_RAN),
    ]
    assert with_findings - requests <= 15
    status, _, history = found[0]
    assert history is not None
    now = history.at(now_us())
    assert now is not None
    assert status.lag is not None
    assert (now.lag.messages, now.lag.versions, now.cursor) == (status.lag.messages, status.lag.versions, status.at)


def test_of_many_commits_that_are_lacking_the_oldest_are_read_and_the_lag_is_a_lower_bound(
    far: Far, topic: Topic, typed: Typed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("geo.replication.link_status.REMOTE_COMMITS", 2)
    for end in (20, 30):
        publish_long_ago(far, end, topic)
    _, (exact,) = typed("")
    publish_long_ago(far, 40, topic)
    code, (told,) = typed("")
    assert (code, told["lag_messages"], told["lag_complete"], told["lag_versions"]) == (1, 20, False, 3)
    assert exact["lag_complete"]
    assert told["lag_seconds"] >= exact["lag_seconds"], "the oldest is the same"


def test_what_is_stopped_is_told_with_since_verb_and_exit_code(far: Far, topic: Topic, typed: Typed) -> None:
    assert typed("")[0] == 0
    publish_long_ago(far, 20, topic)
    code, (told,) = typed("")
    assert (code, told["lag_messages"]) == (1, 10)
    found = told["finding"]
    assert (found["health"], found["code"], found["level"]) == ("STOPPED", "NO_OWNER", "error")
    assert found["do"] == f"geo replicate --config {far.config.path} --cluster eu"
    assert found["since"] is not None
    far.replicate(topic)
    code, (told,) = typed("")
    assert (code, told["finding"]["health"], told["finding"]["level"]) == (0, "OK", "ok")


def test_a_log_that_is_gone_in_the_target_is_away_though_its_next_start_would_bring_all(
    far: Far, topic: Topic, typed: Typed
) -> None:
    log, port = far.log("eu", topic).log_folder, far.tables("eu").port
    assert log is not None
    assert port is not None
    port.delete_all([str(log / name) for name in log.names()])
    code, (told,) = typed("")
    assert (code, told["finding"]["health"], told["finding"]["code"]) == (1, "AWAY", "TARGET_GONE")
    assert told["finding"]["do"].startswith("Put it back.")


def test_a_rest_is_fine_for_a_day_and_no_lag_is_too_much_for_it_but_one_that_is_asked_for(
    far: Far, topic: Topic, typed: Typed
) -> None:
    publish_long_ago(far, 20, topic)
    ask(far.tables("eu"), "us", str(topic), Action.PAUSE)
    code, (told,) = typed("")
    assert (code, told["finding"]["health"], told["finding"]["level"]) == (0, "PAUSED", "ok")
    assert told["finding"]["since"] is not None, "when it was asked to"
    assert typed("--max-lag 1h")[0] == 0
    assert typed("--max-lag 60s")[0] == 1


def test_an_owner_that_lives_has_time_to_take_it_up_and_a_schedule_excuses(far: Far, topic: Topic, typed: Typed) -> None:
    publish_long_ago(far, 20, topic)
    link = TopicReplicator(far.tables("eu"), far.tables("us"), far.config, far.config.link("us", "eu"), topic)
    (owned,) = claim(link.target, [link.runners])
    code, (told,) = typed("")
    assert (code, told["finding"]["health"], told["finding"]["code"]) == (0, "CATCHING_UP", None), (
        "it lacked nothing some minutes ago"
    )
    release([owned])
    owned.abandon()
    assert typed("")[0] == 1
    without = far.path.read_text()
    far.path.write_text(without.replace("source: us,", "source: us, expect_every: 10m,"))
    code, (told,) = typed("")
    far.path.write_text(without)
    assert (code, told["finding"]["health"]) == (0, "CATCHING_UP")
