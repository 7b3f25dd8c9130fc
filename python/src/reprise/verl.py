"""Replay in verl: a sampler for its V1 trainer, switched on by configuration (verl 0.9.1, TransferQueue 0.1.11).

    trainer.v1.sampler.custom_sampler.path=pkg://reprise.verl
    trainer.v1.sampler.custom_sampler.name=RepriseReplayBuffer

The trainer asks the sampler for a batch. `RepriseReplayBuffer` waits for new groups as verl's own does, inserts them
into a table of the service, and adds groups drawn from it: they go back into TransferQueue under keys of their own, and
the trainer takes them for groups that were just generated. docs/verl.md is the guide.

This module needs verl. `reprise.adapters.verl` converts the `DataProto` of its older V0 trainer, and needs nothing.
"""

from __future__ import annotations

import json
import logging
import re
import time
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
import transfer_queue as tq
from omegaconf import OmegaConf
from tensordict import NonTensorStack, TensorDict
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer, ReplayBufferAsync

from .adapters import layout, step
from .address import connect_or_serve
from .advice import Meter
from .arrays import Array
from .batch import Batch
from .errors import Invalid
from .rollouts import OTHER_COLUMNS, ROW_COLUMNS, TOKEN_COLUMNS
from .table import Table

__all__ = ["RepriseReplayBuffer"]

_log = logging.getLogger(__name__)

_RESPONSE = ("response_mask", "rollout_log_probs", "rm_scores")
"""Fields of one entry per token of the response. Those derived from them and the tokens are made anew."""

_REFUSED = {
    "routed_experts": "actor_rollout_ref.rollout.enable_rollout_routing_replay=false",
    "teacher_logprobs": "distillation.enabled=false",
}
"""Fields that verl would drop from the whole batch if replayed rows lacked them, and what switches them off."""

BEFORE_REWIND = "before-rewind"
"""Checkpoint of the table that exists while a restarted trainer takes it back to its own version."""


