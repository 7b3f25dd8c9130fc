"""Definition: the keys of a table. docs/replay.md explains them; `wire/table.go` has their types and ranges."""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from .errors import Invalid


class _Options:
    """A dataclass whose None and empty fields mean the service's defaults."""

    def asdict(self) -> dict[str, Any]:
        """Return the fields that are set, as the service's JSON."""
        values = {entry.name: getattr(self, entry.name) for entry in fields(self)}  # type: ignore[arg-type]
        return {name: _plain(name, value) for name, value in values.items() if value is not None and value != {}}


def _plain(name: str, value: Any) -> Any:
    if isinstance(value, _Options):
        return value.asdict()
    if name == "columns":
        if not isinstance(value, Mapping) or not all(isinstance(kind, str) for kind in value.values()):
            raise Invalid(f'columns: {value!r}: want names and types, such as {{"x_score": "float32"}}')
        return [{"name": column, "type": kind} for column, kind in value.items()]
    if name in ("limiter", "gate", "prompts") and not isinstance(value, Mapping):
        raise Invalid(f"{name}: {value!r}: want reprise.{name.capitalize()}(…)")
    if isinstance(value, float) and math.isinf(value):
        return "inf"
    return value


@dataclass(frozen=True)
class Limiter(_Options):
    """Holds the draws per inserted rollout near a ratio: the side that runs ahead waits.

    Attributes:
        samples_per_insert: draws of each rollout, on average.
        error_buffer: draws that either side may run ahead; at least those of one batch or insertion.
    """

    samples_per_insert: float
    error_buffer: float


@dataclass(frozen=True)
class Gate(_Options):
    """Limits how many groups generators start, so that rollouts are not too stale when they are used (`Table.start`).

    Attributes:
        rollouts_per_update: new rollouts per update.
        max_staleness: in versions, >= 0.
        grant_seconds: until a grant expires and its missing groups may be started by others.
    """

    rollouts_per_update: float
    max_staleness: int
    grant_seconds: float | None = None


@dataclass(frozen=True)
class Prompts(_Options):
    """Prompt replay for the table (`Table.prompts_next`).

    Attributes:
        fraction: largest share of replayed prompts in a batch.
        band: distance from one half within which a pass rate makes a prompt worth replaying.
        cooldown: versions between two uses of a prompt.
        max_reuse: replays per prompt.
        max_prompts: prompts remembered; beyond them the one reported longest ago leaves.
    """

    fraction: float | None = None
    band: float | None = None
    cooldown: int | None = None
    max_reuse: int | None = None
    max_prompts: int | None = None


@dataclass(frozen=True)
class Definition(_Options):
    """The keys of a table. None means the service's default; `Table.info` returns it with defaults filled in.

    Attributes:
        capacity: in rollouts.
        capacity_bytes: in bytes of payload.
        retention: of a full table: ``fifo`` evicts the oldest, ``positive`` reserves room for correct rollouts.
        positive_fraction: share of the capacity reserved by retention ``positive``.
        positive_threshold: least reward of a correct rollout.
        positives_per_prompt: most correct rollouts of one prompt in that reserved room.
        positive_share: share of each batch drawn from that reserved room.
        max_staleness: versions after which a rollout is evicted.
        max_uses: uses after which a rollout is evicted.
        sampler: ``distinct``, ``uniform``, ``prioritized``, ``unseen``, ``least_used``, ``epoch``, or the queues
            ``lifo`` and ``fifo``.
        min_size: rollouts in the table before the first draw.
        unit: of a draw: ``rollout``, ``group`` or ``step``.
        group_size: rollouts in each group; other groups are refused.
        step_returns: n of the n-step returns with unit ``step``; -1: to the end of the episode.
        step_discount: gamma per turn.
        priority_base: of sampler ``prioritized``: ``advantage``, ``reward``, ``td_error``, ``gradient_norm`` or
            ``recency``.
        priority_epsilon: added to each base.
        priority_exponent: alpha.
        age_decay: tau in versions; ``math.inf``: none.
        decay: applied ``before_exponent`` or ``after_exponent``.
        target_ess: in (0, 1): age_decay adapts to hold the ESS/n of batches at this value.
        draws: ``stratified`` or ``independent``.
        entry: priority base of new rollouts: their ``own``, or the ``max`` that their shard has seen.
        entry_until: end of an entry at the ``max``: their first report after a draw that was not fresh, ``replay``; or
            the next fresh batch, ``refresh``; or any ``report``.
        importance_beta: exponent of the importance weights; 0: all weights are 1.
        importance_anneal: versions until importance_beta has risen to 1.
        importance_norm: divides weights by the largest in the ``batch`` or the ``table``.
        shards: parts of the table, one per trainer.
        advantage: estimator, from the rewards of a group.
        vocab: bound on token ids.
        max_tokens: per rollout.
        seed: of the draws.
        lease_seconds: until a batch that was not acknowledged goes back.
        limiter: of samples per insert.
        gate: of the staleness of new rollouts.
        prompts: prompt replay; ``Prompts()`` switches it on.
        columns: your own, name to type: ``{"x_score": "float32", "x_ids": "list<int64>"}``.
    """

    capacity: int | None = None
    capacity_bytes: int | None = None
    retention: str | None = None
    positive_fraction: float | None = None
    positive_threshold: float | None = None
    positives_per_prompt: int | None = None
    positive_share: float | None = None
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
    entry_until: str | None = None
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

    @classmethod
    def given(cls, definition: Definition | None, options: Mapping[str, Any]) -> Definition:
        """Return a definition given as such or by its keys."""
        if definition is None:
            return cls.of(options)
        if options:
            raise Invalid(f"definition: next to {', '.join(options)}: want one or the other")
        if not isinstance(definition, Definition):
            raise Invalid(f"definition: {definition!r}: want a reprise.Definition, or its keys by name: capacity=4096")
        return definition

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Definition:
        """Return the definition with the keys given. ``max_size`` is another name for ``capacity``.

        Raises:
            Invalid: naming the key that there is not, and the nearest that there is.
        """
        keys = [entry.name for entry in fields(cls)]
        if "max_size" in options:
            if "capacity" in options:
                raise Invalid("max_size: another name for capacity, which was given too: want one of them")
            options = {"capacity" if name == "max_size" else name: value for name, value in options.items()}
        for name in options:
            if name not in keys:
                near = difflib.get_close_matches(name, keys, n=1)
                hint = f"did you mean {near[0]}?" if near else f"want one of {', '.join(keys)}"
                raise Invalid(f"{name}: no such key of a table: {hint}")
        return cls(**options)
