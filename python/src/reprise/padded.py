"""Padded and Packed: a batch in the two shapes that trainers take, as numpy arrays or torch tensors."""

from __future__ import annotations

import itertools
from collections.abc import Callable, ItemsView, Iterable, Iterator, KeysView
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, Generic, TypeVar, cast

import numpy as np

from .arrays import Array
from .columns import Columns
from .errors import NotFound

A = TypeVar("A")
"""A numpy array or a torch tensor."""

SYNONYMS = {
    "input_ids": "tokens", "mask": "loss_mask", "reward": "rewards", "id": "ids", "group": "groups",
    "group_mean": "group_means", "weight": "weights",
}  # fmt: skip
"""Other names of arrays, most of them those of the columns of a table."""

ABSENT = dict.fromkeys(("prompts", "group_means", "values", "ref_logprobs", "routed_experts", "sampling_mask"))
"""What a batch may be without."""


@dataclass(frozen=True)
class _Rows(Generic[A]):
    """What both shapes hold: as attributes, and as a dict, ``padded["tokens"]``, ``**padded``."""

    ids: A
    """uint64 [B] (torch: int64)."""
    groups: A
    """uint64 [B] (torch: int64): global numbers of the groups."""
    prompts: A | None
    """int64 [B]: numbers of the prompts in this batch, from 0; None if ``prompt_id`` is not among the sampled
    columns."""
    rewards: A
    """float32 [B]."""
    group_means: A | None
    """float32 [B]: mean reward of the rollout's group when it was inserted, if it is among the sampled columns."""
    weights: A
    """float32 [B]: importance weights of the draws."""
    staleness: A
    """int32 [B]: in versions."""
    lengths: A
    """int64 [B]: tokens of each rollout."""
    tokens: A
    """int32 [B, L] or [N] (torch: int64): prompt and completion."""
    loss_mask: A
    """bool [B, L] or [N]: True where the policy produced the token."""
    position_ids: A
    """int32 [B, L] or [N]: position of the token in its rollout; 0 in padding."""
    logprobs: A
    """float32 [B, L] or [N]: of the behaviour policy; entry i is of token i. 0 outside the loss mask; NaN where nobody
    knows them, in tables with ``unknown_logprobs``."""
    advantages: A
    """float32 [B, L] or [N]: `Batch.advantages`."""
    versions: A
    """int32 [B, L] or [N]: of the weights that produced the token; -1 outside the loss mask."""
    values: A | None
    """float32 [B, L] or [N]: of a critic, if the producer gave them."""
    ref_logprobs: A | None
    """float32 [B, L] or [N]: of a reference policy, if the producer gave them."""
    routed_experts: A | None
    """uint16 [B, L, E] or [N, E] (torch: int32): `Batch.routed_experts`, if all rollouts have as many per token; 0 in
    padding."""
    sampling_mask: A | None
    """int32 [K, 3] or [K, 2] (torch: int64): `Batch.sampling_mask` for `reprise.torch.restrict`. Each line has the row
    and column of a token in [B, L], or its place in [N], and one of its ids; none is of a first token, which nothing
    precedes. Tokens without a line have the whole vocabulary; None: all tokens have."""

    @property
    def input_ids(self) -> A:
        """The same as ``tokens``."""
        return self.tokens

    @property
    def mask(self) -> A:
        """The same as ``loss_mask``."""
        return self.loss_mask

    @property
    def reward(self) -> A:
        """The same as ``rewards``."""
        return self.rewards

    def asdict(self) -> dict[str, A]:
        """Return the arrays by name, without those that are None."""
        return {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name) is not None}

    # Read as a dict, of which there is no method values(): ``values`` are a critic's.

    def __getitem__(self, name: str) -> A:
        arrays = self.asdict()
        try:
            return arrays[SYNONYMS.get(name, name)]
        except KeyError:
            raise NotFound(f"{name}: not an array of this batch: want one of {', '.join(arrays)}") from None

    def __contains__(self, name: object) -> bool:
        return SYNONYMS.get(str(name), name) in self.asdict()

    def __iter__(self) -> Iterator[str]:
        return iter(self.asdict())

    def keys(self) -> KeysView[str]:
        """Return the names of the arrays, without those that are None."""
        return self.asdict().keys()

    def items(self) -> ItemsView[str, A]:
        """Return names and arrays, without those that are None."""
        return self.asdict().items()

    def get(self, name: str, default: A | None = None) -> A | None:
        """Return an array by name, or the default if there is none."""
        return self.asdict().get(SYNONYMS.get(name, name), default)

    def _tensors(self, device: Any, non_blocking: bool) -> dict[str, Any]:
        arrays = self.asdict()
        if self.sampling_mask is not None:
            arrays["sampling_mask"] = cast(A, np.asarray(self.sampling_mask).astype(np.int64))  # torch 2.1 wants it
        tensors = {name: _tensor(value, device, non_blocking) for name, value in arrays.items()}
        tensors["tokens"] = tensors["tokens"].long()  # on the device: half the bytes to send
        return tensors


