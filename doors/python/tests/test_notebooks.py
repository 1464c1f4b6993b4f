"""The notebooks of examples/python run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[3] / "examples" / "python"


@pytest.mark.parametrize("name", sorted(path.stem for path in EXAMPLES.glob("*.ipynb")))
def test_a_notebook_runs(name: str) -> None:
    if name == "embeddings-into-torch":
        torch = pytest.importorskip("torch")
        if not torch.cuda.is_available():
            pytest.skip("there is no GPU")
    notebook = json.loads((EXAMPLES / f"{name}.ipynb").read_text())
    cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    names: dict[str, object] = {"__name__": "__main__"}
    for number, cell in enumerate(cells):
        # The last line of a cell is shown.
        exec(compile(cell, f"{name}, cell {number}", "exec"), names)


def test_there_are_notebooks() -> None:
    assert len(list(EXAMPLES.glob("*.ipynb"))) == 3
