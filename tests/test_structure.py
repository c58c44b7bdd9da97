"""The rooms keep their walls: protocol files are pure, and nothing reaches into the JVM."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PURE = [
    "geo/config_tree.py",
    "geo/config_yaml.py",
    "geo/errors.py",
    "geo/log/claims.py",
    "geo/log/commits.py",
    "geo/log/ledgers.py",
    "geo/log/message_id.py",
    "geo/log/names.py",
    "geo/log/storage.py",
    "geo/replication/gaps.py",
    "geo/replication/link_start.py",
    "geo/replication/link_state.py",
    "geo/replication/rule.py",
    "geo/replication/source_history.py",
    "geo/subscription/delivery.py",
    "geo/subscription/fold.py",
    "geo/subscription/message_set.py",
    "geo/subscription/ranges.py",
    "geo/subscription/record.py",
    "geo/subscription/state.py",
    "geo/trigger.py",
    *(str(path.relative_to(ROOT)) for path in (ROOT / "schemas").glob("*.py")),
]
FORBIDDEN = {"pyspark", "delta", "pyarrow", "time", "datetime", "random", "secrets", "os", "socket", "subprocess", "pathlib"}
EXCUSED = {
    ("geo/config_yaml.py", "os"): "path arithmetic: relative paths are relative to the configuration file",
    ("geo/log/commits.py", "datetime"): "the time of a commit as text; no clock is read",
    ("geo/config_tree.py", "os"): "Secret.reveal, which alone reads",
    ("geo/config_tree.py", "pathlib"): "Secret.reveal, which alone reads",
}


def _imports(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module.split(".")[0])
    return names


@pytest.mark.parametrize("name", PURE)
def test_protocol_files_import_no_spark_clock_random_or_io(name: str) -> None:
    assert {module for module in _imports(ROOT / name) & FORBIDDEN if (name, module) not in EXCUSED} == set()


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
