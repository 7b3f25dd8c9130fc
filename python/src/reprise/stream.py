"""Stream: batch after batch on one connection, drawn ahead and on lease.

Three classes share the work: the caller's thread uses a `Stream`; a `Prefetcher` owns the thread that fetches; an
`Exchange` speaks the protocol on that thread and keeps the leases.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import logging
import os
import queue
import threading
import time
import weakref
from collections.abc import Iterator, Mapping
from typing import Any, Protocol, Union

import pyarrow.flight as flight

from . import errors
from .batch import Batch, BatchInfo
from .connection import FIRST_PAUSE, GRACE, MAX_PAUSE, Connection, Deadline, encode

log = logging.getLogger("reprise")

Item = Union[Batch, Exception]
"""The outcome of a request."""


class Source(Protocol):
    """Where a stream's batches come from: an `Exchange`, or those of a table in parts (`parts.exchanges.Exchanges`)."""

    @property
    def lapsed(self) -> int: ...

    def fetch(self) -> Item: ...

    def acknowledge(self, batch: Batch) -> None: ...

    def on_lease(self, batch: Batch) -> bool: ...

    def send_acknowledgements(self) -> None: ...

    def stop(self) -> None: ...

    def cancel(self) -> None: ...

    def cancel_if_overdue(self) -> None: ...

    def log_waiting(self, seconds: float) -> None: ...

    def close(self) -> None: ...


class Stream:
    """An iterator of batches, made by `Table.stream`, for one thread. Close it, or use it in ``with``.

    Asking for the next batch acknowledges the one before. Batches that were not acknowledged go back to the table when
    the stream closes or its connection breaks. The stream reconnects by itself for as long as the timeout allows.
    """

    def __init__(self, connection: Connection, table: str, source: Source, prefetch: int) -> None:
        self._connection, self._table = connection, table
        self._exchange = source
        self._current: Batch | None = None
        self._closed = False
        self._prefetcher = Prefetcher(connection, self._exchange, prefetch)
        # For a loop left without with: the last batch may not have been used, so it goes back.
        self._finalizer = weakref.finalize(self, self._prefetcher.request_stop)

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close(acknowledge=kind is None)

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        """Acknowledge the batch before, and return the next.

        Raises:
            Starved: the table held too little within the timeout. The stream can be asked again.
            Unavailable: the service was away for longer than the timeout, or the client was closed.
        """
        if self._closed:
            raise StopIteration
        if self._current is not None:
            self._exchange.acknowledge(self._current)
            self._current = None
        item = self._prefetcher.next()
        if isinstance(item, Exception):
            raise item
        self._current = item
        warn_of_repeats(self._connection, self._table, item, stacklevel=2)
        return item

    def close(self, *, acknowledge: bool = True) -> None:
        """End the stream. Batches that the caller never got go back.

        Args:
            acknowledge: count the last batch as used; otherwise it goes back too.
        """
        if self._closed:
            return
        self._closed = True
        self._finalizer.detach()
        self._exchange.stop()  # first, so that no new request carries acknowledgements and is then cancelled
        if acknowledge and self._current is not None:
            self._exchange.acknowledge(self._current)
        self._current = None
        self._exchange.send_acknowledgements()
        self._prefetcher.stop()

    def cancel(self) -> None:
        """End the request in flight and start no more, from any thread; `close` the stream then."""
        self._prefetcher.request_stop()

    @property
    def current(self) -> Batch | None:
        """The batch that was asked for last, on lease until the next."""
        return self._current

    @property
    def lapsed(self) -> int:
        """Batches whose lease expired before they were acknowledged. They went back, and their use is not counted."""
        return self._exchange.lapsed


