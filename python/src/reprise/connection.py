"""Connection: one channel to the service, with deadlines and safe retries."""

from __future__ import annotations

import contextlib
import contextvars
import json
import logging
import math
import os
import random
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol, TypeVar

import pyarrow as pa
import pyarrow.flight as flight

from . import errors
from .puts import Put, Puts

T = TypeVar("T")

log = logging.getLogger("reprise")

GRACE = 5.0
"""Seconds that a service in reach has for its answer after the time that it may wait. One out of reach gets none."""

FIRST_PAUSE = 0.05  # seconds before the first retry; doubled for each one after it, up to
MAX_PAUSE = 2.0


class Deadline:
    """A point in time shared by calls, waits and retries."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    def left(self) -> float:
        """Return the seconds left, at least 0."""
        return max(0.0, self._end - time.monotonic())


class Cancellation:
    """How another thread ends a call that waits. `reprise.aio` sets one in the context of each call (`CALL`)."""

    def __init__(self) -> None:
        self.cancelled = False
        self._stops: list[Callable[[], object]] = []  # of the waits that it is in, one for each service asked
        self._lock = threading.Lock()  # guards both

    def cancel(self) -> None:
        """End the call at its next wait, or the wait that it is in."""
        with self._lock:
            self.cancelled = True
            for stop in self._stops:
                stop()

    def check(self) -> None:
        """Raise Unavailable if the call was cancelled."""
        if self.cancelled:
            raise errors.Unavailable("the call was cancelled")

    @contextlib.contextmanager
    def by(self, stop: Callable[[], object]) -> Iterator[None]:
        """Call ``stop`` if the call is cancelled within a ``with``."""
        with self._lock:
            self._stops.append(stop)
        try:
            self.check()
            yield
        finally:
            with self._lock:
                self._stops.remove(stop)


CALL: contextvars.ContextVar[Cancellation] = contextvars.ContextVar("reprise_call")


def this_call() -> Cancellation:
    """Return how the call of this context is cancelled."""
    return CALL.get(None) or Cancellation()


class Dependent(Protocol):
    """Something that must stop before its connection closes."""

    def stop(self) -> None:
        """Stop, and wait until it has."""


class Connection:
    """Calls of Arrow Flight on one channel. Threads may share it."""

    def __init__(
        self,
        address: str,
        timeout: float,
        token: str | None = None,
        ca: bytes | str | Path | None = None,
        certificate: bytes | str | Path | None = None,
        key: bytes | str | Path | None = None,
        server_name: str | None = None,
        where: Callable[[], str | None] | None = None,
    ) -> None:
        self.address = address
        self._where = where
        self.timeout = timeout
        self.among_others = False  # the caller has other services: calls that reach none fail instead of being retried
        if not isinstance(address, str):
            raise errors.Invalid(f"address: {address!r}: want a str, such as grpc://127.0.0.1:7447")
        self._headers = [_bearer(token)] if token else []
        if token and address.startswith(("grpc://", "grpc+tcp://")) and not _is_loopback(address):
            raise errors.Invalid(f"address: {address}: want grpc+tls://, since a token must not travel in the clear")
        self._tls = {
            "tls_root_certs": _pem("ca", ca),
            "cert_chain": _pem("certificate", certificate),
            "private_key": _pem("key", key),
            "override_hostname": server_name,
        }
        self._client = self._dial(address)
        self._former: list[flight.FlightClient] = []  # of addresses that the service left; calls may still use them
        self._puts = Puts()
        self._process = os.getpid()
        self._random = random.Random()
        self._closed = threading.Event()
        self._lock = threading.Lock()  # guards the next two
        self._users = 0  # calls and streams that use the channel
        self._open = True  # the channel is
        self.dependents: weakref.WeakSet[Dependent] = weakref.WeakSet()
        self._warned: set[tuple[str, type[Warning]]] = set()

    def _dial(self, address: str) -> flight.FlightClient:
        try:
            return flight.FlightClient(address, generic_options=_channel_options(), **self._tls)
        except (pa.ArrowException, OSError, ValueError) as error:
            raise errors.Invalid(
                f"address: {address}: want grpc://host:port, grpc+tls://host:port or grpc+unix:///path ({error})"
            ) from error

    def follow(self) -> None:
        """Ask where the service is now, and turn to it if it moved. For callers that found it unavailable."""
        address = self._where() if self._where is not None else None
        with self._lock:
            if address and address != self.address and self._open:
                log.warning("%s moved to %s", self.address, address)
                self._former.append(self._client)
                self._client, self.address = self._dial(address), address

    def close(self) -> None:
        """Stop the dependents and close the channel. Calls of other threads finish, and are not retried. In a forked
        process this does nothing: the channel is the parent's."""
        if os.getpid() != self._process:
            return
        self._closed.set()
        for dependent in list(self.dependents):
            dependent.stop()
        self._close_if_unused()

    @contextlib.contextmanager
    def using(self) -> Iterator[None]:
        """Keep the channel open within a ``with``. Closing it frees memory that calls use, which crashes the
        interpreter.

        Raises:
            Unavailable: the connection was closed.
            Invalid: the connection is of the process that this one was forked from.
        """
        if os.getpid() != self._process:
            raise errors.Invalid(
                f"client: of process {self._process}, used in {os.getpid()}, its fork: connect in each process"
            )
        with self._lock:
            if self._closed.is_set():
                raise errors.Unavailable("the client was closed")
            self._users += 1
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1
            if self._closed.is_set():
                self._close_if_unused()

    def _close_if_unused(self) -> None:
        """Close the channel, or leave it to its last user."""
        with self._lock:
            last = self._open and self._users == 0
            self._open = self._open and not last
        if last:
            self._puts.end()
            for channel in (self._client, *self._former):
                channel.close()

    def action(
        self,
        name: str,
        body: Mapping[str, Any],
        *,
        timeout: float | None = None,
        wait: float = 0,
        repeatable: bool = True,
    ) -> dict[str, Any]:
        """Call an action and return its answer.

        Args:
            name: of the action, as in `wire/messages.go`.
            body: its JSON.
            timeout: seconds for all attempts together; None: the connection's.
            wait: seconds that the service may wait, in addition to the timeout.
            repeatable: doing it twice has the same effect as doing it once. Otherwise it is retried only if the request
                cannot have reached the service.
        """
        call = flight.Action(name, encode(body))

        def attempt(seconds: float) -> dict[str, Any]:
            results = list(self._client.do_action(call, self._options(seconds + wait)))
            text = results[0].body.to_pybytes() if results else b""
            answer = json.loads(text) if text else {}
            return answer if isinstance(answer, dict) else {"answer": answer}

        return self._retry(attempt, timeout, repeatable)

    def insert(
        self,
        table: str,
        batch: pa.RecordBatch,
        request: Mapping[str, Any],
        *,
        timeout: float,
        repeatable: bool = True,
    ) -> dict[str, Any]:
        """Insert one record batch and return the answer, on a stream that an earlier insertion left open if there is
        one. The request's ``batch_id`` makes retries safe."""
        metadata = encode(request)

        def attempt(seconds: float) -> dict[str, Any]:
            most = seconds + GRACE
            put = self._puts.take(table, batch.schema, most)
            if put is not None:
                try:
                    return insert(put)
                except (errors.Unavailable, errors.Closing):
                    self._puts.end()  # what broke this one, such as the service's end, broke all
                    if self.among_others and put.written:
                        raise  # _retry notes whether it may have arrived
            return insert(Put(self._client, table, batch.schema, most, self._headers))

        def insert(put: Put) -> dict[str, Any]:
            with _translated():
                answer = put.insert(batch, metadata)
            self._puts.keep(put)
            return answer

        return self._retry(attempt, timeout, repeatable, once=True)

    def read(
        self, request: Mapping[str, Any], receive: Callable[[flight.FlightStreamReader], T], *, timeout: float
    ) -> T:
        """Send a sample or export request, and return what ``receive`` makes of the answer."""
        ticket = flight.Ticket(encode(request))

        def attempt(seconds: float) -> T:
            reader = self._client.do_get(ticket, self._options(seconds + GRACE))
            with this_call().by(reader.cancel):
                return receive(reader)

        return self._retry(attempt, timeout)

    def converse(
        self,
        table: str,
        talk: Callable[[flight.FlightStreamWriter, flight.FlightStreamReader], T],
        *,
        timeout: float,
    ) -> T:
        """Open a sampling stream, return what ``talk`` makes of it, and end it; again if the connection breaks."""
        descriptor = flight.FlightDescriptor.for_path(table)

        def attempt(seconds: float) -> T:
            writer, reader = self._client.do_exchange(descriptor, self._options(seconds + GRACE))
            try:
                with this_call().by(reader.cancel):
                    return talk(writer, reader)
            finally:
                reader.cancel()
                with contextlib.suppress(Exception):  # it was cancelled
                    writer.close()

        return self._retry(attempt, timeout)

    def exchange(self, table: str) -> tuple[flight.FlightStreamWriter, flight.FlightStreamReader]:
        """Open a sampling stream on a table. The caller must be `using` the connection. The stream has no deadline, but
        each request on it has one."""
        with _translated():
            writer, reader = self._client.do_exchange(flight.FlightDescriptor.for_path(table), self._options(None))
        return writer, reader

    def rest(self, seconds: float) -> None:
        """Wait before a call is made again.

        Raises:
            Unavailable: the connection was closed, or the call cancelled.
        """
        if self._closed.wait(seconds):
            raise errors.Unavailable("the client was closed")
        this_call().check()

    def warn_once(self, table: str, warning: Warning, stacklevel: int) -> None:
        """Give a warning, unless one of its kind was given about the table."""
        if (table, type(warning)) not in self._warned:
            self._warned.add((table, type(warning)))
            warnings.warn(warning, stacklevel=stacklevel + 1)

    def schema(self, table: str) -> pa.Schema:
        """Return a table's sampling schema."""
        descriptor = flight.FlightDescriptor.for_path(table)
        return self._retry(lambda seconds: self._client.get_flight_info(descriptor, self._options(seconds))).schema

    def flights(self) -> list[flight.FlightInfo]:
        """Return the Flight descriptions of all tables."""
        return self._retry(lambda seconds: list(self._client.list_flights(b"", self._options(seconds))))

    def _options(self, seconds: float | None) -> flight.FlightCallOptions:
        return flight.FlightCallOptions(timeout=seconds, headers=self._headers)

    def _retry(
        self,
        attempt: Callable[[float], T],
        timeout: float | None = None,
        repeatable: bool = True,
        once: bool = False,
    ) -> T:
        """Attempt until it succeeds, fails permanently, or the timeout is over. Each attempt gets the seconds left.
        With ``once`` a call that may have reached the service is retried even among others, lest it happen twice."""
        deadline, pause = Deadline(self.timeout if timeout is None else timeout), FIRST_PAUSE
        unavailable: errors.Error | None = None
        sent = False  # some attempt may have reached the service
        while True:
            try:
                with self.using(), _translated():
                    return attempt(max(deadline.left(), 0.001))
            except errors.Timeout:
                self.follow()  # a machine that is gone refuses nothing
                if unavailable is not None:  # the last attempt had too little time; an earlier one has the cause
                    raise unavailable from None
                raise
            except (errors.Unavailable, errors.Closing, errors.Elsewhere) as error:
                self.follow()
                unavailable = error
                reached = not _never_sent(error)
                error.sent = sent = sent or reached
                self.explain(error)
                left = deadline.left()
                given_up = self._closed.is_set() or this_call().cancelled or isinstance(error, errors.Elsewhere)
                others = self.among_others and not reached and not (once and sent)
                if left <= 0 or given_up or others or not (repeatable or not reached):
                    raise
                if pause == FIRST_PAUSE:
                    log.warning("%s is away, trying again for %.0f s: %s", self.address, left, error)
            # The jitter keeps clients from returning all at once when the service comes back.
            self._closed.wait(min(left, pause * (0.5 + self._random.random() / 2)))
            this_call().check()
            pause = min(2 * pause, MAX_PAUSE)

    def explain(self, error: Exception) -> None:
        """Put the remedy into gRPC's words where they have one."""
        text = str(error)
        if "http1.x server" in text:
            error.args = (
                f"an HTTP server answers at {self.address}, not gRPC: want the address of the service (serve --listen), "
                "not that of its dashboard (--http)",
            )
        elif _nobody_listens(text):
            error.args = (f"no service at {self.address} (connection refused): start reprise serve or reprise.serve()",)


