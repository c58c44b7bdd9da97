"""What a person may get wrong: each is said in one line, with the right exit code, in a moment, without Spark, and nothing is half made. And what
is small is written without Spark."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from geo.config.reader import parse
from geo.errors import UsageError
from geo.journal.cluster import without_spark
from geo.log.partitioned import create_partitions, create_single
from geo.log.topics import ensure_topic
from geo.names import Topic
from geo.ops.status_facts import status
from geo.ops.verify.quick import verify_by_ends
from geo.replication.repair import carried_topics
from tests.cli.wrong import SMALL

_EU, _BILLING = "--cluster eu --topic {topic}", "--cluster eu --topic {topic} --subscription billing"
_LESS, _LINK = "persistent://shop/web/order", "--source eu --target us"

WRONG: tuple[tuple[str, int, str], ...] = (
    # verbs and options
    ("", 2, "the following arguments are required: VERB"),
    ("topcs", 2, "did you mean 'topics'"),
    ("topics lost", 2, "did you mean 'list'"),
    ("topics list --colour red", 2, "unrecognized arguments: --colour red. What there is: geo topics list --help"),
    (f"topics create {_EU} --topic {{topic}}", 2, "argument --topic: is given twice"),
    ("topics list --engine turbo", 2, "invalid choice 'turbo'"),
    ("topics create --cluster eu", 2, "required: --topic"),
    (f"publish {_EU}", 2, "one of the arguments --jsonl --kafka --delta is required"),
    (f"publish {_EU} --jsonl geo.yaml --kafka here:9092", 2, "not allowed with argument --jsonl"),
    (f"publish {_EU} --jsonl geo.yaml --accept-lost", 2, "accept_lost belongs to kafka and delta"),
    (f"publish {_EU} --jsonl geo.yaml --accept-unreadable 0:1", 2, "accept_unreadable belongs to kafka"),
    (f"publish {_EU} --delta ./t --accept-unreadable 0:1", 2, "accept_unreadable belongs to kafka"),
    (f"publish {_EU} --kafka here:9092", 2, "--kafka-topic K belong together"),
    ("verify --engine native", 2, "content is compared by Spark alone"),
    # the configuration
    ("topics list --config none.yaml", 2, "none.yaml: cannot be read: No such file"),
    ("topics list --config .", 2, ".: cannot be read: Is a directory"),
    ("topics list --config bad.yaml", 2, "did you mean"),
    ("topics list --config not.yaml", 2, "not.yaml"),
    ("maintain --cluster mars", 2, "cluster 'mars' is unknown"),
    ("broker --cluster mars", 2, "cluster 'mars' is unknown"),
    ("replicate --cluster eu --source mars", 2, "no link from mars leads to eu"),
    ("links restart --source eu --target eu", 2, "has no link eu->eu"),
    (f"topics set {_EU} --replication-clusters eu,mars", 2, "cluster 'mars' is unknown"),
    ("bundles lookup --cluster eu --topic {topic}", 2, "add: placement: {}"),
    # what is nowhere
    (f"topics list --topic {_LESS}", 2, "did you mean persistent://shop/web/orders?"),
    (f"topics stats --topic {_LESS}", 2, "did you mean persistent://shop/web/orders?"),
    (f"topics describe {_LESS}", 2, "did you mean persistent://shop/web/orders?"),
    (f"topics set --cluster eu --topic {_LESS} --inherit", 2, "did you mean persistent://shop/web/orders?"),
    (f"topics delete --cluster eu --topic {_LESS} --yes", 2, "did you mean persistent://shop/web/orders?"),
    ("topics delete --cluster eu --topic persistent://shop/web/x* --yes", 2, "no topic that matches"),
    (f"peek --cluster eu --topic {_LESS}", 2, "did you mean persistent://shop/web/orders?"),
    ("peek --cluster us --topic {topic}", 2, "us has no topic persistent://shop/web/orders"),
    (f"explain {_LESS}", 2, "did you mean persistent://shop/web/orders?"),
    (f"verify --topic {_LESS}", 2, "did you mean persistent://shop/web/orders?"),
    (f"verify --quick --topic {_LESS}", 2, "persistent://shop/web/order"),
    (f"consume --cluster eu --topic {_LESS} --subscription x", 2, "did you mean persistent://shop/web/orders?"),
    (f"erase --cluster eu --topic {_LESS} --where true --yes", 2, "did you mean persistent://shop/web/orders?"),
    (f"reconcile {_LINK} --topic {_LESS}", 2, "did you mean persistent://shop/web/orders?"),
    (f"backfill {_LINK} --topic {_LESS}", 2, "did you mean persistent://shop/web/orders?"),
    (f"links reset {_LINK} --topic {_LESS} --to latest", 2, "did you mean persistent://shop/web/orders?"),
    (f"links pause {_LINK} --topic {_LESS}", 2, "did you mean persistent://shop/web/orders?"),
    (f"links restart {_LINK} --topic {_LESS}", 2, "did you mean persistent://shop/web/orders?"),
    (f"events --topic {_LESS}", 2, "did you mean persistent://shop/web/orders?"),
    (f"failover --topic {_LESS} --subscription billing --from eu --to us", 2, "did you mean persistent://shop/web/orders?"),
    ("maintain --cluster us", 2, "us has no topic that matches"),
    ("rebuild --cluster eu --from us --yes", 2, "us has no topic that matches"),
    ("clusters remove mars --yes", 2, "cluster 'mars' is unknown"),
    (f"subscriptions create --cluster eu --topic {_LESS} --subscription x", 2, "did you mean persistent://shop/web/orders?"),
    ("subscriptions status --topic {topic} --subscription biling", 2, "did you mean 'billing'?"),
    ("subscriptions delete --cluster eu --topic {topic} --subscription biling --yes", 2, "did you mean 'billing'?"),
    ("subscriptions reset --cluster eu --topic {topic} --subscription biling --to latest --yes", 2, "did you mean 'billing'?"),
    (
        "failover --topic {topic} --subscription biling --from eu --to us",
        2,
        "of persistent://shop/web/orders; did you mean 'billing'?",
    ),
    (f"publish {_EU} --jsonl none.jsonl", 2, "none.jsonl: there is no such file"),
    (f"publish {_EU} --delta ./none", 2, "delta: there is no Delta table at ./none."),
    (f"publish {_EU} --delta ./eu", 2, "delta: there is no Delta table at ./eu."),
    (f"publish {_EU} --delta ./mine", 2, "delta: there is no Delta table at ./mine."),
    (f"publish {_EU} --delta mine", 2, "there is a table in a folder of that name: ./mine is its path."),
    (f"publish {_EU} --delta ''", 2, "delta: '' is neither a path nor a catalog's name"),
    ("balance simulate --reports none.json", 2, "none.json has no load reports"),
    # names, numbers, times
    ("topics create --cluster eu --topic orders", 2, "not of the form persistent://tenant/namespace/name"),
    (f"reconcile {_LINK} --topic web/orders", 2, "persistent://"),
    (f"topics create {_EU}-new --partitions 0", 2, "a number of partitions, from 1 to 10000"),
    (f"topics create {_EU}-parts --partitions 2", 2, "they can grow in number, not shrink to 2"),
    (f"topics create {_EU}-new --columns amount", 2, "are not like 'amount DECIMAL(10,2), currency STRING'"),
    (f"topics create {_EU}-new --columns 'payload STRING'", 2, "is of the envelope that every message has"),
    (f"peek {_EU}-parts", 2, "Name one of them, such as persistent://shop/web/orders-parts-partition-0"),
    (f"publish {_EU}-parts --jsonl geo.yaml", 2, "is partitioned: publish to one of"),
    (f"subscriptions reset {_EU}-parts --subscription billing --to latest", 2, "is partitioned. Name one of its partitions"),
    (f"peek {_EU} -n 0", 2, "a number from 1 to 10000"),
    (f"consume {_BILLING} --trigger '0 seconds'", 2, "trigger '0 seconds' is no interval"),
    ("replicate --cluster eu --trigger '0 ms'", 2, "trigger '0 ms' is no interval"),
    ("broker --cluster eu --trigger often", 2, "trigger 'often' is neither"),
    (f"subscriptions create {_EU} --subscription 'a b'", 2, "has ' ' as character 2"),
    (f"subscriptions create {_EU} --subscription x --start 25:99", 2, "'25:99' is not earliest, latest or a time such as"),
    (f"subscriptions reset {_BILLING} --to tomorrow", 2, "'tomorrow' is not earliest, latest or a time such as"),
    (f"links reset {_LINK} --topic {{topic}} --to -1x", 2, "'-1x' is not earliest, latest or a time such as"),
    (f"backfill {_LINK} --topic {{topic}} --from 2026-13-01", 2, "'2026-13-01' is not a time such as"),
    (f"backfill {_LINK} --topic {{topic}} --from today --to today", 2, "is no time: the first is to be before the second"),
    (f"backfill {_LINK} --topic {{topic}} --checkpoint .", 2, "--checkpoint .: is a folder"),
    ("events --since lately", 2, "'lately' is not a duration such as 30m"),
    ("events --kind nothing", 2, "there is no kind 'NOTHING' of events"),
    (f"publish {_EU} --jsonl none.jsonl --wait-limit 5min", 2, "none.jsonl: there is no such file"),
    ("status --metrics-file nowhere/geo.prom", 2, "there is no folder nowhere; make it first"),
    ("status --max-lag soon", 2, "'soon' is not a duration; allowed: <int> seconds"),
    (f"erase {_EU} --where \"kee = 'a'\" --yes", 2, "has no column 'kee'; did you mean 'key'?"),
    (f"erase {_EU} --where 'key = ' --yes", 2, "something is missing behind '='"),
    (f"erase {_EU} --where '' --yes", 2, "--where is empty"),
    # what makes no sense here
    (f"topics set {_EU} --replication-clusters us", 2, "leave out eu itself"),
    ("rebuild --cluster eu --from eu --yes", 2, "a cluster is rebuilt from another one"),
    ("failover --topic {topic} --subscription billing --from eu --to eu", 2, "--from and --to are both eu"),
    (f"subscriptions create {_BILLING}", 2, "is there already. `geo subscriptions reset` moves it"),
    (
        "subscriptions reset --cluster us --topic {topic} --subscription billing --to latest --yes",
        2,
        "us does not know subscription billing of persistent://shop/web/orders; eu has it",
    ),
    (f"subscriptions ack {_EU} --subscription lake --version 99", 2, "version 99 is not in the log"),
    (f"subscriptions ack {_BILLING} --version 0", 2, "knows no version subscription billing"),
    # what nobody agreed to
    (f"erase {_EU} --where \"key = 'a'\"", 3, "nothing was changed: this empties the messages of"),
    (f"topics delete {_EU}", 3, "nothing was changed: this deletes persistent://shop/web/orders in eu for good"),
    ("clusters remove us", 3, "nothing was changed: this lets go"),
    ("rebuild --cluster us --from eu", 3, "nothing was changed: this appends to us"),
    (
        f"subscriptions reset {_BILLING} --to 2026-11-29T21:42:40.795243+01:00",
        3,
        "billing of persistent://shop/web/orders to 2026-11-29 20:42:40Z in every",
    ),
    (f"subscriptions reset {_BILLING} --to latest", 3, "nothing was changed: this moves subscription billing"),
    (f"subscriptions delete {_BILLING}", 3, "nothing was changed: this deletes subscription billing"),
    (
        f"subscriptions delete {_BILLING} --dry-run",
        0,
        "subscription billing of persistent://shop/web/orders would be deleted in every",
    ),
    # places that let nobody in
    ("topics create --cluster away --topic {topic}", 1, "/sys/geo"),
    (
        "links resolve --source eu --target us --accept-type --dry-run",
        2,
        "a rehearsal (--dry-run) counts messages and does not look at types",
    ),
    ("links resolve --source eu --target us", 0, "eu->us: no topic that matches persistent://*/*/* is FAILED"),
    ("topics list --config moved.yaml", 0, "/nowhere. Where something should be, correct its root in moved.yaml"),
)
"""Of each what was typed, the exit code, and a part of what is said."""


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    folder = tmp_path_factory.mktemp("wrong")
    command, given = [sys.executable, "-m", "tests.cli.wrong", str(folder)], json.dumps([line for line, _, _ in WRONG])
    environment = {**os.environ, "PYTHONPATH": os.getcwd()}
    environment.pop("GEO_CONFIG", None)
    ran = subprocess.run(command, input=given, env=environment, capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr
    found: dict[str, list[dict[str, Any]]] = json.loads(ran.stdout)
    return found


def test_what_is_small_is_written_without_spark(done: dict[str, list[dict[str, Any]]]) -> None:
    *small, refused = done["small"]
    assert [(line, one["code"], one["jvm"]) for line, one in zip(SMALL, small, strict=False)] == [
        (line, 0, False) for line in SMALL[:-1]
    ]
    assert all(one["changed"] for one in small)
    assert "brief of persistent://shop/web/orders begins at 2026-11-29 20:42:40Z;" in small[8]["said"]
    assert (
        "eu->us persistent://shop/web/orders-parts-partition-*: asked to restart; it matches 3 topics of eu now"
        in small[-1]["said"]
    )
    assert refused["code"] == 2


@pytest.mark.parametrize("number", range(len(WRONG)), ids=[line for line, _, _ in WRONG])
def test_a_wrong_usage_is_said_in_one_line_and_nothing_is_made(number: int, done: dict[str, list[dict[str, Any]]]) -> None:
    (_, code, says), found = WRONG[number], done["wrong"][number]
    assert found["code"] == code, found["said"]
    assert says in found["said"]
    if code:
        assert found["said"].startswith("geo: "), "no traceback, no log around it"
        assert found["said"].count("\n") == 1
    assert (found["changed"], found["jvm"]) == ([], False)
    assert found["seconds"] < 2, "each takes some hundredths of a second; imports of the first are among them"


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["topics", "list", "--colour", "red"], 2, b"geo: unrecognized arguments: --colour red."),
        (["topics", "create", "--cluster", "mars", "--topic", "persistent://a/b/c"], 2, b"geo: cluster 'mars' is unknown"),
        (["erase", "--cluster", "eu", "--topic", "persistent://a/b/c", "--where", "true"], 2, b"geo: eu has no topic"),
    ],
)
def test_a_process_that_is_refused_ends_so_too(words: list[str], code: int, says: bytes, tmp_path: Path) -> None:
    (tmp_path / "geo.yaml").write_text("version: 1\nclusters:\n  eu: {root: eu}\n")
    environment = {**os.environ, "PYTHONPATH": os.getcwd()}
    ran = subprocess.run([sys.executable, "-m", "geo", *words], cwd=tmp_path, env=environment, capture_output=True, timeout=60)
    assert (ran.returncode, ran.stdout) == (code, b"")
    assert ran.stderr.startswith(says)
    assert ran.stderr.count(b"\n") == 1
    assert [one.name for one in tmp_path.iterdir()] == ["geo.yaml"]


def test_a_topic_that_is_nowhere_is_refused_and_one_in_partitions_is_these_for_every_caller(tmp_path: Path) -> None:
    config = parse(
        f"version: 1\nclusters:\n  eu: {{root: '{tmp_path}/eu'}}\n  us: {{root: '{tmp_path}/us'}}\nlinks: [{{source: eu, target: us}}]\n",
        path="geo.yaml",
    )
    eu, us = (without_spark(config.cluster(name)) for name in ("eu", "us"))
    ensure_topic(eu, Topic.parse("persistent://shop/web/orders"))
    assert "no problem" in str(status(config, "persistent://shop/web/orders"))
    with pytest.raises(
        UsageError, match=r"no cluster has persistent://shop/web/order.*did you mean persistent://shop/web/orders"
    ):
        status(config, "persistent://shop/web/order")
    parts = Topic.parse("persistent://shop/web/parts")
    create_partitions(eu, parts, 2, [])
    assert [len(one.facts.topics) for one in status(config, parts).clusters] == [2, 0]
    assert verify_by_ends({"eu": eu, "us": us}, config, str(parts)).topics == (f"{parts}-partition-0", f"{parts}-partition-1")
    assert carried_topics(config, config.links[0], eu, us, str(parts)) == [parts.with_partition(0), parts.with_partition(1)]
    with pytest.raises(UsageError, match=r"eu has no topic persistent://shop/web/part.*did you mean persistent://shop/web/parts"):
        carried_topics(config, config.links[0], eu, us, "persistent://shop/web/part")
    create_partitions(eu, single := Topic.parse("persistent://shop/web/single"), 1, [])
    with pytest.raises(UsageError, match="single has 1 partition in eu: say how many"):
        create_single(eu, single)
