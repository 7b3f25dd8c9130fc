"""Advice: what would pay in a training loop, from what the loop measured of itself."""

from __future__ import annotations

import json
import logging
import math
import statistics
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from . import _program
from .errors import Error, NotFound
from .stats import Stats

log = logging.getLogger("reprise")

AFTER = 20
"""Batches after which a loop is told, once."""


@dataclass(frozen=True)
class Advice:
    """Whether several updates on a batch, a table, or another batch would pay, by the theory of ``reprise design``.

    Attributes:
        line: all of it, with the figures; str() of this.
        verdicts: of ``reuse``, ``table`` and ``batch``: each has ``answer`` (pays, does not pay, cannot tell), ``why``
            and where there is an estimate ``cost``, ``least`` and ``most``: the compute for the same progress over that
            of using each rollout once.
        figures: what was measured, as ``reprise design --loop`` reads it.
    """

    line: str
    verdicts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    figures: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def __str__(self) -> str:
        return self.line


@dataclass
class Meter:
    """Measures a training loop, and has the program judge it. It keeps sums and one line of numbers for each batch.

    Attributes:
        batch, group: rollouts of an update, and of a prompt.
        stats: asks for the table's statistics, which have ESS by age.
        on: False measures nothing and says nothing by itself.
        asked: how often the run asks each prompt; None: nobody knows.
    """

    batch: int
    group: int
    stats: Callable[[], Stats]
    on: bool = True
    asked: float | None = None
    _generated: list[float] = field(default_factory=list)  # seconds of a rollout, by batch generated
    _updated: list[float] = field(default_factory=list)  # seconds of a rollout, by update
    _groups: int = 0
    _flat: int = 0
    _rewards: dict[float, int] = field(default_factory=dict)  # of up to three values
    _prompts: dict[str, int] = field(default_factory=dict)  # times asked, of up to MOST_PROMPTS
    _squares: list[tuple[float, float]] = field(default_factory=list)
    _part: int = 0

    MOST_PROMPTS = 100_000

    def generated(self, seconds: float, rollouts: int) -> None:
        """Note how long the loop waited for rollouts."""
        if self._measures and rollouts:
            self._generated.append(seconds / rollouts)

    def inserted(self, rewards: npt.ArrayLike, groups: npt.ArrayLike, prompts: Sequence[str | None] = ()) -> None:
        """Note rewards [B] with the group of each, and its prompt.

        Groups with a reward that comes later are left out.
        """
        if not self._measures:
            return
        values, groups = np.asarray(rewards, np.float64), np.asarray(groups)
        known = ~np.isin(groups, groups[np.isnan(values)])
        values, groups = values[known], groups[known]
        _, of, sizes = np.unique(groups, return_inverse=True, return_counts=True)
        of, count = of.reshape(-1), len(sizes)
        least, most = np.full(count, math.inf), np.full(count, -math.inf)
        np.minimum.at(least, of, values)
        np.maximum.at(most, of, values)
        self._groups += int((sizes > 1).sum())
        self._flat += int(((least == most) & (sizes > 1)).sum())
        for value, times in zip(*np.unique(values, return_counts=True)):
            if value in self._rewards or len(self._rewards) < 3:
                self._rewards[float(value)] = self._rewards.get(float(value), 0) + int(times)
        for prompt in {prompt for prompt in prompts if prompt}:
            if prompt in self._prompts or len(self._prompts) < self.MOST_PROMPTS:
                self._prompts[prompt] = self._prompts.get(prompt, 0) + 1

    def gradient(self, part: float, whole: float, rows: int) -> None:
        """Note the squared norms of the mean gradient of so many rollouts, and of the whole batch."""
        if self._measures and math.isfinite(part) and math.isfinite(whole):
            self._part = rows
            self._squares.append((part, whole))

    def updated(self, seconds: float, rollouts: int) -> None:
        """Note how long an update took. The last of the first batches prints the advice."""
        if not self._measures or not rollouts or seconds <= 0:
            return
        self._updated.append(seconds / rollouts)
        if len(self._updated) == AFTER:
            log.warning("advice %s", self.advice())

    @property
    def _measures(self) -> bool:
        return self.on and len(self._updated) < AFTER

    @property
    def wants_gradients(self) -> bool:
        """Whether `gradient` still counts: a norm of all gradients costs a little."""
        return self._measures

    def figures(self) -> dict[str, Any]:
        """Return what was measured, as ``reprise design --loop`` reads it."""
        two = len(self._rewards) == 2
        ess = [each for each in self.stats().ess_by_age if each.tokens > 0 and each.ess > 0]
        asked = self.asked
        if asked is None and self._prompts and max(self._prompts.values()) > 1:
            asked = sum(self._prompts.values()) / len(self._prompts)
        return {
            "batches": len(self._updated),
            "batch": self.batch,
            "group": self.group,
            "generate_seconds": statistics.median(self._generated) if self._generated else None,
            "update_seconds": statistics.median(self._updated) if self._updated else None,
            "groups": self._groups,
            "flat_groups": self._flat,
            "right": self._rewards[max(self._rewards)] / sum(self._rewards.values()) if two else None,
            "asked": asked,
            "ess": [{"first": e.first, "last": e.last, "ess": min(e.ess, 1.0), "tokens": e.tokens} for e in ess],
            "gradients": {"part": self._part, "whole": self.batch, "squares": self._squares}
            if self._squares and self._part < self.batch
            else None,
        }

    def advice(self) -> Advice:
        """Return what would pay, from what was measured so far. What could not be asked is said in the line."""
        if not self._updated:
            return Advice("cannot tell: no batch was measured" if self.on else "cannot tell: advice is switched off")
        try:
            figures = self.figures()
            command = [_program.find(), "design", "--json", "--loop", "/dev/stdin"]
            said = subprocess.run(command, input=json.dumps(figures), capture_output=True, text=True, timeout=60)
        except (Error, OSError, subprocess.TimeoutExpired) as error:
            missing = isinstance(error, NotFound)
            return Advice(f"cannot tell: {'the program that computes it is missing: ' if missing else ''}{error}")
        if said.returncode:
            return Advice(f"cannot tell: {said.stderr.strip()}", figures=figures)
        answer = json.loads(said.stdout)
        return Advice(answer["line"], {name: answer[name] for name in ("reuse", "table", "batch")}, figures)
