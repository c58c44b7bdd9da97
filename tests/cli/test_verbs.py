"""Which verb words stand for, and what is said of those that stand for none."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from geo.cli.main import _parser, main
from geo.cli.verbs import ALIASES, LISTED, NOUNS, VERBS, spelled

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("typed", "verb"),
    [
        ([], []),
        (["status", "a b"], ["status", "a b"]),
        (["topics"], ["topics", "list"]),
        (["topics", "-o", "json"], ["topics", "list", "-o", "json"]),
        (["topics", "--help"], ["topics", "--help"]),
        (["groups"], ["subscriptions", "list"]),
        (["groups", "describe", "--topic", "t"], ["subscriptions", "status", "--topic", "t"]),
        (["subscriptions", "seek", "--yes"], ["subscriptions", "reset", "--yes"]),
        (["topics", "peek-messages", "-n", "3"], ["peek", "-n", "3"]),
    ],
)
def test_words_of_other_tools_stand_for_a_verb(typed: list[str], verb: list[str]) -> None:
    assert spelled(typed) == verb


def test_each_alias_stands_for_a_verb_that_is_there_and_hides_none(capsys: pytest.CaptureFixture[str]) -> None:
    for alias, verb in ALIASES.items():
        for words, is_there in ((verb, True), (alias, False)):
            noun, *rest = words.split()
            assert (noun in VERBS) is (is_there or bool(rest))
            if not rest:
                continue
            with pytest.raises(SystemExit) as ended:
                _parser(noun).parse_args([noun, *rest, "--help"])
            assert (ended.value.code == 0) is is_there, words
    capsys.readouterr()


def test_each_alias_is_in_the_page() -> None:
    page = (ROOT / "docs" / "command-line.md").read_text(encoding="utf-8")
    rows = [line.split("|") for line in page.splitlines() if line.startswith("| `")]
    told = {alias: row[2].strip(" `") for row in rows for alias in re.findall(r"`([^`]+)`", row[1])}
    assert {alias: told.get(alias) for alias in ALIASES} == dict(ALIASES)


@pytest.mark.parametrize(
    ("typed", "says"),
    [
        ("topcs", "no verb 'topcs'; did you mean 'topics'?"),
        ("group list", "no verb 'group'; did you mean 'groups'?"),
        ("topics sats", "no verb 'sats'; did you mean 'stats'?"),
        ("subscriptions sek", "no verb 'sek'; did you mean 'seek'?"),
        ("links frobnicate", "no verb 'frobnicate'; geo links --help lists them"),
        ("topics -o jsn", "invalid choice 'jsn'; did you mean 'json'?"),
        ("doctor --engine java", "invalid choice 'java' (choose from auto, native, spark)"),
    ],
)
def test_of_a_verb_that_is_none_the_nearest_is_said(typed: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(typed.split())
    assert ended.value.code == 2
    assert says in capsys.readouterr().err


def test_nouns_that_list_have_such_a_verb() -> None:
    for noun in LISTED:
        named = ["--cluster", "eu"] if noun not in _OF_ALL else []
        assert _parser(noun).parse_args([noun, "list", *named]).output == "text"


_OF_ALL = ("clusters", "links", "topics", "subscriptions")


@pytest.mark.parametrize("page", [*sorted(ROOT.glob("docs/*.md")), ROOT / "README.md"], ids=lambda page: page.stem)
def test_verbs_that_a_page_names_are_there(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for noun, verb in re.findall(r"(?:`|^)geo +([a-z]+(?:-[a-z]+)?)(?: +([a-z]+(?:-[a-z]+)*)\b)?", text, re.MULTILINE):
        words = spelled([noun, verb] if verb else [noun])
        assert words[0] in VERBS, f"geo {noun}"
        if words[0] in NOUNS and len(words) > 1:
            assert words[1] in {*_verbs_of(words[0])}, f"geo {noun} {verb}"


def _verbs_of(noun: str) -> Iterator[str]:
    for action in _parser(noun)._actions:
        if isinstance(action, argparse._SubParsersAction):
            for inner in action.choices[noun]._actions:
                if isinstance(inner, argparse._SubParsersAction):
                    yield from inner.choices
