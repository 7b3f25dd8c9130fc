"""The batches of verl and AReaL, in both directions, without importing either. `reprise.trl` has those of TRL.

In each module `rollouts` converts a batch of the framework to columns for `Table.insert`, and `tensors` converts a
`Batch` to the framework's training input. Inputs may be arrays of numpy or tensors of torch. Outputs of `tensors` are
numpy's, or torch's with ``torch=True``.
"""

from . import areal, verl

__all__ = ["areal", "verl"]
