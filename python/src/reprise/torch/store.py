"""RolloutStore: what a training loop does with a table in each update."""

from __future__ import annotations

import copy
import dataclasses
import os
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
import torch.distributed as dist
from torch import Tensor

from ..adapters import step
from ..address import connect_or_serve
from ..advice import Advice, Meter
from ..batch import Batch
from ..client import Client
from ..errors import Invalid, Starved, Timeout, Unavailable
from ..methods import method_of
from ..padded import Padded
from ..rollouts import record_batch
from ..service import serve
from ..stats import TableInfo
from ..table import Ids, Scope, Table
from . import batches
from .metrics import Sums, combine
from .objective import Objective, Output, loss


class RolloutStore:
    """What any training loop does with a table: insert what was generated, draw, take the loss, report, advance.

    >>> with RolloutStore.open(batch=256, method="advantage-replay", group_size=8) as store:  # doctest: +SKIP
    ...     for update in range(300):
    ...         tokens, logprobs, rewards = generate(model, prompts)
    ...         store.insert(tokens=tokens, prompt_lengths=6, logprobs=logprobs, reward=rewards)
    ...         drawn = store.draw(256)
    ...         out = drawn.loss(logprobs_of(model, drawn.padded.tokens))
    ...         optimizer.zero_grad()
    ...         out.loss.backward()
    ...         optimizer.step()
    ...         store.report(drawn)

    Where torch.distributed runs, each rank has a store of the same table and draws its share of a batch; the losses of
    all ranks are of the whole batch, for gradients that are averaged over ranks. Not for threads.

    **Advice.** The store measures the loop: from one call to the next it knows how long rollouts were waited for and
    how long updates took; rewards tell which groups have no signal, reports how ratios spread by age, and with
    ``parameters`` and `Drawn.split` the gradient's noise. After 20 batches it logs one line: whether several updates on
    a batch, a table or another batch would pay. `advice` returns it at any time.

    Attributes:
        table: the `reprise.Table`.
        objective: of `Drawn.loss`.
        fresh: share of a draw that was never drawn as fresh before.
        version: of the weights: the number of updates so far; -1 before the first `follow`.
    """

    def __init__(
        self,
        table: Table,
        objective: Objective | str = "grpo",
        *,
        batch: int,
        fresh: float = 0.0,
        version: int | None = 0,
        device: Any = None,
        parameters: Iterable[Tensor] = (),
        advice: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Take a table as it is.

        Args:
            table: of any kind.
            objective: its corrections included.
            batch: rollouts that an update learns from, over all ranks.
            fresh: share of each draw, in [0, 1].
            version: of the weights; a table that is ahead goes back to it. None: `follow` will say.
            device: of the tensors that `draw` returns.
            parameters: of the model, to measure the gradient's noise in batches that are `split`.
            advice: measure, and log what would pay.
            clock: seconds.
        """
        if not 0 <= fresh <= 1:
            raise Invalid(f"fresh: {fresh}: want a share of the batch, from 0 to 1")
        self.table = table
        self.objective = Objective(objective) if isinstance(objective, str) else objective
        self.fresh = fresh
        self.version = -1
        self.unseen = 0
        """Rollouts that were inserted here and not drawn as fresh since, at most."""
        self._device, self._parameters = device, list(parameters)
        self._client: Client | None = None
        self._clock, self._mark, self._waited, self._new = clock, clock(), 0.0, 0
        definition = table.info().definition
        self._group = int(definition.get("group_size") or 1)
        self.meter = Meter(batch, self._group, table.stats, on=advice and _rank() == 0)
        if version is not None:
            self.follow(version)

    @classmethod
    def open(
        cls,
        address: str | None = None,
        table: str = "rollouts",
        *,
        batch: int,
        method: str | None = None,
        objective: Objective | str | None = None,
        fresh: float | None = None,
        version: int | None = 0,
        data: str | Path | None = None,
        token: str | None = None,
        timeout: float = 60.0,
        device: Any = None,
        parameters: Iterable[Tensor] = (),
        advice: bool = True,
        **keys: Any,
    ) -> RolloutStore:
        """Open a table by its address, created if it does not exist; without an address serve one for all ranks.

        Args:
            address: of the service; by default that in the environment's REPRISE_ADDRESS, or else rank 0 serves
                ``data``, or without it in memory, until it ends: for ranks of one machine.
            table: its name.
            batch: rollouts that an update learns from, over all ranks. The capacity is two of them unless given, or
                that of the method in batches.
            method: a published one, of `reprise.METHODS`. What is not given is the method's: keys of the table, the
                loss, and how much is fresh. The rest of its ``trainer`` is about generation.
            objective: grpo unless the method names one.
            fresh: share of each draw; 0 unless the method says it.
            token, timeout: of `reprise.connect`.
            keys: more keys of `reprise.Client.create`.
            version, device, parameters, advice: as of the class.
        """
        client = _open(address, data, token, timeout)
        try:
            if objective is None:
                objective = _objective(method) if method is not None else "grpo"
            if fresh is None:
                fresh = step.fresh_share(method, 0.0)
            keys.setdefault("capacity", step.capacity(method, batch))
            opened = client.create(table, method=method, **keys) if method else client.create(table, **keys)
            store = cls(opened, objective, batch=batch, fresh=fresh, version=version, device=device,
                        parameters=parameters, advice=advice)  # fmt: skip
        except BaseException:
            client.close()
            raise
        store._client = client
        return store

    def __enter__(self) -> RolloutStore:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close(wait=exception[0] is None)

    def close(self, wait: bool = True) -> None:
        """Close the connection that `open` made, and the service if it served one.

        Args:
            wait: for the other ranks to come here, whose service may be this one's.
        """
        if self._client is not None:
            if wait and _ranks() > 1:
                dist.barrier()
            self._client.close()
            self._client = None

    # Rollouts in.

    def follow(self, version: int) -> int:
        """Take a version of the weights other than one update more, and return how many rollouts the table has. The
        first version, and one below the last, that of a checkpoint, take back a table that is ahead, which drops newer
        rollouts."""
        begins = not 0 <= self.version <= version
        if begins and self.table.info().version > version:
            self.table.rewind(version)
        self.version = version
        return self._has(self.table.advance(version))

    def present(self) -> int:
        """Return how many rollouts the table has."""
        return self._has(self.table.info())

    def _has(self, info: TableInfo) -> int:
        self.unseen = min(self.unseen, info.present)
        return info.present

    def insert(self, rows: Any = None, *, group_size: int = 0, **columns: Any) -> Ids:
        """Insert what was generated, as `reprise.Table.insert` does. Without a version it is of the present weights."""
        began = self._clock()
        if rows is None and not {"version", "versions"} & set(columns):
            columns["version"] = self.version
        batch = record_batch(rows, group_size=group_size, extra=self.table._own_columns, **columns)
        ids = self.table.insert(batch, group_size=group_size)
        self.unseen += len(ids)
        self._waited += began - self._mark
        self._new += len(ids)
        if self.meter.on:
            self._measure(batch, group_size)
        self._mark = self._clock()
        return ids

    def _measure(self, batch: pa.RecordBatch, group_size: int) -> None:
        """Note the rewards of an insertion."""
        names = batch.schema.names
        groups = np.arange(batch.num_rows) // (group_size or self._group)
        if "group" in names:
            groups = batch.column("group").to_numpy(zero_copy_only=False)
        prompts = batch.column("prompt_id").to_pylist() if "prompt_id" in names else ()
        self.meter.group = max(self.meter.group, int(np.unique(groups, return_counts=True)[1].max(initial=1)))
        self.meter.inserted(batch.column("reward").to_numpy(zero_copy_only=False), groups, prompts)

    # Batches out.

    def draw(
        self, size: int | None = None, *, columns: Sequence[str] | None = None, timeout: float | None = None
    ) -> Drawn:
        """Draw this rank's share of a batch, of which the share `fresh` was never drawn as fresh before.

        Args:
            size: of this rank; by default the batch over the number of ranks.
            columns, timeout: as of `reprise.Table.sample`.
        """
        began = self._clock()
        size = self.meter.batch // _ranks() if size is None else size
        fresh = int(size * self.fresh)
        batch = self.table.sample(size, fresh=fresh, columns=columns, timeout=timeout)
        self.unseen = max(0, self.unseen - fresh)
        self._waited += self._clock() - began
        drawn = Drawn(batch, self)
        self._mark = self._clock()
        return drawn

    def draw_present(self, size: int, fresh: int, columns: Sequence[str] | None = None, scope: Scope = "own") -> Batch:
        """Draw without waiting for what is fresh: where fewer were inserted, or some of them left undrawn, there is
        less of it in the batch."""
        fresh = min(fresh, self.unseen)
        try:
            batch = self.table.sample(size, fresh=fresh, columns=columns, scope=scope, timeout=0 if fresh else None)
        except Starved:
            if not fresh:
                raise
            fresh = self.unseen = 0
            batch = self.table.sample(size, columns=columns, scope=scope)
        self.unseen -= fresh
        return batch

    # What the update measured goes back.

    def report(self, drawn: Drawn) -> None:
        """End an update: report the ratios that its losses measured, and take the next version."""
        rows = drawn._measured()  # waits for the device
        self.meter.updated(self._clock() - self._mark, len(drawn.batch))
        self.meter.generated(self._waited, self._new or len(drawn.batch))
        self._waited, self._new = 0.0, 0
        self.version += 1
        arrived = self.send(drawn.batch, np.arange(len(drawn.batch)), version=self.version, **rows)
        if not arrived:
            self.table.advance(self.version)
        self._mark = self._clock()

    def send(self, batch: Batch, row: Any, *, version: int | None = None, **measured: Any) -> bool:
        """Report what was measured of rows of a batch; False, with a warning, if it may be lost with a connection."""
        try:
            self.table.report(batch.ids[row], batch.staleness[row], **measured, version=version)
            return True
        except (Unavailable, Timeout) as error:  # it may have arrived, so it is not repeated
            warnings.warn(f"table {self.table.name}: one report of ratios may be lost: {error}", stacklevel=3)
            return False

    def advice(self) -> Advice:
        """Return whether several updates on a batch, a table or another batch would pay in this loop."""
        return self.meter.advice()


class Drawn:
    """A batch for one update, or with `split` a part of one.

    Attributes:
        batch: the `reprise.Batch`.
        padded: its tensors, padded on the right.
        inputs: of `reprise.torch.loss`: mask, behaviour log-probs, advantages, weights … Replace them before the
            `split`.
    """

    def __init__(self, batch: Batch, store: RolloutStore) -> None:
        self.batch, self._store = batch, store
        self.padded: Padded[Tensor] = batch.padded().torch(store._device)
        self.inputs = batches.inputs(self.padded)
        self._whole = self
        self._sums: list[Sums] = []
        self._rows: list[Sums] = []
        self._totals = self._count()

    def _count(self) -> dict[str, Tensor]:
        """Return what the batches of all ranks hold, and make this one's weights relative to the largest of all."""
        mask = self.padded.loss_mask
        totals = torch.stack([mask.any(1).sum(), mask.sum()]).double()
        if _ranks() > 1:
            dist.all_reduce(totals)
            scale = torch.tensor(self.batch.info.log_weight_scale, dtype=torch.float64, device=mask.device)
            dist.all_reduce(largest := scale.clone(), dist.ReduceOp.MAX)
            by = (scale - largest).exp().float()
            if self.batch.has("fresh"):  # which have weight 1
                fresh = torch.as_tensor(self.batch.column("fresh").astype(bool), device=mask.device)
                by = torch.where(fresh, 1.0, by)
            self.inputs["weights"] = self.inputs["weights"] * by
        return {"num_rollouts": totals[0], "num_tokens": totals[1]}

    def split(self, rows: int) -> Iterator[Drawn]:
        """Return parts of so many rollouts, as wide as their longest, whose losses and gradients add up to the batch's.
        Take the backward pass of each before the next."""
        if rows < 1:
            raise Invalid(f"rows: {rows}: want 1 or more")
        count = len(self.batch)
        parameters, meter = self._store._parameters, self._store.meter
        watch = bool(parameters) and rows < count and count % rows == 0 and _ranks() == 1 and meter.wants_gradients
        square = 0.0
        for first in range(0, count, rows):
            yield self._part(first, min(first + rows, count))
            if watch and first == 0:
                square = square_of_gradient(parameters)
        if watch:
            meter.gradient(square * (count / rows) ** 2, square_of_gradient(parameters), rows)

    def _part(self, first: int, last: int) -> Drawn:
        width, whole = int(self.batch.lengths[first:last].max(initial=0)), self.padded.tokens.shape[1]

        def cut(x: Tensor) -> Tensor:
            return x[first:last, :width] if x.ndim > 1 and x.shape[1] == whole else x[first:last]

        part = copy.copy(self)
        part.batch = Batch(self.batch.record_batch.slice(first, last - first), self.batch.info)
        tensors = {name: cut(x) for name, x in self.padded.items() if name != "sampling_mask"}
        if self.padded.sampling_mask is not None:  # each line names a row
            lines = self.padded.sampling_mask
            lines = lines[(lines[:, 0] >= first) & (lines[:, 0] < last)]
            tensors["sampling_mask"] = lines - lines.new_tensor([first, 0, 0])
        part.padded = dataclasses.replace(self.padded, **tensors)
        part.inputs = {name: cut(x) for name, x in self.inputs.items()}
        return part

    def loss(self, logprobs: Tensor, **more: Any) -> Output:
        """Return the store's objective on this batch, or its summand if this is a part of one, with its metrics' sums.

        Args:
            logprobs: as of `reprise.torch.loss`.
            more: its other arguments, such as ``anchor``.
        """
        totals = {} if self is self._whole and _ranks() == 1 else self._totals  # m2po wants to know what a shard is
        out = loss(logprobs, self._store.objective, **{**self.inputs, **totals, **more})
        self._whole._sums.append(out.sums)
        self._whole._rows.append(out.rows)
        return out._replace(loss=out.loss * _ranks())  # gradients are averaged over ranks

    @property
    def metrics(self) -> dict[str, float]:
        """The metrics of this rank's losses so far (`reprise.torch.combine`)."""
        return combine(*self._whole._sums)

    def _measured(self) -> dict[str, Any]:
        """Return what the losses measured of each rollout, the last ones where there were several."""
        rows: dict[str, list[Any]] = {}
        for each in self._rows:
            for name, values in each.items():
                rows.setdefault(name, []).extend(values.tolist())
        count = len(self.batch)
        if not rows:
            raise Invalid("drawn: no loss was taken of it: want drawn.loss before the report")
        if len(next(iter(rows.values()))) % count:
            raise Invalid(f"drawn: the losses are of parts of its {count} rollouts: want one of each part of split")
        return {name: values[-count:] for name, values in rows.items()}


def square_of_gradient(parameters: Iterable[Tensor]) -> float:
    """Return the squared norm of the gradients that parameters have."""
    norms = [torch.linalg.vector_norm(p.grad, dtype=torch.float32) for p in parameters if p.grad is not None]
    return float(torch.stack([norm.to(norms[0].device) for norm in norms]).double().square().sum()) if norms else 0.0


def _objective(method: str) -> Objective:
    """Return the loss of a published method."""
    options = {key.removeprefix("learner."): value for key, value in method_of(method).trainer.items()
               if key.startswith("learner.")}  # fmt: skip
    unknown = [key for key in options if key not in Objective.__dataclass_fields__]
    if unknown:
        raise Invalid(f"method: {method!r} has {', '.join(unknown)} beside a loss, which the loop does: want objective")
    return Objective(**options)


def _open(address: str | None, data: str | Path | None, token: str | None, timeout: float) -> Client:
    """Connect every rank to one service."""
    where: list[Any] = [None, None]  # the address, or why rank 0 has none
    client: Client | None = None
    if _rank() == 0:
        try:
            client = _serve(address, data, token, timeout)
            where[0] = address or client.address
        except Exception as error:
            if _ranks() == 1:
                raise
            where[1] = error
    if _ranks() > 1:
        dist.broadcast_object_list(where)
        if where[1] is not None:
            raise where[1]
    return client or connect_or_serve(where[0], "", token=token, timeout=timeout)


def _serve(address: str | None, data: str | Path | None, token: str | None, timeout: float) -> Client:
    if data is None and not (address or os.environ.get("REPRISE_ADDRESS")):
        return serve(timeout=timeout)
    return connect_or_serve(address, data or "", token=token, timeout=timeout)


def _ranks() -> int:
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def _rank() -> int:
    return dist.get_rank() if dist.is_available() and dist.is_initialized() else 0