@dataclass(frozen=True)
class Padded(_Rows[A]):
    """Arrays [B, L], rows padded to one length."""

    attention_mask: A
    """bool [B, L]: True where there is a token."""

    @classmethod
    def of(cls, batch: Columns, left: bool, pad_id: int, width: int) -> Padded[Array]:
        """Pad a batch to a width, at least that of its longest rollout."""
        optional = [name for name in ("values", "ref_logprobs") if batch.has(name)]
        entry_bytes = 5 * 4 + 2 * 1 + 4 * len(optional)
        padder = _Padder(batch.offsets, batch.rows_of_pieces, width, left, entry_bytes)
        known = _per_token(batch, pad_id, padder.pad)
        if batch.has("mask") and batch.has("advantage") and not batch.has("advantages"):
            known["advantages"] = padder.spread(batch.column("advantage"), known["loss_mask"])
        else:
            known["advantages"] = padder.pad(batch.pieces_of(_advantages(batch)), 0)
        padded: Padded[Array] = Padded(
            attention_mask=padder.keep,
            position_ids=padder.positions(),
            routed_experts=_experts(batch, padder.keep.shape, padder.keep),
            sampling_mask=_kept(batch, padder.places),
            **_per_row(batch),
            **known,
        )
        return padded

    def torch(self, device: Any = None, *, non_blocking: bool = False) -> Padded[Any]:
        """Return torch tensors on a device. Tokens and ids are int64, which ``gather`` and ``cross_entropy`` take."""
        tensors: Padded[Any] = Padded(**{**ABSENT, **self._tensors(device, non_blocking)})
        return tensors


@dataclass(frozen=True)
class Packed(_Rows[A]):
    """Arrays [N], one rollout after the other."""

    cu_seqlens: A
    """int32 [B + 1]: the start of each rollout, and the end; one more with padding."""
    sequence_ids: A
    """int64 [N]: row of each token's rollout; B in the padding."""
    max_seqlen: int
    """Length of the longest sequence of ``cu_seqlens``."""

    @classmethod
    def of(cls, batch: Columns, pad_id: int, multiple_of: int) -> Packed[Array]:
        """Pack a batch, and pad its end to a multiple."""
        total = int(batch.offsets[-1])
        rest = -total % multiple_of

        def pad(flats: list[Array], fill: Any) -> Array:
            if rest:
                flats = [*flats, np.full(rest, fill, flats[0].dtype)]
            return np.concatenate(flats) if len(flats) > 1 else flats[0]

        bounds = np.append(batch.offsets, total + rest) if rest else batch.offsets
        rows = np.repeat(np.arange(len(bounds) - 1), np.diff(bounds))
        packed: Packed[Array] = Packed(
            cu_seqlens=bounds.astype(np.int32),
            sequence_ids=rows,
            max_seqlen=int(np.diff(bounds).max(initial=0)),
            position_ids=pad([batch.positions.astype(np.int32)], 0),
            routed_experts=_experts(batch, (total + rest,), slice(total)),
            sampling_mask=_kept(batch, lambda places: (places,)),
            **_per_row(batch),
            advantages=pad([_advantages(batch)], 0),
            **_per_token(batch, pad_id, pad),
        )
        return packed

    def torch(self, device: Any = None, *, non_blocking: bool = False) -> Packed[Any]:
        """Return torch tensors on a device. Tokens and ids are int64, which ``gather`` and ``cross_entropy`` take."""
        packed: Packed[Any] = Packed(**{**ABSENT, **self._tensors(device, non_blocking)})
        return packed


