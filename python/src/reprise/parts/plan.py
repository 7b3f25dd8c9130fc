"""Ids, definitions and draws of a table in parts, and batches of parts merged into one.

Go's client does the same (`replay/parted`), to the bit where both must agree: `join`, `order` and `part_of`. A batch is
drawn on two levels: `divide` draws how many of its draws fall on each part, by the totals that the parts report, and
each part draws its own. So it has the law of one table that holds everything. What is not exact:

- Between totals and draws other clients may insert or draw: the plan is by the totals.
- Sampler ``least_used`` knows the never used from the others, not those used once from those used twice.
- Parts end their epochs each by itself (`_begun`).
- Units that ``max_uses`` exhausts within a batch leave the draws of their own part alone.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from .. import errors
from ..arrays import Array
from ..batch import Batch

MAX_PARTS = 256
PART_BITS = 48  # where the number of a part begins in the table's ids

QUEUES = ("fifo", "lifo")


def join(part: int, number: int) -> int:
    """Return the table's id for a part's. 0, which is no id, stays 0."""
    return number | part << PART_BITS if number else 0


def join_all(part: int, numbers: Any) -> Array:
    """Return the table's ids for those of a part, uint64."""
    joined: Array = np.asarray(numbers, np.uint64) | np.uint64(part << PART_BITS)
    return joined


def cut(number: int) -> tuple[int, int]:
    """Return the part of a table's id, and the id there."""
    return number >> PART_BITS, number & (1 << PART_BITS) - 1


def key(prompt_id: str, batch_id: str, group: int) -> bytes:
    """Return what decides the way of a group: its prompt, and its number in an insertion under a batch id."""
    return b"\0".join([prompt_id.encode(), batch_id.encode(), group.to_bytes(8, "little")])


def order(key: bytes, parts: int) -> list[int]:
    """Return the parts in the order in which a key prefers them: by FNV-1a of the key and the part's number, mixed as
    SplitMix64 does."""
    begun = _fnv(0xCBF29CE484222325, key)
    scores = [_mix(_fnv(begun, part.to_bytes(8, "little"))) for part in range(parts)]
    return sorted(range(parts), key=scores.__getitem__, reverse=True)


_WORD = (1 << 64) - 1


def _fnv(hash: int, text: bytes) -> int:
    for byte in text:
        hash = (hash ^ byte) * 0x100000001B3 & _WORD
    return hash


def _mix(z: int) -> int:
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & _WORD
    z = (z ^ z >> 27) * 0x94D049BB133111EB & _WORD
    return z ^ z >> 31


def part_of(keys: Mapping[str, Any], part: int, parts: int) -> dict[str, Any]:
    """Return the definition of one part of a table in parts, as the service's JSON. One with keys of a wrong kind stays
    as it is: the services say all that is wrong with it."""
    out = dict(keys)
    shards, gate, limiter = out.get("shards") or 1, out.get("gate"), out.get("limiter")
    try:
        out["capacity"] = shards * math.ceil(out.get("capacity", 4096) / (parts * shards))
        for name in ("capacity_bytes", "min_size"):
            if out.get(name):
                out[name] = math.ceil(out[name] / parts)
        if gate:
            out["gate"] = {**gate, "rollouts_per_update": gate["rollouts_per_update"] / parts}
        if limiter:
            least = max(1.0, limiter["samples_per_insert"] * (out.get("group_size") or 1))
            out["limiter"] = {**limiter, "error_buffer": max(least, limiter["error_buffer"] / parts)}
        out["seed"] = (out.get("seed") or 0) + part & _WORD
    except (TypeError, KeyError):
        return dict(keys)
    return out


