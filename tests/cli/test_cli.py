"""The command line as a user sees it: wrong arguments, help, and what doctor finds. Its verbs on real tables:
tests/test_scenarios.py."""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from geo.cli.main import main, make_parser
from geo.cli.noted import WRITES
from geo.cli.verbs import VERBS
from geo.delta.ddl import set_property
from tests.world import TOPIC, World


def _said(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, Any]:
    """Exit code and the JSON of a verb."""
    capsys.readouterr()
    code = main([*args, "-o", "json"])
    return code, json.loads(capsys.readouterr().out)


_NAMED = "--config geo.yaml --cluster eu --topic persistent://a/b/c --subscription s"
_CONSUME = f"consume {_NAMED}"


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("verify --config none.yaml", "none.yaml"),
        ("peek --config geo.yaml --cluster eu --topic clicks", "persistent://"),
        ("replicate --config geo.yaml --cluster eu --trigger often", "trigger 'often'"),
        ("topics create --config geo.yaml --cluster mars --topic persistent://a/b/c", "mars"),
        ("consume --config geo.yaml --cluster eu --topic persistent://a/b/c --subscription A", "'A'"),
        (f"{_CONSUME} --ack (", "neither all nor none nor a regular expression"),
        ("failover --config geo.yaml --topic persistent://a/b/c --subscription s --from eu --to mars", "mars"),
        ("reconcile --config geo.yaml --source eu --target mars --topic *", "mars"),
        (
            "consume --config geo.yaml --cluster eu --topic persistent://a/b/* --subscription s --limit 3",
            "--limit and --standby work for one topic",
        ),
        (f"subscriptions create {_NAMED} --checkpoint x", "it goes with --mode version"),
        (f"subscriptions create {_NAMED} --mode version --start latest", "--start is of messages"),
    ],
)
def test_a_wrong_argument_ends_with_2_before_spark_starts(
    line: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("geo.yaml").write_text("version: 1\nclusters:\n  eu: {root: eu}\n")
    assert main(line.split()) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert says in err


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (f"{_CONSUME} --key-range 2/2", "I/N, of N shares the one numbered I, from 0"),
        (f"{_CONSUME} --standby --take-over", "not allowed with argument"),
        (f"subscriptions ack {_NAMED} --version -1", "a version of a table, from 0"),
        (f"subscriptions ack {_NAMED} --version {'9' * 30}", "a version of a table, from 0"),
        (
            "failover --config geo.yaml --topic persistent://a/b/c --subscription s --from eu --to us --source-gone --wait 3",
            "not allowed with",
        ),
    ],
)
def test_what_no_argument_may_be_ends_with_2(line: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(line.split())
    assert ended.value.code == 2
    assert says in capsys.readouterr().err


def test_help_names_every_verb(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert ended.value.code == 0
    out = capsys.readouterr().out
    assert set(VERBS) <= {line.split()[0] for line in out.splitlines() if line.startswith("    ")}


def _helps(parser: argparse.ArgumentParser) -> Iterator[str]:
    """Of a parser and of all below it. A percent sign that argparse takes for its own fails only here."""
    yield parser.format_help()
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                yield from _helps(below)


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_a_help(verb: str) -> None:
    helps = list(_helps(make_parser(verb)))
    assert len(helps) > len(VERBS)
    assert any(f"usage: geo {verb} " in one or f" geo {verb} " in one for one in helps)


@pytest.mark.spark
def test_doctor_finds_nothing_wrong_and_then_what_is(linked: World, capsys: pytest.CaptureFixture[str]) -> None:
    config = ["--config", str(linked.path)]
    code, findings = _said(capsys, "doctor", *config)
    assert code == 0, findings
    assert {finding["level"] for finding in findings} <= {"ok", "warn"}
    set_property(linked.log("eu"), "delta.enableChangeDataFeed", "false")
    shutil.rmtree(linked.log("us").name)
    code, findings = _said(capsys, "doctor", *config)
    assert code == 1
    told = {(finding["level"], finding["where"]): finding for finding in findings}
    assert "is not there" in told["error", f"cluster us, {TOPIC}"]["what"]
    warned = told["warn", f"cluster eu, {TOPIC}"]
    assert "delta.enableChangeDataFeed is 'false'" in warned["what"]
    assert warned["fix"].startswith("ALTER TABLE")


_LOOKS = {
    *("peek", "explain", "status", "doctor", "events", "balance simulate", "brokers list", "brokers report", "brokers status"),
    *(
        "clusters list",
        "links list",
        "links status",
        "topics list",
        "topics describe",
        "topics stats",
        "subscriptions list",
        "subscriptions status",
    ),
    *("bundles list", "bundles lookup", "isolation list", "domains list", "anti-affinity list", "anti-affinity namespaces"),
}
_RUNS = {"init", "demo", "publish", "broker", "replicate", "consume", "subscriptions fold", "subscriptions sync"}
"""They tell by the lives of what they run."""


def _parsers(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    return next((action.choices for action in parser._actions if isinstance(action, argparse._SubParsersAction)), {})


def _verbs() -> Iterator[str]:
    for noun in VERBS:
        inner = _parsers(_parsers(make_parser(noun))[noun])
        yield from (f"{noun} {verb}" for verb in inner) if inner else (noun,)


def test_of_each_verb_it_is_said_whether_it_changes_something() -> None:
    assert set(_verbs()) - _LOOKS - _RUNS == set(WRITES)
