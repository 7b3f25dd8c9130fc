"""Insertion: rollouts into a table in parts, each group into one of them, and once."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from .. import errors
from ..arrays import Array
from ..connection import FIRST_PAUSE, Deadline
from ..rollouts import consecutive_groups
from .part import Part, Parts
from .plan import cut, join_all, key, order
from .services import DOWN

JUST_NOW = 0.05  # seconds for which a part that answered is taken to be up: insertions wait for one that breaks off
REMEMBERED = 1024  # insertions whose ways are remembered for repetitions


@dataclass
class Group:
    """A group of an insertion: where it goes, and what has become of it."""

    way: list[int]  # the numbers of the parts, the one that it prefers first
    step: int = 0  # of its way, where it goes
    stays: bool = False  # it may be in that part, and goes nowhere else
    entered: bool = False

    @property
    def path(self) -> list[int]:
        """The parts up to the one where it goes."""
        return self.way[: self.step + 1]


@dataclass
class Delivery:
    """What one part gets: groups that went the same way."""

    part: Part
    batch_id: str  # there
    groups: list[Group]
    rows: Array  # of the insertion
    stayed: list[bool]  # for each group, before it was sent


class Ways:
    """The groups of the latest insertions. A repetition takes their ways, whatever was down then. Threads may share
    it."""

    def __init__(self) -> None:
        self._groups: OrderedDict[str, list[Group]] = OrderedDict()  # by batch id
        self._lock = threading.Lock()  # guards _groups

    def recall(self, batch_id: str, number: int, parts: int) -> list[Group]:
        """Return the groups of an earlier insertion under a batch id, if it had as many; else none."""
        with self._lock:
            known = self._groups.get(batch_id, [])
        same = len(known) == number and all(len(each.way) == parts for each in known)
        return [replace(each, entered=False) for each in known] if same else []

    def keep(self, batch_id: str, groups: list[Group]) -> None:
        """Remember the groups of an insertion."""
        with self._lock:
            self._groups[batch_id] = groups
            while len(self._groups) > REMEMBERED:
                self._groups.popitem(last=False)


class Insertion:
    """One insertion, by `run`."""

    def __init__(self, parts: Parts, ways: Ways, batch: pa.RecordBatch, request: dict[str, Any], wait: float) -> None:
        self._parts, self._ways, self._batch = parts, ways, batch
        self._deadline = Deadline(wait)
        if not parts.definition:
            parts.up(wait)
        self._request, self._id = request, request["batch_id"]
        self._granter, self._grant = cut(request.pop("grant", 0))
        self._of_row = self._numbers()
        number = 1 + int(self._of_row.max(initial=-1))
        self._groups = ways.recall(self._id, number, len(parts.all)) or self._new_groups()
        counts = np.ones(len(batch), np.int64)  # ids of each row
        if parts.definition.get("unit") == "step" and "turns" in batch.schema.names:
            counts = np.maximum(np.asarray(batch.column("turns").value_lengths().fill_null(0)), 1)
        self._row_of_id = np.repeat(np.arange(len(batch)), counts)
        self._answer: dict[str, Any] = {"ids": np.zeros(len(self._row_of_id), np.uint64), "too_old": 0, "note": ""}

    def run(self) -> dict[str, Any]:
        """Insert until all groups have entered, and return the answer: what that of one service holds."""
        while True:
            self._parts.up(self._deadline.left(), JUST_NOW)
            deliveries, problem = self._deliveries()
            self._ways.keep(self._id, self._groups)
            calls = [partial(self._send, each) for each in deliveries]
            for each, outcome in zip(deliveries, self._parts.services.each(calls)):
                if isinstance(outcome, errors.Error):
                    ended_by = self._failed(each, outcome)
                    problem = problem or ended_by
                else:
                    self._take(each, outcome)
            self._parts.tell()
            if problem is not None:
                raise self._partial(problem)
            if all(group.entered for group in self._groups):
                return self._answer
            if self._parts.clustered or not deliveries:
                self._parts.rest(FIRST_PAUSE)

    def _numbers(self) -> Array:
        """Return the number [B] of each row's group, in order of their first rows, as the service sees them."""
        rows = len(self._batch)
        if "group" in self._batch.schema.names:
            seen: dict[int, int] = {}
            named = enumerate(self._batch.column("group").to_pylist())
            return np.array([seen.setdefault(-1 - row if name is None else name, len(seen)) for row, name in named])
        size = self._request.get("group_size") or self._parts.definition.get("group_size", 0)
        return consecutive_groups(rows, size) if size > 1 else np.arange(rows)

    def _new_groups(self) -> list[Group]:
        """Return the groups of an insertion under a new batch id."""
        firsts = np.unique(self._of_row, return_index=True)[1]
        prompts: Sequence[str | None] = [None] * len(firsts)
        if "prompt_id" in self._batch.schema.names:
            prompts = self._batch.column("prompt_id").take(pa.array(firsts)).to_pylist()
        ways = [order(key(prompt or "", self._id, i), len(self._parts.all)) for i, prompt in enumerate(prompts)]
        if self._grant:
            ways = [sorted(way, key=lambda part: part != self._granter) for way in ways]
        return [Group(way) for way in ways]

    def _deliveries(self) -> tuple[list[Delivery], errors.Error | None]:
        """Return what to send to each part, and why a group that must stay with its part cannot be sent any more."""
        up = {part.number: part for part in self._parts.reachable()}
        problem: errors.Error | None = None
        by_path: dict[str, list[int]] = {}
        for i, group in enumerate(self._groups):
            if group.entered:
                continue
            if group.way[group.step] not in up:
                if group.stays:
                    if self._deadline.left() <= 0:
                        problem = self._parts.all[group.way[group.step]].why
                    continue
                group.step = next(step for step, part in enumerate(group.way) if part in up)
            # Groups that a part gets in another's place have an id of their own there: it may know the plain one.
            by_path.setdefault("/".join([self._id, *map(str, group.path)]), []).append(i)
        deliveries = []
        for path, numbers in by_path.items():
            groups = [self._groups[i] for i in numbers]
            rows = np.flatnonzero(np.isin(self._of_row, numbers))
            part = up[groups[0].path[-1]]
            deliveries.append(Delivery(part, path, groups, rows, [group.stays for group in groups]))
        for group in (group for each in deliveries for group in each.groups):
            group.stays = True
        return deliveries, problem

    def _send(self, delivery: Delivery) -> dict[str, Any]:
        """Insert into one part."""
        whole = len(delivery.rows) == len(self._batch)
        rows = self._batch if whole else self._batch.take(pa.array(delivery.rows))
        left = self._deadline.left()
        body = {**self._request, "batch_id": delivery.batch_id, "timeout_ms": int(1000 * left)}
        if self._grant and self._granter == delivery.part.number:
            body["grant"] = self._grant
        ordinary = delivery.part.table
        return ordinary._connection.insert(
            ordinary.name, rows, body, timeout=left, repeatable=not self._parts.clustered
        )

    def _take(self, delivery: Delivery, answer: dict[str, Any]) -> None:
        """Note that groups entered, and their ids."""
        delivery.part.found()
        for group in delivery.groups:
            group.entered = True
        where = np.isin(self._row_of_id, delivery.rows)
        self._answer["ids"][where] = join_all(delivery.part.number, answer["ids"])
        self._answer["too_old"] += answer.get("too_old", 0)
        self._answer["note"] = answer.get("note", self._answer["note"])

    def _failed(self, delivery: Delivery, error: errors.Error) -> errors.Error | None:
        """Note that groups did not enter, or may not have. Return the error if it ends the insertion."""
        lacks_table = isinstance(error, errors.NotFound) and len(self._parts.all) > 1
        for group, stayed in zip(delivery.groups, delivery.stayed):
            if not isinstance(error, (*DOWN, errors.DiskFull, errors.Failed)):
                group.stays = False
            elif not error.sent:
                group.stays = stayed
        if lacks_table or isinstance(error, DOWN):
            delivery.part.lost(error)
            # They go to the next part, or in a cluster to whoever owns this one now and knows what entered.
            if self._deadline.left() > 0 and (lacks_table or not error.sent or self._parts.clustered):
                return None
        return error

    def _partial(self, problem: errors.Error) -> errors.Error:
        """Add to an error which rows entered all the same."""
        entered = np.array([group.entered for group in self._groups])
        rows = np.flatnonzero(entered[self._of_row])
        if not len(rows) and not (isinstance(problem, DOWN) and problem.sent):
            return problem
        runs = np.split(rows, np.flatnonzero(np.diff(rows) > 1) + 1) if len(rows) else []
        spans = ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)
        known = f"{spans} entered" if spans else "none is known to have entered"
        return type(problem)(
            f"{problem}; of the rows, {known}: repeat the insertion with batch_id={self._id!r} for the rest"
        )
