"""verl: its `DataProto` between rollout and update (names of verl 0.9.1).

- ``prompts`` int [B, P]: padded on the left; ``responses`` int [B, R]: padded on the right.
- ``input_ids``, ``attention_mask``, ``position_ids`` int [B, P + R].
- ``response_mask`` int [B, R]: 1 where the policy produced the token.
- ``rollout_log_probs`` float [B, R]: of the engine that generated; ``old_log_probs``: recomputed by the trainer.
- ``token_level_scores`` or ``rm_scores`` float [B, R]: rewards, usually at the last token.
- ``values``, ``ref_log_prob``, ``advantages`` float [B, R]: each may be absent.
- Not tensors: ``uid`` [B]: the same for all responses to a prompt; ``min_global_steps``, ``max_global_steps`` [B]:
  versions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..batch import Batch
from ..errors import Invalid
from . import layout


def rollouts(
    data: Any,
    non_tensor_batch: Mapping[str, Any] | None = None,
    *,
    version: Any = None,
    prompt_ids: Any = None,
    truncated: Any = None,
    temperature: float = 1.0,
    top_p: float = 1.0,
    keep_advantages: bool = False,
) -> dict[str, Any]:
    """Convert verl's batch to columns for `Table.insert`.

    Args:
        data: a `DataProto`, or its tensors by name.
        non_tensor_batch: its other entries by name, if data is not a `DataProto`.
        version: of the weights that generated, one for all or int [B]; by default ``min_global_steps``, the oldest of a
            response's tokens, since verl does not keep the version of each token.
        prompt_ids: [B] names of the prompts; by default ``uid``.
        truncated: bool [B]: stopped by length.
        temperature, top_p: of the sampling.
        keep_advantages: insert ``advantages`` per token; otherwise the table computes them from the rewards.
    """
    batch, others = _parts(data, non_tensor_batch)
    prompts, responses = layout.need(batch, "prompts"), layout.need(batch, "responses")
    shape = responses.shape
    rows = len(responses)
    keep = layout.array("attention_mask", batch["attention_mask"], (rows, prompts.shape[1] + shape[1])).astype(bool)
    lengths = keep.sum(axis=1)
    policy = layout.get(batch, "response_mask", shape)
    policy = keep[:, prompts.shape[1] :] if policy is None else policy.astype(bool)
    mask = layout.join(None, policy.astype(np.uint8), keep)
    layout.check_mask(mask, lengths, "want responses of at least one token")
    behaviour = layout.first(
        batch, ("rollout_log_probs", "old_log_probs"), shape,
        "rollout_log_probs: missing, and so is old_log_probs: set actor_rollout_ref.rollout.calculate_log_probs",
    )  # fmt: skip
    scores = layout.first(
        batch, ("token_level_scores", "rm_scores"), shape,
        "token_level_scores: missing, and so is rm_scores: want rewards per token",
    )  # fmt: skip
    if version is None:
        version = others.get("min_global_steps")
        if version is None or any(step is None for step in version):
            raise Invalid(
                "version: missing: the batch has no min_global_steps: want the step of the weights that generated"
            )
        version = np.asarray(version, np.int64)
    names = others.get("uid")
    columns: dict[str, Any] = {
        "tokens": layout.join(prompts, responses, keep),
        "lengths": lengths,
        "mask": mask,
        "logprobs": np.where(mask, layout.join(None, behaviour, keep), 0).astype(np.float32),
        "versions": layout.versions(version, mask, lengths),
        "reward": (scores * keep[:, prompts.shape[1] :]).sum(axis=1),
        **layout.row_columns(rows, names if prompt_ids is None else prompt_ids, truncated, temperature, top_p),
    }
    if names is not None:
        columns["group"] = np.unique(np.asarray(names, str), return_inverse=True)[1].reshape(-1)
    wanted = {"values": "values", "ref_log_prob": "ref_logprobs"}
    if keep_advantages:
        layout.need(batch, "advantages", "or keep_advantages=False")
        wanted["advantages"] = "advantages"
    for theirs, ours in wanted.items():
        found = layout.get(batch, theirs, shape)
        if found is not None:
            columns[ours] = layout.join(None, found, keep)
    return columns


def _parts(data: Any, non_tensor_batch: Mapping[str, Any] | None) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    if hasattr(data, "non_tensor_batch"):
        tensors = data.batch  # a TensorDict
        return {str(key): tensors[key] for key in tensors.keys()}, data.non_tensor_batch
    return data, non_tensor_batch or {}


def tensors(
    batch: Batch,
    *,
    pad_token_id: int,
    max_prompt_length: int | None = None,
    max_response_length: int | None = None,
    torch: bool = False,
    device: Any = None,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Convert a batch to ``(tensors, non_tensors)`` for verl's ``DataProto.from_dict(tensors, non_tensors)``.

    The behaviour log-probs are both ``rollout_log_probs`` and ``old_log_probs``; a trainer that recomputes the latter
    replaces them. ``rollout_is_weights`` [B, R], which multiply verl's loss, are the importance weights of the draws.
    ``uid`` is the table's group, ``reprise_id`` the rollout's id.

    Args:
        batch: of `Table.sample` or `Table.stream`.
        pad_token_id: of the tokenizer.
        max_prompt_length, max_response_length: P and R, as ``data.max_prompt_length`` of verl; by default the longest.
        torch, device: return torch tensors on that device.
    """
    sides = layout.Sides(batch, max_prompt_length, max_response_length)
    tokens = batch.flat("tokens")
    prompts, responses = sides.prompt(tokens, pad_token_id, np.int64), sides.completion(tokens, pad_token_id, np.int64)
    attention = np.concatenate([sides.prompt_mask, sides.completion_mask], axis=1).astype(np.int64)
    logprobs = sides.completion(batch.flat("logprobs"), 0, np.float32)
    policy = sides.completion(batch.flat("mask"), 0, np.int64)
    advantages = sides.completion(batch.advantages, 0, np.float32)
    scores = np.zeros(responses.shape, np.float32)
    ends = sides.completion_mask.sum(axis=1) - 1
    scores[np.arange(len(batch)), ends] = batch.rewards
    out = {
        "prompts": prompts,
        "responses": responses,
        "input_ids": np.concatenate([prompts, responses], axis=1),
        "attention_mask": attention,
        "position_ids": np.maximum(attention.cumsum(axis=1) - 1, 0),
        "response_mask": policy,
        "rollout_log_probs": logprobs,
        "old_log_probs": logprobs.copy(),
        "token_level_scores": scores,
        "token_level_rewards": scores.copy(),
        "advantages": advantages,
        "returns": advantages.copy(),
        "rollout_is_weights": (batch.weights.astype(np.float32)[:, None] * policy).astype(np.float32),
    }
    for ours, theirs in (("values", "values"), ("ref_logprobs", "ref_log_prob")):
        if batch.has(ours):
            out[theirs] = sides.completion(batch.flat(ours), 0, np.float32)
    versions = np.where(batch.flat("mask") != 0, batch.flat("versions"), np.iinfo(np.int32).max)
    newest = np.maximum.reduceat(batch.flat("versions"), batch.offsets[:-1])
    others = {
        "uid": batch.groups.astype(str).astype(object),
        "reprise_id": batch.ids.astype(object),
        "min_global_steps": np.minimum.reduceat(versions, batch.offsets[:-1]).astype(object),
        "max_global_steps": newest.astype(object),
    }
    return layout.finish(out, torch, device), others
