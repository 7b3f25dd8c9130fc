"""A Ray actor with a deque of rollouts, and the Ray cluster of one node that others use too."""

import collections
import random
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import ray
from rollouts import BATCH, Batch, Rollout, collate

from . import Connection

PACKAGES = ("ray",)
QUIET: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}


@contextmanager
def serve(settings: dict[str, Any]) -> Iterator[dict[str, Any]]:
    folder = tempfile.mkdtemp()
    ray.init("local", num_cpus=16, object_store_memory=2 << 30, include_dashboard=False, _temp_dir=folder, **QUIET)
    yield {"ray": ray.get_runtime_context().gcs_address}
    ray.shutdown()


def join(settings: dict[str, Any]) -> None:
    """Connect this process to the cluster."""
    ray.init(address=settings["ray"], namespace="peers", **QUIET)


class Buffer:
    """The actor. It pads in its own process, so that a batch travels as one object."""

    def __init__(self, capacity: int) -> None:
        self.rollouts: collections.deque[Rollout] = collections.deque(maxlen=capacity)

    def insert(self, rollouts: Sequence[Rollout]) -> None:
        self.rollouts.extend(rollouts)

    def sample(self) -> Batch:
        return collate([self.rollouts[i] for i in random.sample(range(len(self.rollouts)), BATCH)])

    def count(self) -> int:
        return len(self.rollouts)


class Client(Connection):
    def __init__(self, settings: dict[str, Any]) -> None:
        join(settings)
        actor = ray.remote(num_cpus=0, name="rollouts", get_if_exists=True, lifetime="detached")(Buffer)
        self.buffer = actor.remote(settings["capacity"])

    def insert(self, rollouts: Sequence[Rollout]) -> None:
        ray.get(self.buffer.insert.remote(rollouts))

    def sample(self) -> Batch:
        batch: Batch = ray.get(self.buffer.sample.remote())
        return batch

    def count(self) -> int:
        return int(ray.get(self.buffer.count.remote()))
