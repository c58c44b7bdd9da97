"""Regions that somebody looks at: what that asks of an object store, and that what runners have at hand is taken for nothing that is not so now."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any

import pytest

from geo import asking
from geo.asking import Late
from geo.cli.main import main
from geo.cli.running import LookedAt
from geo.config import load
from geo.coordination import storage_clock
from geo.coordination.signs import sign
from geo.coordination.storage_clock import storage_now_us
from geo.delta import server_time
from geo.delta.commits import commit_file
from geo.delta.ddl import set_property
from geo.delta.held_files import as_listed
from geo.delta.mirror import may_be_old
from geo.delta.writer import forget_committed
from geo.errors import RetryableError
from geo.fleet.health_events import HealthEvents
from geo.journal.cluster import ClusterTables, without_spark
from geo.journal.events import events_of
from geo.log.topics import ensure_topic
from geo.names import ALL_TOPICS, Topic
from geo.now import now_us
from geo.ops import regions
from geo.ops.health import Health
from geo.ops.link_health import link_findings
from geo.ops.regions import OF_ALL
from geo.replication.link_requests import Action
from geo.replication.link_status import link_statuses
from geo.replication.request_table import ask
from geo.schemas import REQUESTS
from geo.testing import config_text
from tests.another_process import another_process
from tests.far import TOPIC, Far
from tests.object_store import ObjectStore as S3

TOPICS = [Topic.parse(f"persistent://shop/web/orders-{at}") for at in range(10)]


@pytest.fixture
def hanging(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A configuration of us, which has a topic, and of eu, whose store takes requests and answers none."""
    for name in ("GEO_TEST_KEY", "GEO_TEST_SECRET"):
        monkeypatch.setenv(name, "k")
    with socket.create_server(("127.0.0.1", 0)) as hangs:
        storage = {
            "aws_endpoint_url": f"http://127.0.0.1:{hangs.getsockname()[1]}", "aws_region": "eu-west-1", "aws_allow_http": "true",
            "aws_access_key_id": "secret://env/GEO_TEST_KEY", "aws_secret_access_key": "secret://env/GEO_TEST_SECRET", "timeout": "1s",
        }  # fmt: skip
        places = {"us": f"root: '{tmp_path / 'us'}'", "eu": f"root: 's3a://eu/t', storage: {json.dumps(storage)}"}
        path = tmp_path / "geo.yaml"
        path.write_text(config_text(("us", "eu"), [("us", "eu"), ("eu", "us")], place=places.__getitem__))
        ensure_topic(without_spark(load(path).cluster("us")), TOPICS[0])
        yield path