class RepriseReplayBuffer(ReplayBuffer):
    """verl's replay buffer with groups of earlier steps in each batch.

    verl makes one from ``trainer.v1.sampler``. With a trainer mode other than ``sync`` the instance waits as verl's
    `ReplayBufferAsync` does. Keys of ``trainer.v1.sampler.sampler_kwargs``:

    - ``address``: of the service; by default that in the environment's ``REPRISE_ADDRESS``, or else a service that the
      trainer's process starts, with its data in the folder ``replay`` of ``trainer.default_local_dir``.
    - ``table``: its name; by default ``verl-PROJECT-EXPERIMENT``.
    - ``replayed``: groups drawn for each new one, at least 0; 1 by default: half of each batch is new.
    - ``group_size``: by default ``actor_rollout_ref.rollout.n``.
    - ``advice``: after 20 steps log whether several updates on a batch, a table or another batch would pay; by default
      true. ``meter.advice()`` returns it.
    - keys of the table (`reprise.Definition`). By default it holds the rollouts of two steps, has ``max_staleness`` 8,
      sampler ``prioritized`` and ``importance_beta`` 0. Its unit is always ``group``, since verl computes advantages
      from the rows of a batch that share a uid.

    Attributes:
        table: the `reprise.Table`.
        meter: measures the trainer's waits for rollouts and the time from one batch to the next call.
    """

    def __new__(cls, trainer_mode: str = "sync", *_: Any, **__: Any) -> RepriseReplayBuffer:
        """Choose the class for the trainer's mode."""
        chosen = _AsyncReplayBuffer if cls is RepriseReplayBuffer and trainer_mode != "sync" else cls
        made: RepriseReplayBuffer = super().__new__(chosen)
        return made

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        options = _plain(self.sampler_kwargs)
        # A sampler is given its own section of the configuration; refill_fn is a method of the trainer, which has all.
        config = _plain(getattr(getattr(self.refill_fn, "__self__", None), "config", None))
        if not config:
            _log.warning(
                "the trainer's configuration cannot be read: check that algorithm.rollout_correction.bypass_mode=true "
                "and actor_rollout_ref.rollout.calculate_log_probs=true"
            )
        self.group_size: int = options.pop("group_size", None) or _at(config, "actor_rollout_ref.rollout.n")
        if not self.group_size:
            raise Invalid("group_size: not given, and actor_rollout_ref.rollout.n cannot be read: want it")
        self.replayed = step.replayed(options.pop("replayed", 1))
        names = [_at(config, f"trainer.{part}_name") for part in ("project", "experiment")]
        name = options.pop("table", None) or "-".join(["verl", *(str(part) for part in names if part)])
        address, folder = options.pop("address", None), Path(_at(config, "trainer.default_local_dir") or ".", "replay")
        prompts, advice = _at(config, "data.train_batch_size"), options.pop("advice", True)
        if not isinstance(advice, bool):
            raise Invalid(f"advice: {advice!r}: want true or false")
        definition = {
            "capacity": 2 * prompts * self.group_size if prompts else 4096,
            "sampler": "prioritized",
            "max_staleness": 8,
            "importance_beta": 0.0,
            **options,
        }
        _check(config, definition)
        self._sampling = {
            key: float(_at(config, f"actor_rollout_ref.rollout.{key}") or 1.0) for key in ("temperature", "top_p")
        }
        self._weighted = definition["importance_beta"] != 0
        self._resumed = False
        self.table: Table = connect_or_serve(address, folder).create(
            re.sub(r"[^A-Za-z0-9._-]", "-", name)[:128], unit="group", group_size=self.group_size, **definition
        )
        update = (_at(config, "actor_rollout_ref.actor.ppo_mini_batch_size") or prompts or 1) * self.group_size
        self.meter = Meter(update, self.group_size, self.table.stats, on=advice)
        self._handed: tuple[float, int] | None = None  # when the trainer got the last batch, and its rows

    def sample(self, global_steps: int, partition_id: str, batch_size: int) -> tuple[KVBatchMeta, dict[str, Any]]:
        """Return verl's batch of new groups with groups of the table beside them.

        The draw comes before the insertion, so no rollout is in a batch twice as new and as replayed.

        Args:
            global_steps: the trainer's step; the weights that generate for it have version ``global_steps - 1``.
            partition_id: ``"val"`` is left to verl.
            batch_size: new groups, in prompts.

        Raises:
            Invalid: naming the field that rows lack or the table cannot carry, and the option that changes it.
        """
        began = time.monotonic()
        meta, metrics = super().sample(global_steps, partition_id, batch_size)
        if partition_id == "val":
            return meta, metrics
        if self._handed is not None:
            self.meter.updated(began - self._handed[0], self._handed[1])
        self.meter.generated(time.monotonic() - began, len(meta.keys))
        whole, metrics = self._extended(meta, metrics, global_steps, batch_size)
        self._handed = time.monotonic(), len(whole.keys)
        return whole, metrics

    def _extended(
        self, meta: KVBatchMeta, metrics: dict[str, Any], global_steps: int, batch_size: int
    ) -> tuple[KVBatchMeta, dict[str, Any]]:
        """Insert verl's batch, and return it with groups of the table beside it."""
        partition_id = meta.partition_id
        data = tq.kv_batch_get(keys=meta.keys, partition_id=partition_id)
        columns = self._columns(meta, data)
        newest = max([global_steps - 1, *(tag["max_global_steps"] for tag in meta.tags)])
        kept = self._advance(newest)
        groups = min(batch_size * self.replayed, len(self.table) // self.group_size)
        batch = step.draw(self.table, groups, self.group_size)
        inserted = step.insert(self.table, columns) if columns else 0
        if inserted:
            self.meter.inserted(columns["reward"], columns["group"])
        metrics = {**metrics, **step.metrics(len(meta.keys), inserted, batch), **kept}
        if self._weighted:
            self._put_weights(meta, np.ones(len(meta.keys)))
        if batch is None:
            return meta, metrics
        drawn = self._put(batch, meta, data, global_steps)
        metrics["replay/generation_seconds"] = _seconds(batch.column("meta") if batch.has("meta") else [])
        if self._weighted:
            self._put_weights(drawn, batch.weights)
            metrics["replay/weight/mean"] = float(batch.weights.mean())
        return (
            KVBatchMeta(partition_id=partition_id, keys=meta.keys + drawn.keys, tags=meta.tags + drawn.tags),
            metrics,
        )

    def _columns(self, meta: KVBatchMeta, data: Any) -> dict[str, Any]:
        """Return the columns of new groups, but not those of another size than group_size, and of sessions with several
        outputs."""
        _check_fields(data)
        uids = np.array([key.rsplit("_", 2)[0] for key in meta.keys])
        outputs = np.array([int(key.rsplit("_", 2)[2]) for key in meta.keys])
        _, group, sizes = np.unique(uids, return_inverse=True, return_counts=True)
        several = np.bincount(group, weights=outputs > 0) > 0
        rows = np.flatnonzero((sizes == self.group_size)[group] & ~several[group])
        if not len(rows):
            return {}
        rows = rows[np.argsort(group[rows], kind="stable")]
        parts = {name: _rows(data[name], rows) for name in ("prompts", "responses", *_RESPONSE)}
        mask = [_after(prompt, part != 0) for prompt, part in zip(parts["prompts"], parts["response_mask"])]
        logprobs = [_after(prompt, part) for prompt, part in zip(parts["prompts"], parts["rollout_log_probs"])]
        for row, scores in enumerate(parts["rm_scores"]):
            if scores[:-1].any():
                raise Invalid(
                    f"rm_scores: {meta.keys[rows[row]]}: rewards before the last token: want one at the last token"
                )
        others = [name for name in data.keys() if not isinstance(data[name], torch.Tensor) and name != "uid"]
        lengths = np.array([len(part) for part in mask])
        return {
            "lengths": lengths,
            "tokens": np.concatenate([part for pair in zip(parts["prompts"], parts["responses"]) for part in pair]),
            "mask": np.concatenate(mask).astype(np.uint8),
            "logprobs": np.concatenate([np.where(m, part, 0) for m, part in zip(mask, logprobs)]).astype(np.float32),
            "versions": np.concatenate([_versions(meta.tags[row], part) for row, part in zip(rows, mask)]),
            "reward": np.array([part.sum() for part in parts["rm_scores"]], np.float32),
            "group": group[rows],
            **layout.row_columns(len(rows), uids[rows], None, **self._sampling),
            "meta": _meta({str(name): _objects(data, name) for name in others}, rows),
        }  # fmt: skip

    def _advance(self, version: int) -> dict[str, float]:
        """Bring the table to the version of the trainer's weights, back to it after a restart."""
        if not self._resumed:
            if self._has_checkpoint():
                self.table.restore(BEFORE_REWIND)
            kept = self._rewind(version) if self.table.info().version > version else None
            self._resumed = True
            if kept is not None:
                return kept
        self.table.advance(version)
        return {}

    def _has_checkpoint(self) -> bool:
        """Tell whether there is the checkpoint of a rewind: a trainer died during it, or it is not over."""
        try:
            return any(saved.name == BEFORE_REWIND for saved in self.table.checkpoints())
        except Invalid:  # the service keeps nothing on disk
            return False

    def _rewind(self, version: int) -> dict[str, float]:
        """Go back to a trainer's checkpoint without losing what was generated since.

        Rollouts of the d-th update after the checkpoint enter again as those of the d-th before it: the weights that
        generated them are d updates away from the restored ones either way. What max_staleness would refuse leaves. A
        checkpoint holds all of them until it is over.
        """
        try:
            self.table.checkpoint(BEFORE_REWIND)
        except Invalid as error:  # the service keeps nothing on disk
            _log.warning("table %s: a crash while it goes back may lose rollouts: %s", self.table.name, error)
        table = self.table.export()
        limit = self.table.info().definition.get("max_staleness")
        oldest = version - int(limit) if limit else 0
        self.table.rewind(version)
        flat = table.column("versions").combine_chunks()
        versions = np.asarray(flat.flatten())
        row = np.repeat(np.arange(table.num_rows), np.asarray(flat.value_lengths()))
        policy = versions >= 0
        mirrored = np.where(versions > version, 2 * version - versions, versions)
        newer = np.bincount(row, weights=versions > version, minlength=table.num_rows) > 0
        too_old = np.bincount(row, weights=policy & (mirrored < max(oldest, 0)), minlength=table.num_rows) > 0
        groups = np.asarray(table.column("group"))
        lost = newer & np.isin(groups, groups[newer & too_old])
        keep = newer & ~lost
        has_meta = "meta" in table.column_names
        metrics: dict[str, float] = {}
        for name, rows in (("resumed", keep), ("lost", lost)):
            part = table.filter(pa.array(rows))
            metrics[f"replay/{name}_rows"] = part.num_rows
            metrics[f"replay/{name}_seconds"] = _seconds(part["meta"].to_pylist() if has_meta else [])
        _log.warning(
            "table %s: back to version %d: %d rollouts of later versions were kept, %d left", self.table.name, version,
            keep.sum(), lost.sum(),
        )  # fmt: skip
        if keep.any():
            known = [name for name in table.column_names if name in {**TOKEN_COLUMNS, **ROW_COLUMNS, **OTHER_COLUMNS}]
            offsets = np.concatenate([[0], np.cumsum(np.asarray(flat.value_lengths()))]).astype(np.int32)
            relabelled = pa.ListArray.from_arrays(pa.array(offsets), pa.array(mirrored.astype(np.int32)))
            table = table.select(known).set_column(known.index("versions"), "versions", relabelled)
            again = table.filter(pa.array(keep)).sort_by("group")
            for first in range(0, again.num_rows, 64 * self.group_size):  # a message has a limit
                self.table.insert(again.slice(first, 64 * self.group_size))
        if self._has_checkpoint():
            self.table.delete_checkpoint(BEFORE_REWIND)
        return metrics

    def _put(self, batch: Batch, fresh: KVBatchMeta, data: Any, global_steps: int) -> KVBatchMeta:
        """Put drawn groups into TransferQueue with the fields of new rows, since verl reads what every row has. Tensors
        that the table does not carry are left out, and so are of no row."""
        tokens, masks, logprobs, versions = (batch.ragged(name) for name in ("tokens", "mask", "logprobs", "versions"))
        metas = [dict(row or []) for row in batch.column("meta")] if batch.has("meta") else [{} for _ in tokens]
        keys: list[str] = []
        tags: list[dict[str, Any]] = []
        fields: dict[str, list[Any]] = {}
        uid = ""
        for row, start in enumerate(batch.prompt_lengths):
            if row % self.group_size == 0:  # a group that was drawn twice is two groups
                uid = f"replay-{uuid.uuid4().hex}"
            ids = torch.from_numpy(tokens[row].astype(np.int64))
            mask = torch.from_numpy(masks[row][start:].astype(np.int64))
            scores = torch.zeros(len(mask))
            scores[-1] = float(batch.rewards[row])
            made: dict[str, Any] = {
                "uid": uid, "prompts": ids[:start], "responses": ids[start:], "response_mask": mask, "loss_mask": mask,
                "rollout_log_probs": torch.from_numpy(logprobs[row][start:].astype(np.float32)), "rm_scores": scores,
                "input_ids": ids, "position_ids": torch.arange(len(ids)), "global_steps": global_steps,
            }  # fmt: skip
            for name in map(str, data.keys()):
                if name in made:
                    fields.setdefault(name, []).append(made[name])
                elif not isinstance(data[name], torch.Tensor):
                    fields.setdefault(name, []).append(json.loads(metas[row].get(name, "null")))
            policy = versions[row][masks[row] != 0]
            keys.append(f"{uid}_{row % self.group_size}_0")
            tags.append(
                {
                    "status": "success", "prompt_len": int(start), "response_len": len(mask), "seq_len": len(ids),
                    "global_steps": global_steps, "min_global_steps": int(policy.min()),
                    "max_global_steps": int(policy.max()),
                }
            )  # fmt: skip
        values = {name: _stacked(parts) for name, parts in fields.items()}
        drawn = KVBatchMeta(partition_id=fresh.partition_id, keys=keys, tags=tags)
        tq.kv_batch_put(
            keys=keys, partition_id=drawn.partition_id, tags=tags, fields=TensorDict(values, batch_size=[len(keys)])
        )
        return drawn

    @staticmethod
    def _put_weights(meta: KVBatchMeta, weights: Array) -> None:
        """Set rollout_is_weights, which multiply verl's loss, of all rows: verl ignores a field that a row lacks.

        Each is one number, not one per token, so that the rows of one token with which verl pads batches may copy it.
        """
        fields = TensorDict({"rollout_is_weights": torch.tensor(weights, dtype=torch.float32)[:, None]}, [len(weights)])
        tq.kv_batch_put(keys=meta.keys, partition_id=meta.partition_id, fields=fields)


class _AsyncReplayBuffer(RepriseReplayBuffer, ReplayBufferAsync):
    """The same for the modes colocate_async and separate_async, where verl evicts and refills while it waits."""


def _plain(config: Any) -> dict[str, Any]:
    """Return a configuration of omegaconf, a mapping or None as a dict."""
    if not config:
        return {}
    return dict(OmegaConf.to_container(config, resolve=True) if OmegaConf.is_config(config) else config)


def _at(config: Any, path: str) -> Any:
    """Return the value at a path such as ``trainer.device``, or None."""
    for name in path.split("."):
        config = config.get(name) if isinstance(config, Mapping) else None
    return config


def _check(config: Mapping[str, Any], definition: Mapping[str, Any]) -> None:
    """Refuse configurations under which replay would be wrong."""
    step.check(definition, "verl")
    if not config:
        return
    if not _at(config, "actor_rollout_ref.rollout.calculate_log_probs"):
        raise Invalid(
            "actor_rollout_ref.rollout.calculate_log_probs: false: want true: replay needs the log-probs of the engine"
        )
    if _at(config, "algorithm.filter_groups.enable"):
        raise Invalid(
            "algorithm.filter_groups.enable: true: want false: verl does not filter for a custom sampler; sampler "
            "prioritized with priority_base advantage draws groups without a signal last"
        )
    if _at(config, "trainer.v1.sampler.sync_refill_failed_groups"):
        raise Invalid(
            "trainer.v1.sampler.sync_refill_failed_groups: true: want false: verl hands it to its own samplers alone, so "
            "failed groups would not be generated again"
        )
    correction = "algorithm.rollout_correction"
    bypass, weights = (_at(config, f"{correction}.{name}") for name in ("bypass_mode", "rollout_is"))
    if not bypass and not weights:
        raise Invalid(
            f"{correction}.bypass_mode: false, and {correction}.rollout_is: null: want bypass_mode=true, or rollout_is "
            "token or sequence: verl would take replayed rollouts for those of the current weights"
        )
    if definition["importance_beta"] != 0:
        mode = _at(config, "actor_rollout_ref.actor.policy_loss.loss_mode")
        if mode == "bypass_mode" or not bypass:
            where = f"{correction}.rollout_is: {weights}" if not bypass else f"policy_loss.loss_mode: {mode}"
            raise Invalid(
                f"importance_beta: {definition['importance_beta']}: next to {where}: verl overwrites the weights of "
                "the draws: want importance_beta 0"
            )


def _check_fields(data: Any) -> None:
    """Refuse rows that lack what replay needs, or have what the table does not carry."""
    if "rollout_log_probs" not in data.keys():
        raise Invalid("rollout_log_probs: missing: want actor_rollout_ref.rollout.calculate_log_probs=true")
    if "rm_scores" not in data.keys():
        raise Invalid(
            "rm_scores: missing: a colocated reward model comes after sampling: want rewards by rule, or "
            "reward.reward_model.enable_resource_pool=true"
        )
    for name, remedy in _REFUSED.items():
        if name in data.keys():
            raise Invalid(f"{name}: the table does not carry it: want {remedy}")
    images = [row for row, inputs in enumerate(_objects(data, "multi_modal_inputs")) if inputs]
    if images:
        raise Invalid(f"multi_modal_inputs: row {images[0]}: images are not carried: want prompts of text only")
    if any(part.dim() > 1 for part in data["position_ids"].unbind()):
        raise Invalid("position_ids: more than one for each token: want a model of text only")


def _objects(data: Any, name: str) -> list[Any]:
    """Return a field of objects as a list; empty if there is none. tensordict's get would return them wrapped."""
    return list(data[name]) if name in data.keys() else []


def _rows(value: Any, rows: Array) -> list[Array]:
    """Return the rows of a tensor, jagged or not."""
    parts = value.unbind()
    return [parts[row].numpy() for row in rows]


def _after(prompt: Array, part: Array) -> Array:
    """Return what is known of a response's tokens after zeros for the prompt's."""
    return np.concatenate([np.zeros(len(prompt), part.dtype), part])


def _versions(tag: Mapping[str, Any], mask: Array) -> Array:
    """Return the version of each token, int32 [L], -1 where mask is 0.

    verl keeps the first and the last version of a response. Its last token gets the last, the others the first: as old
    as they may be.
    """
    first, last = (tag.get(name) for name in ("min_global_steps", "max_global_steps"))
    if first is None or last is None:
        raise Invalid("min_global_steps: missing among a row's tags: want an agent loop whose server reports versions")
    out = np.where(mask, first, -1)
    out[np.flatnonzero(mask)[-1:]] = last
    return out.astype(np.int32)


def _meta(fields: Mapping[str, list[Any]], rows: Array) -> list[dict[str, str]]:
    """Return the other fields of each row as JSON. What is no JSON is left out, with a warning."""
    out: list[dict[str, str]] = [{} for _ in rows]
    for name, values in fields.items():
        lost = 0
        for entry, row in zip(out, rows):
            try:
                entry[name] = json.dumps(values[row], default=_jsonable)
            except TypeError:
                lost += 1
        if lost:
            layout.warn(name, lost, "entries left out: no JSON")
    return out


def _seconds(metas: Iterable[Any]) -> float:
    """Return how long rows took to generate, by the timer of verl's agent loops in their field metrics."""
    timers = (json.loads(dict(meta or []).get("metrics", "null")) or {} for meta in metas)
    return float(sum(timer.get("generate_sequences", 0) for timer in timers))


def _jsonable(value: Any) -> Any:
    if isinstance(value, (np.ndarray, np.generic, torch.Tensor)):
        return value.tolist()
    raise TypeError


def _stacked(values: list[Any]) -> Any:
    """Return the values of a field as TransferQueue takes them."""
    if all(isinstance(value, torch.Tensor) for value in values):
        return torch.nested.as_nested_tensor(values, layout=torch.jagged)
    return NonTensorStack(*values)
