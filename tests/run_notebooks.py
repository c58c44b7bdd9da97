"""The notebooks run from top to bottom, in a kernel of their own, as a reader would run them: `./run notebooks`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.processes import JAVA
from tests.test_notebooks import NOTEBOOKS


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
