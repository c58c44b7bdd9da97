"""Regions that somebody looks at: what that asks of an object store, and that what runners have at hand is taken for nothing that is not so now."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from geo.coordination.signs import sign
from geo.delta.commits import commit_file
from geo.delta.writer import forget_committed
from geo.log.topics import ensure_topic
from geo.names import ALL_TOPICS, Topic
from geo.now import now_us
from geo.replication.link_requests import Action
from geo.replication.link_status import link_statuses
from geo.replication.request_table import ask
from tests.far import Far
from tests.object_store import ObjectStore as S3

pytestmark = pytest.mark.slow

TOPICS = [Topic.parse(f"persistent://shop/web/orders-{at}") for at in range(10)]

_RAN = "from geo.delta import object_store; object_store.FRESH_S = 60.0; from geo.cli.main import main; raise SystemExit(main())"
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


def test_ten_topics_at_rest_are_at_most_thirty_requests_and_what_changed_since_is_found(s3: S3, tmp_path: Path) -> None:
    far = Far.made(s3, tmp_path, [("us", "eu"), ("eu", "us")])
    first, new, rewound, regrown, remade, paused = TOPICS[:6]
    for end in (10, 20):
        far.publish(end, first)
        assert far.replicate(first) == 10
        assert far.replicate(first, "eu", "us") == 0
    far.copy(first, TOPICS[1:])
    regions = {name: far.tables(name) for name in ("us", "eu")}
    for tables in regions.values():  # as who runs the links does
        assert {one.in_sync for one in link_statuses(tables, regions, far.config, ALL_TOPICS)} == {True}
    for tables in regions.values():
        sign(tables, now_us())

    for verb in (("status",), ("links", "status")):
        code, said, asked = _look(far, s3, *verb)
        assert code == 0, said
        assert set(asked) <= {"GET", "HEAD", "LIST"}
        assert asked.total() <= 30, asked  # 24: of each log a list, of each region one more, and a sign of life
    links = _look(far, s3, "status")[1]["links"]
    assert [(one["topics"], one["lag"]["messages"], one["lag"]["complete"]) for one in links] == [(10, 0, True)] * 2

    far.publish(30, new)
    newest = far.log("us", rewound).latest_version()
    _put_back(far, "us", rewound, newest - 1)
    _put_back(far, "eu", regrown, far.log("eu", regrown).latest_version() - 1)
    far.log("eu", regrown).set_property("geo.test", "it has grown since")
    port = regions["us"].port
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
