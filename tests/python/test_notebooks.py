"""The notebooks run from top to bottom, and their Markdown twins are the same notebooks."""

from __future__ import annotations

from pathlib import Path

import pytest
from patience import PATIENCE_S

jupytext = pytest.importorskip("jupytext")
nbclient = pytest.importorskip("nbclient")

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
NAMES = sorted(path.stem for path in NOTEBOOKS.glob("*.md"))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.filterwarnings("ignore")
def test_a_notebook_runs(name: str, tmp_path: Path) -> None:
    notebook = jupytext.read(NOTEBOOKS / f"{name}.md")
    nbclient.NotebookClient(
        notebook,
        timeout=PATIENCE_S,
        kernel_name="python3",
        resources={"metadata": {"path": str(tmp_path)}},
    ).execute()
    assert any(cell.get("outputs") for cell in notebook.cells)


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_is_its_twin(name: str) -> None:
    twin = jupytext.read(NOTEBOOKS / f"{name}.md")
    notebook = jupytext.read(NOTEBOOKS / f"{name}.ipynb")
    assert [(c.cell_type, c.source) for c in notebook.cells] == [
        (c.cell_type, c.source) for c in twin.cells
    ]
