"""What the notebooks import is there. `./run notebooks` runs them."""

from __future__ import annotations

import ast
import importlib
import json
from pathlib import Path

import pytest

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
