"""Client: connections to several services, and the tables that are in parts on them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

from .. import client, errors
from ..arrays import whole
from ..connection import Connection
from ..stats import TableInfo
from .services import Services
from .table import Table


class Client(client.Client):
    """Connections to several services, whose tables are parts of larger ones. Threads may share it. Each process needs
    its own, also after a fork."""

    def __init__(
        self, addresses: Sequence[str], dial: Callable[[str], Connection], trainer: int = 0, trainers: int = 1
    ) -> None:
        self.services = Services(addresses, dial, trainer, trainers)
        super().__init__(self.services.entries[0])

    def close(self) -> None:
        """Close the connections and their streams. Batches that were not acknowledged go back."""
        self.services.close()

    @property
    def address(self) -> str:
        """The services' addresses, with commas: `reprise.connect` takes them so."""
        return ",".join(self.services.addresses)

    def _create(self, name: str, parts: int | None, keys: dict[str, Any]) -> Table:
        made = self.table(name)
        made.create(keys, None if parts is None else whole("parts", parts, 1))
        return made

    def drop(self, name: str) -> None:
        """Remove a table and its contents, on disk too, from all services, all of which must be up."""
        self.table(name).drop()

    def table(self, name: str) -> Table:
        """Return a table by its name. The first call raises `NotFound` if it does not exist."""
        return Table(self.services, name)

    def list(self) -> list[TableInfo]:
        """Return all tables that the token may read, by name, of the services that are up."""
        listed = self.services.each([each.flights for each in self.services.entries])
        found = [each for each in listed if not isinstance(each, errors.Error)]
        if not found:
            raise cast(errors.Error, listed[0])
        names = {flight.descriptor.path[0].decode() for flights in found for flight in flights}
        in_parts = {name: name.rpartition(".")[0] for name in names if name.rpartition(".")[2].isdecimal()}
        for part, table in in_parts.items():
            if self.services.clustered and any(each == part for each, _ in self.services.locate(table)):
                names = names - {part} | {table}
        return [self.table(name).info() for name in sorted(names)]
