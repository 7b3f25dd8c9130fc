"""TRL: what `GRPOTrainer._generate_and_score_completions` returns and `_compute_loss` takes (names of TRL 1.16.0).

- ``prompt_ids``, ``prompt_mask`` int [B, P]: padded on the left.
- ``completion_ids``, ``completion_mask`` int [B, C]: padded on the right.
- ``tool_mask`` int [B, C]: 0 at tokens of tools; absent if there are none.
- ``sampling_per_token_logps``, ``old_per_token_logps``, ``ref_per_token_logps`` float [B, C]: each may be absent.
- ``advantages`` float [B].
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..batch import Batch
from ..errors import Invalid
from . import layout


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
    """Return TRL's batch as columns for `Table.insert`.

    Args:
        outputs: of `_generate_and_score_completions`, as above.
        rewards: float [B], which the outputs do not hold: the weighted sum of the reward functions.
        version: of the weights that generated, such as the trainer's ``state.global_step``; one for all, or int [B].
        num_generations: consecutive rollouts of one prompt, TRL's own option; they form a group.
        prompt_ids: [B] names of the prompts.
        logprobs: float [B, C]: of the tokens when they were sampled. By default ``sampling_per_token_logps``, which TRL has
            with vLLM, and else ``old_per_token_logps``.
        truncated: bool [B]: stopped by length.
        temperature, top_p: of the sampling.
        keep_advantages: store TRL's advantages; otherwise the table computes them from the groups' rewards.
    """
    prompts, completions = layout.need(outputs, "prompt_ids"), layout.need(outputs, "completion_ids")
    rows, shape = len(completions), completions.shape
    completion_mask = layout.need(outputs, "completion_mask").astype(bool)
    keep = np.concatenate([layout.need(outputs, "prompt_mask").astype(bool), completion_mask], axis=1)
    tool = layout.get(outputs, "tool_mask", shape)
    policy = completion_mask if tool is None else completion_mask & tool.astype(bool)
    lengths = keep.sum(axis=1)
    mask = layout.join(None, policy.view(np.uint8), keep)
    layout.has_policy(mask, lengths, "with mask_truncated_completions TRL drops truncated ones: want it off, or those rows left out")
    behaviour = _behaviour(outputs, logprobs, shape)
    columns: dict[str, Any] = {
        "tokens": layout.join(prompts, completions, keep),
        "lengths": lengths,
        "mask": mask,
        "logprobs": np.where(mask, layout.join(None, behaviour, keep), 0).astype(np.float32),
        "versions": layout.per_token(version, mask, lengths),
        "reward": layout.array("rewards", rewards, (rows,)),
        "group": layout.consecutive_groups(rows, num_generations),
        "temperature": temperature,
        "top_p": top_p,
    }
    reference = layout.get(outputs, "ref_per_token_logps", shape)
    if reference is not None:
        columns["ref_logprobs"] = layout.join(None, reference, keep)
    if prompt_ids is not None:
        columns["prompt_id"] = list(prompt_ids)
    if truncated is not None:
        columns["truncated"] = layout.array("truncated", truncated, (rows,)).astype(bool)
    if keep_advantages:
        columns["advantage"] = layout.need(outputs, "advantages", "or keep_advantages=False").reshape(rows)
    return columns


def _behaviour(outputs: Mapping[str, Any], given: Any, shape: tuple[int, ...]) -> Any:
    if given is not None:
        return layout.array("logprobs", given, shape)
    for name in ("sampling_per_token_logps", "old_per_token_logps"):
        found = layout.get(outputs, name, shape)
        if found is not None:
            return found
    raise Invalid(
        "logprobs: missing: TRL leaves old_per_token_logps out where it would be that of the current weights: want use_vllm, "
        "or the log-probs of the sampled tokens as logprobs"
    )


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
    """Return a batch as `GRPOTrainer._compute_loss` takes it, the behaviour policy's log-probs as ``old_per_token_logps``.

    Args:
        batch: of `Table.sample` or `Table.batches`.
        pad_token_id: of the tokenizer.
        max_prompt_length, max_completion_length: P and C, for shapes that never change; by default the longest.
        pad_to_multiple_of: of P and C.
        weigh: multiply the advantages by the importance weights of the draws.
        torch, device: return torch tensors, on that device.

    Multi-turn rollouts get a ``tool_mask``. ``num_items_in_batch`` is the number of tokens that the loss is taken over.
    Advantages are the rollouts' [B]; with advantages per token in the table it is an error, since TRL has none.
    """
    if batch.has("advantages"):
        raise Invalid("advantages: one per token: want a table whose rollouts have one advantage each, as TRL has them")
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
