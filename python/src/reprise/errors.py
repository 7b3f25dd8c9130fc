"""What can go wrong, as exceptions: one class per code of the service (`wire/status.go`), and two of the connection."""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight


class Error(Exception):
    """Anything that this package raises about the service or what was sent to it.

    Attributes:
        code: what the service calls it, such as ``"full"``; ``"unavailable"`` and ``"timeout"`` for the connection.
        retryable: whether the same call may succeed later.
    """

    code = "failed"
    retryable = False


class Invalid(Error, ValueError):
    """The request can never be served: it says which field, row and value, and what is wanted."""

    code = "invalid"


class Full(Error):
    """The table had no room within the timeout, or the limiter held insertions back. Retry later."""

    code = "full"
    retryable = True


class Starved(Error):
    """The table held too little within the timeout, or the limiter held samples back. Retry later."""

    code = "starved"
    retryable = True


class Ahead(Error):
    """A rollout is newer than the table: retry after the trainer has advanced it."""

    code = "ahead"
    retryable = True


class NoLease(Error):
    """The batch is not on lease: it was settled, or its lease expired."""

    code = "no_lease"


class NotFound(Error, LookupError):
    """There is no such table, checkpoint or action."""

    code = "not_found"


class Exists(Error):
    """A table of that name has another definition."""

    code = "exists"


class Denied(Error, PermissionError):
    """The token does not give that right."""

    code = "denied"


class Unauthenticated(Denied):
    """There was no token, or not one that the service knows."""

    code = "unauthenticated"


class TooLarge(Error):
    """The message is above the service's limit: send fewer rollouts at once."""

    code = "too_large"


class Closing(Error):
    """The service is stopping. Retry later."""

    code = "closing"
    retryable = True


class Failed(Error):
    """The service could not do it: its disk, or a defect. Its log says more."""

    code = "failed"


class Unavailable(Error, ConnectionError):
    """The service could not be reached, or the connection broke, for as long as the timeout allowed."""

    code = "unavailable"
    retryable = True


class Timeout(Error, TimeoutError):
    """No answer within the timeout."""

    code = "timeout"
    retryable = True


_KINDS: dict[str, type[Error]] = {
    kind.code: kind
    for kind in (
        Invalid, Full, Starved, Ahead, NoLease, NotFound, Exists, Unauthenticated, Denied, TooLarge, Closing, Failed,
    )
}  # fmt: skip

# Flight puts its own words before the service's message and gRPC's after it.
_CODED = re.compile(r"(?:^|message: )(" + "|".join(_KINDS) + r"): (.*)", re.DOTALL)
_PREFIX = re.compile(r"^.*?with message: ", re.DOTALL)
_SUFFIX = re.compile(r"\.? (?:gRPC client debug context|Client context): .*$", re.DOTALL)


def from_code(code: str, message: str) -> Error:
    """Return the exception that a code of the service stands for."""
    return _KINDS.get(code, Failed)(message)


def from_flight(error: Exception) -> Error:
    """Return what an exception of pyarrow stands for."""
    text = _SUFFIX.sub("", str(error))
    coded = _CODED.search(text)
    if coded:
        return from_code(coded[1], coded[2])
    text = _PREFIX.sub("", text)
    for kind, ours in _by_transport():
        if isinstance(error, kind):
            return ours(text)
    if "received message larger than max" in text or "larger than max" in text:
        return TooLarge(text)
    if "DeadlineExceeded" in text or "Deadline Exceeded" in text:
        return Timeout(text)
    return Failed(text)


def _by_transport() -> list[tuple[Any, type[Error]]]:
    """The exceptions of pyarrow that tell by their type what they are, and what that is here."""
    return [
        (flight.FlightUnavailableError, Unavailable),
        (flight.FlightTimedOutError, Timeout),
        (flight.FlightUnauthenticatedError, Unauthenticated),
        (flight.FlightUnauthorizedError, Denied),
        (flight.FlightCancelledError, Unavailable),
        (pa.ArrowKeyError, NotFound),
        (OSError, Unavailable),
    ]
