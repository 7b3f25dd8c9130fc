"""What the adapters of trainers share: the options of a published method, and what `reprise.slime`, `reprise.verl` and
`reprise.areal` do with a table in each step."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ..batch import Batch
from ..errors import Invalid, Starved
from ..methods import METHOD_BATCH, Method, method_of
from ..table import Table
from . import layout

_UNREPORTED = ("td_error", "gradient_norm")
"""Priority bases that a trainer must report."""


NO_METHOD = Method("", "", {}, {})


def method(name: str | None) -> Method:
    """Return a published method, without a name one of no keys."""
    return NO_METHOD if name is None else method_of(name)


def capacity(name: str | None, batch: int) -> int:
    """Return the capacity of a table for batches of so many rollouts: two of them unless the method says otherwise."""
    batches: float = method(name).keys.get("capacity", 2 * METHOD_BATCH) / METHOD_BATCH
    return math.ceil(batches * batch)


def fresh_share(name: str | None, default: float) -> float:
    """Return the share of a batch that a method wants fresh."""
    trainer = method(name).trainer
    mixed = 1 / (1 + trainer["replay.mix"]) if "replay.mix" in trainer else default
    return float(trainer.get("replay.fresh_share", mixed))


def check(definition: Mapping[str, object], trainer: str) -> None:
    """Refuse the keys of a table that make replay wrong in a trainer that reports nothing after an update."""
    for name, value in (("unit", "group"), ("shards", 1)):
        if definition.get(name, value) != value:
            raise Invalid(f"{name}: {definition[name]}: want {value}: whole groups are drawn for all workers")
    if definition.get("sampler") in ("fifo", "lifo"):
        raise Invalid(f"sampler: {definition['sampler']}: want one that draws again: a queue gives each group once")
    if definition.get("priority_base") in _UNREPORTED or definition.get("target_ess"):
        name = "target_ess" if definition.get("target_ess") else "priority_base"
        raise Invalid(f"{name}: {definition[name]}: needs reports of each update, which {trainer} does not give")


def replayed(value: Any) -> int:
    """Return the number of groups to draw for each new one."""
    if not isinstance(value, int) or value < 0:
        raise Invalid(f"replayed: {value!r}: want groups drawn for each new one: 0, 1, 2, …")
    return value


def follow(table: Table, version: int) -> None:
    """Bring a table to the version of a trainer's weights. A trainer that resumed is behind the table: rollouts of the
    weights that no longer exist leave."""
    if table.info().version > version:
        table.rewind(version)
    else:
        table.advance(version)


def draw(table: Table, groups: int, group_size: int) -> Batch | None:
    """Draw whole groups without waiting; None if the table has too few, or its limiter holds draws back."""
    try:
        return table.sample(groups * group_size, timeout=0) if groups else None
    except Starved:
        return None


def insert(table: Table, columns: dict[str, Any]) -> int:
    """Insert the groups that a table accepts, and return how many rollouts they have."""
    columns = layout.repaired(columns, whole_groups=True)
    rows = len(columns["lengths"])
    if rows:
        table.insert(columns)
    return rows


def metrics(fresh: int, inserted: int, batch: Batch | None) -> dict[str, float]:
    """Return what a trainer logs of a step: its new rollouts, those of them that the table did not take, and the
    rollouts drawn."""
    out: dict[str, float] = {
        "replay/fresh_rows": fresh,
        "replay/fresh_rows_skipped": fresh - inserted,
        "replay/replayed_rows": 0 if batch is None else len(batch),
    }
    if batch is not None:
        out |= {
            "replay/staleness/mean": float(batch.staleness.mean()),
            "replay/staleness/max": int(batch.staleness.max()),
            "replay/uses/mean": float(batch.uses.mean()),
            "replay/reward/mean": float(batch.rewards.mean()),
            "replay/present": batch.info.present,
        }
    return out
