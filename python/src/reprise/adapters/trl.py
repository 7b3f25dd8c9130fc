"""TRL: the output of `GRPOTrainer._generate_and_score_completions`, the input of `_compute_loss` (names of TRL 1.16.0).

- ``prompt_ids``, ``prompt_mask`` int [B, P]: padded on the left.
- ``completion_ids``, ``completion_mask`` int [B, C]: padded on the right.
- ``tool_mask`` int [B, C]: 0 at the tokens of tools; absent without tools.
- ``sampling_per_token_logps``, ``old_per_token_logps``, ``ref_per_token_logps`` float [B, C]: each may be absent.
- ``advantages`` float [B].
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..batch import Batch
from ..errors import Invalid
from ..rollouts import consecutive_groups
from . import layout

_NO_LOGPROBS = (
    "logprobs: missing: TRL omits old_per_token_logps if the current weights generated: want use_vllm, or the "
    "log-probs of the sampled tokens as logprobs"
)


def rollouts(
    outputs: Mapping[str, Any],
    *,
    rewards: Any,
    version: Any,
    num_generations: int,
    prompt_ids: Sequence[str] | None = None,
    logprobs: Any = None,
    truncated: Any = None,
    temperature: float = 1.0,
    top_p: float = 1.0,
    keep_advantages: bool = True,
) -> dict[str, Any]:
    """Convert TRL's batch to columns for `Table.insert`.

    Args:
        outputs: of `_generate_and_score_completions`, as above.
        rewards: float [B]: the weighted sum of the reward functions, which the outputs lack.
        version: of the weights that generated, such as ``state.global_step`` of the trainer; one for all, or int [B].
        num_generations: TRL's option: number of consecutive rollouts of one prompt, which form a group.
        prompt_ids: [B] names of the prompts.
        logprobs: float [B, C]: of the tokens when they were sampled. By default ``sampling_per_token_logps``, which TRL
            returns with vLLM, otherwise ``old_per_token_logps``.
        truncated: bool [B]: stopped by length.
        temperature, top_p: of the sampling.
        keep_advantages: insert TRL's advantages; otherwise the table computes them from the rewards.
    """
    prompts, completions = layout.need(outputs, "prompt_ids"), layout.need(outputs, "completion_ids")
    rows, shape = len(completions), completions.shape
    completion_mask = layout.need(outputs, "completion_mask").astype(bool)
    keep = np.concatenate([layout.need(outputs, "prompt_mask").astype(bool), completion_mask], axis=1)
    tool = layout.get(outputs, "tool_mask", shape)
    policy = completion_mask if tool is None else completion_mask & tool.astype(bool)
    lengths = keep.sum(axis=1)
    mask = layout.join(None, policy.view(np.uint8), keep)
    layout.check_mask(
        mask, lengths, "mask_truncated_completions drops truncated ones: want it off, or leave these rows out"
    )
    if logprobs is None:
        behaviour = layout.first(outputs, ("sampling_per_token_logps", "old_per_token_logps"), shape, _NO_LOGPROBS)
    else:
        behaviour = layout.array("logprobs", logprobs, shape)
    columns: dict[str, Any] = {
        "tokens": layout.join(prompts, completions, keep),
        "lengths": lengths,
        "mask": mask,
        "logprobs": np.where(mask, layout.join(None, behaviour, keep), 0).astype(np.float32),
        "versions": layout.versions(version, mask, lengths),
        "reward": layout.array("rewards", rewards, (rows,)),
        "group": consecutive_groups(rows, num_generations),
        **layout.row_columns(rows, prompt_ids, truncated, temperature, top_p),
    }
    reference = layout.get(outputs, "ref_per_token_logps", shape)
    if reference is not None:
        columns["ref_logprobs"] = layout.join(None, reference, keep)
    if keep_advantages:
        columns["advantage"] = layout.need(outputs, "advantages", "or keep_advantages=False").reshape(rows)
    return columns


def tensors(
    batch: Batch,
    *,
    pad_token_id: int,
    max_prompt_length: int | None = None,
    max_completion_length: int | None = None,
    pad_to_multiple_of: int = 1,
    weigh: bool = True,
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
        torch, device: return torch tensors on that device.

    Multi-turn rollouts have a ``tool_mask``. ``num_items_in_batch`` is the number of tokens in the loss. Advantages are
    per rollout [B]; a batch with advantages per token is an error, since TRL has none.
    """
    if batch.has("advantages"):
        raise Invalid("advantages: one per token: want rollouts with one advantage each, as in TRL")
    sides = layout.Sides(batch, max_prompt_length, max_completion_length, pad_to_multiple_of)
    mask = batch.flat("mask")
    policy = sides.completion(mask, 0, np.int64)
    advantages = batch.column("advantage").astype(np.float32)
    if weigh and batch.has("weight"):
        advantages = advantages * batch.weights.astype(np.float32)
    out = {
        "prompt_ids": sides.prompt(batch.flat("tokens"), pad_token_id, np.int64),
        "prompt_mask": sides.prompt_mask.astype(np.int64),
        "completion_ids": sides.completion(batch.flat("tokens"), pad_token_id, np.int64),
        "completion_mask": sides.completion_mask.astype(np.int64),
        "advantages": advantages,
        "old_per_token_logps": sides.completion(batch.flat("logprobs"), 0, np.float32),
        "num_items_in_batch": np.array(policy.sum()),
    }
    if (policy != out["completion_mask"]).any():
        out["tool_mask"] = np.where(sides.completion_mask, policy, 1)
    if batch.has("ref_logprobs"):
        out["ref_per_token_logps"] = sides.completion(batch.flat("ref_logprobs"), 0, np.float32)
    return layout.finish(out, torch, device)
