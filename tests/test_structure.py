"""The rooms keep their walls: protocol files are pure, and nothing reaches into the JVM."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FORBIDDEN = {"pyspark", "delta", "pyarrow", "time", "datetime", "random", "secrets", "os", "socket", "subprocess", "pathlib"}
EXCUSED = {
    ("geo/config_yaml.py", "os"): "path arithmetic: relative paths are relative to the configuration file",
    ("geo/times.py", "datetime"): "times as numbers; no clock is read",
    ("geo/output.py", "datetime"): "times are rendered; no clock is read",
    ("geo/config_tree.py", "os"): "Secret.reveal, which alone reads",
    ("geo/config_tree.py", "pathlib"): "Secret.reveal, which alone reads",
}


def _parsed(name: str) -> ast.Module:
    return ast.parse((ROOT / name).read_text())


def _imports(name: str) -> set[str]:
    """The modules that a file imports, in full; those only for types are none."""
    names: set[str] = set()
    for node in ast.walk(_parsed(name)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


def _files(modules: Iterable[str]) -> set[str]:
    """The files of this repository among the modules."""
    paths = {module.replace(".", "/") for module in modules if module.split(".")[0] in ("geo", "schemas")}
    return {f"{path}{end}" for path in paths for end in (".py", "/__init__.py") if (ROOT / f"{path}{end}").exists()}


def _reached(name: str) -> set[str]:
    """The file, and all files of this repository that it imports, and they."""
    found, left = {name}, [name]
    while left:
        fresh = _files(_imports(left.pop())) - found
        found |= fresh
        left += fresh
    return found


PURE = sorted(
    str(path.relative_to(ROOT))
    for path in [*ROOT.glob("geo/**/*.py"), *ROOT.glob("schemas/*.py")]
    if path.parent.name == "schemas" or re.search(r"\bPure\b", ast.get_docstring(ast.parse(path.read_text())) or "")
)
"""The files that say so of themselves, and the schemas."""


@pytest.mark.parametrize("name", PURE)
def test_pure_files_import_no_spark_clock_random_or_io_nor_does_what_they_import(name: str) -> None:
    found = {
        (reached, module)
        for reached in _reached(name)
        for module in {imported.split(".")[0] for imported in _imports(reached)} & FORBIDDEN
        if (reached, module) not in EXCUSED
    }
    assert found == set()


def test_the_protocols_say_that_they_are_pure() -> None:
    protocols = {"claims", "commits", "continuing", "clock", "cut", "ledgers", "storage", "gaps", "link_start", "link_state",
                 "rule", "source_history", "delivery", "fold", "message_set", "ranges", "record", "state"}  # fmt: skip
    assert protocols <= {Path(name).stem for name in PURE}


def test_nothing_reaches_into_the_jvm() -> None:
    sources = [*ROOT.glob("geo/**/*.py"), *ROOT.glob("jobs/*.py")]
    handles = {"_jvm", "_jsc", "_jdf", "_jsparkSession", "_gateway"}
    found = [
        (str(path.relative_to(ROOT)), node.attr)
        for path in sources
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and node.attr in handles
    ]
    assert found == []


def test_every_module_says_what_belongs_in_it() -> None:
    sources = [*ROOT.glob("geo/**/*.py"), *ROOT.glob("schemas/*.py"), *ROOT.glob("jobs/*.py")]
    silent = [
        str(path.relative_to(ROOT))
        for path in sources
        if path.read_text().strip() and not ast.get_docstring(ast.parse(path.read_text()))
    ]
    assert silent == []
