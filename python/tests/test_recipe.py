"""The recipe with stock pyarrow.flight, as a user runs it."""

import subprocess
import sys

from conftest import ROOT, Server


def test_stock_pyarrow_gets_back_what_it_put_in(server: Server) -> None:
    recipe = ROOT / "docs" / "recipes" / "flight_recipe.py"
    ran = subprocess.run([sys.executable, "-I", str(recipe), server.address], capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr
    assert "exported all 1000, as they were inserted" in ran.stdout
    assert "statistics: 1000 present, 136 drawn, 136 acknowledged" in ran.stdout
    assert "reprise" not in recipe.read_text().split("import ", 1)[1].split("TABLE")[0], "it imports our package"
