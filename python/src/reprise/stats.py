"""Stats: what the service counts of a table (`wire/statistics.go`)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

Histogram = dict[int, int]
"""Counts by value, in ascending order of values."""


@dataclass(frozen=True)
class LimiterState:
    """Where a limiter stands: insertions wait rather than lift the balance above max, samples rather than press it below min.

    The balance is inserted x samples_per_insert - drawn.
    """

    samples_per_insert: float = 0.0
    min: float = 0.0
    max: float = 0.0
    balance: float = 0.0
    inserted: int = 0
    drawn: int = 0
    held_inserts: int = 0
    held_samples: int = 0
    inserts_held: bool = False
    samples_held: bool = False


@dataclass(frozen=True)
class GateState:
    """Where a gate stands, in rollouts."""

    rollouts_per_update: float = 0.0
    max_staleness: int = 0
    allowed: int = 0
    started: int = 0
    outstanding: int = 0
    grants: int = 0
    granted: int = 0
    abandoned: int = 0
    expired: int = 0


@dataclass(frozen=True)
class AgeShare:
    """The units of one age, in versions: how many, the mean of their bases, and the probability that a draw falls on them."""

    age: int = 0
    units: int = 0
    base: float = 0.0
    probability: float = 0.0


@dataclass(frozen=True)
class AgeESS:
    """The effective sample size of the tokens of a range of ages, as a share, and the tokens behind it."""

    first: int = 0
    last: int = 0
    ess: float = 0.0
    tokens: float = 0.0


@dataclass(frozen=True)
class Stats:
    """Everything counted of a table since it was made. At any time ``inserted`` is ``present`` plus all of ``evicted``, and
    ``drawn`` is ``acknowledged`` plus ``returned`` plus ``on_lease``.

    Attributes:
        version, present, bytes: as of `TableInfo`.
        inserted, inserted_groups: rollouts, and groups of them.
        evicted: rollouts by cause: capacity, staleness, uses, consumed, rewind.
        refused: rollouts of insertions that were refused for good.
        drawn: handed out; acknowledged: draws that became uses; returned: draws that went back; on_lease: the rest.
        updates_ignored: priority updates addressed to rollouts that had left.
        never_used: left without a use; never_used_share: of the rollouts present, in [0, 1].
        staleness, mean_staleness: at use, in versions, of the rollout's least version and of its tokens' mean.
        uses_at_eviction, uses_present: uses of rollouts, by number.
        since_last_use: versions since the use before.
        age_decay: tau of a prioritized table, in versions; ages: its units by age; ess_by_age: as trainers reported it.
        limiter, gate: where they stand; None: the table has none.
        waiting: requests that wait now, by kind: inserts, samples, starts.
        raw: the whole answer of the service, prompts and journal included.
    """

    table: str = ""
    version: int = 0
    present: int = 0
    bytes: int = 0
    inserted: int = 0
    inserted_groups: int = 0
    evicted: Mapping[str, int] = field(default_factory=dict)
    refused: int = 0
    drawn: int = 0
    acknowledged: int = 0
    returned: int = 0
    on_lease: int = 0
    updates_ignored: int = 0
    never_used: int = 0
    never_used_share: float = 0.0
    staleness: Histogram = field(default_factory=dict)
    mean_staleness: Histogram = field(default_factory=dict)
    uses_at_eviction: Histogram = field(default_factory=dict)
    uses_present: Histogram = field(default_factory=dict)
    since_last_use: Histogram = field(default_factory=dict)
    age_decay: float | None = None
    ages: list[AgeShare] = field(default_factory=list)
    ess_by_age: list[AgeESS] = field(default_factory=list)
    limiter: LimiterState | None = None
    gate: GateState | None = None
    waiting: Mapping[str, int] = field(default_factory=dict)
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, answer: Mapping[str, Any]) -> Stats:
        """Read the service's answer. What a newer service adds is in ``raw``."""
        out = _known(cls, answer)
        for name in ("staleness", "mean_staleness", "uses_at_eviction", "uses_present", "since_last_use"):
            out[name] = {int(value): int(count) for value, count in answer.get(name) or ()}
        out["evicted"] = dict(answer.get("evicted") or {})
        out["waiting"] = dict(answer.get("waiting") or {})
        if answer.get("age_decay") is not None:
            out["age_decay"] = math.inf if answer["age_decay"] == "inf" else float(answer["age_decay"])
        out["ages"] = [AgeShare(**_known(AgeShare, age)) for age in answer.get("ages") or ()]
        out["ess_by_age"] = [AgeESS(**_known(AgeESS, age)) for age in answer.get("ess_by_age") or ()]
        limiter, gate = answer.get("limiter"), answer.get("gate")
        out["limiter"] = LimiterState(**_known(LimiterState, limiter)) if limiter else None
        out["gate"] = GateState(**_known(GateState, gate)) if gate else None
        return cls(**out, raw=dict(answer))


def _known(kind: Any, answer: Mapping[str, Any]) -> dict[str, Any]:
    return {f.name: answer[f.name] for f in fields(kind) if f.name in answer}
