"""Client: a connection to a replay service, and its tables."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Any

from .connection import Connection, Credentials
from .definition import Definition, TableInfo
from .errors import Invalid
from .table import Table


def connect(
    address: str,
    *,
    token: str | None = None,
    ca: bytes | str | Path | None = None,
    certificate: bytes | str | Path | None = None,
    key: bytes | str | Path | None = None,
    server_name: str | None = None,
    timeout: float = 60.0,
) -> Client:
    """Connect to a replay service. Nothing is sent before the first call.

    Args:
        address: ``grpc://host:port``, ``grpc+tls://host:port`` or ``grpc+unix:///path/of/socket``.
        token: bearer token.
        ca: PEM of who signed the service's certificate, as bytes or a path; by default whom gRPC trusts.
        certificate, key: PEM of the client's own certificate, for mutual TLS.
        server_name: name in the service's certificate, where the address has another.
        timeout: seconds that a call takes at most, repetitions and waiting included, unless the call says otherwise.

    >>> with reprise.connect("grpc://127.0.0.1:7447") as client:  # doctest: +SKIP
    ...     table = client.create_table("math", capacity=4096)
    """
    if timeout <= 0:
        raise Invalid(f"timeout: {timeout}: want more than 0 seconds")
    if (certificate is None) != (key is None):
        raise Invalid("certificate, key: only one of them: want both, or neither")
    return Client(Connection(address, Credentials(token, ca, certificate, key, server_name), timeout))


class Client:
    """A connection to a replay service. Threads may share it; processes each connect on their own (after a fork, too)."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def __enter__(self) -> Client:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection. Batches of its streams that were not acknowledged go back."""
        self._connection.close()

    @property
    def address(self) -> str:
        """What it is connected to."""
        return self._connection.address

    def create_table(self, name: str, definition: Definition | None = None, **options: Any) -> Table:
        """Create a table, or find the one of that name.

        Args:
            name: letters, digits, ``-``, ``_`` and ``.``, at most 128.
            definition: or its fields as keyword arguments: ``create_table("math", capacity=4096, sampler="prioritized")``.

        Raises:
            Exists: if there is a table of that name with another definition.
        """
        if definition is not None and options:
            raise Invalid(f"definition: beside {', '.join(options)}: want the one or the other")
        if definition is None:
            try:
                definition = Definition(**options)
            except TypeError as error:
                raise Invalid(f"create_table: {error}: want fields of Definition") from error
        self._connection.action("create_table", {"name": name, **definition.asdict()})
        return self.table(name)

    def drop_table(self, name: str) -> None:
        """Remove a table with everything in it, on disk too."""
        self._connection.action("drop_table", {"table": name}, repeatable=False)

    def table(self, name: str) -> Table:
        """Return a table by its name. That it exists is noticed by the first call."""
        return Table(self._connection, name)

    def list(self) -> list[TableInfo]:
        """Return all tables that the token may read, in order of names."""
        names = sorted(flight.descriptor.path[0].decode() for flight in self._connection.flights())
        return [self.table(name).info() for name in names]
