"""Corrections: what a loss of importance ratios does about rollouts of other policies (docs/METHODS.md section 8).

Per token, b is the policy that sampled, p the proximal policy, pi the one being trained, r = pi/p, k = p/b, and A the
advantage. None of the factors has a gradient. A dropped token loses its term, with the gradient, and stays in the
denominators; the penalty of `kl_coef` and the critic's loss keep it. Where r = k = 1 every correction leaves the loss
as it is, bit for bit.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..errors import Invalid
from .rows import Rows, bounded_exp, refuse

KINDS = ("truncate", "mask", "opsm", "m2po", "dppo")


@dataclass(frozen=True)
class Step:
    """One correction: an entry of ``learner.correction``. 0 and "" stand for the defaults."""

    kind: str
    level: str = ""
    low: float = 0.0
    high: float = 0.0
    limit: float = 0.0

    def with_defaults(self) -> Step:
        """Return the step with its defaults written out."""
        if self.kind == "truncate":
            return Step(self.kind, self.level or "token", self.low, self.high or 2, self.limit)
        if self.kind == "mask":
            low, high = (self.low, self.high or math.inf) if self.low or self.high else (0.5, 5)
            return Step(self.kind, self.level or "token", low, high, self.limit)
        if self.kind == "dppo":
            return Step(self.kind, self.level, self.low or 0.2, self.high or 0.2, self.limit)
        default = {"opsm": 0.1, "m2po": 0.04}.get(self.kind, 0)
        return Step(self.kind, self.level, self.low, self.high, self.limit or default)

    @property
    def name(self) -> str:
        """What metrics call it: the kind, for masks with the level."""
        return f"mask_{self.level or 'token'}" if self.kind == "mask" else self.kind

    def check(self, problems: Problems, at: str) -> None:
        """Report the fields that are out of their ranges or that the kind does not read."""
        step = self.with_defaults()
        levels: tuple[str, ...] = ()
        read: tuple[str, ...] = ()
        if self.kind == "truncate":
            levels, read = ("token", "sequence", "product"), ("high",)
            problems.number(at + "high", step.high, lambda x: x >= 1, "a finite number of 1 or more")
        elif self.kind == "mask":
            levels, read = ("token", "sequence", "product"), ("low", "high")
            problems.number(at + "low", step.low, lambda x: 0 <= x < 1, "a number in [0, 1)")
            if step.high != math.inf:  # of low alone
                problems.number(at + "high", step.high, lambda x: x > 1, "a finite number above 1")
        elif self.kind == "dppo":
            read = ("low", "high")
            for key in read:
                problems.number(at + key, getattr(step, key), lambda x: 0 < x <= 1, "a probability in (0, 1]")
        else:
            read = ("limit",)
            problems.number(at + "limit", step.limit, lambda x: x > 0, "a finite number above 0")
        want = f"one of {', '.join(levels)}" if levels else f"nothing: {self.kind} does not read it"
        problems.check(step.level in (levels or ("",)), at + "level", self.level, want)
        for key in ("low", "high", "limit"):
            value = getattr(self, key)
            problems.check(key in read or value == 0, at + key, value, f"nothing: {self.kind} does not read it")


@dataclass
class Problems:
    """What is wrong with options: ``key: value: want …``, all of it at once."""

    lines: list[str] = field(default_factory=list)

    def check(self, ok: bool, key: str, value: Any, want: str) -> None:
        if not ok:
            self.lines.append(f"{key}: {value if value != '' else repr('')}: want {want}")

    def number(self, key: str, value: Any, test: Any, want: str) -> None:
        """Check a finite number that passes a test."""
        ok = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value) and test(value)
        self.check(ok, key, value, want)

    def throw(self) -> None:
        if self.lines:
            raise Invalid("\n".join(self.lines))


def steps_of(correction: Sequence[Step | Mapping[str, Any]], proximal: str, problems: Problems) -> tuple[Step, ...]:
    """Check a list of corrections and return them with their defaults."""
    known = proximal in ("behaviour", "recompute", "unweighted", "interpolate")
    problems.check(known, "proximal", proximal, "behaviour, recompute, unweighted or interpolate")
    steps: list[Step] = []
    keys = [f.name for f in fields(Step)]
    for i, given in enumerate(correction):
        at = f"correction[{i}]."
        if not isinstance(given, Step):
            unknown = [key for key in given if key not in keys]
            for key in unknown:
                problems.check(False, at + str(key), given[key], f"another key: {', '.join(keys)}")
            given = Step(**{"kind": "", **{key: given[key] for key in keys if key in given}})
        if given.kind not in KINDS:
            problems.check(False, at + "kind", given.kind, f"{', '.join(KINDS[:-1])} or {KINDS[-1]}")
            continue
        step = given.with_defaults()
        problems.check(step.name not in [s.name for s in steps], at + "kind", step.name, "each at most once")
        given.check(problems, at)
        problems.check(
            step.kind != "truncate" or proximal in ("recompute", "interpolate"), at + "kind", step.kind,
            "proximal: recompute or interpolate with it: otherwise there is no factor k",
        )  # fmt: skip
        steps.append(step)
    return tuple(steps)


class Corrected(NamedTuple):
    """What corrections make of a batch. Tensors have the shape of the log-probs, [B, T] or [N]."""

    log_ratio: Tensor
    """log r, 0 where the token does not count; with gradient."""
    factor: Tensor | None
    """Of the terms, without gradient; None: 1."""
    dropped: Tensor | None
    """bool: tokens with neither loss nor gradient; None: no correction drops any."""
    touched: dict[str, Tensor]
    """bool, by the correction's name: it changed or dropped the token's term."""

    def of(self, terms: Tensor) -> Tensor:
        """Return the corrected terms of a loss, of the shape of the log-probs."""
        if self.factor is not None:
            terms = self.factor * terms
        return terms if self.dropped is None else torch.where(self.dropped, 0.0, terms)


def correct(
    logprobs: Tensor,
    *,
    mask: Tensor,
    behaviour: Tensor,
    advantages: Tensor,
    correction: Sequence[Mapping[str, Any]] = (),
    proximal: str = "behaviour",
    anchor: Tensor | None = None,
    staleness: Tensor | None = None,
    second_moment: Tensor | float | None = None,
    cu_seqlens: Tensor | None = None,
) -> Corrected:
    """Work out what corrections do, for a loss of your own: ``correct(...).of(terms)``. `loss` does it itself.

    Args:
        logprobs: float [B, T] or [N]: log pi of the tokens.
        mask: bool or number [B, T] or [N]: not 0 where the policy produced the token.
        behaviour: float [B, T] or [N]: log b, recorded at generation. NaN is refused on the CPU; elsewhere what is
            worked out of it is NaN.
        advantages: float [B, T] or [N], or [B] for all tokens of a rollout.
        correction: dicts of kind, level, low, high and limit, as in ``learner.correction``.
        proximal: behaviour (p = b), recompute (p is the policy of ``anchor``, and the terms are multiplied by k),
            unweighted (the same p without the factor k) or interpolate (log p = log b + (1 - 1/max(d, 1)) log(pi/b)
            without gradient, d the ``staleness``, with the factor k).
        anchor: float [B, T] or [N]: log p of recompute and unweighted: the log-probs under the weights at the start of
            the batch. With one update on each batch they are ``logprobs.detach()``.
        staleness: number [B, T] or [N], or [B] for all tokens of a rollout: versions between the weights that sampled
            the token and those at the start of the batch, for interpolate.
        second_moment: for m2po, of `second_moment` over the whole batch; None: these tokens are the whole batch.
        cu_seqlens: int [B + 1]: the start of each rollout in [N], and the end.

    Raises:
        Invalid: a field or a tensor is not as wanted; the message has every field, its value and what is wanted.
    """
    problems = Problems()
    steps = steps_of(correction, proximal, problems)
    problems.throw()
    rows = Rows(logprobs, mask, cu_seqlens)
    b = rows.tokens("behaviour", behaviour, needed_by="correct").detach()
    refuse(rows.unknown(b), "correct reads them; leave such rollouts out")
    return corrected(
        rows, steps, proximal,
        logp=rows.tokens("logprobs", logprobs, needed_by="correct"), behaviour=b,
        advantage=rows.tokens("advantages", advantages, needed_by="correct").detach(),
        anchor=anchor, staleness=staleness, bound=second_moment,
    )  # fmt: skip


def corrected(
    rows: Rows, steps: Sequence[Step], proximal: str, *, logp: Tensor, behaviour: Tensor, advantage: Tensor,
    anchor: Tensor | None, staleness: Tensor | None, bound: Tensor | float | None, unknown: Tensor | None = None,
) -> Corrected:  # fmt: skip
    """Do the work of `correct` on checked steps and masked tensors. m2po counts no tokens whose log b is unknown."""
    moved = (logp - behaviour).detach()  # log pi - log b
    log_ratio, log_k, factor = logp - behaviour, moved, None
    if proximal == "interpolate":
        d = rows.tokens("staleness", staleness, needed_by="proximal interpolate").clamp(min=1)
        log_k = (1 - 1 / d) * moved
        log_ratio = log_ratio - log_k
    elif proximal != "behaviour":
        p = rows.tokens("anchor", anchor, needed_by=f"proximal {proximal}").detach()
        log_ratio, log_k = logp - p, p - behaviour
    if proximal in ("recompute", "interpolate"):
        factor = bounded_exp(log_k)
    dropped, touched = None, {}
    for step in steps:
        if step.kind in ("truncate", "mask"):
            k = bounded_exp(_over(rows, step.level, log_k))
            hit = k > step.high
            if step.kind == "truncate":
                factor = k.clamp(max=step.high)
            else:
                hit = hit | (k < step.low)
        elif step.kind == "opsm":
            hit = rows.spread((rows.mean(advantage) < 0) & (-rows.mean(moved) > step.limit))
        elif step.kind == "m2po":
            square, further = _moments(moved, advantage)
            if bound is None:
                counts = rows.counts if unknown is None else rows.counts & ~unknown
                bound = _second_moment(square[counts], further[counts], step.limit)
            hit = further & (square > bound)
        else:
            by = logp.detach().exp() - behaviour.exp()
            hit = ((advantage > 0) & (by > step.high)) | ((advantage < 0) & (by < -step.low))
        hit = hit & rows.counts
        touched[step.name] = hit
        if step.kind != "truncate":
            dropped = hit if dropped is None else dropped | hit
    return Corrected(log_ratio, factor, dropped, touched)


def _over(rows: Rows, level: str, log_k: Tensor) -> Tensor:
    """Return log-ratios taken over what a level says."""
    if level == "sequence":
        return rows.spread(rows.mean(log_k))
    return rows.spread(rows.sum(log_k)) if level == "product" else log_k


def second_moment(
    logprobs: Tensor, *, mask: Tensor, behaviour: Tensor, advantages: Tensor, limit: float = 0.04
) -> Tensor:
    """Return m2po's bound on m^2, m = log pi - log b, over a whole batch: pass it to the `loss` of each of its shards.

    m2po drops the tokens with A m > 0, whose update leads further from b, and m^2 above the bound. They are as few as
    bring the mean of m^2 over the others to the limit or below, or all such tokens if that is not enough. Equal m^2 go
    together.

    Args:
        logprobs: float of any shape: log pi of the batch's tokens, over all shards, such as [N] concatenated.
        mask: of the same shape: not 0 where the policy produced the token.
        behaviour: float of the same shape: log b; tokens of NaN do not count.
        advantages: float of the same shape.
        limit: of the mean of m^2, above 0.

    Returns:
        a scalar, float32 at least; infinity if no token is to be dropped.
    """
    problems = Problems()
    problems.number("limit", limit, lambda x: x > 0, "a finite number above 0")
    for name, x in (("mask", mask), ("behaviour", behaviour), ("advantages", advantages)):
        problems.check(
            x.shape == logprobs.shape, name, f"shape {list(x.shape)}", f"{list(logprobs.shape)}, as logprobs has"
        )
    problems.throw()
    counts = (mask != 0) & ~behaviour.isnan()
    dtype = logprobs.dtype if logprobs.dtype == torch.float64 else torch.float32
    moved = logprobs.detach()[counts].to(dtype) - behaviour[counts].to(dtype)
    return _second_moment(*_moments(moved, advantages[counts]), limit)


def _moments(moved: Tensor, advantage: Tensor) -> tuple[Tensor, Tensor]:
    """Return m^2, and where the update leads further from b."""
    return moved.square(), ((advantage > 0) & (moved > 0)) | ((advantage < 0) & (moved < 0))


def _second_moment(squares: Tensor, further: Tensor, limit: float) -> Tensor:
    """Return a number between the squares that stay and those that go: programs that compute m twice may differ in its
    last digits."""
    rest = squares[~further]
    ordered = squares[further].sort().values
    none = ordered.new_zeros(1)
    # Entry i is of keeping the i least.
    total = rest.sum() + torch.cat([none, ordered.cumsum(0)])
    number = rest.numel() + torch.arange(len(ordered) + 1, device=squares.device)
    below, above = torch.cat([none, ordered]), torch.cat([ordered, none + math.inf])
    fits = (total <= limit * number) & (below < above)  # equal squares go together
    fits[0] = True
    keep = fits.nonzero().max()
    return (below[keep] + above[keep]) / 2
