"""Advantages over rollouts of one prompt that different policies produced."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import torch
from torch import Tensor

from ..errors import Invalid

KINDS = ("group", "no_std", "leave_one_out")
EPSILON = 1e-8  # under the root, as in the table


def regroup(
    prompts: Sequence[Hashable], rewards: Tensor, *, ratios: Tensor | None = None, kind: str = "group"
) -> Tensor:
    """Return advantages over all rollouts of a prompt that are given: fresh ones and those that a table drew.

    With C the rollouts of a prompt and w their ratios, or 1: mean = sum(w r) / sum(w) over C, and var alike. The
    advantage is (r - mean) / sqrt(var + 1e-8) for ``group``, r - mean for ``no_std``, and r less the weighted mean of
    the others for ``leave_one_out``. Rewards that are all alike, and a rollout without others, have 0.

    Without ratios these are the table's with ``draw_advantage`` ``regroup``, where the mean is that of the policies
    mixed. With ratios pi/b the mean estimates the expected reward of pi. The estimate divides by sum(w), so its bias
    falls with the number of rollouts, and grows where ratios are truncated, per token or of the geometric mean of the
    tokens. Rollouts that were chosen by their reward bias it in either case (docs/METHODS.md, section 3).

    >>> batch = table.sample_prompts(asked, 4)  # doctest: +SKIP
    >>> ratio = ((logprobs - padded.logprobs) * padded.loss_mask).sum(1).exp().clamp(max=2).detach()
    >>> advantages = regroup(batch.prompt_ids, padded.rewards, ratios=ratio)

    Args:
        prompts: which prompt each rollout answers, such as ``batch.prompt_ids``; R of them.
        rewards: float [R].
        ratios: of the rollouts, float [R], finite and at least 0.
        kind: group, no_std or leave_one_out.

    Raises:
        Invalid: naming the argument, with what is wanted.
    """
    if kind not in KINDS:
        raise Invalid(f"kind: {kind!r}: want {', '.join(KINDS[:-1])} or {KINDS[-1]}")
    if rewards.ndim != 1 or len(prompts) != len(rewards):
        raise Invalid(f"rewards: shape {list(rewards.shape)}: want [{len(prompts)}], one for each of prompts")
    dtype = torch.promote_types(rewards.dtype, torch.float32)
    r = rewards.detach().to(dtype)
    w = torch.ones_like(r) if ratios is None else ratios.detach().to(r)
    if w.shape != r.shape:
        raise Invalid(f"ratios: shape {list(w.shape)}: want {list(r.shape)}, as rewards has")
    if not bool((torch.isfinite(w) & (w >= 0)).all()):
        raise Invalid(f"ratios: {w.tolist()}: want finite numbers of at least 0; clip the logarithms before exp")
    numbers: dict[Hashable, int] = {}
    of = torch.tensor([numbers.setdefault(p, len(numbers)) for p in prompts], dtype=torch.long, device=r.device)

    def total(x: Tensor) -> Tensor:
        """Return the sum over each rollout's prompt, [R]."""
        return torch.zeros(len(numbers), dtype=dtype, device=r.device).index_add(0, of, x)[of]

    def mean(x: Tensor, weight: Tensor) -> Tensor:
        return torch.where(weight > 0, x / weight, 0)

    weight = total(w)
    centre = mean(total(w * r), weight)
    advantages = r - centre
    if kind == "group":
        advantages = advantages / (mean(total(w * (r - centre) ** 2), weight) + EPSILON).sqrt()
    elif kind == "leave_one_out":
        others = weight - w
        advantages = torch.where(others > 0, advantages * weight / others, 0)
    first = torch.zeros(len(numbers), dtype=dtype, device=r.device).index_copy(0, of, r)[of]  # one reward of each prompt
    alike = total((r != first).to(dtype)) == 0
    return torch.where(alike | (weight == 0), 0, advantages)
