"""Stream: batch after batch on one connection, drawn ahead and on lease."""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any, Union

import pyarrow as pa
import pyarrow.flight as flight

from . import errors
from .batch import Batch, BatchInfo
from .connection import GRACE, SHORTEST_RETRY, Connection, Deadline

_Item = Union[Batch, Exception]


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
        self._line = _Line(connection, table, request, timeout)
        self._timeout = timeout
        self._held: Batch | None = None
        self._closed = False
        self._pump = _Pump(self._line, prefetch) if prefetch else None

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
            Unavailable: the service was gone for longer than the timeout.
        """
        if self._closed:
            raise StopIteration
        if self._held is not None:
            self._line.used(self._held)
            self._held = None
        item = self._pump.take() if self._pump else self._line.fetch()
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
        self._line.stop()  # no request is begun any more, which could take acknowledgements along and be cancelled
        if acknowledge and self._held is not None:
            self._line.used(self._held)
        self._held = None
        self._line.settle()
        if self._pump:
            self._pump.stop()
        else:
            self._line.hang_up()

    @property
    def lapsed(self) -> int:
        """Batches that were used for longer than their lease: they went back, and their use is not counted."""
        return self._line.lapsed

    def __del__(self) -> None:
        # Whoever broke off a loop without with: nobody knows whether the last batch was used, so it goes back.
        if not getattr(self, "_closed", True):
            self._closed = True
            self._line.stop()
            if self._pump:
                self._pump.halt()
            else:
                self._line.hang_up()


class _Line:
    """The exchange with the service: one request, one answer. Only one thread fetches."""

    def __init__(self, connection: Connection, table: str, request: Mapping[str, Any], timeout: float) -> None:
        self._connection = connection
        self._table = table
        self._request = dict(request)
        self._timeout = timeout
        self._lock = threading.Lock()  # of what follows
        self._writer: flight.FlightStreamWriter | None = None
        self._reader: flight.FlightStreamReader | None = None
        self._leased: dict[int, Batch] = {}  # by number; handed out on this exchange, and not settled
        self._used: list[int] = []  # of those, to be acknowledged by the next request
        self._told: list[int] = []  # of those, acknowledged by a request that is not answered yet
        self.lapsed = 0
        self._stopped = threading.Event()

    def fetch(self) -> _Item:
        """Ask for a batch and wait for it. What can be raised is returned."""
        deadline, pause = Deadline(self._timeout + GRACE), SHORTEST_RETRY
        while True:
            try:
                item = self._exchange()
                if not isinstance(item, errors.NoLease):
                    return item
                self.settle()
                continue
            except (pa.ArrowException, OSError, errors.Error, StopIteration) as error:
                problem = _problem(error)
                if self._stopped.is_set():  # whoever stops hangs up, once it has told what was used
                    return problem
                self.hang_up()
                gone = isinstance(problem, (errors.Unavailable, errors.Closing))
                if not gone or deadline.left() <= 0:
                    return problem
            self._stopped.wait(min(pause, deadline.left()))
            pause = min(2 * pause, 2.0)

    def _exchange(self) -> _Item:
        with self._lock:
            if self._stopped.is_set():
                raise errors.Unavailable("the stream was closed")
            if self._writer is None:
                self._writer, self._reader = self._connection.exchange(self._table)
            writer, reader = self._writer, self._reader
            request = {**self._request, "acknowledge": self._used}
            self._told, self._used = self._used, []
        assert reader is not None
        writer.write_metadata(json.dumps(request).encode())
        # The service answers within the request's own timeout. Should it be gone without a word, the read is cancelled.
        watch = threading.Timer(self._timeout + 2 * GRACE, reader.cancel)
        watch.daemon = True
        watch.start()
        try:
            chunk = reader.read_chunk()
        finally:
            watch.cancel()
        answer = json.loads(chunk.app_metadata.to_pybytes()) if chunk.app_metadata is not None else {}
        if answer.get("error"):
            problem = errors.from_code(answer["error"].get("code", ""), answer["error"].get("message", ""))
            if isinstance(problem, errors.NoLease):
                return problem  # and none of them was acknowledged
        else:
            problem = None
        with self._lock:
            for number in self._told:
                self._leased.pop(number, None)
            self._told = []
        if problem is not None:
            return problem
        if chunk.data is None:
            raise errors.Failed(f"{self._table}: the service answered a request with neither a batch nor an error")
        info = BatchInfo(**{name: answer.get(name, 0) for name in ("batch", "version", "shard", "rows", "present")})
        batch = Batch(chunk.data, info)
        with self._lock:
            self._leased[info.batch] = batch
        return batch

    def used(self, batch: Batch) -> None:
        """Note that a batch was used. One of an exchange that broke went back, and is not acknowledged any more."""
        with self._lock:
            if self._leased.get(batch.info.batch) is batch and batch.info.batch not in self._used:
                self._used.append(batch.info.batch)

    def current(self, batch: Batch) -> bool:
        """Tell whether a batch is still on lease here, as far as is known."""
        with self._lock:
            return self._leased.get(batch.info.batch) is batch

    def settle(self) -> None:
        """Acknowledge what was used and is not known to be acknowledged, apart from the exchange and each by itself: a lease
        that is over must not keep the others from counting."""
        with self._lock:
            # While the stream stops, a request that is under way may still acknowledge what it told.
            told = set(self._told) if self._stopped.is_set() else set()
            batches, self._used, self._told = self._told + self._used, [], []
            for number in batches:
                self._leased.pop(number, None)
        for number in batches:
            body = {"table": self._table, "batches": [number]}
            try:
                self._connection.action("acknowledge", body, timeout=GRACE, repeatable=False)
            except errors.NoLease:
                self.lapsed += number not in told
            except (errors.Unavailable, errors.Closing, errors.Timeout):
                return  # they go back: a use that is not counted is what a lost connection costs

    def stop(self) -> None:
        """Let nobody wait any more."""
        self._stopped.set()

    def hang_up(self) -> None:
        """End the exchange: the service takes back what is on lease. For the thread that fetches alone: Arrow's streams must
        not be closed while they are being read, only cancelled."""
        with self._lock:
            writer, reader = self._writer, self._reader
            self._writer = self._reader = None
            self._leased.clear()
            self._used, self._told = [], []
        if reader is not None:
            reader.cancel()
        if writer is not None:
            try:
                writer.close()
            except (pa.ArrowException, OSError):
                pass  # it was cancelled

    def cancel(self) -> None:
        """Wake up who reads."""
        with self._lock:
            reader = self._reader
        if reader is not None:
            reader.cancel()


class _Pump:
    """A thread that fetches ahead of who takes."""

    def __init__(self, line: _Line, ahead: int) -> None:
        self._line = line
        self._room = threading.Semaphore(ahead)
        self._items: queue.SimpleQueue[_Item] = queue.SimpleQueue()
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="reprise-prefetch", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while True:
            self._room.acquire()
            if self._stopped:
                self._line.hang_up()
                return
            self._items.put(self._line.fetch())

    def take(self) -> _Item:
        """Return the next batch that is still on lease, or what went wrong."""
        while True:
            item = self._items.get()
            self._room.release()
            if isinstance(item, Exception) or self._line.current(item):
                return item

    def halt(self) -> None:
        """Have the thread hang up and end, what it waits for being cancelled."""
        self._stopped = True
        self._room.release()
        self._line.cancel()

    def stop(self) -> None:
        """End the thread, and with it the exchange."""
        self.halt()
        self._thread.join(timeout=GRACE)


def _problem(error: BaseException) -> Exception:
    if isinstance(error, errors.Error):
        return error
    if isinstance(error, StopIteration):
        return errors.Unavailable("the service ended the stream")
    assert isinstance(error, Exception)
    return errors.from_flight(error)
