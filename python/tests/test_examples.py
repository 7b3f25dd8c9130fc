"""The recipe with stock pyarrow.flight and the notebook, as a user runs them."""

import pathlib
import re
import subprocess
import sys

import nbclient
import nbformat
import pytest
from conftest import ROOT, Server


def test_stock_pyarrow_gets_back_what_it_put_in(server: Server) -> None:
    recipe = ROOT / "docs" / "recipes" / "flight_recipe.py"
    ran = subprocess.run(
        [sys.executable, "-I", str(recipe), server.address], capture_output=True, text=True, timeout=120
    )
    assert ran.returncode == 0, ran.stderr
    assert "exported all 1000, as they were inserted" in ran.stdout
    assert "statistics: 1000 present, 136 drawn, 136 acknowledged" in ran.stdout
    assert "reprise" not in recipe.read_text().split("import ", 1)[1].split("TABLE")[0], "it imports our package"


def test_the_quickstart_notebook_runs(binary: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPRISE", str(binary))
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "python" / "src"))
    notebook = nbformat.read(ROOT / "docs" / "quickstart.ipynb", as_version=4)
    nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3").execute()
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    printed = "".join(output.get("text", "") for output in outputs)
    first, last = (float(number) for number in re.findall(r"\d\.\d\d", printed)[:2])
    assert last > first + 0.2, printed
    assert "2624 inserted, 5120 used" in printed
    assert any("image/png" in output.get("data", {}) for output in outputs), "no plot"
