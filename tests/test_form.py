"""The form of geo: how long files and classes are, how docstrings begin, and words that have a better one.

What is not done yet is counted below, by room. A number there may only be made smaller, by whoever mends some of them. A room that is done is not there.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from inspect import cleandoc
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
MOST_OF_FILE, MOST_OF_CLASS, MOST_METHODS, MOST_WORDS = 400, 250, 25, 25
"""Lines of a file, lines and methods of a class, words of a sentence."""

QUESTIONS = {"What", "Whether", "How", "Of", "By", "As", "Which", "Where", "Why", "When", "Who", "Whose"}
"""A docstring begins with a verb or a noun, so not with one of these."""

WORDS = re.compile(r"\b(anew|hear|hears|brought|bring|brings|stood)\b", re.IGNORECASE)
"""Words that have a better one: again or restarted; handle; replicated or appended; the place itself."""


class Said(NamedTuple):
    """A docstring, or the text below a constant or field, and where it begins."""

    file: str
    line: int
    text: str

    @property
    def room(self) -> str:
        return _room(self.file)

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.text.splitlines()[0]}"


def _room(file: str) -> str:
    return file.split("/")[1].removesuffix(".py")


@cache
def _parsed() -> dict[str, ast.Module]:
    paths = sorted(ROOT.glob("geo/**/*.py"))
    return {path.relative_to(ROOT).as_posix(): ast.parse(path.read_text(encoding="utf-8")) for path in paths}


@cache
def _docstrings() -> tuple[Said, ...]:
    return tuple(said for file, tree in _parsed().items() for said in _of(file, tree))


def _of(file: str, tree: ast.Module) -> Iterator[Said]:
    for node in ast.walk(tree):
        for one in getattr(node, "body", ()) if not isinstance(node, (ast.Lambda, ast.IfExp)) else ():
            if isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant) and isinstance(one.value.value, str):
                yield Said(file, one.lineno, one.value.value.strip())


def _sentences(text: str) -> Iterator[str]:
    """Of a docstring; what is indented as an example, and lines of a table, are none."""
    prose = "\n".join(line for line in cleandoc(text).splitlines() if not line.startswith(("|", "    ")))
    for paragraph in re.split(r"\n\s*\n|\n\s*(?:- |\d\. )", prose):
        yield from re.split(r"(?<=[.?!])\s+", paragraph)


def _classes() -> Iterator[tuple[str, ast.ClassDef]]:
    for file, tree in _parsed().items():
        yield from ((file, node) for node in ast.walk(tree) if isinstance(node, ast.ClassDef))


LONG_FILES: dict[str, int] = {
    "geo/ops/health.py": 401,
}
"""Lines of each file that is too long: no other may be, and none of these may grow."""

LONG_CLASSES: dict[str, tuple[int, int]] = {}
"""Lines and methods of each class, likewise."""

QUESTIONED: dict[str, int] = {}
LONG_SENTENCES: dict[str, int] = {
    "subscription": 1,
}
WORN: dict[str, int] = {}
"""Docstrings that begin with a question, have a long sentence, or a word that has a better one, by room."""


def test_no_file_is_longer_than_a_reader_holds() -> None:
    lines = {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8").count("\n") for path in ROOT.glob("geo/**/*.py")}
    assert len(lines) > 300
    long = {file: count for file, count in lines.items() if count > MOST_OF_FILE}
    assert long.keys() == LONG_FILES.keys()
    assert all(count <= LONG_FILES[file] for file, count in long.items()), long


def test_no_class_is_longer_than_a_reader_holds() -> None:
    sizes = {
        node.name: (
            (node.end_lineno or 0) - node.lineno + 1,
            sum(isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef)) for one in node.body),
        )
        for _, node in _classes()
    }
    long = {name: size for name, size in sizes.items() if size[0] > MOST_OF_CLASS or size[1] > MOST_METHODS}
    assert long.keys() == LONG_CLASSES.keys()
    assert all(lines <= LONG_CLASSES[name][0] and methods <= LONG_CLASSES[name][1] for name, (lines, methods) in long.items()), (
        long
    )


def test_no_two_classes_have_one_name() -> None:
    names = Counter(node.name for _, node in _classes())
    assert len(names) > 500
    assert {name: count for name, count in names.items() if count > 1} == {}


def test_a_docstring_begins_with_a_verb_or_a_noun() -> None:
    assert len(_docstrings()) > 3_000
    found = [one for one in _docstrings() if one.text and re.split(r"\W", one.text, maxsplit=1)[0] in QUESTIONS]
    _only(found, QUESTIONED)


def test_a_sentence_has_few_words() -> None:
    long = [one for one in _docstrings() if any(len(sentence.split()) > MOST_WORDS for sentence in _sentences(one.text))]
    _only(long, LONG_SENTENCES)


def test_words_that_have_a_better_one_are_not_used() -> None:
    _only([one for one in _docstrings() if WORDS.search(one.text)], WORN)


def _only(found: list[Said], known: dict[str, int]) -> None:
    """Fails where a room has more than is known, and says which; and where it has fewer, so that its number is made smaller."""
    counts = dict(sorted(Counter(one.room for one in found).items()))
    worse = [str(one) for one in found if counts[one.room] > known.get(one.room, 0)]
    assert not worse, "\n".join([f"{len(worse)}, where {known} are known", *worse[:50]])
    assert counts == known, "fewer than are known: lower the numbers"
