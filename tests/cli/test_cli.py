"""The command line as a user sees it: exit codes, stdout, stderr. Each verb once on real tables."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from geo.cli.main import main
from tests.world import TOPIC, World


@pytest.fixture(autouse=True)
def _signals() -> Iterator[None]:
    """Verbs that run on take SIGTERM and SIGINT."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def _said(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, Any]:
    """Exit code and the JSON of a verb."""
    capsys.readouterr()
    code = main([*args, "-o", "json"])
    return code, json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["verify", "--config", "none.yaml"], "none.yaml"),
        (["peek", "--config", "geo.yaml", "--cluster", "eu", "--topic", "clicks"], "persistent://"),
        (["replicate", "--config", "geo.yaml", "--cluster", "eu", "--trigger", "often"], "trigger 'often'"),
        (["topics", "create", "--config", "geo.yaml", "--cluster", "mars", "--topic", "persistent://a/b/c"], "mars"),
        (["consume", "--config", "geo.yaml", "--cluster", "eu", "--topic", "persistent://a/b/c", "--subscription", "A"], "'A'"),
        (
            [
                "consume",
                "--config",
                "geo.yaml",
                "--cluster",
                "eu",
                "--topic",
                "persistent://a/b/c",
                "--subscription",
                "s",
                "--ack",
                "(",
            ],
            "neither all nor none nor a regular expression",
        ),
        (
            [
                "failover",
                "--config",
                "geo.yaml",
                "--topic",
                "persistent://a/b/c",
                "--subscription",
                "s",
                "--from",
                "eu",
                "--to",
                "mars",
            ],
            "mars",
        ),
        (["reconcile", "--config", "geo.yaml", "--source", "eu", "--target", "mars", "--topic", "*"], "mars"),
    ],
)
def test_a_wrong_argument_ends_with_2_before_spark_starts(
    args: list[str], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("geo.yaml").write_text("version: 1\nclusters:\n  eu: {root: eu}\n")
    assert main(args) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert says in err


def test_help_names_every_verb(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert ended.value.code == 0
    out = capsys.readouterr().out
    assert all(
        verb in out
        for verb in (
            "demo",
            "publish",
            "replicate",
            "reconcile",
            "verify",
            "peek",
            "topics",
            "doctor",
            "consume",
            "subscriptions",
            "failover",
        )
    )


@pytest.mark.spark
def test_the_verbs_on_two_linked_clusters(linked: World, capsys: pytest.CaptureFixture[str]) -> None:
    config = ["--config", str(linked.path)]
    path = linked.folder / "in.jsonl"
    path.write_text('{"key": "a", "payload": "hello"}\n{broken\n')
    code, done = _said(capsys, "publish", *config, "--cluster", "us", "--topic", str(TOPIC), "--jsonl", str(path))
    assert (code, done["published"], done["rejected"]) == (0, 1, 1)

    code, planned = _said(capsys, "reconcile", *config, "--source", "us", "--target", "eu", "--topic", str(TOPIC), "--dry-run")
    assert (code, planned[0]["missing"], planned[0]["appended"]) == (0, 1, 0)

    code, links = _said(capsys, "replicate", *config, "--cluster", "eu")
    assert (code, links[0]["state"], links[0]["replicated"]) == (0, "STOPPED", 1)

    code, found = _said(capsys, "topics", *config)
    assert (code, [(row["cluster"], row["messages"]) for row in found]) == (0, [("eu", 41), ("us", 41)])

    code, newest = _said(capsys, "peek", *config, "--cluster", "eu", "--topic", str(TOPIC), "-n", "1", "--payload", "text")
    assert (code, newest[0]["key"], newest[0]["payload"]) == (0, "a", "hello")

    code, report = _said(capsys, "verify", *config)
    assert (code, report["clean"]) == (0, True)

    parts = "persistent://shop/web/parts"
    code, made = _said(capsys, "topics", "create", *config, "--cluster", "us", "--topic", parts, "--partitions", "2")
    assert (code, made["created"]) == (0, [f"{parts}-partition-0", f"{parts}-partition-1"])
    code, _ = _said(capsys, "topics", "set", *config, "--cluster", "us", "--topic", parts, "--replication-clusters", "us")
    assert code == 0
    code, found = _said(capsys, "topics", "list", *config, "--topic", f"{parts}*")
    assert [(row["topic"], row["replication_clusters"]) for row in found] == [(one, ["us"]) for one in made["created"]]

    linked.log("eu").delta().delete("origin = 'us' AND entry_id = 7")
    assert main(["verify", *config]) == 1
    assert "1 missing" in capsys.readouterr().out


@pytest.mark.spark
def test_the_verbs_of_subscriptions(linked: World, capsys: pytest.CaptureFixture[str]) -> None:
    config, of = ["--config", str(linked.path)], ["--topic", str(TOPIC), "--subscription", "billing"]
    path = linked.folder / "in.jsonl"
    path.write_text('{"key": "a", "payload_base64": "/w=="}\n{"key": "b", "payload": "hello", "properties": {"x": "y"}}\n')
    assert main(["publish", *config, "--cluster", "eu", "--topic", str(TOPIC), "--jsonl", str(path)]) == 0

    def consumed(*args: str) -> list[dict[str, Any]]:
        capsys.readouterr()
        assert main(["consume", *config, "--cluster", "eu", *of, "--trigger", "available-now", "-o", "json", *args]) == 0
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    code, created = _said(capsys, "subscriptions", "create", *config, "--cluster", "eu", *of, "--start", "earliest")
    assert (code, created["epoch"]) == (0, 0)
    assert len(consumed("--limit", "3", "--ack", "none")) == 3
    every = consumed("--ack", "^k")
    assert len(every) == 42
    names = ("origin", "ledger_id", "entry_id", "key", "payload", "properties", "publish_time", "redelivery_count")
    assert all(name in every[0] for name in names)
    assert sorted(one["redelivery_count"] for one in every) == [0] * 39 + [1] * 3
    left = consumed()
    assert [(one["key"], one.get("payload"), one.get("payload_base64")) for one in left] == [
        ("a", None, "/w=="),
        ("b", "hello", None),
    ]
    assert left[1]["properties"] == {"x": "y"}
    assert consumed() == []

    code, found = _said(capsys, "subscriptions", "list", *config)
    assert [(one["cluster"], one["acknowledged"]) for one in found] == [("eu", 42)]
    code, standing = _said(capsys, "subscriptions", "status", *config, *of)
    assert [(one["cluster"], one["backlog"]) for one in standing] == [("eu", 0), ("us", 40)]
    code, moved = _said(capsys, "failover", *config, *of, "--from", "eu", "--to", "us")
    assert (code, moved["consumer"], moved["brought"], moved["to_deliver"]) == (0, "stopped", 42, 0)
    to = ["subscriptions", "reset", *config, "--cluster", "eu", *of, "--to", "eu:1:15"]
    code, planned = _said(capsys, *to, "--dry-run")
    assert (code, planned["skipped"], planned["dry_run"]) == (0, 0, True)
    assert main(to) == 3
    assert "--yes" in capsys.readouterr().err
    code, done = _said(capsys, *to, "--yes")
    assert (code, done["repeated"], done["epoch"]) == (0, planned["repeated"], 1)
    assert len(consumed("--ack", "none")) == done["repeated"]
    code, folded = _said(capsys, "subscriptions", "fold", *config, "--cluster", "eu")
    assert (code, folded["cursors"]) == (0, 1)
    assert main(["subscriptions", "delete", *config, "--cluster", "eu", *of]) == 3
    assert main(["subscriptions", "delete", *config, "--cluster", "eu", *of, "--yes"]) == 0
    assert main(["consume", *config, "--cluster", "eu", *of, "--trigger", "available-now"]) == 3
    assert "was deleted" in capsys.readouterr().err


@pytest.mark.spark
def test_doctor_finds_nothing_wrong_and_then_what_is(linked: World, capsys: pytest.CaptureFixture[str]) -> None:
    config = ["--config", str(linked.path)]
    code, findings = _said(capsys, "doctor", *config)
    assert code == 0, findings
    assert {finding["level"] for finding in findings} <= {"ok", "warn"}
    linked.log("eu").set_property("delta.enableChangeDataFeed", "false")
    shutil.rmtree(linked.log("us").name)
    code, findings = _said(capsys, "doctor", *config)
    assert code == 1
    told = {(finding["level"], finding["where"]): finding for finding in findings}
    assert "has no log" in told["error", "cluster us"]["what"]
    warned = told["warn", f"cluster eu, {TOPIC}"]
    assert "delta.enableChangeDataFeed is 'false'" in warned["what"]
    assert warned["fix"].startswith("ALTER TABLE")