class Prefetcher:
    """A thread that fetches batches, up to depth ahead of the caller.

    The thread ends before the interpreter does: returning from the network during finalization would crash or block.
    """

    WATCH = 1.0  # seconds between two checks of a request without an answer
    NOTICE = 10.0  # seconds without a batch after which the log says why

    def __init__(self, connection: Connection, exchange: Source, depth: int) -> None:
        self._connection = connection
        self._exchange = exchange
        self._depth = depth
        self._pending = 0  # batches requested and not taken
        self._requests: queue.SimpleQueue[bool] = queue.SimpleQueue()  # False: stop
        self._items: queue.SimpleQueue[Item] = queue.SimpleQueue()
        self._process = os.getpid()
        self._thread = threading.Thread(target=self._run, name="reprise-prefetch", daemon=True)
        connection.dependents.add(self)
        atexit.register(self.stop)
        self._thread.start()
        self._request(depth)

    def _run(self) -> None:
        try:
            with self._connection.using():
                try:
                    while self._requests.get():
                        self._items.put(self._exchange.fetch())
                finally:
                    self._exchange.close()
        except errors.Unavailable:
            pass  # the client was closed before the thread started
        finally:
            self._items.put(errors.Unavailable("the stream was closed"))
            atexit.unregister(self.stop)

    def _request(self, depth: int) -> None:
        while self._pending < depth:
            self._pending += 1
            self._requests.put(True)

    def next(self) -> Item:
        """Return the next batch that is still on lease, or what went wrong. Signals interrupt it."""
        while True:
            self._request(max(self._depth, 1))
            item = self._wait()
            self._pending -= 1
            self._request(self._depth)
            if isinstance(item, Exception) or self._exchange.on_lease(item):
                return item

    def _wait(self) -> Item:
        began, silent = time.monotonic(), True
        while True:
            alive = self._thread.is_alive()
            try:
                return self._items.get(timeout=self.WATCH if alive else 0)
            except queue.Empty:
                if not alive:
                    return errors.Unavailable("the stream was closed")
            self._exchange.cancel_if_overdue()
            if silent and time.monotonic() - began >= self.NOTICE:
                silent = False
                self._exchange.log_waiting(self.NOTICE)

    def request_stop(self) -> None:
        """Cancel the request in flight and have the thread end. Finalizers may call it."""
        if os.getpid() != self._process:
            return  # after a fork, the thread and the connection are the parent's
        self._exchange.stop()
        self._requests.put(False)
        self._exchange.cancel()

    def stop(self) -> None:
        """End the thread and its exchange, and wait for them."""
        self.request_stop()
        if os.getpid() == self._process and self._thread is not threading.current_thread():
            self._thread.join(timeout=GRACE)


