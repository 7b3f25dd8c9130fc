"""How a table is defined when it is created; the service's documentation says what each option does."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any


class _Options:
    """A dataclass whose fields that are None, or empty, stand for the service's defaults."""

    def asdict(self) -> dict[str, Any]:
        """Return what is set, as the service reads it."""
        out: dict[str, Any] = {}
        for entry in fields(self):  # type: ignore[arg-type]
            value = getattr(self, entry.name)
            if value is None or value == {}:
                continue
            out[entry.name] = _plain(entry.name, value)
        return out


def _plain(name: str, value: Any) -> Any:
    if isinstance(value, _Options):
        return value.asdict()
    if name == "columns":
        return [{"name": column, "type": kind} for column, kind in value.items()]
    if isinstance(value, float) and math.isinf(value):
        return "inf"
    return value


@dataclass(frozen=True)
class Limiter(_Options):
    """Holds the draws per inserted rollout near a ratio, by making whichever side runs ahead wait.

    Attributes:
        samples_per_insert: draws of each rollout, on average.
        error_buffer: draws by which the two sides may be apart; at least what one batch or insertion moves.
    """

    samples_per_insert: float
    error_buffer: float


@dataclass(frozen=True)
class Gate(_Options):
    """Says how many groups may be started so that they are not too stale once their turn comes (`Table.start`).

    Attributes:
        rollouts_per_update: new rollouts that one update takes.
        max_staleness: versions, >= 0.
        grant_seconds: after which what was granted and not inserted goes back.
    """

    rollouts_per_update: float
    max_staleness: int
    grant_seconds: float | None = None


@dataclass(frozen=True)
class Prompts(_Options):
    """Prompt replay beside the table (`Table.prompts`).

    Attributes:
        fraction: of a batch, that may be prompts asked again.
        band: of pass rates around one half that are worth asking again.
        cooldown: versions before a prompt is asked again.
        max_reuse: times that a prompt is asked again.
    """

    fraction: float | None = None
    band: float | None = None
    cooldown: int | None = None
    max_reuse: int | None = None


@dataclass(frozen=True)
class Definition(_Options):
    """The keys of a table. None is the service's default; `Table.info` returns them filled in.

    Attributes:
        capacity: rollouts kept.
        capacity_bytes: payload bytes kept.
        retention: what is kept when the table is full: ``fifo`` or ``positive``.
        positive_fraction: share of the capacity reserved for correct rollouts, with retention ``positive``.
        positive_threshold: least reward of a correct rollout.
        max_staleness: evict rollouts older than this many versions.
        max_uses: evict a rollout after this many uses.
        sampler: ``distinct``, ``uniform``, ``prioritized``, ``unseen``, ``least_used``, ``epoch``, or the queues ``lifo``
            and ``fifo``.
        min_size: rollouts that must be there before anything is drawn.
        unit: what a draw falls on: ``rollout``, ``group`` or ``step``.
        group_size: of every group; other insertions are refused.
        step_returns: n of n-step returns with unit ``step``; -1: to the end of the episode.
        step_discount: gamma per turn of step_returns.
        priority_base: of sampler ``prioritized``: ``advantage``, ``reward``, ``td_error``, ``gradient_norm`` or ``recency``.
        priority_epsilon: added to every base.
        priority_exponent: alpha.
        age_decay: tau in versions; ``math.inf``: no decay.
        decay: ``before_exponent`` or ``after_exponent``.
        target_ess: in (0, 1): age_decay follows the measured ESS to hold a batch's ESS/n there.
        draws: ``stratified`` or ``independent``.
        entry: base of new rollouts: their ``own``, or the ``max`` known.
        importance_beta: of the importance weights; 0: all weights are 1.
        importance_anneal: versions over which importance_beta rises to 1.
        importance_norm: divide weights by the largest of the ``batch`` or the ``table``.
        shards: parts, each sampled by its own trainer.
        advantage: how it is computed from a group's rewards.
        vocab: token ids are below.
        max_tokens: of one rollout.
        seed: of every draw.
        lease_seconds: until a batch that nobody acknowledged goes back.
        limiter: samples per insert.
        gate: staleness gate for generators.
        prompts: prompt replay.
        columns: of your own, by name, with their types: ``{"x_score": "float32", "x_ids": "list<int64>"}``.
    """

    capacity: int | None = None
    capacity_bytes: int | None = None
    retention: str | None = None
    positive_fraction: float | None = None
    positive_threshold: float | None = None
    max_staleness: int | None = None
    max_uses: int | None = None
    sampler: str | None = None
    min_size: int | None = None
    unit: str | None = None
    group_size: int | None = None
    step_returns: int | None = None
    step_discount: float | None = None
    priority_base: str | None = None
    priority_epsilon: float | None = None
    priority_exponent: float | None = None
    age_decay: float | None = None
    decay: str | None = None
    target_ess: float | None = None
    draws: str | None = None
    entry: str | None = None
    importance_beta: float | None = None
    importance_anneal: int | None = None
    importance_norm: str | None = None
    shards: int | None = None
    advantage: str | None = None
    vocab: int | None = None
    max_tokens: int | None = None
    seed: int | None = None
    lease_seconds: float | None = None
    limiter: Limiter | None = None
    gate: Gate | None = None
    prompts: Prompts | None = None
    columns: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class TableInfo:
    """Where a table stands.

    Attributes:
        name: of the table.
        version: that it was advanced to.
        present: rollouts in it.
        bytes: of their payload.
        definition: with defaults filled in, as the service writes it; empty where it was not asked for.
    """

    name: str
    version: int
    present: int
    bytes: int
    definition: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, answer: Mapping[str, Any]) -> TableInfo:
        """Read the answer of an action."""
        return cls(
            answer.get("table", ""),
            answer.get("version", 0),
            answer.get("present", 0),
            answer.get("bytes", 0),
            answer.get("definition") or {},
        )
