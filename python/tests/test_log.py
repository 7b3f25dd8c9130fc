"""Logging with the real packages, each of which writes to a folder. Where one is not installed its test is skipped."""

from __future__ import annotations

import json
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import rollouts

import reprise

Create = Callable[..., reprise.Table]


@pytest.fixture
def used(table: Create) -> reprise.Table:
    """A table of which some rollouts were used, at version 3."""
    t = table(sampler="prioritized", max_staleness=8)
    t.insert(rollouts([4] * 8), text=[f"text {i}" for i in range(8)])
    t.advance(3)
    t.sample(4)
    return t


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    yield tmp_path


def check(metrics: dict[str, float]) -> None:
    assert metrics["replay/present"] == 8 and metrics["replay/version"] == 3 and metrics["replay/acknowledged"] == 4
    assert metrics["replay/staleness/mean"] == 3 and metrics["replay/staleness/max"] == 3
    assert all(isinstance(value, (int, float)) for value in metrics.values())


class Fake(types.ModuleType):
    """Stands for a package: what was logged to it."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.logged: list[tuple[dict[str, Any], int | None]] = []

    def Table(self, **given: Any) -> dict[str, Any]:
        return given

    def log(self, values: dict[str, Any], step: int | None = None) -> None:
        self.logged.append((values, step))


def test_statistics_and_samples_are_logged(used: reprise.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    wandb = Fake("wandb")
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    metrics = reprise.log(used, wandb)
    check(metrics)
    assert wandb.logged == [(metrics, None)]
    reprise.log(used, wandb, step=7, samples=2, where="reward == 1", order="-uses", prefix="sums/")
    values, step = wandb.logged[1]
    assert step == 7 and values["sums/present"] == 8
    assert len(values["sums/samples"]["data"]) == 2
    row = dict(zip(values["sums/samples"]["columns"], values["sums/samples"]["data"][0]))
    assert row["reward"] == 1 and row["text"].startswith("text ")


@pytest.mark.parametrize("to", [None, "wandb", json, object()])
def test_anything_else_is_refused(to: object) -> None:
    with pytest.raises(reprise.Invalid, match="want the module wandb, trackio or mlflow"):
        reprise.log(None, to)  # type: ignore[arg-type]


def test_wandb_takes_the_log(used: reprise.Table, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wandb = pytest.importorskip("wandb", reason="wandb is not installed")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    run = wandb.init(project="test", dir=str(folder))
    check(reprise.log(used, wandb, samples=3))
    check(reprise.log(used, run, step=5))
    assert run.summary["replay/present"] == 8
    run.finish()
    tables = list(folder.glob("wandb/offline-run-*/files/media/table/replay/samples*.json"))
    assert len(tables) == 1 and len(json.loads(tables[0].read_text())["data"]) == 3


def test_trackio_takes_the_log(used: reprise.Table, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACKIO_DIR", str(folder))
    trackio = pytest.importorskip("trackio", reason="trackio is not installed")
    run = trackio.init(project="test", embed=False)
    check(reprise.log(used, trackio, samples=3))
    check(reprise.log(used, run, step=5))
    trackio.finish()
    assert list(folder.rglob("*.db")), "trackio wrote elsewhere"


def test_mlflow_takes_the_log(used: reprise.Table, folder: Path) -> None:
    mlflow = pytest.importorskip("mlflow", reason="mlflow is not installed")
    mlflow.set_tracking_uri(f"sqlite:///{folder}/mlflow.db")
    with mlflow.start_run() as run:
        check(reprise.log(used, mlflow, samples=3))
        check(reprise.log(used, mlflow, step=5, samples=2))
    client = mlflow.MlflowClient()
    history = client.get_metric_history(run.info.run_id, "replay/present")
    assert [(point.step, point.value) for point in history] == [(3, 8), (5, 8)]
    assert len(mlflow.load_table("replay/samples.json", run_ids=[run.info.run_id])) == 5
