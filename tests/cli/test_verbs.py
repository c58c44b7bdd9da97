"""Which verb words stand for, and what is said of those that stand for none."""

from __future__ import annotations

import argparse
import re
import shlex
from pathlib import Path

import pytest

from geo.cli.main import main, make_parser
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
                make_parser(noun).parse_args([noun, *rest, "--help"])
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
        assert make_parser(noun).parse_args([noun, "list", *named]).output == "text"


_OF_ALL = ("clusters", "links", "topics", "subscriptions")


_TYPED = ("bash", "text", "ini", "")
_COMMAND = re.compile(r"^(?:\$ |ExecStart=|(?:[\d*/]+ +){5}| +)?(?:/\S*/|\./run )?geo +(.*)$", re.MULTILINE)
"""As a shell, a unit of systemd's, a crontab and `geo init` have it."""
_GOES_ON = re.compile(r" (?:[|>&]|\d>)")
"""Where the shell goes on with what a verb has said."""
_PAGES = [*sorted(ROOT.glob("docs/*.md")), ROOT / "README.md"]


@pytest.mark.parametrize("page", _PAGES, ids=lambda page: page.stem)
def test_verbs_and_options_that_a_page_names_are_there(page: Path) -> None:
    for typed in re.findall(r"`geo +([a-z][^`]*)`", page.read_text(encoding="utf-8")):
        words = spelled([word for word in re.split(r"[\s|]+", typed) if word])
        assert words[0] in VERBS, f"geo {typed}"
        verb = _verb(words)
        if verb is not None:
            said = {word.partition("=")[0] for word in words if re.match("--?[a-z]", word)}
            assert said <= verb._option_string_actions.keys(), f"geo {typed}"


@pytest.mark.parametrize("page", _PAGES, ids=lambda page: page.stem)
def test_what_a_page_lets_people_type_is_understood(page: Path) -> None:
    for language, block in re.findall(r"^```(\w*)\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL):
        for typed in _COMMAND.findall(block) if language in _TYPED else ():
            words = spelled(shlex.split(_GOES_ON.split(typed)[0], comments=True))
            make_parser(words[0]).parse_args(words)  # ends the run with what is wrong, if something is


def _verb(words: list[str]) -> argparse.ArgumentParser | None:
    """The parser of a verb; None where a noun is meant, with all of its verbs."""
    parser = make_parser(words[0])
    for word in words[: 2 if words[0] in NOUNS else 1]:
        inner = next(action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
        assert word in inner.choices, f"geo {' '.join(words)}"
        parser = inner.choices[word]
    return parser
