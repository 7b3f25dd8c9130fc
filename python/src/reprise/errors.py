"""Exceptions: one class per code of the service (`wire/status.go`), two for the connection, and a warning."""

from __future__ import annotations

import re
import warnings

import pyarrow as pa
import pyarrow.flight as flight


class Error(Exception):
    """Any failure that this package raises.

    Attributes:
        code: the service's name for it, such as ``"full"``; ``"unavailable"`` and ``"timeout"`` are the connection's.
        retryable: whether the same call may succeed later.
    """

    code = "failed"
    retryable = False


class RepairWarning(UserWarning):
    """An adapter dropped rollouts, or repaired entries, that a table would have refused. Shown every time, unless a
    filter of yours says otherwise.

    Attributes:
        name: of the column.
        count: of the rollouts or entries.
    """

    def __init__(self, name: str, count: int, what: str) -> None:
        super().__init__(f"{name}: {count} {what}")
        self.name, self.count = name, count


warnings.simplefilter("always", RepairWarning, append=True)


class Invalid(Error, ValueError):
    """The request is wrong and will never succeed. The message has the field, the row, the value and what is wanted."""

    code = "invalid"


class Full(Error):
    """The table had no room, or the limiter held the insertion back, for the whole timeout. Retry later."""

    code = "full"
    retryable = True


class Starved(Error):
    """The table held too little, or the limiter held the sample back, for the whole timeout. Retry later."""

    code = "starved"
    retryable = True


class Ahead(Error):
    """A rollout is newer than the table. Retry once the trainer has advanced it."""

    code = "ahead"
    retryable = True


class NoLease(Error):
    """The batch is not on lease: it was acknowledged or released, or its lease expired."""

    code = "no_lease"


class NotFound(Error, LookupError):
    """There is no such table, checkpoint, action or column."""

    code = "not_found"


class Exists(Error):
    """A table of that name has another definition."""

    code = "exists"


class Denied(Error, PermissionError):
    """The token does not grant that right."""

    code = "denied"


class Unauthenticated(Denied):
    """The token is missing, or the service does not know it."""

    code = "unauthenticated"


class TooLarge(Error):
    """The message exceeds the service's limit: send fewer rollouts at once."""

    code = "too_large"


class Closing(Error):
    """The service is stopping. Retry later."""

    code = "closing"
    retryable = True


class DiskFull(Error):
    """The service's disk is full. Make space there, for example with `delete_checkpoint`; then it goes on by itself."""

    code = "disk_full"
    retryable = True


class Failed(Error):
    """The service could not do it: its disk failed, or it has a bug. Its log says more."""

    code = "failed"


class Unavailable(Error, ConnectionError):
    """The service could not be reached, or the connection broke, for the whole timeout."""

    code = "unavailable"
    retryable = True


class Timeout(Error, TimeoutError):
    """There was no answer within the timeout."""

    code = "timeout"
    retryable = True


_CODES: dict[str, type[Error]] = {
    kind.code: kind
    for kind in (
        Invalid, Full, Starved, Ahead, NoLease, NotFound, Exists, Unauthenticated, Denied, TooLarge, Closing, DiskFull,
        Failed,
    )
}  # fmt: skip

_TRANSPORT: list[tuple[type[Exception], type[Error]]] = [
    (flight.FlightUnavailableError, Unavailable),
    (flight.FlightTimedOutError, Timeout),
    (flight.FlightUnauthenticatedError, Unauthenticated),
    (flight.FlightUnauthorizedError, Denied),
    (flight.FlightCancelledError, Unavailable),
    (pa.ArrowKeyError, NotFound),
    (OSError, Unavailable),
]
"""pyarrow's exceptions without a code of the service, most specific first."""

# Flight puts its own text before the service's message, and gRPC's after it.
_CODED = re.compile(r"(?:^|message: )(" + "|".join(_CODES) + r"): (.*)", re.DOTALL)
_PREFIX = re.compile(r"^.*?with message: ", re.DOTALL)
_SUFFIX = re.compile(r"\.? (?:gRPC client debug context|Client context): .*$", re.DOTALL)


def from_code(code: str, message: str) -> Error:
    """Return the exception for a code of the service."""
    return _CODES.get(code, Failed)(message)


def from_flight(error: Exception) -> Error:
    """Return the exception for one of pyarrow's."""
    text = _SUFFIX.sub("", str(error))
    coded = _CODED.search(text)
    if coded:
        return from_code(coded[1], coded[2])
    text = _PREFIX.sub("", text)
    for kind, ours in _TRANSPORT:
        if isinstance(error, kind):
            return ours(text)
    if "larger than max" in text:
        return TooLarge(text)
    if "DeadlineExceeded" in text or "Deadline Exceeded" in text:
        return Timeout(text)
    return Failed(text)
