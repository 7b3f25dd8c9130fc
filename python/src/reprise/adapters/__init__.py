"""The sample layouts of TRL, verl and AReaL, in both directions, without importing any of them.

Each module has `rollouts`, which turns a batch of that framework into columns for `Table.insert`, and `tensors`, which turns a
`Batch` into what that framework trains on. Arrays may be numpy's or torch's; what comes out of `tensors` is numpy's, or torch's
with ``torch=True``.
"""

from . import areal, trl, verl

__all__ = ["areal", "trl", "verl"]
