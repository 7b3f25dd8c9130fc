"""Experience replay in TRL's GRPOTrainer.

>>> from reprise.trl import ReplayGRPOTrainer, Replay  # doctest: +SKIP
>>> trainer = ReplayGRPOTrainer(model, reward_funcs, args=args, train_dataset=data, replay=Replay(fresh=0.5))

`ReplayGRPOTrainer` is TRL's trainer; each of its batches comes from a table. `Replay` says which. `RolloutWorker` does
the same for TRL's `AsyncGRPOTrainer`. `rollouts` and
`tensors` convert TRL's batches to columns for `Table.insert` and back, for loops of your own; they do not import TRL.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .layout import logprobs, merge, rollouts, tensors
from .replay import Replay

if TYPE_CHECKING:
    from .trainer import ReplayGRPOTrainer
    from .worker import RolloutWorker

__all__ = ["Replay", "ReplayGRPOTrainer", "RolloutWorker", "logprobs", "merge", "rollouts", "tensors"]


def __getattr__(name: str) -> Any:
    if name == "ReplayGRPOTrainer":  # these two import TRL and torch
        from .trainer import ReplayGRPOTrainer

        return ReplayGRPOTrainer
    if name == "RolloutWorker":
        from .worker import RolloutWorker

        return RolloutWorker
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
