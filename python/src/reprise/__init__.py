"""The Python client of the Reprise replay service: experience replay for reinforcement learning of language models.

Generators put rollouts into a table of a service, trainers draw batches from it, in any number of processes. `serve`
starts a service that ends with this process, `connect` connects to one that runs:

>>> import reprise  # doctest: +SKIP
>>> client = reprise.serve()  # or reprise.connect("grpc://127.0.0.1:7447")
>>> table = client.create("sums", capacity=4096, sampler="prioritized", max_staleness=8, group_size=2)

A generator: two answers to the prompt [7, 10, 5], token ids all of them, with the log-probs at which they were sampled,
the version of the weights, and a reward each. The table computes advantages within each group of group_size.

>>> for prompt_id in ("7+5", "5+7"):
...     row = dict(prompt_id=prompt_id, prompt=[7, 10, 5], version=0)
...     table.insert([reprise.rollout(**row, tokens=[1, 2], logprobs=[-0.1, -0.2], reward=1),
...                   reprise.rollout(**row, tokens=[1, 3], logprobs=[-0.1, -1.7], reward=0)])

A trainer: batches come ahead of time and are on lease until the next one is asked for.

>>> with table.stream(4) as batches:
...     batch = next(batches)
...     padded = batch.padded(side="right", pad_id=0)  # numpy [B, L]; padded.torch("cuda") returns tensors
...     inputs = {"input_ids": padded["input_ids"], "attention_mask": padded["attention_mask"]}
...     print(padded["advantages"], padded["logprobs"], batch.weights, batch.staleness)  # your loss and its update
...     info = table.advance(1)  # before the weights of version 1 go to the generators

>>> stats = table.stats()
>>> print(stats.present, stats.evicted, stats.staleness, stats.ess_by_age)
>>> client.close()

Where to read on: `help(reprise.Table.insert)` has every column of a rollout, `help(reprise.Client.create)` every key of
a table, `help(reprise.Padded)` the arrays of a batch, docs/python.md the guide. `reprise.trl`, `reprise.verl` and
`reprise.slime` put replay into those trainers, `reprise.adapters` converts batches of verl and AReaL, `reprise.torch`
has the losses, `log` writes a table's statistics to trackio, W&B or MLflow. Every failure is a `reprise.Error` that names the argument, the value and the remedy; what can only be
warned of is a `StaleWarning`, `RepeatWarning` or `RepairWarning`. Long waits are logged under the name "reprise".
"""

from ._log import log
from .address import connect
from .batch import DEFAULT_COLUMNS, Batch, BatchInfo
from .client import Client
from .definition import Definition, Gate, Keys, Limiter, Prompts, Source
from .errors import (
    Ahead,
    Closing,
    Denied,
    DiskFull,
    Elsewhere,
    Error,
    Exists,
    Failed,
    Full,
    Invalid,
    NoLease,
    NotFound,
    PartWarning,
    RepairWarning,
    RepeatWarning,
    StaleWarning,
    Starved,
    Timeout,
    TooLarge,
    Unauthenticated,
    Unavailable,
)
from .methods import METHODS, Method
from .padded import Packed, Padded
from .rollouts import record_batch, rollout
from .service import Service, serve
from .stats import Checkpoint, Rewarded, Stats, TableInfo
from .stream import Stream
from .table import Grant, Prompt, PromptResult, Table
from .weights import publish

__version__ = "0.1.0"

__all__ = [
    "Ahead", "Batch", "BatchInfo", "Checkpoint", "Client", "Closing", "DEFAULT_COLUMNS", "Definition", "Denied",
    "DiskFull", "Elsewhere", "Error", "Exists", "Failed", "Full", "Gate", "Grant", "Invalid", "Keys", "Limiter",
    "METHODS", "Method", "NoLease", "NotFound", "Packed", "Padded", "PartWarning", "Prompt", "PromptResult",
    "Prompts", "RepairWarning", "RepeatWarning", "Rewarded", "Service", "Source", "StaleWarning", "Starved", "Stats",
    "Stream", "Table", "TableInfo", "Timeout", "TooLarge", "Unauthenticated", "Unavailable", "connect", "log", "publish",
    "record_batch", "rollout", "serve",
]  # fmt: skip
