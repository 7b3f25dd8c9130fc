"""TRL: the output of `GRPOTrainer._generate_and_score_completions`, the input of `_compute_loss` (names of TRL 1.16.0).

- ``prompt_ids``, ``prompt_mask`` int [B, P]: padded on the left.
- ``completion_ids``, ``completion_mask`` int [B, C]: padded on the right.
- ``tool_mask`` int [B, C]: 0 at the tokens of tools; absent without tools.
- ``sampling_per_token_logps``, ``old_per_token_logps``, ``ref_per_token_logps`` float [B, C]: each may be absent.
- ``advantages`` float [B], or [B, C] of trainers that compute them per token.
- ``num_items_in_batch`` int []: tokens that the default loss is divided by, over all processes and micro-batches.
- ``importance_sampling_ratio`` float [B, C], or [B, 1] of whole sequences: with vLLM, trainer over sampler, truncated
  or masked by TRL's options.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..arrays import Array
from ..batch import Batch
from ..errors import Invalid
from ..rollouts import consecutive_groups
from ..adapters import layout

_NO_LOGPROBS = (
    "logprobs: missing: TRL omits old_per_token_logps if the current weights generated: want logprobs=trl.logprobs("
    "trainer, outputs), or use_vllm"
)

CORRECTIONS = {"x_old_logprobs": "list<float32>", "x_importance_ratio": "list<float32>"}
"""Columns [C] of a table for TRL with vLLM: the trainer's log-probs when it received the rollout, and TRL's ratio."""

_IMAGES = (
    "pixel_values", "image_grid_thw", "pixel_attention_mask", "image_sizes", "num_images", "token_type_ids",
    "mm_token_type_ids", "spatial_shapes", "image_position_ids", "num_tiles",
)  # fmt: skip


def logprobs(trainer: Any, outputs: Mapping[str, Any]) -> Any:
    """Return the log-probs [B, C] of the sampled tokens, a tensor: those in the outputs, or else of the trainer's
    weights, which generated them. That takes a forward pass, without dropout. Call it before an update."""
    _refuse_images(outputs)
    for name in ("sampling_per_token_logps", "old_per_token_logps"):
        if outputs.get(name) is not None:
            return _scored(outputs)
    import torch

    ids = torch.cat([outputs["prompt_ids"], outputs["completion_ids"]], dim=1)
    mask = torch.cat([outputs["prompt_mask"], outputs["completion_mask"]], dim=1)
    training = trainer.model.training
    trainer.model.eval()  # as it generated; dropout would also take random numbers that TRL's next step is to have
    try:
        with torch.no_grad():
            return trainer._get_per_token_logps_and_entropies(
                trainer.model, ids, mask, outputs["completion_ids"].shape[1],
                batch_size=trainer.args.per_device_train_batch_size,
            )[0]  # fmt: skip
    finally:
        trainer.model.train(training)


def _refuse_images(outputs: Mapping[str, Any]) -> None:
    images = [name for name in _IMAGES if outputs.get(name) is not None]
    if images:
        raise Invalid(f"{images[0]}: images are not stored: want prompts of text only, or TRL's own trainer")


def rollouts(
    outputs: Mapping[str, Any],
    *,
    rewards: Any,
    version: Any,
    num_generations: int,
    first_row: int | None = None,
    prompt_ids: Sequence[str] | None = None,
    logprobs: Any = None,
    truncated: Any = None,
    temperature: float = 1.0,
    top_p: float = 1.0,
    keep_advantages: bool = True,
    whole_groups: bool = False,
    corrections: bool = False,
) -> dict[str, Any]:
    """Convert TRL's batch to columns for `Table.insert`.

    What a table would refuse is repaired or dropped, each with a `RepairWarning`: rollouts that
    ``mask_truncated_completions`` emptied, NaN log-probs and rewards, log-probs that rounding put above 0. No rollout
    may be left.

    Args:
        outputs: of `_generate_and_score_completions`, as above.
        rewards: float [B]: the weighted sum of the reward functions, which the outputs lack.
        version: of the weights that generated, such as ``state.global_step`` of the trainer; one for all, or int [B].
        num_generations: TRL's option: number of consecutive rollouts of one prompt, which form a group.
        first_row: number of the first of these rollouts among those of all processes, if groups span processes. Then
            `merge` the columns of all.
        prompt_ids: [B] names of the prompts.
        logprobs: float [B, C]: of the tokens when they were sampled, such as `logprobs` returns. By default
            ``sampling_per_token_logps``, which TRL returns with vLLM, otherwise ``old_per_token_logps``.
        truncated: bool [B]: stopped by length.
        temperature, top_p: of the sampling.
        keep_advantages: insert TRL's advantages; otherwise the table computes them from the rewards.
        whole_groups: drop a group whole if it loses a rollout, as tables with unit group want it.
        corrections: with vLLM, keep the trainer's log-probs and TRL's ratio, for a table with the `CORRECTIONS`.

    Raises:
        Invalid: the outputs have images, which a table does not carry; or something is missing.
    """
    _refuse_images(outputs)
    prompts, completions = layout.need(outputs, "prompt_ids"), layout.need(outputs, "completion_ids")
    rows, shape = len(completions), completions.shape
    completion_mask = layout.need(outputs, "completion_mask").astype(bool)
    keep = np.concatenate([layout.need(outputs, "prompt_mask").astype(bool), completion_mask], axis=1)
    tool = layout.get(outputs, "tool_mask", shape)
    policy = completion_mask if tool is None else completion_mask & tool.astype(bool)
    lengths = keep.sum(axis=1)
    mask = layout.join(None, policy.view(np.uint8), keep)
    behaviour = _scored(outputs) if logprobs is None else logprobs
    if behaviour is None:
        raise Invalid(_NO_LOGPROBS)
    behaviour = layout.array("logprobs", behaviour, shape)
    columns: dict[str, Any] = {
        "tokens": layout.join(prompts, completions, keep),
        "lengths": lengths,
        "mask": mask,
        "logprobs": np.where(mask, layout.join(None, behaviour, keep), 0).astype(np.float32),
        "versions": layout.versions(version, mask, lengths),
        "reward": layout.array("rewards", rewards, (rows,)),
        "group": _groups(rows, num_generations, first_row),
        **layout.row_columns(rows, prompt_ids, truncated, temperature, top_p),
    }
    reference = layout.get(outputs, "ref_per_token_logps", shape)
    if reference is not None:
        columns["ref_logprobs"] = layout.join(None, reference, keep)
    if keep_advantages:
        given = layout.need(outputs, "advantages", "or keep_advantages=False")
        if given.shape == shape and given.ndim == 2:
            columns["advantages"] = np.where(mask, layout.join(None, given, keep), 0).astype(np.float32)
        else:
            columns["advantage"] = given.reshape(rows)
    if corrections:
        counts = completion_mask.sum(axis=1)
        for name, key in zip(CORRECTIONS, ("old_per_token_logps", "importance_sampling_ratio")):
            values = layout.need(outputs, key, "with vLLM and its correction").astype(np.float32)
            columns[name] = [row[:count] for row, count in zip(values, counts)]
    return layout.repaired(columns, whole_groups)


def _scored(outputs: Mapping[str, Any]) -> Any:
    """Return the log-probs in the outputs, None if there are none. What vLLM could not score, NaN, is the trainer's."""
    sampling, old = outputs.get("sampling_per_token_logps"), outputs.get("old_per_token_logps")
    if sampling is None or old is None:
        return old if sampling is None else sampling
    missing = sampling != sampling
    if not missing.any():
        return sampling
    count = int((missing & (outputs["completion_mask"] != 0)).sum())
    layout.warn("sampling_per_token_logps", count, "entries are old_per_token_logps: vLLM could not score them")
    sampling = sampling.clone() if hasattr(sampling, "clone") else sampling.copy()
    sampling[missing] = old[missing]
    return sampling


