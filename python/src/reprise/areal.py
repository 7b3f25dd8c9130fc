"""AReaL: replay behind ``prepare_batch`` of its inference engine (areal 1.0.4).

.. code-block:: python

    with PPOTrainer(config, train_dataset=dataset) as trainer:
        reprise.areal.Replay(trainer.rollout, trainer.config, max_staleness=8)
        trainer.train(workflow=workflow, workflow_kwargs=kwargs)

Each batch that AReaL generates gets groups of earlier steps beside it. Versions are those that AReaL's engine writes
next to each token. `reprise.adapters.areal` has the conversions, and needs no AReaL.
"""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch.distributed as dist
from areal.infra.rpc.rtensor import RTensor
from areal.utils import stats_tracker
from areal.utils.data import split_and_unpad_tensor

from .adapters import areal, step
from .address import connect_or_serve
from .batch import Batch
from .definition import Keys
from .errors import Invalid
from .table import Table

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["Replay"]

_CARRIED = ("input_ids", "attention_mask", "loss_mask", "logprobs", "versions", "rewards")
"""Tensors of a trajectory. AReaL refuses a batch whose trajectories have different ones."""


class Replay:
    """Replaces ``prepare_batch`` of an engine by its own, which calls the engine's and adds groups of a table.

    Args:
        engine: ``trainer.rollout``: a ``RolloutController``, or the ``InferenceEngine`` of a single trainer process.
        config: ``trainer.config``.
        replayed: groups drawn for each new one, at least 0; 1: half of each batch is new.
        address: of the service; by default that in the environment's ``REPRISE_ADDRESS``, or else a service that this
            process starts, with its data in the folder ``replay`` below ``config.cluster.fileroot``, the experiment and
            the trial.
        table: its name; by default ``areal-EXPERIMENT-TRIAL``.
        definition: keys of the table (`reprise.Client.create`). By default its ``group_size`` is ``gconfig.n_samples``,
            and it holds twice what a step draws, for 8 versions more than ``rollout.max_head_offpolicyness``. AReaL's
            loss has no place for importance weights, so sampler ``prioritized`` needs ``importance_beta=0``. The unit
            is always ``group``.

    Attributes:
        table: the `reprise.Table`.
    """

    def __init__(
        self,
        engine: Any,
        config: Any,
        *,
        replayed: int = 1,
        address: str | None = None,
        table: str | None = None,
        **definition: Unpack[Keys],
    ) -> None:
        self.replayed = step.replayed(replayed)
        self.group_size: int = definition.get("group_size") or config.gconfig.n_samples
        step_rows = config.train_dataset.batch_size * self.group_size * max(self.replayed, 1)
        standard: Keys = {"max_staleness": config.rollout.max_head_offpolicyness + 8, "unit": "group"}
        if "max_size" not in definition:
            standard["capacity"] = 2 * step_rows
        keys: Keys = {**standard, **definition, "group_size": self.group_size}
        _check(engine, config, keys, step_rows)
        run = (config.experiment_name, config.trial_name)
        client = connect_or_serve(address, Path(config.cluster.fileroot, "replay", *run))
        name = table or re.sub(r"[^A-Za-z0-9._-]", "-", "-".join(["areal", *run]))[:128]
        self.table: Table = client.create(name, **keys)
        self._sampling = {"temperature": config.gconfig.temperature, "top_p": config.gconfig.top_p}
        self._engine, self._generate = engine, engine.prepare_batch
        engine.prepare_batch = self.prepare_batch

    def prepare_batch(self, *args: Any, **kwargs: Any) -> list[dict[str, Any]]:
        """Return AReaL's batch of new trajectories, each a group, and behind them ``replayed`` times as many of the
        table, or none while it has too few.

        The draw comes before the insertion, so no group is in a batch twice as new and as replayed.
        """
        fresh: list[dict[str, Any]] = self._generate(*args, **kwargs)
        local = _local(fresh)
        step.follow(self.table, self._engine.get_version())
        batch = step.draw(self.table, self.replayed * len(fresh), self.group_size)
        whole = [trajectory for trajectory in local if len(trajectory["rewards"]) == self.group_size]
        inserted = step.insert(self.table, areal.rollouts(whole, **self._sampling)) if whole else 0
        rows = sum(len(trajectory["rewards"]) for trajectory in local)
        stats_tracker.scalar(**step.metrics(rows, inserted, batch))
        return fresh if batch is None else fresh + _trajectories(batch, local[0])


def _check(engine: Any, config: Any, definition: Keys, step_rows: int) -> None:
    """Refuse what would make replay wrong."""
    if isinstance(getattr(engine.prepare_batch, "__self__", None), Replay):
        raise Invalid("engine: has a Replay already: want one for each engine")
    if dist.is_initialized() and dist.get_world_size() > 1:
        raise Invalid(
            f"engine: of one of {dist.get_world_size()} trainer processes: each would draw by itself, and AReaL needs "
            "as many trajectories in all: want its single controller, without AREAL_SPMD_MODE"
        )
    step.check(definition, "AReaL")
    capacity = definition.get("capacity", definition.get("max_size"))
    if isinstance(capacity, int) and capacity < step_rows:
        raise Invalid(f"capacity: {capacity}: want at least {step_rows}, the rollouts that a step draws")
    if definition.get("sampler") == "prioritized" and definition.get("importance_beta") != 0:
        raise Invalid(
            f"importance_beta: {definition.get('importance_beta')}: AReaL's loss has no place for importance weights: "
            "want 0, or sampler distinct or uniform"
        )
    if config.actor.recompute_logprob and not config.actor.use_decoupled_loss:
        raise Invalid(
            "actor.recompute_logprob: true without actor.use_decoupled_loss: AReaL would take replayed rollouts for "
            "those of the current weights: want use_decoupled_loss=true, or recompute_logprob=false"
        )


def _local(trajectories: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return trajectories with their tensors in this process.

    AReaL's controller has references, which keep what they fetch and would send it along in each later call: copies of
    them are read.
    """
    for name in [name for each in trajectories for name in set(_CARRIED) ^ each.keys()]:
        if name.startswith("multi_modal"):
            raise Invalid(f"{name}: images are not carried: want prompts of text only")
        problem = "missing" if name in _CARRIED else "the table does not carry it"
        raise Invalid(f"{name}: {problem}: want trajectories of {', '.join(_CARRIED)}")
    copies = [
        {name: dataclasses.replace(value) if isinstance(value, RTensor) else value for name, value in each.items()}
        for each in trajectories
    ]
    local: list[dict[str, Any]] = RTensor.localize(copies)
    return local


def _trajectories(batch: Batch, like: dict[str, Any]) -> list[dict[str, Any]]:
    """Return each drawn group as a trajectory with the types of another, padded to its own longest rollout."""
    made = areal.tensors(batch, torch=True)
    typed = [{name: each[name].to(like[name].dtype) for name in like} for each in made]
    trimmed = [split_and_unpad_tensor(each, 1, [len(each["rewards"])])[0] for each in typed]
    return [{name: value.contiguous() for name, value in each.items()} for each in trimmed]
