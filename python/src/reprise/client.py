"""Client: a connection to a replay service, and its tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .connection import Connection
from .definition import Creator, Definition, Keys
from .errors import Invalid
from .stats import TableInfo
from .table import Table


class Client(Creator[Table]):
    """A connection to a replay service. Threads may share it. Each process needs its own, also after a fork."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def __repr__(self) -> str:
        return f"<reprise.{type(self).__name__} at {self.address}>"

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

    def _create(self, name: str, parts: int | None, keys: dict[str, Any]) -> Table:
        if parts not in (None, 1):
            raise Invalid(f"parts: {parts!r}: want 1 on one service; connect to several for a table in parts")
        table = self.table(name)
        self._connection.action("create_table", {"name": name, **keys})
        return table

    def _create_all(self, tables: Mapping[str, Definition | Keys]) -> None:
        for name, keys in tables.items():
            if isinstance(keys, Definition):
                self.create(name, keys)
            else:
                self.create(name, **keys)

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
