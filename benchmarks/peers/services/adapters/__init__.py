"""One module for each peer: PACKAGES that it needs, a class Client, and serve(settings) if it has a server of its own.

serve is a context manager that starts the server and yields what clients must know. Settings are those of the contender
with length, capacity in rollouts, and for servers folder, which is on the disk.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence

from rollouts import Batch, Rollout


class Missing(Exception):
    """What a peer needs is not installed."""


class Connection(ABC):
    """Of a producer or a consumer."""

    @abstractmethod
    def insert(self, rollouts: Sequence[Rollout]) -> None:
        """Insert whole groups; return once they are acknowledged."""

    @abstractmethod
    def sample(self) -> Batch:
        """Return BATCH rollouts as arrays of this process."""

    @abstractmethod
    def count(self) -> int:
        """Return the number of rollouts in the table."""

    def rest(self) -> None:
        """Stop drawing ahead."""
