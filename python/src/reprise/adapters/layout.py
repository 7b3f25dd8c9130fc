"""What the adapters share: reading named tensors, and splitting a batch into prompts and completions."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..arrays import Array, to_numpy
from ..batch import Batch
from ..errors import Invalid, RepairWarning
from ..rollouts import TOKEN_COLUMNS


def array(name: str, value: Any, shape: tuple[int, ...] | None = None) -> Array:
    """Return a tensor or array as numpy, and check its shape if one is given."""
    out = to_numpy(value)
    if shape is not None and out.shape != shape:
        raise Invalid(f"{name}: shape {list(out.shape)}: want {list(shape)}")
    return out


def get(batch: Mapping[str, Any], name: str, shape: tuple[int, ...] | None = None) -> Array | None:
    """Return an optional entry."""
    value = batch.get(name)
    return None if value is None else array(name, value, shape)


def need(batch: Mapping[str, Any], name: str, remedy: str = "") -> Array:
    """Return a required entry."""
    value = get(batch, name)
    if value is None:
        raise Invalid(f"{name}: missing: want it{' ' + remedy if remedy else ''}")
    return value


def first(batch: Mapping[str, Any], names: Sequence[str], shape: tuple[int, ...], missing: str) -> Array:
    """Return the first entry that exists, or raise an error with this message."""
    for name in names:
        found = get(batch, name, shape)
        if found is not None:
            return found
    raise Invalid(missing)


def join(left: Array | None, right: Array, keep: Array) -> Array:
    """Join [B, P] and [B, C], and return the entries [N] where keep [B, P + C] is True. None: zeros of right's type."""
    if left is None:
        left = np.zeros((len(right), keep.shape[1] - right.shape[1]), right.dtype)
    out: Array = np.concatenate([left, right], axis=1)[keep]
    return out


def versions(version: Any, mask: Array, lengths: Array) -> Array:
    """Return a version, one for all or one per rollout [B], at each token of the policy [N], and -1 at the others."""
    rows = np.broadcast_to(array("version", version), lengths.shape)
    out: Array = np.where(mask != 0, np.repeat(rows, lengths), -1).astype(np.int32)
    return out


ROUNDING = 0.01
"""How far above 0 a log-prob may lie by rounding: bfloat16 has 8 bits."""


def repaired(columns: dict[str, Any], whole_groups: bool) -> dict[str, Any]:
    """Return columns that a table accepts, and warn of what was done for it.

    Rollouts without a token of the policy are dropped, and those with NaN or infinities. Log-probs that rounding put
    above 0 become 0. With whole_groups, the rest of a group that lost a rollout is dropped too.

    Args:
        columns: with ``lengths``, flat columns per token [N], and columns per rollout [B] or for all.
        whole_groups: drop the rest of a group that lost a rollout.

    Raises:
        Invalid: a log-prob above 0 by more than rounding.
    """
    lengths = columns["lengths"]
    row_of_token = np.repeat(np.arange(len(lengths)), lengths)
    policy = columns["mask"] != 0
    keep = np.bincount(row_of_token, weights=policy, minlength=len(lengths)) > 0
    if not keep.all():
        what = "rollouts dropped: no token of the policy, as mask_truncated_completions leaves them"
        warn("mask", (~keep).sum(), what)
    for name in ("logprobs", "ref_logprobs", "values", "advantages", "advantage", "reward"):
        if name not in columns:
            continue
        bad = ~np.isfinite(columns[name])
        if name in TOKEN_COLUMNS:
            bad = np.bincount(row_of_token, weights=bad, minlength=len(lengths)) > 0
        if (bad & keep).any():
            warn(name, (bad & keep).sum(), "rollouts dropped: NaN or infinite")
        keep &= ~bad
    for name in ("logprobs", "ref_logprobs"):
        if name not in columns:
            continue
        above = (columns[name] > 0) & keep[row_of_token]
        wrong = np.flatnonzero(above & (columns[name] > ROUNDING))
        if len(wrong):
            row, value = row_of_token[wrong[0]], columns[name][wrong[0]]
            raise Invalid(f"{name}: row {row}: {value}: want natural logs of probabilities, at most 0")
        if above.any():
            warn(name, above.sum(), "entries set to 0: rounding put them above it")
            columns[name] = np.where(above, 0, columns[name])
    if whole_groups and "group" in columns:
        rest = keep & np.isin(columns["group"], columns["group"][~keep])
        if rest.any():
            warn("group", rest.sum(), "rollouts dropped: others of their groups were")
        keep &= ~rest
    if keep.all():
        return columns
    return {name: _rows(name, value, keep, row_of_token) for name, value in columns.items()}


def _rows(name: str, value: Any, keep: Array, row_of_token: Array) -> Any:
    """Return a column without the rows that are not kept."""
    if name in TOKEN_COLUMNS:
        return value[keep[row_of_token]]
    if isinstance(value, list):
        return [item for item, kept in zip(value, keep) if kept]
    return value[keep] if isinstance(value, np.ndarray) else value


def warn(name: str, count: Any, what: str) -> None:
    """Warn the caller of the adapter of this number of rollouts or entries."""
    warnings.warn(RepairWarning(name, int(count), what), stacklevel=4)


def row_columns(rows: int, prompt_ids: Any, truncated: Any, temperature: float, top_p: float) -> dict[str, Any]:
    """Return the columns per rollout that the adapters take as arguments."""
    columns: dict[str, Any] = {"temperature": temperature, "top_p": top_p}
    if prompt_ids is not None:
        columns["prompt_id"] = [str(name) for name in prompt_ids]
    if truncated is not None:
        columns["truncated"] = array("truncated", truncated, (rows,)).astype(bool)
    return columns


class Sides:
    """A batch split into prompts [B, P] padded on the left, and completions [B, C] padded on the right."""

    def __init__(
        self, batch: Batch, prompt_width: int | None, completion_width: int | None, multiple_of: int = 1
    ) -> None:
        prompts = batch.prompt_lengths
        completions = batch.lengths - prompts
        width = _width("prompt_width", prompts, prompt_width, multiple_of)
        self.prompt_mask = np.arange(width) >= (width - prompts)[:, None]  # [B, P] bool
        width = _width("completion_width", completions, completion_width, multiple_of)
        self.completion_mask = np.arange(width) < completions[:, None]  # [B, C] bool
        self._in_prompt = batch.positions < np.repeat(prompts, batch.lengths)

    def prompt(self, flat: Array, fill: Any, dtype: Any) -> Array:
        """Return the prompts' entries of [N] as [B, P]."""
        out = np.full(self.prompt_mask.shape, fill, dtype)
        out[self.prompt_mask] = flat[self._in_prompt]
        return out

    def completion(self, flat: Array, fill: Any, dtype: Any) -> Array:
        """Return the completions' entries of [N] as [B, C]."""
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
    """Return the arrays as they are, or as torch tensors."""
    if not torch:
        return dict(tensors)
    import torch as library

    return {name: library.from_numpy(np.asarray(value, order="C")).to(device) for name, value in tensors.items()}
