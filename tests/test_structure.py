"""The rooms keep their walls: protocol files are pure, and nothing reaches into the JVM."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from tests.planted import FAULTS

ROOT = Path(__file__).resolve().parents[1]
FORBIDDEN = {"pyspark", "delta", "pyarrow", "time", "datetime", "random", "secrets", "os", "socket", "subprocess", "pathlib"}
EXCUSED = {
    ("geo/config/yaml_nodes.py", "os"): "path arithmetic: relative paths are relative to the configuration file",
    ("geo/times.py", "datetime"): "times as numbers; no clock is read",
    ("geo/coordination/claims.py", "datetime"): "the time of a claim, which it does not look at",
    ("geo/journal/event_rate.py", "datetime"): "the time of an event; no clock is read",
    ("geo/ops/looks/subscriptions.py", "datetime"): "the time of a message; no clock is read",
    ("geo/replication/link_state.py", "datetime"): "the time of a state, which it does not look at",
    ("geo/config/secret.py", "os"): "Secret.reveal, which alone reads",
    ("geo/config/secret.py", "pathlib"): "Secret.reveal, which alone reads",
}
ROOMS = (
    *(
        "schemas",
        "reasons",
        "errors",
        "crash",
        "times",
        "now",
        "version",
        "remedies",
        "text",
        "shown",
        "slices",
        "locations",
        "disk",
        "sql_text",
        "names",
        "ids",
        "late",
        "faults",
        "asking",
        "config",
        "jars",
        "session",
        "progress",
    ),
    *("delta", "journal", "coordination"),
    *("streams", "log", "replication", "subscription", "ops", "fleet", "testing", "cli", "__main__", "jobs"),
)
"""From the ground up. A room is a folder or a file of geo; what it imports lies below it."""


@cache
def _parsed(name: str) -> ast.Module:
    return ast.parse((ROOT / name).read_text())


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    """Those that are in a statement, and all in them: expressions, of which there are ten times as many, have none."""
    for field in ("body", "orelse", "finalbody", "handlers", "cases"):
        for one in getattr(node, field, ()):
            yield one
            yield from _statements(one)


@cache
def _imports(name: str) -> set[str]:
    """The modules that a file imports, in full, also those only for types."""
    names: set[str] = set()
    for node in _statements(_parsed(name)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


@cache
def _imported(name: str) -> frozenset[str]:
    """The files of this repository that a file imports."""
    return frozenset(_files(_imports(name)))


def _files(modules: Iterable[str]) -> set[str]:
    """The files of this repository among the modules."""
    paths = {module.replace(".", "/") for module in modules if module.split(".")[0] == "geo"}
    return {f"{path}{end}" for path in paths for end in (".py", "/__init__.py") if (ROOT / f"{path}{end}").exists()}


def _reached(name: str) -> set[str]:
    """The file, and all files of this repository that it imports, and they."""
    found, left = {name}, [name]
    while left:
        fresh = _imported(left.pop()) - found
        found |= fresh
        left += fresh
    return found


def _says_so(path: Path) -> bool:
    """Whether a file says of itself that it is pure, in the text that it begins with: nothing is parsed before a test runs."""
    return re.match(r'"""(?:(?!""").)*\bPure\b', path.read_text(), re.DOTALL) is not None


PURE = sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("geo/**/*.py") if path.parent.name == "schemas" or _says_so(path))
"""The files that say so of themselves, and the schemas."""


def test_pure_files_import_no_spark_clock_random_or_io_nor_does_what_they_import() -> None:
    assert len(PURE) > 90
    found = {
        (name, reached, module)
        for name in PURE
        for reached in _reached(name)
        for module in {imported.split(".")[0] for imported in _imports(reached)} & FORBIDDEN
        if (reached, module) not in EXCUSED
    }
    assert found == set()


def _room(name: str) -> str:
    return Path(Path(name).parts[1]).stem


def test_what_a_room_imports_lies_below_it() -> None:
    files = {str(path.relative_to(ROOT)) for path in ROOT.glob("geo/**/*.py")}
    files -= {"geo/__init__.py"}
    homeless = sorted(name for name in files if _room(name) not in ROOMS)
    assert homeless == [], "give each its place in ROOMS"
    arrows = {(name, other) for name in files for other in _imported(name) & files}
    assert len(arrows) > len(files)
    assert {(name, other) for name, other in arrows if ROOMS.index(_room(other)) > ROOMS.index(_room(name))} == set()


def test_no_files_import_each_other_in_a_circle() -> None:
    """Also not for types alone; but what `geo` itself names it imports when somebody asks for that."""
    files = {str(path.relative_to(ROOT)) for path in ROOT.glob("geo/**/*.py")} - {"geo/__init__.py"}
    TopologicalSorter({name: _imported(name) - {name} for name in files}).prepare()  # raises CycleError, which names them


def test_nobody_outside_geo_delta_imports_an_engine() -> None:
    """Which engine answers is chosen by `geo.delta.table.Table`."""
    files = [str(path.relative_to(ROOT)) for path in ROOT.glob("geo/**/*.py")]
    outside = [name for name in files if not name.startswith("geo/delta/")]
    found = {name for name in outside if any(module.startswith("geo.delta.engines") for module in _imports(name))}
    assert len(outside) > 200
    assert found == set()


@pytest.mark.parametrize("name", ["checks", "columns", "comparison", "report", "verify"])
def test_verify_imports_nothing_of_what_it_checks(name: str) -> None:
    imported = _imports(f"geo/ops/verify/{name}.py")
    assert imported
    assert not [module for module in imported if module.startswith(("geo.replication", "geo.log.publish"))]


def test_what_an_engine_leaves_to_another_is_caught_in_one_place() -> None:
    caught = [
        path.relative_to(ROOT).as_posix()
        for path in sorted((ROOT / "geo").rglob("*.py"))
        if "UnsupportedError" in path.read_text()
        for node in ast.walk(_parsed(path.relative_to(ROOT).as_posix()))
        if isinstance(node, ast.ExceptHandler) and node.type is not None and "UnsupportedError" in ast.unparse(node.type)
    ]
    assert caught == ["geo/delta/engine.py"]


def test_of_what_none_means_every_public_function_of_geo_delta_tells() -> None:
    told: dict[str, bool] = {}
    for path in sorted((ROOT / "geo/delta").rglob("*.py")):
        for at, node in _public_functions(_parsed(path.relative_to(ROOT).as_posix())):
            if node.returns is not None and ast.unparse(node.returns).endswith("| None"):
                said = ast.get_docstring(node) or ""
                tells = "None" in said or re.search(r"\bas `[\w.]+`", said) is not None  # which tells
                told[node.name] = told.get(node.name, False) or tells or at in ENGINES
    assert [name for name, tells in told.items() if not tells] == []


ENGINES = ("NativeEngine", "SparkEngine", "DiskStore", "ObjectStore")
"""Classes whose methods are those of `Engine`, `ReadStore` or `Store`, which tell."""


def _public_functions(module: ast.Module) -> Iterator[tuple[str, ast.FunctionDef]]:
    """With the class that has them."""
    for node in module.body:
        inside = node.body if isinstance(node, ast.ClassDef) and not node.name.startswith("_") else [node]
        for one in inside:
            if isinstance(one, ast.FunctionDef) and not one.name.startswith("_"):
                yield (node.name if isinstance(node, ast.ClassDef) else ""), one


def test_one_file_alone_reads_this_hosts_clock() -> None:
    """So that a whole process can have another clock, and nobody decides by one that was not held against the storage's unnoticed."""
    reads = re.compile(
        r"\btime\.time(_ns)?\(|\bdatetime\.(now|utcnow|today)\(|\bdate\.today\(|\bcurrent_(timestamp|date)\(|from time import"
    )
    sources = ROOT.glob("geo/**/*.py")
    assert [str(path.relative_to(ROOT)) for path in sources if reads.search(path.read_text())] == ["geo/now.py"]


def test_nothing_reaches_into_the_jvm() -> None:
    sources = ROOT.glob("geo/**/*.py")
    handles = {"_jvm", "_jsc", "_jdf", "_jsparkSession", "_gateway"}
    found = [
        (str(path.relative_to(ROOT)), node.attr)
        for path in sources
        if any(handle in path.read_text() for handle in handles)
        for node in ast.walk(_parsed(str(path.relative_to(ROOT))))
        if isinstance(node, ast.Attribute) and node.attr in handles
    ]
    assert found == []


def test_a_name_means_one_thing() -> None:
    """Of a class that others may use."""
    files: dict[str, list[str]] = {}
    for path in ROOT.glob("geo/**/*.py"):
        for node in _parsed(path.relative_to(ROOT).as_posix()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                files.setdefault(node.name, []).append(path.relative_to(ROOT).as_posix())
    assert len(files) > 300
    assert {name: of for name, of in files.items() if len(of) > 1} == {}


def test_every_module_says_what_belongs_in_it() -> None:
    sources = ROOT.glob("geo/**/*.py")
    silent = [str(path) for path in sources if path.read_text().strip() and not re.match(r'"""[^"]', path.read_text())]
    assert silent == []


def test_every_planted_fault_is_of_a_text_that_is_there_once() -> None:
    """Else whoever changes a line finds out only when the faults are planted."""
    gone = {one.what: count for one in FAULTS if (count := (ROOT / one.file).read_text().count(one.right)) != 1}
    assert gone == {}


def _names_of_imports(statements: Iterable[ast.AST]) -> set[str]:
    imports = (one for one in statements if isinstance(one, (ast.Import, ast.ImportFrom)))
    return {name.asname or name.name.partition(".")[0] for one in imports for name in one.names}


def test_what_is_imported_for_types_alone_is_used_in_types_alone() -> None:
    """Neither mypy nor ruff tells: they take the name for one that is there."""
    used = []
    for path in sorted((ROOT / "geo").rglob("*.py")):
        tree = _parsed(path.relative_to(ROOT).as_posix())
        whole = list(_statements(tree))
        of_types = [one for one in whole if isinstance(one, ast.If) and "TYPE_CHECKING" in ast.unparse(one.test)]
        held = {id(inner) for one in of_types for inner in ast.walk(one)}
        told = {name.id for one in of_types for other in one.orelse for name in ast.walk(other) if isinstance(name, ast.Name)}
        names = (
            _names_of_imports(one for one in whole if id(one) in held)
            - _names_of_imports(one for one in whole if id(one) not in held)
            - told
        )
        if names:
            nodes = list(ast.walk(tree))
            kinds = [
                kind for node in nodes for kind in (getattr(node, "annotation", None), getattr(node, "returns", None)) if kind
            ]
            held |= {id(inner) for kind in kinds for inner in ast.walk(kind)}
            used += [
                (path.name, one.id) for one in nodes if isinstance(one, ast.Name) and one.id in names and id(one) not in held
            ]
    assert used == []


def test_the_page_of_the_structure_names_files_that_are_there() -> None:
    page = (ROOT / "docs/structure.md").read_text()
    there = [f"/{path.relative_to(ROOT).as_posix()}" for path in [*ROOT.glob("geo/**/*.py"), *ROOT.glob("tests/**/*.py")]]
    named = set(re.findall(r"`([\w/]+\.py)`", page))
    assert len(named) > 150
    assert {name for name in named if not any(path.endswith(f"/{name}") for path in there)} == set()
