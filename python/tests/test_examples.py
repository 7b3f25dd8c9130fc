"""The recipe with stock pyarrow.flight and the PyTorch example, as a user runs them."""

import os
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


@pytest.mark.parametrize("ranks", [1, 2])
def test_grpo_with_replay_learns_to_add(binary: pathlib.Path, ranks: int) -> None:
    pytest.importorskip("torch", reason="torch is not installed: pip install torch to run the example's test")
    example = str(ROOT / "python" / "examples" / "torch_grpo.py")
    launcher = ["-m", "torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1", f"--nproc-per-node={ranks}"]
    ran = subprocess.run(
        [sys.executable, *(launcher if ranks > 1 else []), example, "--largest", "9", "--warm-up", "50",
         "--updates", "120", "--learning-rate", "1e-3"],
        capture_output=True, text=True, timeout=1200,
        env={**os.environ, "REPRISE": str(binary), "PYTHONPATH": str(ROOT / "python" / "src"), "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    found = re.search(r"held-out accuracy: ([\d.]+) before, ([\d.]+) after 120 updates", ran.stdout)
    assert found and float(found[2]) > float(found[1]) + 0.1, ran.stdout
    assert "staleness" in ran.stdout


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
