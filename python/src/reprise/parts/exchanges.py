"""Exchanges: the batches of a stream on a table in parts."""

from __future__ import annotations

import contextlib
import logging
import queue
from collections.abc import Mapping
from typing import Any

from .. import errors, stream
from ..batch import Batch
from ..connection import FIRST_PAUSE, Deadline
from .part import TURN, Part, Parts
from .plan import Plan, merge
from .services import DOWN, PATIENCE

log = logging.getLogger("reprise")


class Exchanges:
    """An exchange with each part that is asked, and the batches merged of their answers. See `stream.Exchange` for which
    thread may call what."""

    def __init__(self, parts: Parts, request: dict[str, Any], timeout: float, from_all: bool) -> None:
        self._parts, self._request, self._timeout, self._all = parts, request, timeout, from_all
        self._open: dict[Part, stream.Exchange] = {}
        self._using = contextlib.ExitStack()  # the channels of those
        self._pieces: dict[int, list[tuple[stream.Exchange, Batch]]] = {}  # by number of the batch merged of them
        self._lapsed = 0  # of exchanges that broke
        self._stopped = False
        self._wake: queue.SimpleQueue[None] = queue.SimpleQueue()  # ends a pause

    @property
    def lapsed(self) -> int:
        return self._lapsed + sum(each.lapsed for each in list(self._open.values()))

    def fetch(self) -> stream.Item:
        """Request a batch and wait for it. Returns exceptions instead of raising them."""
        deadline, pause = Deadline(self._timeout), FIRST_PAUSE
        while True:
            try:
                together = self._parts.together(self._all)
                item = self._from_all() if together else self._from_one(deadline)
            except errors.Error as error:
                item = error
            if self._stopped:  # batches that came go back with their exchanges
                return errors.Unavailable("the stream was closed")
            if not isinstance(item, (errors.Starved, *DOWN)) or deadline.left() <= 0:
                return item
            with contextlib.suppress(queue.Empty):
                self._wake.get(timeout=min(pause, deadline.left()))
            pause = min(2 * pause, TURN)

    def _from_one(self, deadline: Deadline) -> stream.Item:
        problem: stream.Item | None = None
        for part, wait in self._parts.waits(self._parts.up(0), deadline):
            answer = self._round({part: {"timeout_ms": int(1000 * wait)}})[part]
            if isinstance(answer, Batch):
                return self._merged([(part, answer)], None, 0)
            if not isinstance(answer, (errors.Starved, *DOWN)):
                return answer
            if problem is None or isinstance(answer, errors.Starved):
                problem = answer
        assert problem is not None
        return problem

    def _from_all(self) -> stream.Item:
        found = self._parts.totals(self._parts.up(0), self._request.get("shard", 0))
        plan = self._parts.divide([each for _, each in found], self._request["size"], self._request.get("fresh", 0))
        asks: dict[Part, dict[str, Any]] = {}
        for (part, _), new, others in zip(found, plan.fresh.tolist(), plan.drawn.tolist()):
            if new + others:
                some = {"size": plan.unit * (new + others), "fresh": plan.unit * new}
                asks[part] = {**some, "timeout_ms": 0, "prefetch": 0}
        answers = self._round(asks)
        pieces = [(part, answer) for part, answer in answers.items() if isinstance(answer, Batch)]
        problems = [answer for answer in answers.values() if not isinstance(answer, Batch)]
        if problems:  # what was drawn goes back, and all is divided again
            for part, piece in pieces:
                self._open[part].give_back(piece)
            temporary = (errors.Starved, *DOWN)
            return next((each for each in problems if not isinstance(each, temporary)), problems[0])
        elsewhere = sum(each.units * plan.unit for part, each in found if part not in asks)
        return self._merged(pieces, plan, elsewhere)

    def _merged(self, pieces: list[tuple[Part, Batch]], plan: Plan | None, present: int) -> Batch:
        batch = merge([(part.number, piece) for part, piece in pieces], plan, present)
        self._pieces[batch.info.batch] = [(self._open[part], piece) for part, piece in pieces]
        return batch

    def _round(self, asks: Mapping[Part, dict[str, Any]]) -> dict[Part, stream.Item]:
        """Ask parts, all before the first answer is awaited. The others acknowledge what waits for it."""
        idle = {part: {"size": 0} for part, each in self._open.items() if part not in asks and each.unsettled()}
        answers: dict[Part, stream.Item | None] = {}
        known = set(self._open)
        for part, changes in (*asks.items(), *idle.items()):
            try:
                self._exchange(part).ask(**changes)
            except Exception as error:
                answers[part] = self._broken(part, error, changes if part in known else None)
        for part, changes in (*asks.items(), *idle.items()):
            if part not in answers:
                try:
                    answers[part] = self._answer(part, changes)
                except Exception as error:
                    answers[part] = self._broken(part, error, changes if part in known else None)
        failed = errors.Failed(f"{self._parts.name}: the service answered with neither a batch nor an error")
        outcomes = {part: answers[part] for part in asks}
        return {part: failed if answer is None else answer for part, answer in outcomes.items()}

    def _exchange(self, part: Part) -> stream.Exchange:
        if part not in self._open:
            connection = part.table._connection
            self._using.enter_context(connection.using())
            self._open[part] = stream.Exchange(connection, part.table.name, self._request, PATIENCE)
            if self._stopped:
                raise errors.Unavailable("the stream was closed")
        return self._open[part]

    def _answer(self, part: Part, changes: dict[str, Any]) -> stream.Item | None:
        exchange = self._open[part]
        item = exchange.answer()
        if isinstance(item, errors.NoLease):  # the request acknowledged nothing, and drew nothing
            exchange.send_acknowledgements()
            exchange.ask(**changes)
            item = exchange.answer()
        part.found()
        return item

    def _broken(self, part: Part, error: Exception, again: dict[str, Any] | None) -> stream.Item | None:
        """Close an exchange that broke. One that was open before may have broken with a service that is back: ask
        again."""
        if self._stopped:
            raise errors.Unavailable("the stream was closed")
        if part in self._open:
            broken = self._open.pop(part)
            self._lapsed += broken.lapsed
            broken.close()
        if again is not None:
            try:
                self._exchange(part).ask(**again)
                return self._answer(part, again)
            except Exception as anew:
                return self._broken(part, anew, None)
        problem = stream.problem_of(error)
        if isinstance(problem, (errors.NotFound, *DOWN)):
            part.lost(problem)
            self._parts.tell()
            return errors.Unavailable(str(problem))
        return problem

    def acknowledge(self, batch: Batch) -> None:
        """Acknowledge a batch with the next request to each of its parts."""
        for exchange, piece in self._pieces.pop(batch.info.batch, []):
            exchange.acknowledge(piece)

    def on_lease(self, batch: Batch) -> bool:
        """Report whether a batch is still on lease. If a part took its draws back, the others' go back too."""
        pieces = self._pieces.get(batch.info.batch, [])
        if all(exchange.on_lease(piece) for exchange, piece in pieces):
            return True
        for exchange, piece in self._pieces.pop(batch.info.batch, []):
            exchange.give_back(piece)
        return False

    def send_acknowledgements(self) -> None:
        for each in list(self._open.values()):
            each.send_acknowledgements()

    def stop(self) -> None:
        self._stopped = True
        for each in list(self._open.values()):
            each.stop()
        self._wake.put(None)

    def cancel(self) -> None:
        for each in list(self._open.values()):
            each.cancel()

    def cancel_if_overdue(self) -> None:
        for each in list(self._open.values()):
            each.cancel_if_overdue()

    def log_waiting(self, seconds: float) -> None:
        present = sum(part.info.present for part in self._parts.all)
        text = "table %s: waiting for a batch of %d rollouts for %.0f s: its parts held %d. The timeout is %.0f s"
        log.warning(text, self._parts.name, self._request["size"], seconds, present, self._timeout)

    def close(self) -> None:
        while self._open:
            self._open.popitem()[1].close()
        self._using.close()
