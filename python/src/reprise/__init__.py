"""The Python client of the Reprise replay service: experience replay for reinforcement learning of language models.

>>> import reprise  # doctest: +SKIP
>>> with reprise.connect("grpc://127.0.0.1:7447") as client:
...     table = client.create_table("math", capacity=4096, group_size=8)
...     ids = table.insert(tokens=[[5, 6, 7]] * 8, prompt_lengths=[2] * 8, logprobs=[[0, 0, -0.3]] * 8,
...                        version=0, reward=[1, 0, 0, 1, 0, 1, 1, 0], group_size=8)
...     batch = table.sample(4).padded(side="right", pad_id=0).torch("cuda")

A `Client` holds `Table`s; a `Table` takes rollouts in almost any form (`Table.insert`) and gives a `Batch` (`Table.sample`) or a
`Stream` of them (`Table.batches`); a `Batch` becomes `Padded` or `Packed` arrays, of numpy or torch. `reprise.adapters` speaks the
layouts of TRL, verl and AReaL. Everything that can go wrong is a `reprise.Error`.
"""

from .batch import Batch, BatchInfo
from .client import Client, connect
from .definition import Definition, Gate, Limiter, Prompts, TableInfo
from .errors import (
    Ahead,
    Closing,
    Denied,
    Error,
    Exists,
    Failed,
    Full,
    Invalid,
    NoLease,
    NotFound,
    Starved,
    Timeout,
    TooLarge,
    Unauthenticated,
    Unavailable,
)
from .gate import Grant
from .padded import Packed, Padded
from .prompts import Prompt, PromptBuffer, PromptResult
from .rows import record_batch
from .stats import Stats
from .stream import Stream
from .table import Table

__version__ = "0.1.0"

__all__ = [
    "Ahead", "Batch", "BatchInfo", "Client", "Closing", "Definition", "Denied", "Error", "Exists", "Failed", "Full", "Gate",
    "Grant", "Invalid", "Limiter", "NoLease", "NotFound", "Packed", "Padded", "Prompt", "PromptBuffer",
    "PromptResult", "Prompts", "Starved", "Stats", "Stream", "Table", "TableInfo", "Timeout", "TooLarge", "Unauthenticated",
    "Unavailable", "connect", "record_batch",
]  # fmt: skip
