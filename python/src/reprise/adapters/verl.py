"""verl's V0 trainer: its `DataProto` between rollout and update (names of verl 0.9.1).

For its V1 trainer, the default, use `reprise.verl`.

- ``prompts`` int [B, P]: padded on the left; ``responses`` int [B, R]: padded on the right.
- ``input_ids``, ``attention_mask``, ``position_ids`` int [B, P + R].
- ``response_mask`` int [B, R]: 1 where the policy produced the token.
- ``rollout_log_probs`` float [B, R]: of the engine that generated; ``old_log_probs``: recomputed by the trainer.
- ``token_level_scores`` or ``rm_scores`` float [B, R]: rewards, usually at the last token.
- ``values``, ``ref_log_prob``, ``advantages`` float [B, R]: each may be absent.
- A jagged TensorDict, as of verl's V1, has a nested tensor for each of these, and no padding or ``attention_mask``.
- Not tensors: ``uid`` [B]: the same for all responses to a prompt; ``min_global_steps``, ``max_global_steps`` [B]:
  versions. In a TensorDict they stand beside the tensors. The table keeps the others as JSON in its column ``meta``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..arrays import Array, to_numpy
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
    pad_token_id: int | None = None,
    whole_groups: bool = False,
) -> dict[str, Any]:
    """Convert verl's batch to columns for `Table.insert`.

    What a table would refuse is repaired or dropped, each with a `RepairWarning`: rollouts without a token of the
    policy, NaN log-probs and rewards, log-probs that rounding put above 0. No rollout may be left. Non-tensors that are
    no JSON are left out with a warning too, but images are refused.

    Args:
        data: a `DataProto`, a TensorDict, jagged or padded, or tensors by name.
        non_tensor_batch: its other entries by name, if data is not a `DataProto`.
        version: of the weights that generated, one for all or int [B]; by default ``min_global_steps``, the oldest of a
            response's tokens, since verl does not keep the version of each token.
        prompt_ids: [B] names of the prompts; by default ``uid``.
        truncated: bool [B]: stopped by length.
        temperature, top_p: of the sampling.
        keep_advantages: insert ``advantages`` per token; otherwise the table computes them from the rewards.
        pad_token_id: of the tokenizer, for padded tensors without ``attention_mask``.
        whole_groups: drop a group whole if it loses a rollout, as tables with unit group want it.
    """
    batch, others = _parts(data, non_tensor_batch)
    prompts, responses = layout.need(batch, "prompts"), layout.need(batch, "responses")
    shape = responses.shape
    rows = len(responses)
    keep = _attention(batch, prompts, responses, pad_token_id)
    lengths = keep.sum(axis=1)
    policy = layout.get(batch, "response_mask", shape)
    policy = keep[:, prompts.shape[1] :] if policy is None else policy.astype(bool)
    mask = layout.join(None, policy.astype(np.uint8), keep)
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
    meta = _meta(others, rows)
    if meta is not None:
        columns["meta"] = meta
    return layout.repaired(columns, whole_groups)


def _attention(batch: Mapping[str, Any], prompts: Array, responses: Array, pad: int | None) -> Array:
    """Return bool [B, P + R]: True where there is a token."""
    found = layout.get(batch, "attention_mask", (len(prompts), prompts.shape[1] + responses.shape[1]))
    if found is not None:
        return found.astype(bool)
    if pad is None:
        raise Invalid("attention_mask: missing: want it, jagged tensors, or pad_token_id")
    before = np.logical_or.accumulate(prompts != pad, axis=1)
    after = np.logical_or.accumulate((responses != pad)[:, ::-1], axis=1)[:, ::-1]
    if "response_mask" in batch:  # the end-of-sequence token may be the padding's
        after = after | np.logical_or.accumulate(to_numpy(batch["response_mask"])[:, ::-1] != 0, axis=1)[:, ::-1]
    return np.concatenate([before, after], axis=1)


_READ = ("uid", "reprise_id", "min_global_steps", "max_global_steps")
"""Non-tensors that have columns of their own, or come with the batch."""


def _meta(others: Mapping[str, Any], rows: int) -> list[dict[str, str]] | None:
    """Return the other non-tensors of each rollout as JSON."""
    meta: list[dict[str, str]] = [{} for _ in range(rows)]
    for name, values in others.items():
        if name in _READ:
            continue
        if len(values) != rows:
            raise Invalid(f"{name}: {len(values)} of them: want {rows}, one for each row of responses")
        if name.startswith("multi_modal") and any(values):
            raise Invalid(f"{name}: images are not carried: want prompts of text only")
        lost = 0
        for entries, value in zip(meta, values):
            try:
                entries[name] = json.dumps(value, default=_plain)
            except TypeError:
                lost += 1
        if lost:
            layout.warn(name, lost, "entries left out: no JSON")
    return meta if any(meta) else None


def _plain(value: Any) -> Any:
    if isinstance(value, (np.ndarray, np.generic)):
        return value.tolist()
    raise TypeError


def _parts(data: Any, non_tensor_batch: Mapping[str, Any] | None) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Return tensors and non-tensors by name. Jagged tensors are padded, and get an attention mask."""
    others = dict(non_tensor_batch or {})
    if hasattr(data, "non_tensor_batch"):
        data, others = data.batch, dict(data.non_tensor_batch)
    batch: dict[str, Any] = {}
    for key in data.keys():
        value = data[key]  # a TensorDict returns the content of its non-tensors
        if hasattr(value, "detach") or isinstance(value, np.ndarray) and value.dtype != object:
            batch[str(key)] = value
        else:
            others[str(key)] = value.tolist() if hasattr(value, "tolist") else value
    if not getattr(batch.get("responses"), "is_nested", False):
        return batch, others
    prompts, responses = (_ragged(layout_of) for layout_of in (batch.pop("prompts", []), batch.pop("responses")))
    if len(prompts) != len(responses):
        raise Invalid(f"prompts: {len(prompts)} of them: want {len(responses)}, one for each row of responses")
    sizes = [np.array([len(part) for part in parts]) for parts in (prompts, responses)]
    padded: dict[str, Any] = {"prompts": _pad(prompts, sizes[0], left=True), "responses": _pad(responses, sizes[1])}
    width = padded["prompts"].shape[1]
    padded["attention_mask"] = np.concatenate(
        [np.arange(width) >= (width - sizes[0])[:, None], np.arange(padded["responses"].shape[1]) < sizes[1][:, None]],
        axis=1,
    )
    for name, value in batch.items():
        parts = _ragged(value) if getattr(value, "is_nested", False) else []
        if [len(part) for part in parts] == sizes[1].tolist():
            padded[name] = _pad(parts, sizes[1])
    return padded, others


def _ragged(value: Any) -> list[Array]:
    return [to_numpy(part) for part in (value.unbind() if hasattr(value, "unbind") else value)]


def _pad(parts: list[Array], sizes: Array, left: bool = False) -> Array:
    """Return rows of these sizes as an array padded with zeros."""
    width = int(sizes.max(initial=0))
    out = np.zeros((len(parts), width), parts[0].dtype if parts else np.int64)
    for row, part in zip(out, parts):
        row[width - len(part) if left else 0 :][: len(part)] = part
    return out


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
    ``uid`` is the table's group, ``reprise_id`` the rollout's id. The other non-tensors come back from ``meta``.

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
    if batch.has("meta"):
        rows = [dict(row or []) for row in batch.column("meta")]
        for name in sorted({name for row in rows for name in row}):
            values = np.empty(len(rows), object)
            values[:] = [_content(row.get(name)) for row in rows]
            others.setdefault(name, values)
    return layout.finish(out, torch, device), others


def _content(text: str | None) -> Any:
    """Return what a value of meta says in JSON, or the text where others wrote it."""
    try:
        return None if text is None else json.loads(text)
    except ValueError:
        return text
