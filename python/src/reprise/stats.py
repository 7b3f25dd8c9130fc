"""TableInfo, Checkpoint and Stats: what the service reports about a table (`wire/messages.go`)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Any

Histogram = dict[int, int]
"""Counts by value, in ascending order of values."""


@dataclass(frozen=True)
class TableInfo:
    """The state of a table.

    Attributes:
        name: of the table.
        version: of the weights that the trainer last announced (`Table.advance`).
        present: rollouts in the table.
        bytes: of their payload.
        definition: the service's JSON with defaults filled in; only of `Table.info` and `Client.list`.
        note: what to do about a `Table.advance` that changed nothing; otherwise empty.
    """

    name: str
    version: int
    present: int
    bytes: int
    definition: Mapping[str, Any] = field(default_factory=dict)
    note: str = ""

    @classmethod
    def of(cls, answer: Mapping[str, Any]) -> TableInfo:
        """Read the answer of an action."""
        numbers = {name: answer.get(name, 0) for name in ("version", "present", "bytes")}
        definition, note = answer.get("definition") or {}, answer.get("note", "")
        return cls(answer.get("table", ""), **numbers, definition=definition, note=note)


@dataclass(frozen=True)
class Rewarded:
    """The answer to `Table.reward`.

    Attributes:
        rewarded: rollouts that have the reward now.
        left: rollouts that had left the table: only the record of rewards has theirs.
        entered: rollouts that can be drawn from now on, as the rewards of their group are all known.
    """

    rewarded: int
    left: int
    entered: int

    @classmethod
    def of(cls, answer: Mapping[str, Any]) -> Rewarded:
        """Read the answer of the action reward."""
        return cls(answer["rewarded"], answer["left"], answer["entered"])


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint on the service's disk.

    Attributes:
        name: given to `Table.checkpoint`.
        file_bytes: of its file.
        saved: when, in UTC.
    """

    name: str
    file_bytes: int
    saved: datetime

    @classmethod
    def of(cls, answer: Mapping[str, Any]) -> Checkpoint:
        """Read one entry of the action list_checkpoints."""
        saved = datetime.fromisoformat(answer["saved"].replace("Z", "+00:00"))
        return cls(answer["name"], answer["file_bytes"], saved)


@dataclass(frozen=True)
class LimiterState:
    """The state of a limiter.

    The balance is inserted x samples_per_insert - drawn. Insertions wait to keep it at most max, samples to keep it at
    least min.
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
    """The state of a gate, in rollouts."""

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
    """The units of one age in versions: their number, the mean of their priority bases, and their share of draws."""

    age: int = 0
    units: int = 0
    base: float = 0.0
    probability: float = 0.0


@dataclass(frozen=True)
class AgeESS:
    """The effective sample size of a range of ages as a share of its tokens, and the number of tokens."""

    first: int = 0
    last: int = 0
    ess: float = 0.0
    tokens: float = 0.0


@dataclass(frozen=True)
class Stats:
    """The counters of a table since it was created. Always, ``inserted`` is ``present`` plus all of ``evicted``, and
    ``drawn`` is ``acknowledged`` plus ``returned`` plus ``on_lease``.

    Attributes:
        version, present, bytes: as of `TableInfo`.
        inserted, inserted_groups: rollouts, and groups of them.
        evicted: rollouts by cause: capacity, staleness, uses, consumed, rewind, selection.
        refused: rollouts of invalid insertions.
        drawn: draws; acknowledged: those that became uses; returned: those that went back; on_lease: the others.
        updates_ignored: priority updates of rollouts that had left.
        never_used: rollouts that left unused; never_used_share: of the rollouts present, in [0, 1].
        staleness, mean_staleness: at use, in versions, by the rollout's oldest token and by the mean of its tokens.
        uses_at_eviction, uses_present: uses per rollout.
        since_last_use: versions between two uses.
        age_decay: tau of a prioritized table, in versions; ages: its units by age; ess_by_age: from `Table.report`.
        limiter, gate: their state; None: the table has none.
        waiting: requests that wait now, by kind: inserts, samples, starts.
        down: of a table in parts, addresses of the services that are away and whose counts are missing here.
        raw: the service's whole answer, prompts and journal included; of a table in parts, a list of those, ``parts``.
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
    down: tuple[str, ...] = ()
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, answer: Mapping[str, Any]) -> Stats:
        """Read the answer of the action ``stats``. Fields of a newer service are only in ``raw``."""
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

    @classmethod
    def merged(cls, parts: Sequence[Stats], shares: Sequence[float]) -> Stats:
        """Add up the counters of the parts of a table, whose draws fall on them with these shares."""
        out = _added(parts)
        whole = sum(shares) or 1.0
        out["version"] = max(each.version for each in parts)
        out["never_used_share"] = sum(x.never_used_share * x.present for x in parts) / max(1, out["present"])
        ages: dict[int, list[tuple[AgeShare, float]]] = {}
        for each, share in zip(parts, shares):
            for age in each.ages:
                ages.setdefault(age.age, []).append((age, share / whole))
        for of, some in sorted(ages.items()):
            units = sum(age.units for age, _ in some)
            base = sum(age.base * age.units for age, _ in some) / max(1, units)
            out["ages"].append(AgeShare(of, units, base, sum(age.probability * share for age, share in some)))
        ess: dict[tuple[int, int], list[AgeESS]] = {}
        for each in parts:
            for range in each.ess_by_age:
                ess.setdefault((range.first, range.last), []).append(range)
        for (first, last), those in sorted(ess.items()):  # by tokens: an estimate, as each part has its own draws
            tokens = sum(each.tokens for each in those)
            out["ess_by_age"].append(AgeESS(first, last, sum(x.ess * x.tokens for x in those) / (tokens or 1), tokens))
        for name, kind, same in (("limiter", LimiterState, "samples_per_insert"), ("gate", GateState, "max_staleness")):
            states = [getattr(each, name) for each in parts if getattr(each, name) is not None]
            if states:
                out[name] = kind(**{**_added(states), same: getattr(states[0], same)})
        return cls(**out, raw={"parts": [dict(each.raw) for each in parts]})


def _known(kind: Any, answer: Mapping[str, Any]) -> dict[str, Any]:
    return {f.name: answer[f.name] for f in fields(kind) if f.name in answer}


def _added(parts: Sequence[Any]) -> dict[str, Any]:
    """Return the fields of several states: numbers and histograms added up, bools true if any is, lists empty, and
    anything else the first's."""
    out: dict[str, Any] = {}
    for f in fields(parts[0]):
        values = [getattr(each, f.name) for each in parts]
        if f.name in ("raw", "age_decay"):
            continue
        if isinstance(values[0], bool):
            out[f.name] = any(values)
        elif isinstance(values[0], (int, float)):
            out[f.name] = sum(values)
        elif isinstance(values[0], Mapping):
            sums: Counter[Any] = Counter()
            for each in values:
                sums.update(each)
            out[f.name] = dict(sorted(sums.items()))
        else:
            out[f.name] = [] if isinstance(values[0], list) else values[0]
    if hasattr(parts[0], "age_decay"):
        out["age_decay"] = parts[0].age_decay
    return out
