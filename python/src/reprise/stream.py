"""Stream: batch after batch on one connection, drawn ahead and on lease."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any

from . import errors
from .batch import Batch
from .connection import Connection
from .exchange import Exchange
from .pump import Pump


class Stream:
    """An iterator of batches, made by `Table.batches`, for one thread. Close it, or use it in ``with``.

    A batch is acknowledged when the next one is asked for. Unacknowledged ones go back to the table when the stream is
    closed or its connection breaks; the stream connects again by itself, for as long as the timeout allows.
    """

    def __init__(
        self, connection: Connection, table: str, request: Mapping[str, Any], prefetch: int, timeout: float
    ) -> None:
        if prefetch < 0:
            raise errors.Invalid(f"prefetch: {prefetch}: want 0 or more batches")
        self._exchange = Exchange(connection, table, request, timeout)
        self._held: Batch | None = None
        self._closed = False
        self._pump = Pump(connection, self._exchange, prefetch)
        # Whoever broke off a loop without with: nobody knows whether the last batch was used, so it goes back.
        self._finalizer = weakref.finalize(self, self._pump.halt)

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self.close(acknowledge=kind is None)

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        """Acknowledge the batch before, and return the next.

        Raises:
            Starved: the table held too little within the timeout. The stream goes on.
            Unavailable: the service was gone for longer than the timeout, or the client was closed.
        """
        if self._closed:
            raise StopIteration
        if self._held is not None:
            self._exchange.used(self._held)
            self._held = None
        item = self._pump.take()
        if isinstance(item, Exception):
            raise item
        self._held = item
        return item

    def close(self, *, acknowledge: bool = True) -> None:
        """End the stream.

        Args:
            acknowledge: count the batch that was handed over last as used; otherwise it goes back. Batches that were never
                handed over go back in any case.
        """
        if self._closed:
            return
        self._closed = True
        self._finalizer.detach()
        self._exchange.stop()  # no request is begun any more, which could take acknowledgements along and be cancelled
        if acknowledge and self._held is not None:
            self._exchange.used(self._held)
        self._held = None
        self._exchange.settle()
        self._pump.stop()

    @property
    def lapsed(self) -> int:
        """Batches that were used for longer than their lease: they went back, and their use is not counted."""
        return self._exchange.lapsed
