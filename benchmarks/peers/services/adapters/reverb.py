"""Reverb: a TrajectoryWriter that is flushed after each call, and a TrajectoryDataset that draws ahead."""

import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import reverb
import tensorflow as tf
from rollouts import BATCH, Batch, Rollout

from . import Connection

PACKAGES = ("dm-reverb", "tensorflow")
TABLE = "rollouts"
TOKENS = {"tokens": tf.int32, "mask": tf.uint8, "logprobs": tf.float32}
NUMBERS = {"reward": tf.float32, "version": tf.int32, "group": tf.int64}


@contextmanager
def serve(settings: dict[str, Any]) -> Iterator[dict[str, Any]]:
    table = reverb.Table(
        TABLE, sampler=reverb.selectors.Uniform(), remover=reverb.selectors.Fifo(), max_size=settings["capacity"],
        rate_limiter=reverb.rate_limiters.MinSize(1),
        signature={name: tf.TensorSpec([None], kind) for name, kind in TOKENS.items()}
        | {name: tf.TensorSpec([], kind) for name, kind in NUMBERS.items()},
    )  # fmt: skip
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    checkpointer = reverb.checkpointers.DefaultCheckpointer(f"{settings['folder']}/checkpoints")
    server = reverb.Server([table], port=port, checkpointer=checkpointer)
    reverb.Client(f"127.0.0.1:{port}").server_info()
    yield {"address": f"127.0.0.1:{port}"}
    server.stop()


class Client(Connection):
    def __init__(self, settings: dict[str, Any]) -> None:
        self.address = settings["address"]
        self.client = reverb.Client(self.address)
        self.writer: Any = None
        self.batches: Any = None

    def insert(self, rollouts: Sequence[Rollout]) -> None:
        if self.writer is None:
            self.writer = self.client.trajectory_writer(num_keep_alive_refs=1)
        for r in rollouts:
            self.writer.append(r | {name: np.array(r[name], kind.as_numpy_dtype) for name, kind in NUMBERS.items()})
            row = {name: column[-1] for name, column in self.writer.history.items()}
            self.writer.create_item(TABLE, priority=1.0, trajectory=row)
        self.writer.flush()

    def sample(self) -> Batch:
        if self.batches is None:
            dataset = reverb.TrajectoryDataset.from_table_signature(
                self.address, TABLE, max_in_flight_samples_per_worker=3 * BATCH
            )
            padded = dataset.map(lambda sample: sample.data).padded_batch(BATCH).prefetch(1)
            self.batches = padded.as_numpy_iterator()
        batch: Batch = next(self.batches)
        return batch

    def rest(self) -> None:
        self.batches = None

    def count(self) -> int:
        return int(self.client.server_info()[TABLE].current_size)

    def save(self) -> None:
        self.client.checkpoint()
