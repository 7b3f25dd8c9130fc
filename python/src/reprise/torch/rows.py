"""Rows: the tokens of a batch, padded or packed, which of them count, and sums over rollouts."""

from __future__ import annotations

import torch
from torch import Tensor

from ..errors import Invalid

MAX_LOG_RATIO = 20.0
"""Bounds the exponent of a ratio: rho stays within [e^-20, e^20] = [2e-9, 5e8], so that rho^2 summed over a batch is
finite in float32. Beyond it the ratio is constant and has no gradient."""


PER_ROLLOUT = ("advantages", "staleness")
"""Inputs per token that may be given per rollout."""


def bounded_exp(log_ratio: Tensor) -> Tensor:
    """Return exp of a log-ratio clipped to +-MAX_LOG_RATIO."""
    return log_ratio.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()


def refuse(missing: Tensor, why: str) -> None:
    """Refuse rollouts, bool [R], that have no log b. On a GPU, which would wait for the answer, and in
    ``torch.compile`` their NaN shows instead."""
    compiling = getattr(torch.compiler, "is_compiling", bool)  # bool() is False: torch 2.1 lacks it
    if missing.device.type == "cpu" and not compiling() and missing.any():
        raise Invalid(f"behaviour: NaN for rollouts {missing.nonzero().flatten().tolist()}: want numbers: {why}")


class Rows:
    """R rollouts of a batch. What does not count is replaced by 0 before anything is computed of it."""

    def __init__(self, logprobs: Tensor, mask: Tensor, cu_seqlens: Tensor | None) -> None:
        """Check the shape [R, T], or [N] with the bounds of the rollouts, int [R + 1]."""
        if not logprobs.is_floating_point():
            raise Invalid(f"logprobs: {logprobs.dtype}: want a float type")
        self.shape = logprobs.shape
        self.dtype = logprobs.dtype if logprobs.dtype == torch.float64 else torch.float32
        self._row: Tensor | None = None  # of each token, if packed
        if cu_seqlens is None:
            if logprobs.ndim != 2:
                raise Invalid(f"logprobs: shape {_dims(logprobs)}: want [B, T], or [N] with cu_seqlens")
            self.rollouts = logprobs.shape[0]
        elif logprobs.ndim != 1:
            raise Invalid(f"logprobs: shape {_dims(logprobs)}: want [N] with cu_seqlens, or no cu_seqlens")
        self.counts = self._checked("mask", mask, self.shape) != 0
        if cu_seqlens is not None:
            self._row = self._pack(cu_seqlens)
        self.length = self.sum(self.counts.to(self.dtype))
        """[R]: tokens that count."""

    def _pack(self, cu_seqlens: Tensor) -> Tensor:
        """Return the row [N] of each token. Tokens behind the last rollout are padding."""
        bounds = cu_seqlens.tolist() if cu_seqlens.ndim == 1 else []
        if len(bounds) < 2 or bounds[0] != 0 or sorted(bounds) != bounds or bounds[-1] > self.shape[0]:
            raise Invalid(
                f"cu_seqlens: {cu_seqlens}: want the start of each rollout, from 0 in ascending order, and the end, "
                f"at most {self.shape[0]}"
            )
        self.rollouts = len(bounds) - 1
        if self.counts[bounds[-1] :].any():
            raise Invalid(f"cu_seqlens: ends at {bounds[-1]}: want no token in the mask behind the last rollout")
        rows = torch.arange(self.rollouts, device=self.counts.device)
        lengths = cu_seqlens.to(rows).diff()
        lengths[-1] += self.shape[0] - bounds[-1]
        return torch.repeat_interleave(rows, lengths, output_size=self.shape[0])

    def tokens(self, name: str, x: Tensor | None, *, needed_by: str) -> Tensor:
        """Return an input per token, 0 where the token does not count. One per rollout [R] is spread over its tokens
        if that is not the shape of a tensor per token."""
        if x is None:
            raise Invalid(f"{name}: None: want a tensor of shape {list(self.shape)}: {needed_by} reads it")
        if name in PER_ROLLOUT and x.ndim == 1 and x.shape != self.shape:
            return self.masked(self.spread(self._checked(name, x, (self.rollouts,)).to(self.dtype)))
        return self.masked(self._checked(name, x, self.shape).to(self.dtype))

    def rows(self, name: str, x: Tensor | None, *, needed_by: str) -> Tensor:
        """Return an input per rollout [R], 0 where no token counts."""
        if x is None:
            raise Invalid(f"{name}: None: want a tensor of shape [{self.rollouts}]: {needed_by} reads it")
        return self.masked_rows(self._checked(name, x, (self.rollouts,)).to(self.dtype))

    def labels(self, name: str, x: Tensor | None, *, needed_by: str) -> Tensor:
        """Return for each rollout [R] which of the distinct numbers of an input [R] it has, from 0."""
        if x is None:
            raise Invalid(f"{name}: None: want a tensor of shape [{self.rollouts}]: {needed_by} reads it")
        return self._checked(name, x, (self.rollouts,)).unique(return_inverse=True)[1]

    def _checked(self, name: str, x: Tensor, shape: tuple[int, ...]) -> Tensor:
        if tuple(x.shape) != tuple(shape):
            per = " or one for each rollout" if name in PER_ROLLOUT else ""
            raise Invalid(f"{name}: shape {_dims(x)}: want {list(shape)}{per}, as logprobs has {list(self.shape)}")
        return x

    def masked(self, x: Tensor) -> Tensor:
        """Return x, per token, with 0 where the token does not count."""
        return torch.where(self.counts, x, 0.0)

    def masked_rows(self, x: Tensor) -> Tensor:
        """Return x [R] with 0 for rollouts in which no token counts."""
        return torch.where(self.length > 0, x, 0.0)

    def sum(self, x: Tensor) -> Tensor:
        """Return the sums [R] over rollouts of x, per token."""
        if self._row is None:
            return x.sum(1)
        return torch.zeros(self.rollouts, dtype=x.dtype, device=x.device).index_add(0, self._row, x)

    def mean(self, x: Tensor) -> Tensor:
        """Return the means [R] over the tokens that count, 0 without any. x is 0 where the token does not count."""
        return self.sum(x) / self.length.clamp(min=1)

    def unknown(self, behaviour: Tensor) -> Tensor:
        """Return bool [R]: rollouts of which a log b that counts is NaN."""
        return self.sum(behaviour.isnan().to(self.dtype)) > 0

    def spread(self, x: Tensor) -> Tensor:
        """Return x [R] for each token."""
        return x[:, None].expand(self.shape) if self._row is None else x[self._row]

    def count(self, flag: Tensor) -> Tensor:
        """Return how many tokens that count have the flag."""
        return (self.counts & flag).sum().to(self.dtype)


def _dims(x: Tensor) -> list[int]:
    return list(x.shape)
