"""The form of geo: how long files and classes are, how docstrings begin, and words that have a better one."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterable, Iterator
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

OF_LIBRARIES = {
    "_replace",
    "_asdict",
    "_jvm",
    "_jsparkSession",
    "_sc",
    "_jsc",
    "_gateway",
    "_repr_html_",
    "_jdf",
    "_actions",
    "_option_string_actions",
}
"""Names of libraries that are theirs to keep, and ours only in tests."""


class Docstring(NamedTuple):
    """A docstring, or the text below a constant or field, and where it begins."""

    file: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.text.splitlines()[0]}"


@cache
def _parsed() -> dict[str, ast.Module]:
    paths = sorted(ROOT.glob("geo/**/*.py"))
    return {path.relative_to(ROOT).as_posix(): ast.parse(path.read_text(encoding="utf-8")) for path in paths}


@cache
def _docstrings() -> tuple[Docstring, ...]:
    return tuple(said for file, tree in _parsed().items() for said in _of(file, tree))


def _of(file: str, tree: ast.Module) -> Iterator[Docstring]:
    for node in ast.walk(tree):
        for one in getattr(node, "body", ()) if not isinstance(node, (ast.Lambda, ast.IfExp)) else ():
            if isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant) and isinstance(one.value.value, str):
                yield Docstring(file, one.lineno, one.value.value.strip())


def _sentences(text: str) -> Iterator[str]:
    """Of a docstring; what is indented as an example, and lines of a table, are none."""
    prose = "\n".join(line for line in cleandoc(text).splitlines() if not line.startswith(("|", "    ")))
    for paragraph in re.split(r"\n\s*\n|\n\s*(?:- |\d\. )", prose):
        yield from re.split(r"(?<=[.?!])\s+", paragraph)


def _classes() -> Iterator[tuple[str, ast.ClassDef]]:
    for file, tree in _parsed().items():
        yield from ((file, node) for node in ast.walk(tree) if isinstance(node, ast.ClassDef))


def test_no_file_is_longer_than_a_reader_holds() -> None:
    lines = {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8").count("\n") for path in ROOT.glob("geo/**/*.py")}
    assert len(lines) > 300
    assert {file: count for file, count in lines.items() if count > MOST_OF_FILE} == {}


def test_no_class_is_longer_than_a_reader_holds() -> None:
    sizes = {
        node.name: (
            (node.end_lineno or 0) - node.lineno + 1,
            sum(isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef)) for one in node.body),
        )
        for _, node in _classes()
    }
    assert len(sizes) > 500
    assert {name: size for name, size in sizes.items() if size[0] > MOST_OF_CLASS or size[1] > MOST_METHODS} == {}


def test_no_two_classes_have_one_name() -> None:
    names = Counter(node.name for _, node in _classes())
    assert len(names) > 500
    assert {name: count for name, count in names.items() if count > 1} == {}


def test_a_docstring_begins_with_a_verb_or_a_noun() -> None:
    assert len(_docstrings()) > 3_000
    assert _shown(one for one in _docstrings() if one.text and re.split(r"\W", one.text, maxsplit=1)[0] in QUESTIONS) == []


def test_a_sentence_has_few_words() -> None:
    assert (
        _shown(one for one in _docstrings() if any(len(sentence.split()) > MOST_WORDS for sentence in _sentences(one.text))) == []
    )


def test_words_that_have_a_better_one_are_not_used() -> None:
    assert _shown(one for one in _docstrings() if WORDS.search(one.text)) == []


def _shown(found: Iterable[Docstring]) -> list[str]:
    return [str(one) for one in found]


REACHES = 68
"""Uses of private names of geo in tests: it may only become less."""


def test_tests_reach_few_private_names() -> None:
    """What tests use and no user is told of outlives no rename: a public way, or a name that is public, is better."""
    found = [f"{path.relative_to(ROOT)}:{line}" for path in sorted(ROOT.glob("tests/**/*.py")) for line in _reaches(path)]
    assert len(found) == REACHES, "\n".join(found)


def _reaches(path: Path) -> Iterator[int]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    nodes = list(ast.walk(tree))
    own = {node.name for node in nodes if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    own |= {node.attr for node in nodes if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)}
    for node in nodes:
        match node:
            case ast.ImportFrom(module=str(module), names=names) if module.split(".")[0] == "geo":
                yield from (node.lineno for name in names if name.name.startswith("_"))
            case ast.Attribute(value=ast.Name(id="self" | "cls" | "os" | "sys")):
                continue
            case ast.Attribute(attr=name) if re.match("_[a-z]", name) and name not in own | OF_LIBRARIES:
                yield node.lineno
            case ast.Call(func=ast.Attribute(attr="setattr" | "object"), args=[first, second, *_]):
                patched = (one.value for one in (first, second) if isinstance(one, ast.Constant))
                yield from (node.lineno for name in patched if isinstance(name, str) and re.search(r"(^|\.)_[a-zA-Z]\w*$", name))
