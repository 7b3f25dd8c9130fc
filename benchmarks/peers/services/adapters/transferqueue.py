"""TransferQueue by its key-value interface, as verl's V1 trainer uses it: a key and a tag for each rollout."""

import collections
import random
import time
from collections.abc import Sequence
from typing import Any

import torch
import transfer_queue as tq
from rollouts import BATCH, Batch, Rollout
from tensordict import TensorDict

from . import Connection
from .ray import join

PACKAGES = ("TransferQueue", "torch", "tensordict", "ray")
PARTITION = "train"
CLEARED = 512  # rollouts that the producer removes at a time: TransferQueue evicts nothing by itself
LISTED_SECONDS = 1.0  # between two looks at the keys; verl lists them for each batch


class Client(Connection):
    """The first one starts TransferQueue's controller and its storage units in the cluster."""

    def __init__(self, settings: dict[str, Any]) -> None:
        join(settings)
        tq.init()
        self.capacity = settings["capacity"]
        self.inserted: collections.deque[str] = collections.deque()
        self.calls = 0
        self.keys: list[str] = []
        self.listed = -LISTED_SECONDS

    def insert(self, rollouts: Sequence[Rollout]) -> None:
        def jagged(name: str) -> Any:
            return torch.nested.as_nested_tensor([torch.from_numpy(r[name]) for r in rollouts], layout=torch.jagged)

        fields = {name: jagged(name) for name in ("tokens", "mask", "logprobs")}
        fields |= {name: torch.tensor([r[name] for r in rollouts]) for name in ("reward", "version")}
        keys = [f"{self.calls}_{i}" for i in range(len(rollouts))]
        tags = [{"status": "success", "global_steps": r["version"], "uid": r["group"]} for r in rollouts]
        tq.kv_batch_put(keys, PARTITION, TensorDict(fields, batch_size=len(rollouts)), tags)
        self.calls += 1
        self.inserted.extend(keys)
        if len(self.inserted) >= self.capacity + CLEARED:
            tq.kv_clear([self.inserted.popleft() for _ in range(CLEARED)], PARTITION)

    def sample(self) -> Batch:
        if time.monotonic() - self.listed >= LISTED_SECONDS:
            tags = tq.kv_list(PARTITION)[PARTITION]
            written = [key for key, tag in tags.items() if tag.get("status") == "success"]
            # The producer may clear the oldest while they are drawn.
            self.keys, self.listed = written[-max(BATCH, self.capacity // 2) :], time.monotonic()
        data = tq.kv_batch_get(random.sample(self.keys, BATCH), PARTITION)
        batch = {name: data[name] for name in ("tokens", "mask", "logprobs", "reward")}
        return {name: (x.to_padded_tensor(0) if x.is_nested else x).numpy() for name, x in batch.items()}

    def rest(self) -> None:
        self.listed = -LISTED_SECONDS  # the producer goes on without us

    def count(self) -> int:
        return len(tq.kv_list(PARTITION).get(PARTITION, {}))
