"""AReaL: the trajectories of its workflows, as `RLVRWorkflow.arun_episode` returns them (names of AReaL 1.0.4).

- ``input_ids`` int [B, L]: prompt and completion, padded on the right; ``attention_mask`` bool [B, L].
- ``loss_mask`` int [B, L]: 1 where the policy produced the token.
- ``logprobs`` float [B, L]: entry i is that of token i, 0 outside the loss mask; ``versions`` int [B, L]: -1 there.
- ``rewards`` float [B].

These are the entries before `PPOActor.compute_advantages`, which shifts ``loss_mask`` and ``logprobs`` by one token: give it what
`tensors` returns, and insert before it. ``ref_logp`` and ``values`` float [B, L] come from models, and AReaL has them shifted from
the start: entry i is that of token i + 1. Here they are shifted back and forth.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..batch import Batch
from ..errors import Invalid
from . import layout


def rollouts(
    trajectories: Mapping[str, Any] | Sequence[Mapping[str, Any]],
    *,
    group_size: int = 0,
    prompt_ids: Sequence[str] | None = None,
    truncated: Any = None,
    temperature: float = 1.0,
    top_p: float = 1.0,
) -> dict[str, Any]:
    """Return AReaL's trajectories as columns for `Table.insert`.

    Args:
        trajectories: tensors by name, as above; or a list of such, each of which is a group, as ``prepare_batch`` gives them.
        group_size: of one dict: so many consecutive rollouts form a group; 0: each is alone.
        prompt_ids: names of the prompts, one for each rollout.
        truncated: bool, one for each rollout: stopped by length.
        temperature, top_p: of the sampling.
    """
    parts = [trajectories] if isinstance(trajectories, Mapping) else list(trajectories)
    if not parts:
        raise Invalid("trajectories: none: want at least one")
    read = [_trajectory(part) for part in parts]
    for part in read:
        if part.keys() != read[0].keys():
            raise Invalid(f"trajectories: one has {', '.join(sorted(part.keys() ^ read[0].keys()))}, another has not: want all alike")
    columns: dict[str, Any] = {name: np.concatenate([part[name] for part in read]) for name in read[0]}
    rows = len(columns["lengths"])
    if isinstance(trajectories, Mapping):
        if group_size:
            columns["group"] = layout.consecutive_groups(rows, group_size)
    else:
        columns["group"] = np.repeat(np.arange(len(read)), [len(part["lengths"]) for part in read])
    if prompt_ids is not None:
        columns["prompt_id"] = list(prompt_ids)
    if truncated is not None:
        columns["truncated"] = layout.array("truncated", truncated, (rows,)).astype(bool)
    return {**columns, "temperature": temperature, "top_p": top_p}


def _trajectory(part: Mapping[str, Any]) -> dict[str, layout.Array]:
    tokens = layout.need(part, "input_ids")
    if tokens.ndim != 2:
        raise Invalid(f"input_ids: shape {list(tokens.shape)}: want [B, L]")
    keep = layout.get(part, "attention_mask", tokens.shape)
    keep = np.ones(tokens.shape, bool) if keep is None else keep.astype(bool)
    out = {"tokens": tokens[keep], "lengths": keep.sum(axis=1)}
    for theirs, ours in (("loss_mask", "mask"), ("logprobs", "logprobs"), ("versions", "versions")):
        out[ours] = layout.array(theirs, layout.need(part, theirs), tokens.shape)[keep]
    for theirs, ours in (("ref_logp", "ref_logprobs"), ("values", "values")):
        found = layout.get(part, theirs, tokens.shape)
        if found is not None:
            out[ours] = _later(found)[keep]
    layout.has_policy(out["mask"], out["lengths"], "want trajectories with at least one generated token")
    out["reward"] = layout.need(part, "rewards").reshape(-1)
    if len(out["reward"]) != len(tokens):
        raise Invalid(f"rewards: {len(out['reward'])} of them: want {len(tokens)}, one for each row of input_ids")
    return out


def tensors(batch: Batch, *, pad_token_id: int = 0, torch: bool = False, device: Any = None) -> dict[str, Any]:
    """Return a batch as `PPOActor.compute_advantages` and the update after it take it.

    Args:
        batch: of `Table.sample` or `Table.batches`.
        pad_token_id: of the tokenizer.
        torch, device: return torch tensors, on that device.
    """
    padded = batch.padded(pad_id=pad_token_id)
    out = {
        "input_ids": padded.tokens,
        "attention_mask": padded.attention_mask,
        "loss_mask": padded.loss_mask.astype(np.int32),
        "logprobs": padded.logprobs,
        "versions": padded.versions,
        "rewards": batch.rewards.copy(),
    }
    if padded.values is not None:
        out["values"] = _earlier(padded.values)
    if padded.ref_logprobs is not None:
        out["ref_logp"] = _earlier(padded.ref_logprobs)
    return layout.finish(out, torch, device)


def _later(values: layout.Array) -> layout.Array:
    """Move entries [B, L] to the token that they speak of."""
    out = np.zeros_like(values)
    out[:, 1:] = values[:, :-1]
    return out


def _earlier(values: layout.Array) -> layout.Array:
    """Move entries [B, L] to the position that predicts their token."""
    out = np.zeros_like(values)
    out[:, :-1] = values[:, 1:]
    return out
