"""Replay: the table of a `ReplayGRPOTrainer`, and how its batches are drawn."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, field
from pathlib import Path

from ..adapters import step
from ..address import connect_or_serve
from ..definition import Keys, Sampler
from ..errors import Invalid
from ..methods import Method
from ..table import Table
from .layout import CORRECTIONS

QUEUES = ("fifo", "lifo")


@dataclass(frozen=True)
class Replay:
    """Where a trainer's rollouts go, and how they come back.

    Attributes:
        address: of the service; by default that in the environment's REPRISE_ADDRESS, or else a service that this
            process starts, with its data in the folder ``replay`` of the trainer's ``output_dir``.
        table: its name; by default made of ``output_dir``. The trainer creates it if it does not exist.
        method: a published one, of `reprise.METHODS`: what is not given is the method's, with a capacity for this
            batch. Its loss, which its ``trainer`` names, is TRL's to have.
        fresh: share of each batch that was never handed out as fresh, oldest first: 1, 1/2, 1/3 …, or 0; 0.5 by
            default. If TRL's ``num_iterations`` is 1, each generated batch serves 1 / fresh batches, so that TRL
            generates as much as is handed out as fresh: with 0.5 every second time. Queues ignore it.
        capacity: of the table in rollouts; by default two generated batches, those of all processes.
        sampler: ``prioritized``, the default, ``distinct``, ``uniform`` …, or a queue: ``fifo`` or ``lifo``.
        max_staleness: optimizer steps after which a rollout leaves the table; None: the capacity alone bounds it.
        weigh: multiply the advantages by the importance weights of the draws.
        token: of the service, if it asks for one.
        timeout: of a call in seconds, including a service outage.
        options: more keys of `reprise.Client.create`, such as ``{"age_decay": 20}``.
        advice: measure the run, and after 20 batches log one line: whether several updates on a batch, a table or
            another batch would pay. ``trainer.store.advice()`` returns it.
    """

    address: str | None = None
    table: str | None = None
    fresh: float = None  # type: ignore[assignment]  # until __post_init__
    capacity: int | None = None
    sampler: Sampler = None  # type: ignore[assignment]  # until __post_init__
    max_staleness: int | None = None
    weigh: bool = True
    token: str | None = None
    timeout: float = 60.0
    options: Keys = field(default_factory=lambda: Keys())
    method: str | None = None
    advice: bool = True

    def __post_init__(self) -> None:
        keys = self._method.keys
        if "prompts" in keys:
            raise Invalid(f"method: {self.method!r} chooses prompts, which is TRL's to do: want another")
        if any(source.get("pool") == "fresh" for source in keys.get("sources", ())):
            raise Invalid(f"method: {self.method!r} has the table take what is fresh, which `fresh` does here: want another")
        share = step.fresh_share(self.method, 0.5)
        for name, default in (("fresh", share), ("sampler", keys.get("sampler", "prioritized"))):
            if getattr(self, name) is None:
                object.__setattr__(self, name, default)
        if not isinstance(self.fresh, (int, float)) or not 0 <= self.fresh <= 1:
            raise Invalid(f"fresh: {self.fresh!r}: want a share of the batch, from 0 to 1")
        if self.capacity is not None and not isinstance(self.capacity, int):
            raise Invalid(f"capacity: {self.capacity!r}: want a whole number of rollouts, or None")
        if self.sampler in QUEUES:
            return
        if self.fresh and abs(1 / self.fresh - round(1 / self.fresh)) > 0.05:
            raise Invalid(f"fresh: {self.fresh}: want 1 over a whole number, such as {1 / round(1 / self.fresh):.3g}")
        if self.max_staleness == 0:
            raise Invalid("max_staleness: 0: would be no limit: want at least 1, or None; or sampler fifo")

    @property
    def _method(self) -> Method:
        return step.method(self.method)

    def iterations(self, given: int) -> int:
        """Return the number of batches that one generated batch serves, of TRL's ``num_iterations``."""
        if self.sampler in QUEUES:
            if given > 1:
                raise Invalid(f"num_iterations: {given} with sampler {self.sampler}: a queue delivers each rollout "
                              "once: want 1, or another sampler")  # fmt: skip
            return 1
        return given if given > 1 or self.fresh == 0 else max(1, round(1 / self.fresh))

    def fresh_rows(self, batch: int, iterations: int, group: int) -> int:
        """Return how many rollouts of a batch are fresh: no more than generation provides, and whole groups if draws
        are groups."""
        if self.sampler in QUEUES:
            return 0
        rows = int(batch * min(self.fresh, 1 / iterations))
        return rows - rows % group if self._draws_groups else rows

    @property
    def _draws_groups(self) -> bool:
        return {**self._method.keys, **self.options}.get("unit") == "group"

    def open(self, output_dir: str, batch: int, corrections: bool, group: int | None = None) -> Table:
        """Return the table, created if it does not exist.

        Args:
            output_dir: of the trainer.
            batch: rollouts in a batch of all processes.
            corrections: the rollouts have those of TRL with vLLM.
            group: rollouts of a prompt that are generated together; None: `options` has it where draws are groups.
        """
        published = self._method.keys
        capacity = step.capacity(self.method, batch) if self.capacity is None else self.capacity
        if capacity < batch:
            raise Invalid(f"capacity: {capacity}: want at least the {batch} rollouts of a batch")
        own = {**self.options.get("columns", {}), **(CORRECTIONS if corrections else {})}
        keys: Keys = {**published, "capacity": capacity, "sampler": self.sampler, **self.options, "columns": own}  # type: ignore[typeddict-item]
        if self._draws_groups and group is not None:
            keys.setdefault("group_size", group)
        if self.max_staleness is not None:
            keys["max_staleness"] = self.options.get("max_staleness", self.max_staleness)
        folder = Path(output_dir).resolve()
        plain = "".join(c if c.isalnum() and c.isascii() else "-" for c in folder.name)[:100]
        name = self.table or f"{plain}-{hashlib.sha256(os.fsencode(folder)).hexdigest()[:8]}"
        client = connect_or_serve(self.address, Path(output_dir, "replay"), token=self.token, timeout=self.timeout)
        return client.create(name, **keys)
