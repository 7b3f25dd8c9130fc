"""AReaL: the trajectories that `RLVRWorkflow.arun_episode` returns (names of AReaL 1.0.4).

- ``input_ids`` int [B, L]: prompt and completion, padded on the right; ``attention_mask`` bool [B, L].
- ``loss_mask`` int [B, L]: 1 where the policy produced the token.
- ``logprobs`` float [B, L]: entry i is of token i, 0 outside the loss mask; ``versions`` int [B, L]: -1 there.
- ``rewards`` float [B].

A list of such dicts, each a group, is the input of `PPOActor.compute_advantages`, which shifts ``loss_mask`` and
``logprobs`` by one token. Insert before it, and give it the output of `tensors`. AReaL keeps ``ref_logp`` and
``values`` float [B, L] shifted: entry i is of token i + 1. The functions here shift them both ways.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..arrays import Array
from ..batch import Batch
from ..errors import Invalid
from ..rollouts import consecutive_groups
from . import layout


def rollouts(
    trajectories: Mapping[str, Any] | Sequence[Mapping[str, Any]],
    *,
    group_size: int = 0,
    prompt_ids: Sequence[str] | None = None,
    truncated: Any = None,
    temperature: float = 1.0,
    top_p: float = 1.0,
    whole_groups: bool = False,
) -> dict[str, Any]:
    """Convert trajectories to columns for `Table.insert`.

    What a table would refuse is repaired or dropped, each with a `RepairWarning`: rollouts without a generated token,
    NaN log-probs and rewards, log-probs that rounding put above 0. No rollout may be left.

    Args:
        trajectories: tensors by name, as above; or a list of such dicts, each a group, as ``prepare_batch`` returns.
        group_size: number of consecutive rollouts in a group, for one dict; 0: each is a group of its own.
        prompt_ids: [B] names of the prompts.
        truncated: bool [B]: stopped by length.
        temperature, top_p: of the sampling.
        whole_groups: drop a group whole if it loses a rollout, as tables with unit group want it.
    """
    parts = [trajectories] if isinstance(trajectories, Mapping) else list(trajectories)
    if not parts:
        raise Invalid("trajectories: none: want at least one")
    read = [_trajectory(part) for part in parts]
    for part in read:
        if part.keys() != read[0].keys():
            raise Invalid(
                f"trajectories: only some have {', '.join(sorted(part.keys() ^ read[0].keys()))}: want the same in all"
            )
    columns: dict[str, Any] = {name: np.concatenate([part[name] for part in read]) for name in read[0]}
    rows = len(columns["lengths"])
    if isinstance(trajectories, Mapping):
        if group_size:
            columns["group"] = consecutive_groups(rows, group_size)
    else:
        columns["group"] = np.repeat(np.arange(len(read)), [len(part["lengths"]) for part in read])
    columns.update(layout.row_columns(rows, prompt_ids, truncated, temperature, top_p))
    return layout.repaired(columns, whole_groups)


def _trajectory(part: Mapping[str, Any]) -> dict[str, Array]:
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
            shifted = np.zeros_like(found)
            shifted[:, 1:] = found[:, :-1]
            out[ours] = shifted[keep]
    out["reward"] = layout.need(part, "rewards").reshape(-1)
    if len(out["reward"]) != len(tokens):
        raise Invalid(f"rewards: {len(out['reward'])} of them: want {len(tokens)}, one for each row of input_ids")
    return out


def tensors(batch: Batch, *, pad_token_id: int = 0, torch: bool = False, device: Any = None) -> list[dict[str, Any]]:
    """Convert a batch to the input of `PPOActor.compute_advantages`: a list of trajectories, in the order of the batch,
    each the consecutive rows of one group. A table with unit group draws groups whole.

    Args:
        batch: of `Table.sample` or `Table.stream`.
        pad_token_id: of the tokenizer.
        torch, device: return torch tensors on that device.
    """
    padded = batch.padded(pad_id=pad_token_id)
    out = {
        "input_ids": padded.tokens.astype(np.int64),
        "attention_mask": padded.attention_mask,
        "loss_mask": padded.loss_mask.astype(np.int32),
        "logprobs": padded.logprobs,
        "versions": padded.versions,
        "rewards": batch.rewards.copy(),
    }
    for name, values in (("values", padded.values), ("ref_logp", padded.ref_logprobs)):
        if values is not None:
            out[name] = np.zeros_like(values)
            out[name][:, :-1] = values[:, 1:]
    groups, ids = batch.groups.astype(np.int64), batch.ids.astype(np.int64)
    again = (np.diff(groups) == 0) & (np.diff(ids) <= 0)  # a group drawn twice in a row
    starts = np.flatnonzero(np.concatenate([[True], (np.diff(groups) != 0) | again]))
    trajectories = [
        {name: value[begin:end] for name, value in out.items()} for begin, end in zip(starts, [*starts[1:], len(batch)])
    ]
    return [layout.finish(trajectory, torch, device) for trajectory in trajectories]
