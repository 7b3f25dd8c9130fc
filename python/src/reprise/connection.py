"""One connection to the service: calls with deadlines, and retries that do nothing twice."""

from __future__ import annotations

import contextlib
import json
import random
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

import pyarrow as pa
import pyarrow.flight as flight

from . import errors
from .arguments import encoded

T = TypeVar("T")

GRACE = 5.0
"""Seconds by which a call's deadline lies behind the time that the service was asked to wait at most."""

SHORTEST_RETRY = 0.05  # seconds, before the first repetition; doubled up to
LONGEST_RETRY = 2.0


@dataclass(frozen=True)
class Credentials:
    """Who calls, and whom to believe. Certificates are PEM: bytes, or the path of a file.

    Attributes:
        token: bearer token, as in the service's tokens file.
        ca: certificates of who may sign the service's; none: those that gRPC ships with.
        certificate, key: the client's own, for mutual TLS.
        server_name: name to expect in the service's certificate, where it is not the host's of the address.
    """

    token: str | None = None
    ca: bytes | str | Path | None = None
    certificate: bytes | str | Path | None = None
    key: bytes | str | Path | None = None
    server_name: str | None = None


class Deadline:
    """A point in time that calls, waits and repetitions share."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    def left(self) -> float:
        """Seconds that are left, never below 0."""
        return max(0.0, self._end - time.monotonic())


class Dependent(Protocol):
    """What lives on a connection and ends with it."""

    def stop(self) -> None:
        """End, and wait for it."""


class Connection:
    """Calls of Arrow Flight on one channel. Threads may share it."""

    def __init__(self, address: str, credentials: Credentials, timeout: float) -> None:
        self.address = address
        self.timeout = timeout
        self._headers = [_bearer(credentials.token)] if credentials.token else []
        if credentials.token and address.startswith(("grpc://", "grpc+tcp://")) and not _is_loopback(address):
            raise errors.Invalid(f"address: {address}: want grpc+tls://, or a token would travel in the clear")
        ca, certificate, key = (_pem(name, getattr(credentials, name)) for name in ("ca", "certificate", "key"))
        try:
            self._client = flight.FlightClient(
                address,
                tls_root_certs=ca,
                cert_chain=certificate,
                private_key=key,
                override_hostname=credentials.server_name,
                generic_options=_channel_options(),
            )
        except (pa.ArrowException, OSError, ValueError) as error:
            raise errors.Invalid(
                f"address: {address}: want grpc://host:port, grpc+tls://host:port or grpc+unix:///path ({error})"
            ) from error
        self._random = random.Random()
        self._closed = threading.Event()
        self._lock = threading.Lock()  # of what follows
        self._users = 0  # calls and streams under way
        self._open = True  # the channel is
        self.dependents: weakref.WeakSet[Dependent] = weakref.WeakSet()

    def close(self) -> None:
        """Close the channel and end what lives on it. Calls of other threads run to their end and are not repeated."""
        self._closed.set()
        for dependent in list(self.dependents):
            dependent.stop()
        self._close_if_unused()

    @contextlib.contextmanager
    def using(self) -> Iterator[None]:
        """Keep the channel open within a ``with``: pyarrow frees it when it is closed, and crashes whoever is in a call.

        Raises:
            Unavailable: it was closed before.
        """
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
        """Close the channel unless it is in use: then the last user does."""
        with self._lock:
            last = self._open and self._users == 0
            self._open = self._open and not last
        if last:
            self._client.close()

    def options(self, seconds: float | None) -> flight.FlightCallOptions:
        """Options of one call, with its deadline; None: no deadline."""
        return flight.FlightCallOptions(timeout=seconds, headers=self._headers)

    def action(
        self, name: str, body: Mapping[str, Any], *, timeout: float | None = None, wait: float = 0, repeatable: bool = True
    ) -> dict[str, Any]:
        """Call an action and return its answer.

        Args:
            name: of the action, as in `wire/action.go`.
            body: of the action, to be sent as JSON.
            timeout: seconds, of all attempts together; None: the connection's.
            wait: seconds that the service was asked to wait, which the deadline allows beside the timeout.
            repeatable: whether doing it twice is the same as doing it once. If not, it is repeated only where it
                cannot have reached the service.
        """
        call = flight.Action(name, encoded(body))

        def attempt(seconds: float) -> dict[str, Any]:
            results = list(self._client.do_action(call, self.options(seconds + wait)))
            text = results[0].body.to_pybytes() if results else b""
            answer = json.loads(text) if text else {}
            return answer if isinstance(answer, dict) else {"answer": answer}

        return self.retry(attempt, self.timeout if timeout is None else timeout, repeatable)

    def put(self, table: str, batch: pa.RecordBatch, request: Mapping[str, Any], *, timeout: float) -> dict[str, Any]:
        """Insert one record batch and return the answer. The request must carry a batch_id: it is what makes a
        repetition harmless."""
        metadata = encoded(request)

        def attempt(seconds: float) -> dict[str, Any]:
            descriptor = flight.FlightDescriptor.for_path(table)
            writer, answers = self._client.do_put(descriptor, batch.schema, self.options(seconds + GRACE))
            with writer:  # its end raises what the service said, whatever a broken pipe said before
                writer.write_with_metadata(batch, metadata)
                writer.done_writing()
                answer = answers.read()
            if answer is None:
                raise errors.Failed(f"{table}: the service ended the insertion without an answer")
            return dict(json.loads(answer.to_pybytes()))

        return self.retry(attempt, timeout, True)

    def get(self, request: Mapping[str, Any], *, timeout: float) -> list[flight.FlightStreamChunk]:
        """Read everything that a ticket stands for."""
        ticket = flight.Ticket(encoded(request))

        def attempt(seconds: float) -> list[flight.FlightStreamChunk]:
            return list(_chunks(self._client.do_get(ticket, self.options(seconds + GRACE))))

        return self.retry(attempt, timeout, True)

    def read_all(self, request: Mapping[str, Any], *, timeout: float) -> pa.Table:
        """Read everything that a ticket stands for as one table."""
        ticket = flight.Ticket(encoded(request))

        def attempt(seconds: float) -> pa.Table:
            return self._client.do_get(ticket, self.options(seconds + GRACE)).read_all()

        return self.retry(attempt, timeout, True)

    def exchange(self, table: str) -> tuple[flight.FlightStreamWriter, flight.FlightStreamReader]:
        """Open a sampling stream on a table, while and for as long as it is `using` the connection. It has no deadline: each
        request on it has its own."""
        writer, reader = _raising(lambda: self._client.do_exchange(flight.FlightDescriptor.for_path(table), self.options(None)))
        return writer, reader

    def info(self, table: str) -> flight.FlightInfo:
        """What the service says of a table: its sampling schema and its size."""
        descriptor = flight.FlightDescriptor.for_path(table)
        return self.retry(lambda seconds: self._client.get_flight_info(descriptor, self.options(seconds)), self.timeout, True)

    def flights(self) -> list[flight.FlightInfo]:
        """What the service says of all its tables."""
        return self.retry(lambda seconds: list(self._client.list_flights(b"", self.options(seconds))), self.timeout, True)

    def retry(self, attempt: Callable[[float], T], timeout: float, repeatable: bool) -> T:
        """Attempt until it works, fails for good, or the timeout is over. Each attempt gets the seconds left."""
        deadline, pause = Deadline(timeout), SHORTEST_RETRY
        gone: errors.Error | None = None
        while True:
            try:
                with self.using():
                    return _raising(lambda: attempt(max(deadline.left(), 0.001)))
            except errors.Timeout:
                if gone is not None:  # the last attempt had too little time: what was the matter is what came before it
                    raise gone from None
                raise
            except (errors.Unavailable, errors.Closing) as error:
                gone = error
                again = repeatable or _never_sent(error)
                rest = deadline.left()
                if not again or rest <= 0 or self._closed.is_set():
                    raise
            # Half of the pause is random, so that the clients of a service that comes back do not come all at once.
            self._closed.wait(min(rest, pause * (0.5 + self._random.random() / 2)))
            pause = min(2 * pause, LONGEST_RETRY)


def _raising(call: Callable[[], T]) -> T:
    """Call, and raise what pyarrow raises as an error of this package."""
    try:
        return call()
    except errors.Error:
        raise
    except (pa.ArrowException, flight.FlightError, OSError) as error:
        raise errors.from_flight(error) from error


def _chunks(reader: flight.FlightStreamReader) -> Iterator[flight.FlightStreamChunk]:
    while True:
        try:
            yield reader.read_chunk()
        except StopIteration:
            return


def _never_sent(error: errors.Error) -> bool:
    text = str(error).lower()
    return isinstance(error, errors.Closing) or "failed to connect" in text or "connection refused" in text


def _bearer(token: str) -> tuple[bytes, bytes]:
    if not isinstance(token, str) or not token.isascii() or not token.isprintable() or " " in token:
        raise errors.Invalid("token: want printable ASCII without white space, such as the line of a file, stripped")
    return b"authorization", b"Bearer " + token.encode()


def _pem(name: str, source: bytes | str | Path | None) -> bytes | None:
    if source is None:
        return None
    try:
        text = source if isinstance(source, bytes) else Path(source).read_bytes()
    except OSError as error:
        raise errors.Invalid(f"{name}: {source!s}: {error.strerror}: want a PEM file, or its content as bytes") from error
    if b"-----BEGIN " not in text:
        what = "bytes" if isinstance(source, bytes) else str(source)
        raise errors.Invalid(f"{name}: {what}: want PEM, which has a line that begins with -----BEGIN")
    return text


def _is_loopback(address: str) -> bool:
    host = address.split("://", 1)[1]
    return host.startswith(("127.", "localhost:", "[::1]")) or host == "localhost"


def _channel_options() -> list[tuple[str, int]]:
    return [
        # A service that comes back is found soon. The second is what an attempt to connect may take.
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.min_reconnect_backoff_ms", 3000),
        ("grpc.max_reconnect_backoff_ms", 2000),
        # Batches are large: bytes that may be under way on a stream, and that one frame may hold.
        ("grpc.http2.lookahead_bytes", 32 << 20),
        ("grpc.http2.max_frame_size", 4 << 20),
    ]
