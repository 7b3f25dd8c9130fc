"""Reprise as docs/python.md has it: reprise.serve, then insert, and sample or stream."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import reprise
from rollouts import BATCH, GROUP, Batch, Rollout

from . import Connection

PACKAGES = ("pyarrow", "numpy")


@contextmanager
def serve(settings: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """In memory, or in the folder with ``sync``. ``program`` is the path of another build."""
    if "program" in settings:
        os.environ["REPRISE"] = settings["program"]  # of this process
    sync = settings.get("sync")
    with reprise.serve(f"{settings['folder']}/data" if sync else None, sync=sync) as service:
        service.list()
        yield {"address": service.address}


class Client(Connection):
    """sample(), or with ``stream`` the way for trainers that draw batch after batch."""

    def __init__(self, settings: dict[str, Any]) -> None:
        client = reprise.connect(settings["address"])
        self.table = client.create("rollouts", capacity=settings["capacity"], group_size=GROUP)
        self.streams = settings.get("stream", False)
        self.batches: reprise.Stream | None = None

    def insert(self, rollouts: Sequence[Rollout]) -> None:
        self.table.insert(rollouts)

    def sample(self) -> Batch:
        if not self.streams:
            return self.table.sample(BATCH).padded()
        if self.batches is None:
            self.batches = self.table.stream(BATCH)
        return next(self.batches).padded()

    def rest(self) -> None:
        if self.batches is not None:
            self.batches.close()
            self.batches = None

    def count(self) -> int:
        return len(self.table)
