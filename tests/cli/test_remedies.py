"""What people are told to type can be typed as it stands there."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from geo.cli.main import make_parser
from geo.cli.verbs import typed

GEO = Path(__file__).parent.parent.parent / "geo"
CONFIG = "/etc/geo of prod.yaml"
TOPIC = "persistent://shop/web/orders"
LINK = f"--source us --target eu --topic {TOPIC}"

MAKES = re.compile(r"\b(Finding|Symptom|Wrong|Decision|Reason)\(|\.finding\(|^_REMEDIES\b", re.MULTILINE)
"""In a module that says what is wrong, and what to do."""

PLACES = {
    "link.ends": LINK, "topic": TOPIC, "one.topic": TOPIC, "of": f"--cluster us --topic {TOPIC}",
    "named": f"--cluster us --topic {TOPIC} --subscription billing",
}  # fmt: skip
"""What stands in the place of an expression; of any other a cluster does."""

COMMAND = re.compile(r"(?<![\w./`-])geo [a-z].*?(?=, |; |: |\. | \(|$)")
"""What a reader takes for a command, with the marks at which it ends."""


def _texts(module: Path) -> Iterator[str]:
    """The texts of a module that are no docstrings, their expressions filled in."""
    tree = ast.parse(module.read_text())
    inner = {
        id(one) for each in ast.walk(tree) if isinstance(each, (ast.JoinedStr, ast.Expr)) for one in ast.iter_child_nodes(each)
    }
    for one in ast.walk(tree):
        if isinstance(one, ast.JoinedStr):
            yield "".join(_filled(part) for part in one.values if isinstance(part, (ast.Constant, ast.FormattedValue)))
        elif isinstance(one, ast.Constant) and isinstance(one.value, str) and id(one) not in inner:
            yield one.value


def _filled(part: ast.Constant | ast.FormattedValue) -> str:
    return str(part.value) if isinstance(part, ast.Constant) else PLACES.get(ast.unparse(part.value), "us")


def _told() -> list[str]:
    modules = [one for one in sorted(GEO.rglob("*.py")) if "cli" not in one.parts and MAKES.search(one.read_text())]
    modules += [GEO / "reasons.py", GEO / "remedies.py"]
    texts = {text.replace("…", "eu") for module in modules for text in _texts(module)}
    return sorted(text for text in texts if COMMAND.search(text))


TOLD = _told()


@pytest.mark.parametrize("do", TOLD)
def test_each_verb_that_is_told_parses_as_it_is_printed(do: str) -> None:
    assert typed(typed(do, CONFIG), CONFIG) == typed(do, CONFIG)
    for command in COMMAND.findall(typed(do, CONFIG)):
        words = shlex.split(command)[1:]
        assert make_parser(words[0]).parse_args(words).config == CONFIG


def test_verbs_are_found_among_prose_and_what_is_only_mentioned_stays() -> None:
    assert len(TOLD) > 20
    do = f"geo links pause {LINK}; once it is PAUSED geo reconcile {LINK}; then geo links resume {LINK}"
    assert [shlex.split(one)[1:3] for one in COMMAND.findall(do)] == [
        ["links", "pause"],
        ["reconcile", "--source"],
        ["links", "resume"],
    ]
    assert typed(do, CONFIG) == (
        f"geo links pause --config '{CONFIG}' {LINK}; once it is PAUSED geo reconcile --config '{CONFIG}' {LINK}; "
        f"then geo links resume --config '{CONFIG}' {LINK}"
    )
    for other in ("kill -CONT 12", "`geo maintain` removes it", "free space at /srv/geo verify", "start it: the geo of before"):
        assert typed(other, CONFIG) == other


def test_a_verb_that_takes_no_configuration_gets_none() -> None:
    for verb in ("balance simulate --topics 3", "init", "demo"):
        assert typed(f"geo {verb}", CONFIG) == f"geo {verb}"
        with pytest.raises(SystemExit):
            words = [*verb.split(), "--config", CONFIG]
            make_parser(words[0]).parse_args(words)