def join_definitions(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the definition of a table from those of its parts: the inverse of `part_of`, but for what that rounded up."""
    out = dict(parts[0])
    for name in ("capacity", "capacity_bytes", "min_size"):
        if name in out:
            out[name] = sum(each.get(name, 0) for each in parts)
    for name, bound in (("gate", "rollouts_per_update"), ("limiter", "error_buffer")):
        if name in out:
            out[name] = {**out[name], bound: sum(each[name][bound] for each in parts)}
    return out


# Draws from several parts.


@dataclass(frozen=True)
class Totals:
    """What a part adds to a draw: the answer of the action ``totals`` (`wire/messages.go`)."""

    version: int = 0
    units: int = 0
    unused: int = 0
    fresh: int = 0
    epoch_left: int = 0
    log_mass: float = 0.0
    log_largest: float = 0.0
    beta: float = 0.0

    @classmethod
    def of(cls, answer: Mapping[str, Any]) -> Totals:
        """Read the answer."""
        return cls(**{name: answer[name] for name in cls.__dataclass_fields__ if name in answer})


@dataclass(frozen=True)
class Plan:
    """A batch divided over parts.

    Attributes:
        unit: rollouts that are drawn together.
        fresh, drawn: units of each part that must be fresh, and the others.
        chances: for each part, the probability of each of its units but the fresh ones. A negative one is minus the
            part's share in a draw, by which the part's own probability is to be multiplied.
        log_weight: for weighted draws, beta, ln of the units of all parts, and ln of the largest importance weight that
            any of them has, or -inf if that of the batch is meant.
    """

    unit: int
    fresh: Array
    drawn: Array
    chances: list[Array]
    log_weight: tuple[float, float, float] | None = None

    @property
    def asked(self) -> list[int]:
        """The parts that draws fall on."""
        return np.flatnonzero(self.fresh + self.drawn).tolist()

    def probabilities(self, own: Sequence[Array]) -> list[Array]:
        """Return the probabilities of draws, of those that the parts asked gave them. Of a fresh draw it is 1."""
        out = []
        for part, given in zip(self.asked, own):
            chances = np.concatenate([np.ones(int(self.fresh[part])), self.chances[part]]).repeat(self.unit)
            out.append(np.where(chances < 0, -chances * given, chances))
        return out

    def weights(self, probabilities: Sequence[Array]) -> tuple[list[Array], float]:
        """Return the importance weights of draws by their probabilities, and the logarithm of what they are over. That
        of a fresh draw is 1."""
        assert self.log_weight is not None
        beta, log_units, largest = self.log_weight
        fresh = [self.unit * int(self.fresh[part]) for part in self.asked]
        logs = [-beta * (log_units + np.log(each[new:])) for each, new in zip(probabilities, fresh)]
        largest = max(largest, *(float(each.max(initial=-math.inf)) for each in logs))
        weights = [np.concatenate([np.ones(new), np.exp(each - largest)]) for each, new in zip(logs, fresh)]
        return [each.astype(np.float32) for each in weights], largest


def divide(
    random: np.random.Generator, definition: Mapping[str, Any], totals: Sequence[Totals], size: int, fresh: int = 0
) -> Plan:
    """Draw how many draws of a batch fall on each part.

    Raises:
        Starved: the parts hold too little.
        Invalid: the request can never be divided.
    """
    sampler = definition["sampler"]
    unit = definition["group_size"] if definition.get("unit") == "group" else 1
    if sampler in QUEUES:
        fresh = 0  # each rollout comes once anyway
    _check(definition, unit, size, fresh)
    waiting = _of(totals, "fresh")
    if fresh > unit * waiting.sum():
        held = unit * int(waiting.sum())
        raise errors.Starved(f"sampling {fresh} fresh: {len(totals)} parts hold {held} never handed out as fresh")
    new = _without(random, waiting, fresh // unit)
    left = (size - fresh) // unit
    if sampler in ("uniform", "prioritized"):
        return _replaced(random, definition, totals, Plan(unit, new, np.zeros_like(new), [new[:0]] * len(new)), left)
    units, first = _of(totals, "units"), np.zeros_like(new)
    if sampler in ("unseen", "least_used"):
        first = _of(totals, "unused")
    elif sampler == "epoch":
        first = _begun(_of(totals, "epoch_left"), units)
    units = units - new
    if left > units.sum():
        held = unit * int(units.sum() + new.sum())
        raise errors.Starved(f"sampling {size}: {len(totals)} parts hold {held} to be drawn")
    early = _without(random, first, min(left, int(first.sum())))
    late = _without(random, units - early, left - int(early.sum()))
    # In order of the batch: of n units that are left, a draw without replacement takes any with probability 1/n.
    one, two = iter(_sequence(first, early)), iter(_sequence(units - early, late))
    chances = [np.concatenate([_take(one, a), _take(two, b)]) for a, b in zip(early, late)]
    if sampler in QUEUES:
        chances = [np.ones_like(each) for each in chances]
    return Plan(unit, new, early + late, chances)


def _check(definition: Mapping[str, Any], unit: int, size: int, fresh: int) -> None:
    """Refuse requests that can never be divided."""
    if size % unit or fresh % unit:
        raise errors.Invalid(f"size: {size} with {fresh} fresh: want whole groups of group_size {unit}")
    for key in ("positive_share", "sources", "draw_advantage", "order"):
        if definition.get(key) not in (None, 0, "stored"):
            raise errors.Invalid(
                f"{key}: {definition[key]}: want none for draws over several parts, or draws from one part at a time "
                "(scope own): nobody knows what the others hold"
            )
    if fresh > size:
        raise errors.Invalid(f"fresh: {fresh}: want 0 to size, {size}")
    if fresh and definition["sampler"] in ("unseen", "least_used", "epoch"):
        raise errors.Invalid(
            f"fresh: {fresh}: want 0 from several parts with sampler {definition['sampler']}: nobody knows how many of "
            "the others the fresh draws leave unused"
        )


def _replaced(
    random: np.random.Generator, definition: Mapping[str, Any], totals: Sequence[Totals], fresh: Plan, left: int
) -> Plan:
    """Add draws with replacement to a plan that has the fresh ones."""
    if not left:
        return fresh
    units, weighted = _of(totals, "units"), definition["sampler"] == "prioritized"
    if not units.sum():
        raise errors.Starved(f"sampling {fresh.unit * left}: {len(totals)} parts hold nothing to be drawn")
    mass = units.astype(float)
    if weighted:
        logs = np.where(units > 0, [each.log_mass for each in totals], -np.inf)
        mass = np.exp(logs - logs.max())
    shares = mass / mass.sum()
    if weighted and definition.get("draws") != "independent":
        ends = np.cumsum(shares)
        points = (np.arange(left) + random.random(left)) / left * ends[-1]
        last = int(np.flatnonzero(shares)[-1])  # which has a point at the very end
        drawn = np.bincount(np.minimum(np.searchsorted(ends, points, side="right"), last), minlength=len(units))
    else:
        drawn = random.multinomial(left, shares)
    plan = replace(fresh, drawn=drawn, chances=[np.full(count, -each) for count, each in zip(drawn, shares)])
    if not weighted:
        return plan
    beta, log_units = max(each.beta for each in totals), math.log(units.sum())
    largest = -math.inf
    if definition.get("importance_norm") == "table":  # what (N P)^-beta becomes with the N and the P of the table
        largest = max(
            each.log_largest - beta * (log_units - math.log(each.units) + math.log(own))
            for each, own in zip(totals, shares)
            if own > 0
        )
    return replace(plan, log_weight=(beta, log_units, largest))


def _of(totals: Sequence[Totals], name: str) -> Array:
    return np.array([getattr(each, name) for each in totals], np.int64)


def _without(random: np.random.Generator, held: Array, n: int) -> Array:
    """Divide n draws without replacement: a multivariate hypergeometric number of each part."""
    return random.multivariate_hypergeometric(held, n, method="marginals") if n else np.zeros_like(held)


def _begun(left: Array, units: Array) -> Array:
    """Let parts whose epoch is over begin another, if the others are in the first half of theirs: they are in an epoch
    that such a part has not begun. Of an epoch that all are in, hardly any part is the first to end that early."""
    early = 2 * left.sum() > units[left > 0].sum()
    begun: Array = np.where((left == 0) & early, units, left)
    return begun


def _sequence(held: Array, drawn: Array) -> list[float]:
    return [1 / n for n in range(int(held.sum()), int(held.sum() - drawn.sum()), -1)]


def _take(values: Iterable[float], n: int) -> Array:
    return np.fromiter(itertools.islice(values, int(n)), float, int(n))


def merge(pieces: Sequence[tuple[int, Batch]], plan: Plan | None, present: int) -> Batch:
    """Make one batch of what parts answered, by their numbers, with the table's ids, and the probabilities and weights of
    one table that holds everything.

    Args:
        pieces: part and batch.
        plan: that they were asked by, the order of whose parts is that of the pieces; None: a batch of one part.
        present: rollouts in the parts that were not asked.
    """
    numbers = tuple(join(part, batch.info.batch) for part, batch in pieces)
    infos = [batch.info for _, batch in pieces]
    info = replace(
        infos[0],
        batch=numbers[0],
        batches=numbers,
        version=max(each.version for each in infos),
        rows=sum(each.rows for each in infos),
        present=present + sum(each.present for each in infos),
    )
    records = [batch.record_batch for _, batch in pieces]
    names = records[0].schema.names
    new: dict[str, list[Array]] = {}  # by column, for each piece
    for name in ("id", "group"):
        if name in names:
            new[name] = [join_all(part, batch.column(name)) for part, batch in pieces]
    if plan is not None and "probability" in names:
        new["probability"] = plan.probabilities([batch.probabilities for _, batch in pieces])
        if plan.log_weight is not None and "weight" in names:
            new["weight"], scale = plan.weights(new["probability"])
            info = replace(info, log_weight_scale=scale)
    for at, record in enumerate(records):
        columns = {name: pa.array(pieces[at]) for name, pieces in new.items()}
        records[at] = pa.RecordBatch.from_arrays(
            [columns.get(name, record.column(name)) for name in names], schema=record.schema
        )
    return Batch(records, info)
