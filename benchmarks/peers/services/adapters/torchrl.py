"""TorchRL's replay buffer, in one process or as a service on Ray. Rollouts enter padded to one length."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import ray
import torch
from rollouts import BATCH, Batch, Rollout, collate
from tensordict import TensorDict
from torchrl.data import LazyTensorStorage, ReplayBuffer

from . import Connection
from .ray import join

PACKAGES = ("torchrl", "torch", "tensordict", "ray")


class Shelf:
    """Where a process finds the buffer that another one started."""

    def __init__(self, buffer: Any) -> None:
        self.buffer = buffer

    def get(self) -> Any:
        return self.buffer


class Client(Connection):
    """With the settings of a Ray cluster the first client starts the service, and the others find it."""

    def __init__(self, settings: dict[str, Any]) -> None:
        if "ray" not in settings:
            self.buffer = ReplayBuffer(storage=LazyTensorStorage(settings["capacity"]), batch_size=BATCH)
            return
        join(settings)
        try:
            self.buffer = ray.get(ray.get_actor("torchrl").get.remote())
        except ValueError:
            self.buffer = ReplayBuffer(
                storage=partial(LazyTensorStorage, settings["capacity"]), batch_size=BATCH,
                service_backend="ray", service_backend_options={"remote_config": {"num_cpus": 0, "num_gpus": 0}},
            )  # fmt: skip
            self.shelf = ray.remote(num_cpus=0, name="torchrl")(Shelf).remote(self.buffer.client())

    def insert(self, rollouts: Sequence[Rollout]) -> None:
        columns = {name: torch.from_numpy(column) for name, column in collate(rollouts).items()}
        columns |= {name: torch.tensor([r[name] for r in rollouts]) for name in ("version", "group")}
        self.buffer.extend(TensorDict(columns, batch_size=len(rollouts)))

    def sample(self) -> Batch:
        batch = self.buffer.sample()
        return {name: batch[name].numpy() for name in ("tokens", "mask", "logprobs", "reward")}

    def count(self) -> int:
        return len(self.buffer)