def encode(body: Mapping[str, Any]) -> bytes:
    """Return a request as JSON. Scalars of numpy and torch are numbers."""
    try:
        return json.dumps(body, allow_nan=False, default=_scalar).encode()
    except errors.Invalid:
        raise
    except ValueError:
        wrong = [name for name, value in body.items() if isinstance(value, float) and not math.isfinite(value)]
        raise errors.Invalid(f"{', '.join(wrong or body)}: NaN or infinite: want finite numbers") from None


def _scalar(value: Any) -> Any:
    if hasattr(value, "item") and getattr(value, "ndim", 0) == 0:
        return value.item()
    raise errors.Invalid(f"{value!r}: {type(value).__name__}: want a number, a string, or lists and dicts of them")


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    """Raise pyarrow's exceptions as errors of this package."""
    try:
        yield
    except errors.Error:
        raise
    except (pa.ArrowException, flight.FlightError, OSError) as error:
        raise errors.from_flight(error) from error


def _nobody_listens(text: str) -> bool:
    return "onnection refused" in text or "No such file or directory" in text


def _never_sent(error: errors.Error) -> bool:
    text = str(error).lower()
    refused = "failed to connect" in text or "connection refused" in text
    return refused or isinstance(error, (errors.Closing, errors.Elsewhere))


