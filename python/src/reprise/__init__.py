"""The Python client of the Reprise replay service: experience replay for reinforcement learning of language models.

>>> import reprise  # doctest: +SKIP
>>> with reprise.connect("grpc://127.0.0.1:7447") as client:
...     table = client.create("math", capacity=4096)
...     row = reprise.rollout("7+5", prompt=[7, 10, 5], tokens=[1, 2], logprobs=[-0.1, -0.2], version=0, reward=1)
...     table.insert([row])
...     batch = table.sample(1).padded(side="right", pad_id=0).torch("cuda")

A `Client` holds `Table`s. A `Table` takes rollouts in almost any form (`Table.insert`) and returns a `Batch`
(`Table.sample`) or a `Stream` of them (`Table.stream`). A `Batch` becomes `Padded` or `Packed` arrays, of numpy or
torch. `reprise.adapters` converts the batches of TRL, verl and AReaL. Every failure is a `reprise.Error`.
"""

from .batch import Batch, BatchInfo
from .client import Client, connect
from .definition import Definition, Gate, Limiter, Prompts
from .errors import (
    Ahead,
    Closing,
    Denied,
    DiskFull,
    Error,
    Exists,
    Failed,
    Full,
    Invalid,
    NoLease,
    NotFound,
    RepairWarning,
    RepeatWarning,
    StaleWarning,
    Starved,
    Timeout,
    TooLarge,
    Unauthenticated,
    Unavailable,
)
from .padded import Packed, Padded
from .rollouts import record_batch, rollout
from .stats import Checkpoint, Stats, TableInfo
from .stream import Stream
from .table import Grant, Prompt, PromptResult, Table

__version__ = "0.1.0"

__all__ = [
    "Ahead", "Batch", "BatchInfo", "Checkpoint", "Client", "Closing", "Definition", "Denied", "DiskFull", "Error",
    "Exists", "Failed", "Full", "Gate", "Grant", "Invalid", "Limiter", "NoLease", "NotFound", "Packed", "Padded",
    "Prompt", "PromptResult", "Prompts", "RepairWarning", "RepeatWarning", "StaleWarning", "Starved", "Stats", "Stream",
    "Table", "TableInfo", "Timeout", "TooLarge", "Unauthenticated", "Unavailable", "connect", "record_batch", "rollout",
]  # fmt: skip
