"""Batches of a table: what `loss` reads of them, and the ids that their tokens could have been drawn from."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..errors import Invalid
from ..padded import Packed, Padded


def inputs(batch: Padded[Tensor] | Packed[Tensor]) -> dict[str, Any]:
    """Return a batch's columns under the names of `loss`'s arguments: the mask, the behaviour log-probs, advantages,
    weights, rewards, group means, the staleness of tokens, the prompts as groups (without ``prompt_id`` the groups that
    were inserted together), the producer's reference log-probs and values (as old values) if it gave them, and for
    packed batches the bounds of their rollouts."""
    named = {
        "mask": batch.loss_mask, "behaviour": batch.logprobs, "advantages": batch.advantages,
        "weights": batch.weights, "staleness": _staleness(batch), "rewards": batch.rewards,
        "group_means": batch.group_means, "groups": batch.groups if batch.prompts is None else batch.prompts,
        "reference": batch.ref_logprobs, "old_values": batch.values,
    }  # fmt: skip
    if isinstance(batch, Packed):
        named["cu_seqlens"] = batch.cu_seqlens[: len(batch.lengths) + 1]
    return {name: x for name, x in named.items() if x is not None}


def _staleness(batch: Padded[Tensor] | Packed[Tensor]) -> Tensor:
    """Return how many versions older each token is than the batch, 0 outside the mask. A rollout's staleness is that of
    its oldest token."""
    latest = torch.iinfo(batch.versions.dtype).max
    versions = batch.versions.masked_fill(~batch.loss_mask, latest)
    if isinstance(batch, Packed):
        at = batch.sequence_ids.clamp(max=len(batch.lengths) - 1)  # the padding's are not in the mask
        oldest = versions.new_full(batch.staleness.shape, latest).scatter_reduce(0, at, versions, "amin")
        newest = (oldest + batch.staleness)[at]
    else:
        newest = (versions.amin(1) + batch.staleness)[:, None]
    return torch.where(batch.loss_mask, newest - batch.versions, 0)


def restrict(logits: Tensor, batch: Padded[Tensor] | Packed[Tensor]) -> Tensor:
    """Set the logits of ids that the engine cut off to -inf, so that log pi is over the batch's sampling mask, as log b
    is.

    Entry t of a causal model's logits is of token t + 1: it gets the ids of that token. An entry keeps the whole
    vocabulary if its token has no ids, or if no token of the rollout follows. What is set gets a gradient of exactly 0.

    >>> logits = restrict(model(padded.tokens) / temperature, padded)[:, :-1]  # doctest: +SKIP
    >>> logprobs = logits.log_softmax(-1).gather(-1, padded.tokens[:, 1:, None])[..., 0]
    >>> logprobs = torch.nn.functional.pad(logprobs, (1, 0))  # [B, L]: entry t is of token t, 0 for the first

    It takes one byte more for each logit. For an entropy use ``torch.special.entr(p)``: p log p is NaN at -inf.

    Args:
        logits: float [B, L, V], or [B, L - 1, V] without the last entries; for packed batches [N, V].
        batch: on the device of the logits. Without a sampling mask the logits are returned as they are.

    Raises:
        Invalid: the logits do not have the shape of the batch, or an id is not in their vocabulary.
    """
    shape = list(batch.tokens.shape)
    shapes = [shape] if isinstance(batch, Packed) else [shape, [shape[0], shape[1] - 1]]
    if list(logits.shape[:-1]) not in shapes:
        want = " or ".join(f"[{', '.join(map(str, each))}, V]" for each in shapes)
        raise Invalid(f"logits: shape {list(logits.shape)}: want {want}, as the batch has")
    if batch.sampling_mask is None:
        return logits
    *at, ids = batch.sampling_mask.unbind(1)
    at[-1] = at[-1] - 1  # the entry before the token
    if len(ids) and ids.max() >= logits.shape[-1]:
        raise Invalid(
            f"logits: a vocabulary of {logits.shape[-1]}: want that of the engine: a sampling mask has id {ids.max()}"
        )
    whole = torch.ones(logits.shape[:-1], dtype=torch.bool, device=logits.device)
    whole[tuple(at)] = False
    allowed = whole[..., None].expand(logits.shape).clone()
    allowed[(*at, ids)] = True
    return torch.where(allowed, logits, -torch.inf)
