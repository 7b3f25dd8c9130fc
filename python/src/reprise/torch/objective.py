"""Objectives: the losses of a run's ``learner``, on tensors (docs/METHODS.md section 5)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from ..errors import Invalid
from .correction import Corrected, Problems, Step, corrected, steps_of
from .metrics import Sums, combine, ratio_sums
from .rows import MAX_LOG_RATIO, Rows, bounded_exp, refuse

SURROGATES = ("grpo", "ppo", "reinforce++", "reinforce++-baseline", "rloo", "dr_grpo", "cispo")
NAMES = (*SURROGATES, "grpo_off", "asymre", "oapl", "trajectory_balance")

_REDUCED = {"normalisation", "constant_length"}
_CLIPPED = {*_REDUCED, "ratio", "clip_low", "clip_high", "dual_clip", "proximal", "correction"}
READ = {name: {*_CLIPPED, "experts", "expert_gamma"} for name in SURROGATES} | {
    "ppo": {*_CLIPPED, "value_coef", "value_clip"},
    "grpo_off": {*_REDUCED, "clip", "r_prime", "kl_coef", "kl_weighted", "kl_anchor", "proximal", "correction"},
    "asymre": {"shift"},
    "oapl": {"beta"},
    "trajectory_balance": {"beta"},
}
"""The options that each objective reads."""


@dataclass(frozen=True)
class Objective:
    """An objective with its options: the keys of ``learner`` in a run's configuration. 0 and "" stand for the defaults
    in brackets.

    With r = pi/b, or pi/p with another proximal policy p, and A the advantage, the loss is minus the mean of

    - min(r A, clip(r, 1 - clip_low, 1 + clip_high) A): grpo, and with other advantages ppo, reinforce++,
      reinforce++-baseline, rloo and dr_grpo. ppo adds value_coef times the mean of
      max((V - R)^2, (clip(V, V_old - value_clip, V_old + value_clip) - R)^2) / 2.
    - sg(clip(r, 1 - clip_low, 1 + clip_high)) A log pi: cispo.
    - min(r A, clip(r, max(r' - clip, 0), r' + clip) A) - kl_coef KL(pi || pi_ref): grpo_off.
    - (reward - (group mean + shift)) sum_t log pi over rollouts: asymre.

    or the mean over rollouts of

    - (beta sum_t log(pi/b) - A)^2: oapl, for advantages log_mean_exp.
    - (beta (log Z + sum_t log(pi/pi_ref)) - reward)^2, log Z the mean of reward/beta - sum_t log(pi/pi_ref) over the
      rollouts of a prompt, without gradient: trajectory_balance.

    Raises:
        Invalid: options are out of their ranges, or not read by the objective; the message has all of them.
    """

    objective: str = "grpo"
    """One of `NAMES`."""
    ratio: str = ""
    """[token], or sequence: one ratio for a rollout, exp(mean_t log r)."""
    normalisation: str = ""
    """The mean: by sequence, token or constant [sequence; constant for dr_grpo, token for cispo]."""
    constant_length: int = 0
    """Tokens, 1 or more; with normalisation constant."""
    clip_low: float = 0.0
    """Above 0, to 1 [0.2; 1 for cispo]."""
    clip_high: float = 0.0
    """Above 0 [0.2; 4 for cispo]."""
    dual_clip: float = 0.0
    """c above 1: terms with A < 0 are at least c A; 0: off."""
    clip: float = 0.0
    """grpo_off: above 0 [0.2]."""
    r_prime: str = ""
    """grpo_off: [one], or exact: the policy of ``anchor`` over b."""
    kl_coef: float = 0.0
    """grpo_off: 0 or more."""
    kl_weighted: bool = False
    """grpo_off: multiply the KL by r."""
    kl_anchor: float = 0.0
    """grpo_off: 0 to 1, the share of the KL that is taken to the policy of ``anchor`` instead of the reference's."""
    value_coef: float = 0.0
    """ppo: above 0 [0.1]."""
    value_clip: float = 0.0
    """ppo: above 0, in units of reward [0.2]."""
    shift: float = -0.1
    """asymre: any finite number."""
    beta: float = 0.0
    """oapl, trajectory_balance: above 0, reward for a nat of log-ratio [0.001; 0.012 for trajectory_balance]."""
    experts: str = ""
    """How rollouts with a log b of NaN, not known, are learned from, whatever the ratio and the corrections: sft, by
    log pi; phi, by pi (1 - pi) log pi, the factor without gradient; shaped, by A pi/(pi + expert_gamma). [They are
    refused.]"""
    expert_gamma: float = 0.0
    """experts shaped: above 0 [0.1]."""
    proximal: str = "behaviour"
    """behaviour, recompute, unweighted or interpolate, see `correct`."""
    correction: Sequence[Step | Mapping[str, Any]] = ()
    """Dicts of kind, level, low, high and limit."""

    def __post_init__(self) -> None:
        cispo = self.objective == "cispo"
        defaults: dict[str, Any] = {
            "ratio": "token",
            "normalisation": {"dr_grpo": "constant", "cispo": "token"}.get(self.objective, "sequence"),
            "clip_low": 1 if cispo else 0.2,
            "clip_high": 4 if cispo else 0.2,
            "clip": 0.2,
            "r_prime": "one",
            "value_coef": 0.1,
            "value_clip": 0.2,
            "beta": 0.012 if self.objective == "trajectory_balance" else 0.001,
            "proximal": "behaviour",
            "correction": (),
        }
        problems = Problems()
        read = READ.get(self.objective)
        problems.check(read is not None, "objective", self.objective, f"one of {', '.join(NAMES)}")
        for f in fields(self)[1:]:
            value = getattr(self, f.name)
            given = (value or f.name == "shift") and value not in (f.default, defaults.get(f.name))
            known = read is None or f.name in read
            problems.check(known or not given, f.name, value, f"nothing: objective {self.objective} does not read it")
        for name, default in defaults.items():
            object.__setattr__(self, name, getattr(self, name) or default)
        self._check(problems)
        object.__setattr__(self, "correction", steps_of(self.correction, self.proximal, problems))
        problems.throw()

    def _check(self, p: Problems) -> None:
        """Report the options out of their ranges."""
        terms = ("sft", "phi", "shaped")
        p.check(self.experts in ("", *terms), "experts", self.experts, "sft, phi or shaped, or none")
        want = "a finite number above 0, or 0 for the default 0.1"
        p.number("expert_gamma", self.expert_gamma, lambda x: x >= 0, want)
        p.check(not self.expert_gamma or self.experts == "shaped", "expert_gamma", self.expert_gamma,
                "0, or experts: shaped, which reads it")  # fmt: skip
        p.check(self.ratio in ("token", "sequence"), "ratio", self.ratio, "token or sequence")
        known = ("constant",) if self.objective == "dr_grpo" else ("sequence", "token", "constant")
        p.check(self.normalisation in known, "normalisation", self.normalisation, " or ".join(known))
        if self.normalisation == "constant":
            want = "1 token or more with normalisation constant"
            p.number("constant_length", self.constant_length, lambda x: x >= 1, want)
        else:
            want = "0: only normalisation constant reads it"
            p.check(self.constant_length == 0, "constant_length", self.constant_length, want)
        for name in ("clip_high", "clip", "value_coef", "value_clip", "beta"):
            p.number(name, getattr(self, name), lambda x: x > 0, "a finite number above 0, or 0 for the default")
        p.number("clip_low", self.clip_low, lambda x: 0 < x <= 1, "above 0 to 1, or 0 for the default")
        p.number("dual_clip", self.dual_clip, lambda x: x == 0 or x > 1, "a finite number above 1, or 0 for none")
        if self.objective == "cispo":
            p.check(self.dual_clip == 0, "dual_clip", self.dual_clip, "0 with objective cispo")
        p.check(self.r_prime in ("one", "exact"), "r_prime", self.r_prime, "one or exact")
        p.number("kl_coef", self.kl_coef, lambda x: x >= 0, "a finite number of 0 or more")
        p.check(not self.kl_weighted or self.kl_coef != 0, "kl_weighted", self.kl_weighted,
                "False, or a kl_coef above 0")  # fmt: skip
        p.number("kl_anchor", self.kl_anchor, lambda x: 0 <= x <= 1, "a share in [0, 1]")
        p.check(self.kl_anchor == 0 or self.kl_coef != 0, "kl_anchor", self.kl_anchor, "0, or a kl_coef above 0")
        p.number("shift", self.shift, lambda x: True, "a finite number")
        if self.objective == "grpo_off":
            p.check(self.proximal == "behaviour", "proximal", self.proximal, "behaviour with objective grpo_off")


class Output(NamedTuple):
    """What `loss` computes of a batch, or of a shard of one."""

    loss: Tensor
    """Scalar: with ``num_rollouts`` and ``num_tokens`` of a whole batch, the shard's summand of its loss."""
    sums: Sums
    """Scalars without gradient, for `combine`."""
    rows: Sums
    """float [R] by rollout, without gradient, for `reprise.Table.report`: ``tokens`` that count, and with behaviour
    log-probs ``ratio_sum`` and ``ratio_squares``. Where log b is not known all are 0: no ratio was measured."""

    @property
    def metrics(self) -> dict[str, float]:
        """The metrics of a batch in one shard: ``combine(sums)``."""
        return combine(self.sums)


def loss(
    logprobs: Tensor,
    objective: Objective | str = "grpo",
    *,
    mask: Tensor,
    behaviour: Tensor | None = None,
    advantages: Tensor | None = None,
    weights: Tensor | None = None,
    rewards: Tensor | None = None,
    group_means: Tensor | None = None,
    groups: Tensor | None = None,
    anchor: Tensor | None = None,
    staleness: Tensor | None = None,
    reference: Tensor | None = None,
    values: Tensor | None = None,
    old_values: Tensor | None = None,
    returns: Tensor | None = None,
    entropy: Tensor | None = None,
    second_moment: Tensor | float | None = None,
    cu_seqlens: Tensor | None = None,
    num_rollouts: Tensor | float | None = None,
    num_tokens: Tensor | float | None = None,
) -> Output:
    """Compute an objective's loss. All tensors are [B, T], or [N] with ``cu_seqlens``, where nothing else is said.

    The losses and gradients of the shards of a batch (micro-batches, ranks) add up to those of the batch if each gets
    the batch's ``num_rollouts`` and ``num_tokens``, and with the correction m2po its ``second_moment``. Ranks whose
    gradients are averaged multiply the loss by their number. ``combine(*sums)`` then has the batch's metrics.

    Args:
        logprobs: float: log pi of the tokens at the rollout's temperature, with gradient. With a sampling mask it must
            be over the ids of the mask, as log b is: `restrict` the logits.
        objective: with its options, or its name.
        mask: bool or number: not 0 where the policy produced the token. A rollout without such tokens counts nowhere.
        behaviour: float: log b, recorded at generation; NaN where nobody knows it, which objectives with ``experts``
            take, and asymre and trajectory_balance, which read it for metrics only. Others refuse it on the CPU; on a
            GPU, which a check would make wait, and in ``torch.compile`` their loss is NaN.
        advantages: float, or [B] for all tokens of a rollout. All but asymre and trajectory_balance; there for metrics
            only.
        weights: float [B]: of replay, multiply the rollouts' terms; None: 1.
        rewards: float [B]. asymre, trajectory_balance.
        group_means: float [B]: the mean reward of the group when it was inserted. asymre.
        groups: number [B]: rollouts of equal numbers are of one prompt, which no other shard has. trajectory_balance.
        anchor: float: log-probs under the weights at the start of the batch. proximal recompute and unweighted, r_prime
            exact, kl_anchor. With one update on each batch they are ``logprobs.detach()``.
        staleness: number, or [B] for all tokens of a rollout: versions between the weights that sampled the token and
            those at the start of the batch. proximal interpolate.
        reference: float: log-probs under the reference policy. grpo_off with a kl_coef, trajectory_balance.
        values: float: the critic's value before each token, with gradient. ppo.
        old_values: float: the values that the advantages were estimated with. ppo.
        returns: float: what values are fitted to. ppo.
        entropy: float: of the policy, for the metric only.
        second_moment: of `second_moment` over the whole batch; None: these tokens are the whole batch, so that
            ``num_rollouts`` and ``num_tokens`` are None. m2po.
        cu_seqlens: int [B + 1]: the start of each rollout in [N], and the end. Tokens behind it are padding.
        num_rollouts: that count, in the whole batch; None: in these tensors. Less than 1 is 1.
        num_tokens: that count, in the whole batch; None: in these tensors. Less than 1 is 1.

    Raises:
        Invalid: a tensor that the objective reads is missing, or has another shape; or m2po is to judge a shard without
            ``second_moment``.
    """
    o = Objective(objective) if isinstance(objective, str) else objective
    rows = Rows(logprobs, mask, cu_seqlens)

    def tokens(name: str, x: Tensor | None) -> Tensor:
        return rows.tokens(name, x, needed_by=f"objective {o.objective}")

    def detached(name: str, x: Tensor | None) -> Tensor:
        return tokens(name, x).detach()

    counted = {"rollouts": (rows.length > 0).sum().to(rows.dtype), "tokens": rows.length.sum()}
    given = {"rollouts": num_rollouts, "tokens": num_tokens}
    steps = cast("Sequence[Step]", o.correction)  # as __post_init__ left them
    shard = [f"num_{name}" for name, n in given.items() if n is not None]
    if shard and second_moment is None and any(step.kind == "m2po" for step in steps):
        raise Invalid(
            f"second_moment: None: want reprise.torch.second_moment of the whole batch with {' and '.join(shard)}: "
            "m2po drops tokens by all of a batch, of which these tensors may be a shard"
        )
    of = {
        name: torch.as_tensor(counted[name] if n is None else n, dtype=rows.dtype, device=logprobs.device).clamp(min=1)
        for name, n in given.items()
    }
    weight = torch.ones_like(rows.length)
    if weights is not None:
        weight = rows.rows("weights", weights, needed_by="the mean").detach()
    logp = tokens("logprobs", logprobs)
    unknown, takes = None, o.experts or o.objective in ("asymre", "trajectory_balance")
    if behaviour is not None:
        missing = rows.unknown(tokens("behaviour", behaviour))
        if takes:
            unknown = rows.spread(missing)
            behaviour = torch.where(unknown, logprobs.detach().to(behaviour), behaviour)
        else:
            refuse(missing, f"objective {o.objective} reads them; leave such rollouts out, or give an objective with "
                            "experts")  # fmt: skip

    def mean(terms: Tensor) -> Tensor:
        """Return this shard's summand of the batch's weighted mean of terms, 0 where the token does not count."""
        if o.normalisation == "token":
            return (weight * rows.sum(terms)).sum() / of["tokens"]
        row = rows.sum(terms) / o.constant_length if o.normalisation == "constant" else rows.mean(terms)
        return (weight * row).sum() / of["rollouts"]

    sums: Sums = {}
    corrections: dict[str, Tensor] = {}
    clipped = torch.zeros_like(rows.counts)
    if o.objective == "asymre":
        gain = rows.rows("rewards", rewards, needed_by="objective asymre") - o.shift
        gain = (gain - rows.rows("group_means", group_means, needed_by="objective asymre")).detach()
        total = -(weight * rows.masked_rows(gain) * rows.sum(logp)).sum() / of["rollouts"]
    elif o.objective == "oapl":
        gain = rows.mean(detached("advantages", advantages))
        miss = o.beta * rows.sum(logp - detached("behaviour", behaviour)) - gain
        total = (weight * rows.masked_rows(miss.square())).sum() / of["rollouts"]
    elif o.objective == "trajectory_balance":
        ref = detached("reference", reference)
        gain = rows.rows("rewards", rewards, needed_by="objective trajectory_balance").detach() / o.beta
        gain = gain - rows.sum(logp - ref)
        same = rows.labels("groups", groups, needed_by="objective trajectory_balance")
        member = (rows.length > 0).to(rows.dtype)
        of_group = [torch.zeros_like(gain).index_add(0, same, x) for x in (gain.detach() * member, member)]
        log_z = of_group[0][same] / of_group[1][same].clamp(min=1)
        total = (weight * rows.masked_rows((o.beta * (log_z - gain)).square())).sum() / of["rollouts"]
        sums["kl_reference"] = rows.masked(_kl_to(ref, logp)).sum()
    else:
        b, advantage = detached("behaviour", behaviour), detached("advantages", advantages)
        c = corrected(rows, steps, o.proximal, logp=logp, behaviour=b, advantage=advantage, anchor=anchor,
                      staleness=staleness, bound=second_moment, unknown=unknown)  # fmt: skip
        corrections = c.touched
        if o.objective == "grpo_off":
            prime = bounded_exp(detached("anchor", anchor) - b) if o.r_prime == "exact" else None
            terms, clipped, ratio = _off_policy(o, c, advantage, prime)
            if o.kl_coef:
                kl = _kl_to(detached("reference", reference), logp)
                sums["kl_reference"] = rows.masked(kl).sum()
                if o.kl_anchor:
                    kl = (1 - o.kl_anchor) * kl + o.kl_anchor * _kl_to(detached("anchor", anchor), logp)
                terms = terms - o.kl_coef * (ratio * kl if o.kl_weighted else kl)
        else:
            terms, clipped = _surrogate(o, rows, c, logp, advantage)
            if unknown is not None and o.experts:
                terms = torch.where(unknown, _expert(o, logp, advantage), terms)
                clipped = clipped & ~unknown
        total = -mean(rows.masked(terms))
    if o.objective == "ppo":
        value, old, target = tokens("values", values), detached("old_values", old_values), detached("returns", returns)
        near = (old + (value - old).clamp(-o.value_clip, o.value_clip)).detach()
        free, bound = (value - target).square(), (near - target).square()
        terms = torch.where(bound > free, bound, free) / 2
        total = total + o.value_coef * mean(terms)
        miss = target - value
        sums |= {
            "value_loss": terms.sum(), "value_clipped": rows.count(bound > free),
            "returns": target.sum(), "returns_squares": target.square().sum(),
            "misses": miss.sum(), "misses_squares": miss.square().sum(),
        }  # fmt: skip

    sums |= {"loss": total, **counted, "nll": -logp.sum(), "clipped": rows.count(clipped)}
    for name, hit in corrections.items():
        row = rows.sum(hit.to(rows.dtype))
        sums |= {f"corrected_{name}": row.sum(), f"corrected_{name}_rollouts": row.clamp(max=1).sum()}
    per_row = {"tokens": rows.length}
    if entropy is not None:
        sums["entropy"] = tokens("entropy", entropy).sum()
    if advantages is not None:
        sums["abs_advantage"] = rows.mean(tokens("advantages", advantages).abs()).sum()
    if behaviour is not None:
        ratios, ratio_rows = ratio_sums(rows, logp - tokens("behaviour", behaviour))
        sums, per_row = sums | ratios, per_row | ratio_rows
        per_row = {name: torch.where(missing, 0.0, x) for name, x in per_row.items()}
    return Output(total, {key: x.detach() for key, x in sums.items()}, {key: x.detach() for key, x in per_row.items()})


def _expert(o: Objective, logp: Tensor, advantage: Tensor) -> Tensor:
    """Return the terms of rollouts without log-probs."""
    p = logp.clamp(max=0).exp()  # rounding may put it above 1
    if o.experts == "shaped":
        return advantage * p / (p + (o.expert_gamma or 0.1))
    return (p * (1 - p)).detach() * logp if o.experts == "phi" else logp


def _clipped(ratio: Tensor, within: Tensor, advantage: Tensor) -> tuple[Tensor, Tensor]:
    """Return min(r A, clip(r) A) and where the clip decides it. At a tie the gradient is that of r A."""
    free, bound = ratio * advantage, within.detach() * advantage
    return torch.where(bound < free, bound, free), bound < free


def _surrogate(o: Objective, rows: Rows, c: Corrected, logp: Tensor, advantage: Tensor) -> tuple[Tensor, Tensor]:
    """Return the corrected terms of grpo or cispo, and where a clip decides them."""
    ratio = bounded_exp(c.log_ratio)
    if o.ratio == "sequence":
        ratio = rows.spread(bounded_exp(rows.mean(c.log_ratio)))
    within = ratio.clamp(1 - o.clip_low, 1 + o.clip_high)
    if o.objective == "cispo":
        return c.of(within.detach() * advantage * logp), ratio != within
    terms, clipped = _clipped(ratio, within, advantage)
    if o.dual_clip:
        least = o.dual_clip * advantage
        dual = (advantage < 0) & (terms < least)
        terms, clipped = torch.where(dual, least, terms), clipped | dual
    return c.of(terms), clipped


def _off_policy(
    o: Objective, c: Corrected, advantage: Tensor, prime: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the terms of grpo_off without its KL, where the clip decides them, and r."""
    ratio = bounded_exp(c.log_ratio)
    if prime is None:
        within = ratio.clamp(max(1 - o.clip, 0), 1 + o.clip)
    else:
        within = torch.minimum(torch.maximum(ratio, (prime - o.clip).clamp(min=0)), prime + o.clip)
    terms, clipped = _clipped(ratio, within, advantage)
    return c.of(terms), clipped, ratio


def _kl_to(other: Tensor, logp: Tensor) -> Tensor:
    """Return k3 of KL(pi || other) by token."""
    d = (other - logp).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    slope = d.detach().expm1()  # the derivative, written out: that of expm1 loses its digits near d = 0
    return slope - d.detach() + slope * (d - d.detach())
