"""Puts: the streams of insertions, kept open between them. Opening a stream costs more than an insertion."""

from __future__ import annotations

import atexit
import ctypes
import json
import os
import threading
import time
import weakref
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight

from . import errors


class Put:
    """A Flight stream of insertions into one table, by one thread at a time: a record batch, then its answer."""

    def __init__(
        self, client: flight.FlightClient, table: str, schema: pa.Schema, seconds: float, headers: list[Any]
    ) -> None:
        """Open a stream for insertions that take at most the given seconds.

        Nothing but its deadline ends a stream whose service is silent. The deadline is twice the timeout: the stream
        can be reused, and a dead service is noticed within that time. The service ends an idle stream at its deadline.
        """
        self.table, self.schema, self._seconds = table, schema, seconds
        self._ends = time.monotonic() + 2 * seconds
        self._used = False
        self.written = False
        """Whether the last insertion was written as a whole: else the service cannot have it."""
        self.lasts = not any(pa.types.is_dictionary(kind) for kind in _within(schema))
        """Whether it may be kept: the service keeps the dictionaries of a stream until it ends."""
        options = flight.FlightCallOptions(timeout=2 * seconds, headers=headers)
        self._writer, self._answers = client.do_put(flight.FlightDescriptor.for_path(table), schema, options)

    def left(self) -> float:
        """Return the seconds until the stream's deadline."""
        return self._ends - time.monotonic()

    def takes(self, table: str, schema: pa.Schema, seconds: float) -> bool:
        """Report whether an insertion of the given seconds may use the stream."""
        fits = seconds <= self.left() <= 2 * seconds
        return fits and self.table == table and bool(self.schema.equals(schema, check_metadata=True))

    def insert(self, batch: pa.RecordBatch, metadata: bytes) -> dict[str, Any]:
        """Insert a record batch, and return the answer. After an exception the stream is over."""
        self.written = False
        try:
            self._writer.write_with_metadata(batch, metadata)
            self.written = True
            answer = self._answers.read()
        except BaseException:
            self._writer.close()  # raises the service's error, even after a broken pipe
            raise
        if answer is None:  # the service has ended the stream
            self._writer.close()
            kind = errors.Unavailable if self._used else errors.Failed
            raise kind(f"{self.table}: the service ended the stream without an answer")
        self._used = True
        return dict(json.loads(answer.to_pybytes()))

    def end(self) -> None:
        """End the stream."""
        try:
            self._writer.close()
        except (pa.ArrowException, flight.FlightError, OSError):
            pass  # it had ended


def _within(schema: pa.Schema) -> Iterator[pa.DataType]:
    """Return the types of a schema, with those inside lists and structs."""
    left = list(schema.types)
    while left:
        kind = left.pop()
        yield kind
        left += [kind.field(i).type for i in range(kind.num_fields)]


class Puts:
    """The streams of a connection that no insertion uses now. Threads may share it."""

    MOST = 16
    """Streams that are kept; each takes a call of the service's memory for calls, 64 KiB."""

    def __init__(self) -> None:
        self._idle: list[Put] = []  # the one used last at the end
        self._lock = threading.Lock()  # guards _idle
        _all.add(self)

    def take(self, table: str, schema: pa.Schema, seconds: float) -> Put | None:
        """Return an open stream for an insertion of the given seconds, None if there is none."""
        with self._lock:
            for put in reversed(self._idle):
                if put.takes(table, schema, seconds):
                    self._idle.remove(put)
                    return put
        return None

    def keep(self, put: Put) -> None:
        """Keep a stream for other insertions, or end it if it should not last."""
        if not put.lasts:
            put.end()
            return
        with self._lock:
            known = [*self._idle, put]
            self._idle = [each for each in known[-self.MOST :] if each.left() > 0]
            over = [each for each in known if each not in self._idle]
        for each in over:
            each.end()

    def end(self) -> None:
        """End the streams that are kept."""
        with self._lock:
            idle, self._idle = self._idle, []
        for put in idle:
            put.end()

    def abandon(self) -> None:
        """Drop the streams without closing them."""
        idle, self._idle = self._idle, []
        self._lock = threading.Lock()  # another thread of the parent may have held it
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(idle))


_all: weakref.WeakSet[Puts] = weakref.WeakSet()


def _abandon_all() -> None:
    """Keep Arrow from ending streams in a forked process, which would hang, and break them for its parent; and at the
    interpreter's end, where a silent service would delay it."""
    for puts in list(_all):
        puts.abandon()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_abandon_all)
atexit.register(_abandon_all)
