"""Grant: what a gate says to who generates."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Grant:
    """Groups that may be started now: generate them and insert them under its number, or abandon them.

    Attributes:
        number: of the grant, for `Table.insert`; 0 if nothing was granted.
        groups: that may be started; 0 after the timeout.
        version: of the table.
        expires_seconds: after which the grant is over.
    """

    number: int
    groups: int
    version: int
    expires_seconds: float

    def __bool__(self) -> bool:
        return self.groups > 0