def _groups(rows: int, size: int, first_row: int | None) -> Array:
    if first_row is not None:
        return (np.arange(rows) + first_row) // size
    try:
        return consecutive_groups(rows, size)
    except Invalid as error:
        raise Invalid(
            f"num_generations: {size}: want a divisor of the {rows} rows, or first_row where groups span processes"
        ) from error


def merge(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Join the columns of all processes, such as ``accelerate.utils.gather_object([columns])`` returns, for one
    insertion."""
    if not parts:
        raise Invalid("parts: none: want the columns of at least one process")

    def join(name: str) -> Any:
        values = [part[name] for part in parts]
        if isinstance(values[0], list):
            return [item for value in values for item in value]
        return np.concatenate(values) if isinstance(values[0], np.ndarray) else values[0]

    return {name: join(name) for name in parts[0]}


def tensors(
    batch: Batch,
    *,
    pad_token_id: int,
    max_prompt_length: int | None = None,
    max_completion_length: int | None = None,
    pad_to_multiple_of: int = 1,
    weigh: bool = True,
    micro_batches: int = 1,
    torch: bool = False,
    device: Any = None,
) -> dict[str, Any]:
    """Convert a batch to the input of `GRPOTrainer._compute_loss`. ``old_per_token_logps`` are the behaviour log-probs.

    Args:
        batch: of `Table.sample` or `Table.stream`.
        pad_token_id: of the tokenizer.
        max_prompt_length, max_completion_length: P and C, for a constant shape; by default the longest.
        pad_to_multiple_of: of P and C.
        weigh: multiply the advantages by the importance weights of the draws.
        micro_batches: steps_per_generation × processes, if each micro-batch is drawn by itself. TRL's default loss
            would be too large by that factor.
        torch, device: return torch tensors on that device.

    Multi-turn rollouts have a ``tool_mask``. ``num_items_in_batch`` is the number of tokens in the loss, times
    micro_batches: an estimate of their sum, which callers may replace. ``importance_sampling_ratio`` is 1, since
    ``old_per_token_logps`` are already those of the sampler; with the `CORRECTIONS` in the batch both are TRL's, and
    ``sampling_per_token_logps`` the sampler's. Advantages are [B], or [B, C] if a rollout has them per token.
    """
    sides = layout.Sides(batch, max_prompt_length, max_completion_length, pad_to_multiple_of)
    mask = batch.flat("mask")
    policy = sides.completion(mask, 0, np.int64)
    per_token = batch.has("advantages")
    advantages = batch.advantages if per_token else batch.column("advantage")
    if weigh and batch.has("weight"):
        weights = np.repeat(batch.weights, batch.lengths) if per_token else batch.weights
        advantages = advantages * weights
    advantages = advantages.astype(np.float32)
    out = {
        "prompt_ids": sides.prompt(batch.flat("tokens"), pad_token_id, np.int64),
        "prompt_mask": sides.prompt_mask.astype(np.int64),
        "completion_ids": sides.completion(batch.flat("tokens"), pad_token_id, np.int64),
        "completion_mask": sides.completion_mask.astype(np.int64),
        "advantages": sides.completion(advantages, 0, np.float32) if per_token else advantages,
        "old_per_token_logps": sides.completion(batch.flat("logprobs"), 0, np.float32),
        "importance_sampling_ratio": np.ones(policy.shape, np.float32),
        "num_items_in_batch": np.array(policy.sum() * micro_batches),
    }
    if (policy != out["completion_mask"]).any():
        out["tool_mask"] = np.where(sides.completion_mask, policy, 1)
    if batch.has("x_old_logprobs"):
        out["sampling_per_token_logps"] = out["old_per_token_logps"]
        out["old_per_token_logps"] = _lists(batch, "x_old_logprobs", sides.completion_mask.shape, 0)
        out["importance_sampling_ratio"] = _lists(batch, "x_importance_ratio", sides.completion_mask.shape, 1)
    if batch.has("ref_logprobs"):
        out["ref_per_token_logps"] = sides.completion(batch.flat("ref_logprobs"), 0, np.float32)
    return layout.finish(out, torch, device)


def _lists(batch: Batch, name: str, shape: tuple[int, int], fill: float) -> Array:
    """Return a column of lists as [B, C], or as [B, 1] if each has one entry."""
    rows = batch.column(name)
    width = 1 if all(len(row) == 1 for row in rows) else shape[1]
    out = np.full((shape[0], width), fill, np.float32)
    for place, row in zip(out, rows):
        place[: len(row)] = row
    return out
