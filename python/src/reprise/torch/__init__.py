"""Losses and corrections for rollouts of other policies, as pure functions on tensors. They need PyTorch.

They are those of a run's ``learner``, under the same names, with the formulas of docs/METHODS.md sections 5 and 8, and
agree with it on batches that the Go tests write (python/tests/test_torch.py).

>>> import reprise.torch  # doctest: +SKIP
>>> objective = reprise.torch.Objective("grpo", proximal="recompute", correction=[{"kind": "truncate", "high": 2}])
>>> padded = batch.padded().torch("cuda")
>>> logprobs = ...  # [B, L], with gradient
>>> out = reprise.torch.loss(logprobs, objective, anchor=anchor, **reprise.torch.inputs(padded))
>>> out.loss.backward()
>>> table.report(batch.ids, batch.staleness, **out.rows)

A batch is padded [B, T], or packed [N] with ``cu_seqlens``. Entry t of a tensor per token belongs to token t. Tokens
outside the mask count nowhere, and their gradient is exactly 0, whatever they hold, NaN included.

Everything is computed in the dtype of the log-probs, bfloat16 and float16 in float32. Only the log-probs and a critic's
values get a gradient.
"""

try:
    import torch as _torch  # noqa: F401
except ImportError as error:
    raise ImportError("reprise.torch needs PyTorch: pip install torch") from error

from .advantages import regroup
from .batches import inputs, restrict
from .correction import Corrected, correct, second_moment
from .metrics import combine
from .objective import Objective, Output, loss
from .store import Drawn, RolloutStore

__all__ = [
    "Corrected", "Drawn", "Objective", "Output", "RolloutStore", "combine", "correct", "inputs", "loss", "regroup",
    "restrict", "second_moment",
]  # fmt: skip
