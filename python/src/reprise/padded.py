"""Padded and Packed: batches in the two shapes that trainers take, as numpy arrays or torch tensors."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from .grid import Grid

if TYPE_CHECKING:
    from .batch import Batch

Array = npt.NDArray[Any]
A = TypeVar("A")
"""numpy's arrays, or torch's tensors."""


@dataclass(frozen=True)
class _Rows(Generic[A]):
    """What both shapes hold per rollout."""

    ids: A
    """uint64 [B] (torch: int64)."""
    groups: A
    """uint64 [B] (torch: int64): global numbers of the groups."""
    rewards: A
    """float32 [B]."""
    weights: A
    """float32 [B]: importance weights of the draws."""
    staleness: A
    """int32 [B] (torch: int64): in versions."""
    lengths: A
    """int64 [B]: tokens of each rollout."""
    tokens: A
    """int64 [B, L] or [N]: prompt and completion."""
    loss_mask: A
    """bool [B, L] or [N]: True where the policy produced the token."""
    position_ids: A
    """int64 [B, L] or [N]: position of the token in its rollout; 0 in padding."""
    logprobs: A
    """float32 [B, L] or [N]: of the behaviour policy; entry i is that of token i. 0 outside the loss mask."""
    advantages: A
    """float32 [B, L] or [N]: per token; 0 outside the loss mask where they are the rollout's."""
    versions: A
    """int32 [B, L] or [N] (torch: int64): that produced the token; -1 outside the loss mask."""
    values: A | None
    """float32 [B, L] or [N]: of a critic, where the producer gave them."""
    ref_logprobs: A | None
    """float32 [B, L] or [N]: of a reference policy, where the producer gave them."""

    def asdict(self) -> dict[str, A]:
        """Return what is there by name."""
        return {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name) is not None}

    def _tensors(self, device: Any, non_blocking: bool) -> dict[str, Any]:
        return {name: _tensor(value, device, non_blocking) for name, value in self.asdict().items()}


@dataclass(frozen=True)
class Padded(_Rows[A]):
    """Arrays [B, L], rows filled up to one length."""

    attention_mask: A
    """bool [B, L]: True where there is a token."""

    @classmethod
    def of(cls, batch: Batch, left: bool, pad_id: int, width: int) -> Padded[Array]:
        """Lay a batch out to a width of at least its longest rollout."""
        optional = [name for name in ("values", "ref_logprobs") if batch.has(name)]
        grid = Grid(batch.offsets, width, left, entry_bytes=2 * 8 + 3 * 4 + 2 * 1 + 4 * len(optional))
        padded: Padded[Array] = Padded(
            attention_mask=grid.keep,
            position_ids=grid.positions(),
            **_per_row(batch),
            **_per_token(batch, pad_id, grid.lay),
        )
        return padded

    def torch(self, device: Any = None, *, non_blocking: bool = False) -> Padded[Any]:
        """Return the same as torch tensors on a device. Numbers that index (tokens, ids, versions) are int64."""
        tensors: Padded[Any] = Padded(**{"values": None, "ref_logprobs": None, **self._tensors(device, non_blocking)})
        return tensors


@dataclass(frozen=True)
class Packed(_Rows[A]):
    """Arrays [N], one rollout after the other."""

    cu_seqlens: A
    """int32 [B + 1]: where each rollout begins, and the end; one more where the end is filled up."""
    sequence_ids: A
    """int64 [N]: row of each token's rollout; B where the end is filled up."""
    max_seqlen: int
    """Longest sequence of ``cu_seqlens``."""

    @classmethod
    def of(cls, batch: Batch, pad_id: int, multiple_of: int) -> Packed[Array]:
        """Lay a batch out, its end filled up to a multiple."""
        total = int(batch.offsets[-1])
        rest = -total % multiple_of

        def lay(flat: Array, fill: Any, dtype: Any = None) -> Array:
            flat = flat.astype(dtype or flat.dtype, copy=False)
            return np.concatenate([flat, np.full(rest, fill, flat.dtype)]) if rest else flat

        bounds = np.append(batch.offsets, total + rest) if rest else batch.offsets
        rows = np.repeat(np.arange(len(bounds) - 1), np.diff(bounds))
        position = np.arange(total + rest) - np.repeat(bounds[:-1], np.diff(bounds))
        position[total:] = 0
        packed: Packed[Array] = Packed(
            cu_seqlens=bounds.astype(np.int32),
            sequence_ids=rows,
            max_seqlen=int(np.diff(bounds).max(initial=0)),
            position_ids=position,
            **_per_row(batch),
            **_per_token(batch, pad_id, lay),
        )
        return packed

    def torch(self, device: Any = None, *, non_blocking: bool = False) -> Packed[Any]:
        """Return the same as torch tensors on a device. ``cu_seqlens`` stays int32; other numbers that index are int64."""
        tensors = self._tensors(device, non_blocking)
        tensors["cu_seqlens"] = _from_numpy(self.cu_seqlens).to(device=device, non_blocking=non_blocking)
        tensors["max_seqlen"] = self.max_seqlen
        packed: Packed[Any] = Packed(**{"values": None, "ref_logprobs": None, **tensors})
        return packed


def _per_row(batch: Batch) -> dict[str, Any]:
    rows = len(batch)

    def get(name: str, fill: float, dtype: Any) -> Array:
        return batch.column(name).astype(dtype, copy=False) if batch.has(name) else np.full(rows, fill, dtype)

    return {
        "ids": get("id", 0, np.uint64),
        "groups": get("group", 0, np.uint64),
        "rewards": get("reward", 0, np.float32),
        "weights": get("weight", 1, np.float32),
        "staleness": get("staleness", 0, np.int32),
        "lengths": batch.lengths,
    }


def _per_token(batch: Batch, pad_id: int, lay: Any) -> dict[str, Any]:
    total = int(batch.offsets[-1])

    def get(name: str, fill: float, dtype: Any) -> Array:
        return batch.flat(name) if batch.has(name) else np.full(total, fill, dtype)

    known = batch.has("advantage") or batch.has("advantages")
    return {
        "tokens": lay(batch.flat("tokens"), pad_id, np.int64),
        "loss_mask": lay(get("mask", 0, np.uint8).view(np.bool_), False),  # nothing but 0 and 1 enters a table
        "logprobs": lay(get("logprobs", 0, np.float32), 0),
        "advantages": lay(batch.advantages if known else np.zeros(total, np.float32), 0),
        "versions": lay(get("versions", -1, np.int32), -1),
        "values": lay(batch.flat("values"), 0) if batch.has("values") else None,
        "ref_logprobs": lay(batch.flat("ref_logprobs"), 0) if batch.has("ref_logprobs") else None,
    }


def _from_numpy(array: Any) -> Any:
    import torch

    array = np.ascontiguousarray(array)
    if not array.flags.writeable:  # a view of what was received, which torch would let anybody write to
        array = array.copy()
    return torch.from_numpy(array)


def _tensor(value: Any, device: Any, non_blocking: bool) -> Any:
    if not isinstance(value, np.ndarray):
        return value
    if value.dtype == np.uint64:  # torch indexes and compares int64; ids stay far below 2**63
        value = value.astype(np.int64)
    if value.dtype == np.int32:
        value = value.astype(np.int64)
    return _from_numpy(value).to(device=device, non_blocking=non_blocking)
