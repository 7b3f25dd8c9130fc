"""Exchange: a sampling stream's requests and answers, and what of them is on lease."""

from __future__ import annotations

import json
import queue
import threading
import time
from collections.abc import Mapping
from typing import Any, Union

import pyarrow.flight as flight

from . import errors
from .arguments import encoded
from .batch import Batch, BatchInfo
from .connection import GRACE, LONGEST_RETRY, SHORTEST_RETRY, Connection, Deadline

Item = Union[Batch, Exception]
"""What a request comes to."""


class Exchange:
    """One request, one answer, on a stream that is opened again when it breaks.

    Arrow's streams crash when two threads work on one, so a single thread opens, writes, reads and closes: the one that
    calls `fetch` and `hang_up`. What else touches them is `cancel`, which gRPC allows at any time. `stop` and `cancel` may be
    called from a finalizer, which the garbage collector runs wherever a thread happens to be: they take no lock.
    """

    def __init__(self, connection: Connection, table: str, request: Mapping[str, Any], timeout: float) -> None:
        self._connection = connection
        self._table = table
        self._request = dict(request)
        self._timeout = timeout
        self._writer: flight.FlightStreamWriter | None = None
        self._reader: flight.FlightStreamReader | None = None
        self._asked = 0.0  # when the request was sent that is not answered yet; 0: there is none
        self._stopped = False
        self._wake: queue.SimpleQueue[None] = queue.SimpleQueue()  # ends a pause
        self._lock = threading.Lock()  # of what follows
        self._leased: dict[int, Batch] = {}  # by number; handed out on this stream, and not settled
        self._used: list[int] = []  # of those, to be acknowledged by the next request
        self._told: list[int] = []  # of those, acknowledged by a request that is not answered yet
        self.lapsed = 0

    def fetch(self) -> Item:
        """Ask for a batch and wait for it. What can be raised is returned."""
        deadline, pause = Deadline(self._timeout + GRACE), SHORTEST_RETRY
        while True:
            try:
                item = self._ask()
                if not isinstance(item, errors.NoLease):
                    return item
                self.settle()
                continue
            except Exception as error:
                problem = _problem(error)
                if self._stopped:  # whoever stops has this thread hang up, once it has told what was used
                    return errors.Unavailable("the stream was closed")
                self.hang_up()
                gone = isinstance(problem, (errors.Unavailable, errors.Closing))
                if not gone or deadline.left() <= 0:
                    return problem
            try:
                self._wake.get(timeout=min(pause, deadline.left()))
            except queue.Empty:
                pass
            pause = min(2 * pause, LONGEST_RETRY)

    def _ask(self) -> Item:
        if self._writer is None:
            self._writer, self._reader = self._connection.exchange(self._table)
        writer, reader = self._writer, self._reader
        assert reader is not None
        with self._lock:
            # Looked at after the reader was set, and under the lock: whoever stops either finds the reader to cancel, or is
            # seen here, and then no request takes acknowledgements along that would be cancelled with it.
            if self._stopped:
                raise errors.Unavailable("the stream was closed")
            request = {**self._request, "acknowledge": self._used}
            self._told, self._used = self._used, []
        self._asked = time.monotonic()
        try:
            writer.write_metadata(encoded(request))
            chunk = reader.read_chunk()
        finally:
            self._asked = 0.0
        return self._answered(chunk)

    def _answered(self, chunk: flight.FlightStreamChunk) -> Item:
        answer = json.loads(chunk.app_metadata.to_pybytes()) if chunk.app_metadata is not None else {}
        said = answer.get("error")
        problem = errors.from_code(said.get("code", ""), said.get("message", "")) if said else None
        if isinstance(problem, errors.NoLease):
            return problem  # and none of them was acknowledged
        with self._lock:
            for number in self._told:
                self._leased.pop(number, None)
            self._told = []
        if problem is not None:
            return problem
        if chunk.data is None:
            raise errors.Failed(f"{self._table}: the service answered a request with neither a batch nor an error")
        batch = Batch(chunk.data, BatchInfo.of(answer))
        with self._lock:
            self._leased[batch.info.batch] = batch
        return batch

    def used(self, batch: Batch) -> None:
        """Note that a batch was used. One of a stream that broke went back, and is not acknowledged any more."""
        with self._lock:
            if self._leased.get(batch.info.batch) is batch and batch.info.batch not in self._used:
                self._used.append(batch.info.batch)

    def current(self, batch: Batch) -> bool:
        """Tell whether a batch is still on lease here, as far as is known."""
        with self._lock:
            return self._leased.get(batch.info.batch) is batch

    def settle(self) -> None:
        """Acknowledge what was used and is not known to be acknowledged, apart from the stream and each by itself: a lease
        that is over must not keep the others from counting."""
        with self._lock:
            # While the stream stops, a request that is under way may still acknowledge what it told.
            told = set(self._told) if self._stopped else set()
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
        """Begin no request any more."""
        self._stopped = True
        self._wake.put(None)

    def cancel(self) -> None:
        """Wake up the thread that reads."""
        reader = self._reader
        if reader is not None:
            reader.cancel()

    def cancel_if_silent(self) -> None:
        """Cancel a request that has no answer long after the service was to give one, be it an error."""
        asked = self._asked
        if asked and time.monotonic() - asked > self._timeout + 2 * GRACE:
            self.cancel()

    def hang_up(self) -> None:
        """End the stream: the service takes back what is on lease. For the thread that fetches alone."""
        writer, reader = self._writer, self._reader
        self._writer = self._reader = None
        with self._lock:
            self._leased.clear()
            self._used, self._told = [], []
        if reader is not None:
            reader.cancel()
        if writer is not None:
            try:
                writer.close()
            except Exception:
                pass  # it was cancelled, and says so


def _problem(error: Exception) -> Exception:
    if isinstance(error, errors.Error):
        return error
    if isinstance(error, StopIteration):
        return errors.Unavailable("the service ended the stream")
    return errors.from_flight(error)
