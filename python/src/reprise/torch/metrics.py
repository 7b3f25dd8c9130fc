"""Metrics: sums over the tokens of a shard, and the numbers to log that they add up to."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from .rows import MAX_LOG_RATIO, Rows, bounded_exp

Sums = dict[str, Tensor]
"""Scalars without gradient. They add up over the shards of a batch, except ``max_ratio``: the largest holds."""


def ratio_sums(rows: Rows, log_ratio: Tensor) -> tuple[Sums, Sums]:
    """Measure rho = pi/b (docs/METHODS.md section 2): over the batch, and over each rollout [R]."""
    log_ratio = log_ratio.detach()
    clamped = log_ratio.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    rho = rows.masked(clamped.exp())
    row = rows.masked_rows(bounded_exp(rows.mean(log_ratio)))
    per_row = {"ratio_sum": rows.sum(rho), "ratio_squares": rows.sum(rho.square())}
    return {
        "ratio": rho.sum(),
        "ratio_squares": rho.square().sum(),
        "max_ratio": rho.max() if rho.numel() else rho.sum(),
        "ratio_clamped": rows.count(clamped != log_ratio),
        "rollout_ratio": row.sum(),
        "rollout_ratio_squares": row.square().sum(),
        "k1": -log_ratio.sum(),
        "k3": (clamped.expm1() - clamped).sum(),  # expm1: near ratio 1, exp(d) - 1 - d is all rounding
    }, per_row


def combine(*shards: Mapping[str, Tensor]) -> dict[str, float]:
    """Turn the sums of all shards of a batch (`Output.sums`) into metrics, named as a run's.

    ::

        loss                 of the batch
        tokens               that count
        nll                  mean of -log pi over tokens
        entropy              mean over tokens, in nats; with entropies
        abs_advantage        mean over rollouts of the mean |advantage| of their tokens; with advantages
        clip_fraction        share of tokens whose term a clip decides
        mean_ratio           mean over tokens of rho = pi/b; 1 only in expectation
        max_ratio            the largest rho
        ratio_clamped        tokens whose ratio left [e^-20, e^20] and was clamped to it
        ess                  ESS/n by token: (sum rho)^2 / (n sum rho^2), in (0, 1]
        ess_rollout          the same by rollout, with rho = exp(mean log rho)
        chi_square, d2       1/ess - 1, never negative, and -log ess, the Renyi divergence of order 2 in nats
        chi_square_rollout, d2_rollout
        kl_k1                KL(b || pi) as mean of log b - log pi
        kl_k3                KL(b || pi) as mean of rho - 1 - log rho, never negative
        kl_reference         KL(pi || pi_ref) as mean of exp(d) - 1 - d, d = log pi_ref - log pi
        value_loss           mean over tokens of the value loss's terms
        value_clip_fraction  share of tokens whose term of the value loss its clip decides
        value_mean           mean over tokens of the critic's values
        explained_variance   1 - Var(R - V)/Var(R) over tokens, R the returns; absent if all R are (nearly) equal
        corrected_NAME            share of tokens that a correction changed or dropped
        corrected_NAME_rollouts   share of rollouts with such tokens

    If no token counts, only loss and tokens are present.
    """
    total: dict[str, float] = {}
    for shard in shards:
        for key, value in zip(shard, torch.stack(list(shard.values())).tolist()):
            total[key] = max(total.get(key, 0.0), value) if key == "max_ratio" else total.get(key, 0.0) + value
    tokens, rollouts = total["tokens"], total["rollouts"]
    metrics = {"loss": total["loss"], "tokens": tokens}
    if tokens == 0:
        return metrics
    metrics["clip_fraction"] = total["clipped"] / tokens
    for name in ("nll", "entropy", "kl_reference", "value_loss"):
        if name in total:
            metrics[name] = total[name] / tokens
    if "abs_advantage" in total:
        metrics["abs_advantage"] = total["abs_advantage"] / rollouts
    if "ratio" in total:
        metrics |= {"mean_ratio": total["ratio"] / tokens, "kl_k1": total["k1"] / tokens, "kl_k3": total["k3"] / tokens}
        metrics |= {name: total[name] for name in ("max_ratio", "ratio_clamped")}
        metrics |= _spread("", total["ratio"], total["ratio_squares"], tokens)
        metrics |= _spread("_rollout", total["rollout_ratio"], total["rollout_ratio_squares"], rollouts)
    for name in total:
        if name.startswith("corrected_"):
            metrics[name] = total[name] / (rollouts if name.endswith("_rollouts") else tokens)
    if "value_loss" in total:
        metrics["value_clip_fraction"] = total["value_clipped"] / tokens
        metrics["value_mean"] = (total["returns"] - total["misses"]) / tokens

        def variance(name: str) -> float:
            return total[name + "_squares"] / tokens - (total[name] / tokens) ** 2

        # less is the rounding of float32 sums
        if (of := variance("returns")) > 1e-6 * total["returns_squares"] / tokens:
            metrics["explained_variance"] = 1 - max(variance("misses"), 0) / of
    return metrics


def _spread(suffix: str, total: float, squares: float, n: float) -> dict[str, float]:
    """Return ESS/n and the divergences that follow from it. Float32 sums may exceed the bound of 1 by their
    rounding."""
    ess = min(total * total / (n * squares), 1)
    chi = 1 / ess - 1
    return {"ess" + suffix: ess, "chi_square" + suffix: chi, "d2" + suffix: math.log1p(chi)}