def _per_row(batch: Columns) -> dict[str, Any]:
    rows = len(batch)

    def get(name: str, fill: float, dtype: Any) -> Array:
        return batch.column(name).astype(dtype, copy=False) if batch.has(name) else np.full(rows, fill, dtype)

    return {
        "ids": get("id", 0, np.uint64),
        "groups": get("group", 0, np.uint64),
        "prompts": batch.prompts if batch.has("prompt_id") else None,
        "rewards": get("reward", 0, np.float32),
        "group_means": get("group_mean", 0, np.float32) if batch.has("group_mean") else None,
        "weights": get("weight", 1, np.float32),
        "staleness": get("staleness", 0, np.int32),
        "lengths": batch.lengths,
    }


def _per_token(batch: Columns, pad_id: int, pad: Callable[[list[Array], Any], Array]) -> dict[str, Any]:
    total = int(batch.offsets[-1])

    def get(name: str, fill: float, dtype: Any) -> list[Array]:
        return batch.flat_pieces(name) if batch.has(name) else batch.pieces_of(np.full(total, fill, dtype))

    masks = [mask.view(np.bool_) for mask in get("mask", 0, np.uint8)]  # a table holds only 0 and 1
    return {
        "tokens": pad(batch.flat_pieces("tokens"), pad_id),
        "loss_mask": pad(masks, False),
        "logprobs": pad(get("logprobs", 0, np.float32), 0),
        "versions": pad(get("versions", -1, np.int32), -1),
        "values": pad(batch.flat_pieces("values"), 0) if batch.has("values") else None,
        "ref_logprobs": pad(batch.flat_pieces("ref_logprobs"), 0) if batch.has("ref_logprobs") else None,
    }


def _advantages(batch: Columns) -> Array:
    known = batch.has("advantage") or batch.has("advantages")
    return batch.advantages if known else np.zeros(int(batch.offsets[-1]), np.float32)


def _experts(batch: Columns, shape: tuple[int, ...], at: Any) -> Array | None:
    """Place the experts of the batch's tokens in an array [*shape, E]; None if rollouts have none or other numbers."""
    parts = batch.routed_experts if batch.has("routed_experts") else []
    known = [part for part in parts if part is not None]
    if not parts or len(known) < len(parts) or len({part.shape[1] for part in known}) > 1:
        return None
    out = np.zeros((*shape, known[0].shape[1]), np.uint16)
    out[at] = np.concatenate(known)
    return out


def _kept(batch: Columns, at: Callable[[Array], tuple[Array, ...]]) -> Array | None:
    """Return where a shape has the tokens of the sampling mask, and their ids, [K, 3] or [K, 2]."""
    if not batch.has("sampling_mask"):
        return None
    places, ids = batch.kept_ids
    follows = batch.positions[places] > 0
    return np.stack([*at(places[follows]), ids[follows]], 1).astype(np.int32)


def _from_numpy(array: Any) -> Any:
    try:
        import torch
    except ModuleNotFoundError as e:
        raise ModuleNotFoundError("torch() needs PyTorch: pip install './python[torch]'", name="torch") from e

    array = np.ascontiguousarray(array)
    if not array.flags.writeable:  # a view of what was received, which torch would let callers write to
        array = array.copy()
    return torch.from_numpy(array)


def _tensor(value: Any, device: Any, non_blocking: bool) -> Any:
    if not isinstance(value, np.ndarray):
        return value
    if value.dtype == np.uint64:  # torch computes little with it; ids stay far below 2**63
        value = value.view(np.int64)
    elif value.dtype == np.uint16:  # torch computes little with it
        value = value.astype(np.int32)
    return _from_numpy(value).to(device=device, non_blocking=non_blocking)


