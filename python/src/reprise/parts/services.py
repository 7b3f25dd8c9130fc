"""Services: connections to the services that hold the parts of tables."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from .. import errors
from ..arrays import whole
from ..connection import Connection
from .plan import MAX_PARTS

T = TypeVar("T")

PATIENCE = 5.0  # seconds for what a service answers without waiting; one that is silent for longer is down

DOWN = (errors.Unavailable, errors.Closing, errors.Timeout, errors.Elsewhere)
"""Errors of a service that does not answer."""


def outcome(call: Callable[[], T]) -> T | errors.Error:
    """Make a call, and return its result or its error."""
    try:
        return call()
    except errors.Error as error:
        return error


class Services:
    """Connections to several services, for a trainer among others. Threads may share it.

    Attributes:
        addresses: as given, in order.
        entries: the connections to them.
        trainer, trainers: whose draws with scope ``own`` come from which parts.
        clustered: the services are a cluster: tables have owners among them, which change.
    """

    def __init__(
        self, addresses: Sequence[str], dial: Callable[[str], Connection], trainer: int = 0, trainers: int = 1
    ) -> None:
        self.addresses = [each.strip() if isinstance(each, str) else each for each in addresses]
        if not 1 <= len(self.addresses) <= MAX_PARTS:
            raise errors.Invalid(f"address: {len(self.addresses)} of them: want 1 to {MAX_PARTS} services")
        for each in self.addresses:
            if self.addresses.count(each) > 1:
                raise errors.Invalid(f"address: {each}: given twice: want each service once")
        self.trainers = whole("trainers", trainers, 1)
        self.trainer = whole("trainer", trainer, 0)
        if self.trainer >= self.trainers:
            raise errors.Invalid(f"trainer: {trainer}: want 0 to {self.trainers - 1}, with {self.trainers} trainers")
        self._dial = dial
        self._dialled: dict[str, Connection] = {}
        self._dialling = threading.Lock()  # guards _dialled
        self.entries = [self.connection(each) for each in self.addresses]
        self.clustered = False
        self._threads = ThreadPoolExecutor(max_workers=1 << 12, thread_name_prefix="reprise-parts")

    def close(self) -> None:
        """Close the connections and their streams. Batches that were not acknowledged go back."""
        for each in list(self._dialled.values()):  # streams depend on the first, and end before the others close
            each.close()
        self._threads.shutdown(wait=False)

    def connection(self, address: str) -> Connection:
        """Return the connection to a service."""
        with self._dialling:
            if address not in self._dialled:
                self._dialled[address] = self._dial(address)
                self._dialled[address].among_others = True
            return self._dialled[address]

    def locate(self, name: str) -> list[tuple[str, Connection]]:
        """Return where the parts of a table are, and their names there: one on each service, unless these are a cluster
        and say otherwise; none if a cluster has no such table."""
        for connection in list(self._dialled.values()):
            answer = outcome(partial(connection.action, "locate", {"table": name}, timeout=PATIENCE))
            if isinstance(answer, DOWN):
                continue
            if isinstance(answer, errors.Error) and not isinstance(answer, errors.NotFound):
                raise answer
            parts = [] if isinstance(answer, errors.Error) else answer.get("parts") or []
            if not self.clustered and (isinstance(answer, errors.Error) or not answer.get("cluster")):
                break
            self.clustered = True
            # A part that nobody owns now is asked for at the service that said so, until somebody does.
            return [
                (each["table"], self.connection(each["address"]) if each["address"] else connection)
                for each in sorted(parts, key=lambda each: each["part"])
            ]
        if self.clustered:
            raise errors.Unavailable(f"table {name}: no node of the cluster says where it is")
        return [(name, each) for each in self.entries]

    def each(self, calls: Sequence[Callable[[], T]]) -> Sequence[T | errors.Error]:
        """Make calls at the same time, and return their results or errors."""
        with self.entries[0].using():  # in a fork, where the threads are missing, it says so
            pass
        rest = [self._threads.submit(contextvars.copy_context().run, outcome, call) for call in calls[1:]]
        return [*map(outcome, calls[:1]), *(each.result() for each in rest)]
