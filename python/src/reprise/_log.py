"""Logging a table to trackio, Weights & Biases or MLflow, by their own packages."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from types import ModuleType
from typing import Any, Protocol

from .arrays import whole
from .errors import Invalid
from .stats import AgeESS, Stats

Samples = list[dict[str, Any]]

COLUMNS = ("id", "group", "prompt_id", "reward", "advantage", "version", "age", "uses", "length", "mean_logprob", "text")
"""The columns of a table of samples, as `Table.rollouts` has them."""


class Logged(Protocol):
    """A table: of one service, or in parts."""

    def stats(self) -> Stats: ...

    def rollouts(self, *, where: str = ..., order: str = ..., limit: int = ...) -> Samples: ...


def log(
    table: Logged,
    to: Any,
    *,
    step: int | None = None,
    samples: int = 0,
    where: str = "",
    order: str = "",
    prefix: str = "replay/",
) -> dict[str, float]:
    """Log a table's statistics, and a table of some of its rollouts, and return the statistics that were logged.

    Args:
        table: of `Client.table` or `Client.create`.
        to: the module ``wandb``, ``trackio`` or ``mlflow`` with a run that is open, or a run of the first two.
        step: of the logger. By default wandb and trackio count; for mlflow it is the table's version.
        samples: rollouts in the table of samples, which is named ``samples``; 0: none.
        where: a condition that those meet, such as ``"reward < 0.5"``.
        order: a number, the greatest first, such as ``"-mean_logprob"``; by default the newest are first.
        prefix: of all names.

    Raises:
        Invalid: ``to`` is none of those, or an expression is wrong.
    """
    write = _writer(to)
    count = whole("samples", samples, 0)
    stats = table.stats()
    metrics = {prefix + name: value for name, value in _flat(stats).items()}
    rows = table.rollouts(where=where, order=order, limit=count) if count else []
    data = {name: [row[name] for row in rows] for name in COLUMNS} if rows else None
    write(metrics, prefix + "samples", data, step, stats.version)
    return metrics


Write = Callable[[dict[str, float], str, "dict[str, list[Any]] | None", "int | None", int], None]


def _writer(to: Any) -> Write:
    """Return the function that writes to a logger, a module or an object of one."""
    name = to.__name__ if isinstance(to, ModuleType) else type(to).__module__
    package = name.partition(".")[0]
    if package == "mlflow" and isinstance(to, ModuleType):
        return _mlflow(to)
    if package in ("wandb", "trackio") and callable(getattr(to, "log", None)):
        make = getattr(importlib.import_module(package), "Table")
        return _wandb(to, make) if package == "wandb" else _trackio(to, make)
    raise Invalid(f"to: {to!r}: want the module wandb, trackio or mlflow, or a run of wandb or trackio")


def _wandb(run: Any, make: Any) -> Write:
    def write(metrics: dict[str, float], name: str, data: dict[str, list[Any]] | None, step: int | None, _: int) -> None:
        table = {name: make(columns=list(data), data=[list(row) for row in zip(*data.values())])} if data else {}
        run.log({**metrics, **table}, **_given(step))

    return write


def _trackio(run: Any, make: Any) -> Write:
    def write(metrics: dict[str, float], name: str, data: dict[str, list[Any]] | None, step: int | None, _: int) -> None:
        pandas = importlib.import_module("pandas")  # which trackio needs too
        table = {name: make(dataframe=pandas.DataFrame(data))} if data else {}
        run.log({**metrics, **table}, **_given(step))

    return write


def _mlflow(module: Any) -> Write:
    def write(
        metrics: dict[str, float], name: str, data: dict[str, list[Any]] | None, step: int | None, version: int
    ) -> None:
        at = version if step is None else step
        module.log_metrics(metrics, step=at)
        if data:  # which adds to the rows that are there
            steps = [at] * len(data["id"])
            module.log_table({"step": steps, **data}, artifact_file=f"{name}.json")

    return write


def _given(step: int | None) -> dict[str, int]:
    return {} if step is None else {"step": step}


def _flat(stats: Stats) -> dict[str, float]:
    """Return the numbers of statistics by name: of a histogram its mean and greatest value. Unknown ones are left out."""
    out: dict[str, float] = {}

    def add(name: str, value: Any) -> None:
        if isinstance(value, (bool, int, float)):
            if math.isfinite(value):
                out[name] = value
        elif isinstance(value, Mapping) and all(isinstance(key, int) for key in value):
            if count := sum(value.values()):
                add(f"{name}/mean", sum(key * number for key, number in value.items()) / count)
                add(f"{name}/max", max(value))
        elif isinstance(value, Mapping):
            for key, number in value.items():
                add(f"{name}/{key}", number)
        elif isinstance(value, list):
            for range in value:
                if isinstance(range, AgeESS):
                    add(f"ess/age_{range.first}_to_{range.last}", range.ess)
        elif is_dataclass(value):
            for f in fields(value):
                add(f"{name}/{f.name}", getattr(value, f.name))

    for f in fields(stats):
        if f.name not in ("table", "raw", "down"):
            add(f.name, getattr(stats, f.name))
    return out