CACHE_LINE = 64  # bytes

LONG = 128  # mean tokens per rollout above which copying row by row is faster than boolean selection


class _Padder:
    """Pads flat arrays [N] to arrays [B, L].

    The arrays share one block of memory. Page faults cost more than the copying, and a large block comes in huge pages
    or from memory that was freed before.
    """

    def __init__(self, offsets: Array, pieces: list[int], width: int, left: bool, entry_bytes: int) -> None:
        """Prepare for arrays [B, L] of ``entry_bytes`` together per entry, from flat ones. ``pieces`` are the rows of
        each piece."""
        self._lengths = np.diff(offsets)
        self._starts = width - self._lengths if left else np.zeros_like(self._lengths)
        self._offsets, self._pieces = offsets, pieces
        begins = offsets[np.cumsum([0, *pieces[:-1]])]
        self._begins = (offsets[:-1] - np.repeat(begins, pieces)).tolist()  # of the rows in their pieces
        self._shape = (len(self._lengths), width)
        self._full = bool((self._lengths == width).all())
        self._long = int(offsets[-1]) >= LONG * len(self._lengths)
        self._block = np.empty(len(self._lengths) * width * entry_bytes + 16 * CACHE_LINE, np.uint8)
        self._taken = 0

    def _empty(self, dtype: Any) -> Array:
        """Return an uninitialized array [B, L]."""
        dtype = np.dtype(dtype)
        begin = self._taken + -self._taken % CACHE_LINE
        end = begin + self._shape[0] * self._shape[1] * dtype.itemsize
        if end > len(self._block):
            return np.empty(self._shape, dtype)
        self._taken = end
        out: Array = self._block[begin:end].view(dtype).reshape(self._shape)
        return out

    @cached_property
    def keep(self) -> Array:
        """bool [B, L]: True where there is a token."""
        out = self._empty(np.bool_)
        at = np.arange(self._shape[1])
        np.less(at, (self._starts + self._lengths)[:, None], out=out)
        if self._starts.any():
            out &= at >= self._starts[:, None]
        return out

    def places(self, flat: Array) -> tuple[Array, Array]:
        """Return the rows and columns in [B, L] of places in [N]."""
        rows = np.searchsorted(self._offsets, flat, side="right") - 1
        return rows, flat - self._offsets[rows] + self._starts[rows]

    def pad(self, flats: list[Array], fill: Any) -> Array:
        """Return entries [N], in pieces, as [B, L]."""
        if self._long and not self._full:
            sources = (flat for flat, rows in zip(flats, self._pieces) for _ in range(rows))
            return self._rows(sources, self._begins, fill, flats[0].dtype)
        out = self._empty(flats[0].dtype)
        if self._full:
            np.concatenate(flats, out=out.reshape(-1))
        else:
            out.fill(fill)
            out[self.keep] = np.concatenate(flats) if len(flats) > 1 else flats[0]
        return out

    def spread(self, values: Array, where: Array) -> Array:
        """Return values [B] as float32 [B, L], 0 except where ``where`` [B, L] is True."""
        out = self._empty(np.float32)
        out.fill(0)
        np.copyto(out, values[:, None], where=where)
        return out

    def positions(self) -> Array:
        """int32 [B, L]: position of each token in its rollout; 0 in padding."""
        at = np.arange(self._shape[1], dtype=np.int32)
        if self._long and not self._full:
            return self._rows(itertools.repeat(at), [0] * len(self._lengths), 0, at.dtype)
        out = self._empty(at.dtype)
        np.subtract(at, self._starts[:, None], out=out)
        if not self._full:
            out *= self.keep
        return out

    def _rows(self, sources: Iterable[Array], begins: list[int], fill: Any, dtype: Any) -> Array:
        """Copy each row's entries from their place in its source."""
        out = self._empty(dtype)
        places = zip(out, sources, begins, self._starts.tolist(), self._lengths.tolist())
        for row, source, begin, start, length in places:
            row[:start] = fill
            row[start : start + length] = source[begin : begin + length]
            row[start + length :] = fill
        return out
