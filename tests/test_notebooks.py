"""The notebooks run from top to bottom, in a kernel of their own, as a reader would run them."""

from __future__ import annotations

import ast
import importlib
import json
from pathlib import Path

import pytest

from tests.processes import JAVA

NOTEBOOKS = sorted((Path(__file__).resolve().parents[1] / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_what_a_notebook_imports_of_this_package_is_there(path: Path) -> None:
    cells = [cell["source"] for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]
    code = [line for source in cells for line in "".join(source).splitlines() if line.startswith("from geo")]
    imported = [
        (node.module, name.name)
        for node in ast.parse("\n".join(code)).body
        if isinstance(node, ast.ImportFrom)
        for name in node.names
    ]
    assert imported
    for module, name in imported:
        assert hasattr(importlib.import_module(str(module)), name), f"{module} has no {name}"


@pytest.mark.spark
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_the_notebook_runs_and_ends_clean(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JDK_JAVA_OPTIONS", JAVA)
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]  # ships no types
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    said = "".join(output.get("text", "") for output in outputs)
    assert "clean:" in said
    assert any("image/png" in output.get("data", {}) for output in outputs), "there is a plot"