def _bearer(token: str) -> tuple[bytes, bytes]:
    if not isinstance(token, str) or not token.isascii() or not token.isprintable() or " " in token:
        raise errors.Invalid("token: want printable ASCII without white space; strip the line of a file")
    return b"authorization", b"Bearer " + token.encode()


def _pem(name: str, source: bytes | str | Path | None) -> bytes | None:
    if source is None:
        return None
    try:
        text = source if isinstance(source, bytes) else Path(source).read_bytes()
    except (OSError, TypeError) as error:
        why = getattr(error, "strerror", type(source).__name__)
        raise errors.Invalid(f"{name}: {source!s}: {why}: want a PEM file, or its content as bytes") from error
    if b"-----BEGIN " not in text:
        what = "bytes" if isinstance(source, bytes) else str(source)
        raise errors.Invalid(f"{name}: {what}: want PEM, which has a line that begins with -----BEGIN")
    return text


def _is_loopback(address: str) -> bool:
    host = address.split("://", 1)[1]
    return host.startswith(("127.", "localhost:", "[::1]")) or host == "localhost"


def _channel_options() -> list[tuple[str, int]]:
    return [
        # Find a service that comes back soon: until gRPC tries to connect again, all calls fail without trying. The
        # second is the time for one attempt.
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.min_reconnect_backoff_ms", 3000),
        ("grpc.max_reconnect_backoff_ms", 250),
        # A machine that is gone refuses nothing: ask whether it is there while it owes an answer, and for how long.
        ("grpc.keepalive_time_ms", 3000),
        ("grpc.keepalive_timeout_ms", 5000),
        ("grpc.http2.ping_timeout_ms", 5000),
        ("grpc.http2.max_pings_without_data", 0),
        # Batches are large: bytes in flight on a stream, and bytes of one frame.
        ("grpc.http2.lookahead_bytes", 32 << 20),
        ("grpc.http2.max_frame_size", 4 << 20),
    ]
