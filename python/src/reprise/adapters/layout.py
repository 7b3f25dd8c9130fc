"""What the three layouts share: prompt and completion apart, each padded to a width of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from ..batch import Batch
from ..errors import Invalid

Array = npt.NDArray[Any]


def array(name: str, value: Any, shape: tuple[int, ...] | None = None) -> Array:
    """Return a tensor or array as numpy, of a shape if one is given."""
    if hasattr(value, "detach"):  # torch's, told without importing torch
        value = value.detach()
        if str(value.dtype) == "torch.bfloat16":  # which numpy does not have
            value = value.float()
        value = value.cpu().numpy()
    out = np.asarray(value)
    if shape is not None and out.shape != shape:
        raise Invalid(f"{name}: shape {list(out.shape)}: want {list(shape)}")
    return out


def get(batch: Mapping[str, Any], name: str, shape: tuple[int, ...] | None = None) -> Array | None:
    """Return an entry that may be missing."""
    value = batch.get(name)
    return None if value is None else array(name, value, shape)


def need(batch: Mapping[str, Any], name: str, remedy: str = "") -> Array:
    """Return an entry that must be there."""
    value = get(batch, name)
    if value is None:
        raise Invalid(f"{name}: missing: want it{' ' + remedy if remedy else ''}")
    return value


def join(left: Array | None, right: Array, keep: Array) -> Array:
    """Put [B, P] and [B, C] side by side and return the entries [N] where keep [B, P + C] holds. None: zeros of right's type."""
    if left is None:
        left = np.zeros((len(right), keep.shape[1] - right.shape[1]), right.dtype)
    out: Array = np.concatenate([left, right], axis=1)[keep]
    return out


def per_token(version: Any, mask: Array, lengths: Array) -> Array:
    """Spread a version, one for all or one per rollout [B], over the policy's tokens [N]; the others get -1."""
    rows = np.broadcast_to(array("version", version), lengths.shape)
    out: Array = np.where(mask != 0, np.repeat(rows, lengths), -1).astype(np.int32)
    return out


def consecutive_groups(rows: int, size: int) -> Array:
    """Number groups of so many consecutive rows."""
    if size < 1 or rows % size:
        raise Invalid(f"group_size: {size}: want a divisor of the {rows} rollouts")
    return np.arange(rows) // size


def has_policy(mask: Array, lengths: Array, remedy: str) -> None:
    """Refuse rollouts without one token of the policy."""
    owner = np.repeat(np.arange(len(lengths)), lengths)
    counts = np.bincount(owner, weights=mask != 0, minlength=len(lengths))
    empty = np.flatnonzero(counts == 0)
    if len(empty):
        raise Invalid(f"mask: row {empty[0]}: no token of the policy: {remedy}")


class Sides:
    """A batch's tokens apart: prompts [B, P] padded on the left, and what follows [B, C] padded on the right."""

    def __init__(self, batch: Batch, prompt_width: int | None, completion_width: int | None, multiple_of: int) -> None:
        prompts = batch.prompt_lengths
        completions = batch.lengths - prompts
        self._rows = len(batch)
        width = _width("prompt_width", prompts, prompt_width, multiple_of)
        after = _width("completion_width", completions, completion_width, multiple_of)
        at, follow = np.arange(width), np.arange(after)
        self.prompt_mask = at >= (width - prompts)[:, None]  # [B, P] bool
        self.completion_mask = follow < completions[:, None]  # [B, C] bool
        position = np.arange(int(batch.offsets[-1])) - np.repeat(batch.offsets[:-1], batch.lengths)
        self._in_prompt = position < np.repeat(prompts, batch.lengths)

    def prompt(self, flat: Array, fill: Any, dtype: Any) -> Array:
        """Return the prompts' entries of [N] as [B, P]."""
        out = np.full(self.prompt_mask.shape, fill, dtype)
        out[self.prompt_mask] = flat[self._in_prompt]
        return out

    def completion(self, flat: Array, fill: Any, dtype: Any) -> Array:
        """Return the entries of [N] after the prompts as [B, C]."""
        out = np.full(self.completion_mask.shape, fill, dtype)
        out[self.completion_mask] = flat[~self._in_prompt]
        return out


def _width(name: str, lengths: Array, given: int | None, multiple_of: int) -> int:
    longest = int(lengths.max(initial=0))
    width = longest if given is None else given
    if width < longest:
        raise Invalid(f"{name}: {given}: want at least {longest}, of row {int(lengths.argmax())}")
    return width + -width % multiple_of


def finish(tensors: dict[str, Array], torch: bool, device: Any = None) -> dict[str, Any]:
    """Return numpy arrays as they are, or as torch tensors."""
    if not torch:
        return dict(tensors)
    import torch as library

    return {name: library.from_numpy(np.ascontiguousarray(value)).to(device) for name, value in tensors.items()}
