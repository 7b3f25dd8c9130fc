"""Client: a connection to a replay service, and its tables."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .arrays import seconds
from .connection import Connection
from .definition import Definition
from .errors import Invalid
from .stats import TableInfo
from .table import Table


def connect(
    address: str | list[str] | tuple[str, ...],
    *,
    token: str | None = None,
    ca: bytes | str | Path | None = None,
    certificate: bytes | str | Path | None = None,
    key: bytes | str | Path | None = None,
    server_name: str | None = None,
    timeout: float = 60.0,
    trainer: int = 0,
    trainers: int = 1,
) -> Client:
    """Connect to a replay service, or to several that hold tables in parts. Nothing is sent before the first call.

    Args:
        address: ``grpc://host:port``, ``grpc+tls://host:port`` or ``grpc+unix:///path/of/socket``. A list of them, or a
            str with commas, names services whose tables are parts of larger ones: name them in the same order
            everywhere. ``ray:NAME`` names shards in the Ray cluster that this process is in (`reprise.ray`).
        token: bearer token, as in the service's tokens file.
        ca: PEM of the authorities that may sign the service's certificate, as bytes or a path; by default those of
            gRPC.
        certificate, key: PEM of the client's own certificate, for mutual TLS.
        server_name: name in the service's certificate, if it is not the address's host.
        timeout: seconds that a call takes at most, retries and waiting included, unless the call has its own.
        trainer, trainers: of several services, which parts draws with scope ``own`` come from: those whose number is
            trainer modulo trainers; with more trainers than parts, the part trainer modulo parts.

    >>> with reprise.connect("grpc://127.0.0.1:7447") as client:  # doctest: +SKIP
    ...     table = client.create("math", capacity=4096)
    """
    if seconds("timeout", timeout) == 0:
        raise Invalid(f"timeout: {timeout}: want more than 0 seconds")
    if (certificate is None) != (key is None):
        raise Invalid("certificate, key: only one of them: want both, or neither")

    if isinstance(address, str) and address.startswith("ray:"):
        from . import ray  # which needs Ray

        return ray.connect(address.removeprefix("ray:"), trainer=trainer, trainers=trainers, timeout=timeout)

    def dial(one: Any) -> Connection:
        return Connection(one, timeout, token, ca, certificate, key, server_name)

    if isinstance(address, str) and "," in address:
        address = address.split(",")
    if not isinstance(address, (list, tuple)):
        return Client(dial(address))
    from . import sharded  # which imports this module

    return sharded.Client(address, dial, trainer, trainers)


class Client:
    """A connection to a replay service. Threads may share it. Each process needs its own, also after a fork."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection and its streams. Batches that were not acknowledged go back."""
        self._connection.close()

    @property
    def address(self) -> str:
        """The service's address."""
        return self._connection.address

    def create(self, name: str, definition: Definition | None = None, **options: Any) -> Table:
        """Create a table, or return the existing one if its definition is the same.

        Args:
            name: letters, digits, ``-``, ``_`` and ``.``, at most 128.
            definition: or its fields as keyword arguments: ``create("math", capacity=4096, sampler="prioritized")``.
                ``max_size`` is another name for ``capacity``.

        Raises:
            Exists: a table of that name has another definition.
        """
        keys = Definition.given(definition, options).asdict()
        table = self.table(name)
        self._connection.action("create_table", {"name": name, **keys})
        return table

    def drop(self, name: str) -> None:
        """Remove a table and its contents, on disk too."""
        self._connection.action("drop_table", {"table": self.table(name).name}, repeatable=False)

    def table(self, name: str) -> Table:
        """Return a table by its name. The first call raises `NotFound` if it does not exist."""
        return Table(self._connection, name)

    def list(self) -> list[TableInfo]:
        """Return all tables that the token may read, by name."""
        names = sorted(flight.descriptor.path[0].decode() for flight in self._connection.flights())
        return [self.table(name).info() for name in names]
