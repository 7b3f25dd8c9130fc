"""The example trains: a transformer in PyTorch, against the service."""

import pathlib
import sys

import pytest
from conftest import ROOT, Server

pytest.importorskip("torch", reason="torch is not installed: pip install torch to run the example's test")
sys.path.insert(0, str(pathlib.Path(ROOT, "python", "examples")))


def test_grpo_with_replay_learns_to_add(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    import torch_grpo

    first, last = torch_grpo.main(
        ["--address", server.address, "--table", "torch-grpo-test", "--largest", "9", "--warm-up", "50", "--updates", "120",
         "--learning-rate", "1e-3"]
    )  # fmt: skip
    printed = capsys.readouterr().out
    assert "staleness" in printed and "after 120 updates" in printed
    assert last > first + 0.1, printed