@pytest.mark.parametrize(
    "verb", [["status"], ["links", "status"], ["events"], ["explain", str(TOPICS[0])], ["topics"], ["doctor"]]
)
def test_a_region_that_hangs_holds_up_no_verb_that_looks(
    hanging: Path, verb: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(regions, "ANSWERS_S", 0.3)
    began = time.monotonic()
    assert main([*verb, "--config", str(hanging), "--engine", "native"]) == 1
    assert time.monotonic() - began < 15, "the store is given up after longer"
    assert re.search(r"eu\b.* cannot be read: eu has not answered for 0\.3 s", capsys.readouterr().out)


def test_a_region_that_hangs_is_asked_by_one_thread_however_often_somebody_looks(
    hanging: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(regions, "ANSWERS_S", 0.1)
    before, late = set(threading.enumerate()), Late()
    for _ in range(3):
        looked = LookedAt("geo status", load(hanging), "native", picture=OF_ALL, late=late)
        answers = looked.regions.ask(lambda tables: tables.cluster.name)
        assert answers["us"].result() == "us"
        assert isinstance(answers["eu"].exception(), RetryableError)
    assert _asks(before) == ["geo-asks-eu"]


def test_a_broker_asks_a_source_that_hangs_by_one_thread(hanging: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(regions, "ANSWERS_S", 0.1)
    config, before, said = load(hanging), set(threading.enumerate()), list[str]()
    watch = HealthEvents("us", events_of(without_spark(config.cluster("us"))), said.append)
    for _ in range(3):
        watch.look(config, [], regions=True)
        watch.wait(60)
    assert [one.startswith("eu: AWAY: eu cannot be read: eu has not answered") for one in said] == [True], said
    assert _asks(before) == ["geo-asks-eu"]


def _asks(before: set[threading.Thread]) -> list[str]:
    """Threads that have been asking since."""
    return [one.name for one in set(threading.enumerate()) - before if one.name.startswith("geo-asks-")]


def test_a_picture_is_of_now_and_a_link_that_goes_on_meanwhile_is_not_rewound(
    s3: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    far = Far.made(s3, tmp_path)
    far.publish(3)
    far.replicate()
    looked = LookedAt("geo status", far.config, "native", picture=OF_ALL)
    seen = looked.clusters["us"].log(TOPIC).snapshot()  # as another target's thread does first
    far.publish(6)
    assert (seen is not None, far.replicate()) == (True, 3)
    ((one, finding, _),) = link_findings(looked.clusters["eu"], looked.clusters, far.config, ALL_TOPICS)
    assert (one.rewound, one.at, one.newest, finding.health) == (None, 2, 2, Health.OK)

    def healths() -> list[Health]:
        looked = LookedAt("geo status", far.config, "native", picture=OF_ALL)
        found, _ = looked.read_each(lambda tables: link_findings(tables, looked.clusters, far.config, ALL_TOPICS))
        return [finding.health for _, finding, _ in found]

    ask(far.tables("eu"), "us", str(TOPIC), Action.PAUSE)
    assert healths() == [Health.PAUSED]
    with another_process():
        ask(far.on_host("two").tables("eu"), "us", str(TOPIC), Action.RESUME)
    assert healths() == [Health.OK]


def test_what_a_picture_read_counts_from_its_list_on(s3: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    far = Far.made(s3, tmp_path)
    far.publish(3)
    far.replicate()
    tables, other = far.tables("eu"), far.on_host("two").tables("eu")
    assert tables.port is not None
    ask(other, "us", str(TOPIC), Action.PAUSE)
    picture = [tables.port.all_below(f"{tables.cluster.root}/system")]
    began = time.monotonic()
    with may_be_old(10.0), as_listed(picture):
        assert [row["action"] for row in tables.journal(REQUESTS).newest()] == [Action.PAUSE.value]
    with another_process():
        ask(other, "us", str(TOPIC), Action.RESUME)
    with may_be_old(time.monotonic() - began):
        assert [row["action"] for row in tables.journal(REQUESTS).newest()] == [Action.RESUME.value]


def test_a_region_that_answers_is_not_away_while_it_is_asked_for_the_time_and_others_are_told_theirs(
    s3: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    far, asked, told = Far.made(s3, tmp_path), threading.Event(), threading.Event()
    far.publish(1)
    monkeypatch.setattr(storage_clock, "_held", {})  # as of a process that only looks
    answer = HTTPConnection.getresponse

    def late(connection: HTTPConnection) -> HTTPResponse:
        if not asked.is_set():
            asked.set()
            told.wait(60)
        return answer(connection)

    monkeypatch.setattr(HTTPConnection, "getresponse", late)
    monkeypatch.setattr(server_time, "ANSWER_S", 60.0)
    monkeypatch.setattr(regions, "ANSWERS_S", 5.0)
    of_us = asking.ask("us", partial(storage_now_us, far.tables("us"), writes=False))
    try:
        assert asked.wait(20)

        def read(tables: ClusterTables) -> list[str]:
            if tables.cluster.name == "eu":
                storage_now_us(tables, writes=False)
            return [tables.cluster.name]

        assert LookedAt("geo status", far.config, "native", picture=OF_ALL).read_each(read) == (["us", "eu"], [])
        assert not of_us.done()
    finally:
        told.set()
        of_us.result(60)


_RAN = "from geo.delta import held_files; held_files.FRESH_S = 60.0; from geo.cli.main import main; raise SystemExit(main())"
"""On a machine that is busy what a list told is old sooner."""


def _look(far: Far, s3: S3, *verb: str) -> tuple[int, Any, Counter[str]]:
    """Exit code, what it says, and what it asked of the store."""
    before = s3.counts()
    command = [sys.executable, "-c", _RAN, *verb, "--config", str(far.path), "--engine", "native", "-o", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stderr == "", done.stderr
    return done.returncode, json.loads(done.stdout), s3.counts() - before


def _put_back(far: Far, region: str, topic: Topic, version: int) -> None:
    """An older copy of a log, and what this process remembers of it is forgotten."""
    log = far.log(region, topic).log_folder
    assert log is not None
    for name in log.names():
        if name > commit_file(version).replace(".json", ".zzz"):
            (log / name).delete()
    forget_committed(log)


@pytest.mark.slow
def test_ten_topics_at_rest_are_at_most_thirty_requests_and_what_changed_since_is_found(s3: S3, tmp_path: Path) -> None:
    far = Far.made(s3, tmp_path, [("us", "eu"), ("eu", "us")])
    first, new, rewound, regrown, remade, paused = TOPICS[:6]
    for end in (10, 20):
        far.publish(end, first)
        assert far.replicate(first) == 10
        assert far.replicate(first, "eu", "us") == 0
    far.copy(first, TOPICS[1:])
    there = {name: far.tables(name) for name in ("us", "eu")}
    for tables in there.values():  # as who runs the links does
        assert {one.in_sync for one in link_statuses(tables, there, far.config, ALL_TOPICS)} == {True}
    for tables in there.values():
        sign(tables, now_us())

    for verb in (("status",), ("links", "status")):
        code, said, asked = _look(far, s3, *verb)
        assert code == 0, said
        assert set(asked) <= {"GET", "HEAD", "LIST"}
        assert asked.total() <= 30, asked  # 26: a list of each log, of each region one more, a sign of life, and its time
    s3.go_on(400)
    try:
        _, said, asked = _look(far, s3, "status")
    finally:
        s3.go_on(0)
    assert asked.total() <= 30, asked
    lags = [(one["topics"], one["lag"]["messages"], one["lag"]["complete"]) for one in said["links"]]
    assert lags == [(10, 0, True)] * 2
    assert [one["published_per_second"] for one in said["clusters"]] == [0.0, 0.0]

    far.publish(30, new)
    newest = far.log("us", rewound).latest_version()
    _put_back(far, "us", rewound, newest - 1)
    _put_back(far, "eu", regrown, far.log("eu", regrown).latest_version() - 1)
    set_property(far.log("eu", regrown), "geo.test", "it has grown since")
    port = there["us"].port
    assert port is not None
    port.delete_all([f"{far.log('us', remade).name}/{file}" for file in port.below(far.log("us", remade).name)])
    ensure_topic(far.tables("us"), remade)
    ask(far.tables("eu"), "us", str(paused), Action.PAUSE)
    code, said, _ = _look(far, s3, "links", "status")
    assert code == 1
    found = {(one["link"], Topic.parse(one["topic"])): one["finding"]["health"] for one in said}
    assert [(one["link"], one["lag_messages"]) for one in said if one["topic"] == str(new)] == [("eu->us", 0), ("us->eu", 30)]
    assert {one: health for one, health in found.items() if health != "OK"} == {
        ("us->eu", rewound): "REWOUND",
        ("eu->us", rewound): "REWOUND",
        ("us->eu", regrown): "REWOUND",
        ("eu->us", regrown): "REWOUND",
        ("us->eu", remade): "REWOUND",
        ("eu->us", remade): "REWOUND",
        ("us->eu", paused): "PAUSED",
    }