class Exchange:
    """Requests and answers on a Flight exchange, which is opened again when it breaks, and the leases of its batches.

    Arrow's streams crash when two threads use one, so only the prefetcher's thread opens, writes, reads and closes
    (`fetch`, `close`). The exception is `cancel`, which gRPC allows at any time. Finalizers run on any thread and call
    `stop` and `cancel`, so these take no lock.
    """

    def __init__(self, connection: Connection, table: str, request: Mapping[str, Any], timeout: float) -> None:
        self._connection = connection
        self._table = table
        self._request = dict(request)
        self._timeout = timeout
        self._writer: flight.FlightStreamWriter | None = None
        self._reader: flight.FlightStreamReader | None = None
        self._sent_at = 0.0  # time of the request in flight; 0: none
        self._stopped = False
        self._wake: queue.SimpleQueue[None] = queue.SimpleQueue()  # ends a pause
        self._lock = threading.Lock()  # guards the next three
        self._leased: dict[int, Batch] = {}  # by number: from this exchange, not yet settled
        self._unsent: list[int] = []  # to be acknowledged by the next request
        self._sent: list[int] = []  # acknowledged by the request in flight
        self.lapsed = 0

    def fetch(self) -> Item:
        """Request a batch and wait for it. Returns exceptions instead of raising them."""
        deadline, pause = Deadline(self._timeout), FIRST_PAUSE
        while True:
            try:
                self.ask()
                item = self.answer()
                if item is None:
                    return errors.Failed(f"{self._table}: the service answered with neither a batch nor an error")
                if not isinstance(item, errors.NoLease):
                    return item
                self.send_acknowledgements()
                continue
            except Exception as error:
                if self._stopped:  # the thread closes the exchange after the acknowledgements were sent
                    return errors.Unavailable("the stream was closed")
                self.close()
                problem = problem_of(error)
                self._connection.explain(problem)
                if not isinstance(problem, (errors.Unavailable, errors.Closing)) or deadline.left() <= 0:
                    return problem
            try:
                self._wake.get(timeout=min(pause, deadline.left()))
            except queue.Empty:
                pass
            self._connection.follow()
            pause = min(2 * pause, MAX_PAUSE)

    def ask(self, **changes: Any) -> None:
        """Send the request, with changes to it, and the acknowledgements. With size 0 it draws nothing."""
        if self._writer is None:
            self._writer, self._reader = self._connection.exchange(self._table)
        with self._lock:
            # Checked after the reader is set, and under the lock. Whoever stops this either finds a reader to cancel,
            # or is noticed here before acknowledgements leave with a request that would be cancelled.
            if self._stopped:
                raise errors.Unavailable("the stream was closed")
            request = {**self._request, **changes, "acknowledge": self._unsent}
            self._sent, self._unsent = self._unsent, []
        self._sent_at = time.monotonic()
        self._writer.write_metadata(encode(request))

    def answer(self) -> Item | None:
        """Wait for the answer to a request: a batch, an error that leaves the exchange open, or None for one of size
        0."""
        assert self._reader is not None
        try:
            chunk = self._reader.read_chunk()
        finally:
            self._sent_at = 0.0
        return self._receive(chunk)

    def _receive(self, chunk: flight.FlightStreamChunk) -> Item | None:
        answer = json.loads(chunk.app_metadata.to_pybytes()) if chunk.app_metadata is not None else {}
        reported = answer.get("error")
        error = errors.from_status(reported) if reported else None
        if isinstance(error, errors.NoLease):
            return error  # the request acknowledged none of them
        with self._lock:
            for number in self._sent:
                self._leased.pop(number, None)
            self._sent = []
        if error is not None:
            return error
        if chunk.data is None:
            return None
        batch = Batch(chunk.data, BatchInfo.of(answer))
        with self._lock:
            self._leased[batch.info.batch] = batch
        return batch

    def acknowledge(self, batch: Batch) -> None:
        """Acknowledge a batch with the next request, unless its exchange broke and it went back."""
        with self._lock:
            if self._leased.get(batch.info.batch) is batch and batch.info.batch not in self._unsent:
                self._unsent.append(batch.info.batch)

    def on_lease(self, batch: Batch) -> bool:
        """Report whether a batch is still on lease, as far as the client knows."""
        with self._lock:
            return self._leased.get(batch.info.batch) is batch

    def send_acknowledgements(self) -> None:
        """Acknowledge used batches by an action each, so that one with an expired lease does not keep the others from
        counting."""
        with self._lock:
            # While the stream stops, the request in flight may still acknowledge what it carries.
            in_flight = set(self._sent) if self._stopped else set()
            batches, self._unsent, self._sent = self._sent + self._unsent, [], []
            for number in batches:
                self._leased.pop(number, None)
        for number in batches:
            body = {"table": self._table, "batches": [number]}
            try:
                self._connection.action("acknowledge", body, timeout=GRACE, repeatable=False)
            except errors.NoLease:
                self.lapsed += number not in in_flight
            except (errors.Unavailable, errors.Closing, errors.Timeout):
                return  # they go back, and their use is not counted

    def stop(self) -> None:
        """Start no more requests."""
        self._stopped = True
        self._wake.put(None)

    def cancel(self) -> None:
        """Cancel the request in flight, which wakes the thread that reads."""
        reader = self._reader
        if reader is not None:
            reader.cancel()

    def unsettled(self) -> bool:
        """Report whether batches wait for a request to acknowledge them."""
        return bool(self._unsent)

    def give_back(self, batch: Batch) -> None:
        """Return a batch unused, if it is still on lease."""
        with self._lock:
            if self._leased.get(batch.info.batch) is not batch:
                return
            del self._leased[batch.info.batch]
        with contextlib.suppress(errors.Error):  # then it goes back with the exchange, or its lease ends
            body = {"table": self._table, "batches": [batch.info.batch]}
            self._connection.action("release", body, timeout=GRACE, repeatable=False)

    def cancel_if_overdue(self) -> None:
        """Cancel a request that should have been answered, by an error at least, some time ago."""
        sent_at = self._sent_at
        if sent_at and time.monotonic() - sent_at > self._timeout + 2 * GRACE:
            self.cancel()

    def log_waiting(self, seconds: float) -> None:
        """Log that a batch has not come for some seconds, and what the table holds."""
        try:
            stats = self._connection.action("stats", {"table": self._table}, timeout=GRACE)
        except errors.Error as error:
            holds = str(error)
        else:
            left = ", ".join(f"{count} by {cause}" for cause, count in (stats.get("evicted") or {}).items() if count)
            holds = f"it holds {stats.get('present', 0)}" + (f", and others left: {left}" if left else "")
        text = "table %s: waiting for a batch of %d rollouts for %.0f s: %s. The timeout is %.0f s"
        log.warning(text, self._table, self._request["size"], seconds, holds, self._timeout)

    def close(self) -> None:
        """End the exchange; the service takes back what is on lease. Only the thread that fetches may call it."""
        writer, reader = self._writer, self._reader
        self._writer = self._reader = None
        with self._lock:
            self._leased.clear()
            self._unsent, self._sent = [], []
        if reader is not None:
            reader.cancel()
        if writer is not None:
            try:
                writer.close()
            except Exception:
                pass  # raises because it was cancelled


def warn_of_repeats(connection: Connection, table: str, batch: Batch, stacklevel: int) -> None:
    """Warn once for each table if a batch repeats rollouts because it is larger than the table."""
    if batch.info.rows > batch.info.present and batch.has("id"):
        different = len(set(batch.ids.tolist()))
        if different < batch.info.rows:
            warning = errors.RepeatWarning(table, batch.info.rows, batch.info.present, different)
            connection.warn_once(table, warning, stacklevel + 1)


def problem_of(error: Exception) -> Exception:
    if isinstance(error, errors.Error):
        return error
    if isinstance(error, StopIteration):
        return errors.Unavailable("the service ended the stream")
    return errors.from_flight(error)
