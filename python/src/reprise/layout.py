"""Layout: where the tokens of each rollout stand in what is inserted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from . import schema
from .casting import Array, cast_to, dense_array, numbers_of, one_array, to_numpy
from .errors import Invalid


class Layout:
    """Where the tokens of each rollout stand in columns that are padded to [B, W], packed to [N], or lists."""

    def __init__(self, lengths: Array, keep: Array | None) -> None:
        self.lengths = lengths  # [B]
        self.keep = keep  # [B, W] bool, where padded columns hold tokens; None: they hold them everywhere, or there are none
        self.rows = len(lengths)
        offsets = np.zeros(self.rows + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        if offsets[-1] > np.iinfo(np.int32).max:
            raise Invalid(f"tokens: {offsets[-1]} in one insertion: want fewer than 2**31; insert in parts")
        self.total = int(offsets[-1])
        self.offsets = pa.array(offsets.astype(np.int32))

    @classmethod
    def of(cls, columns: Mapping[str, Any]) -> Layout:
        """Read the layout off the tokens, and the keys ``attention_mask`` or ``lengths`` beside them."""
        tokens = columns["tokens"]
        mask, lengths = columns.get("attention_mask"), columns.get("lengths")
        if isinstance(tokens, (pa.Array, pa.ChunkedArray)):
            return cls(_lengths_of(_list_array("tokens", tokens)), None)
        dense = dense_array(tokens)
        if dense is None:
            return cls(np.fromiter((_length("tokens", i, row) for i, row in enumerate(tokens)), np.int64), None)
        if dense.ndim == 1:
            if lengths is None:
                raise Invalid("tokens: a flat array: want the number of tokens of each rollout as lengths, or a 2-D array")
            counts = _lengths(lengths, len(dense))
            if counts.sum() != len(dense):
                raise Invalid(f"lengths: {counts.sum()} tokens in all: want the {len(dense)} of tokens")
            return cls(counts, None)
        if dense.ndim != 2:
            raise Invalid(f"tokens: {dense.ndim} dimensions: want [B, L], flat with lengths, or one list for each rollout")
        return cls._padded(dense.shape, mask, lengths)

    @classmethod
    def _padded(cls, shape: tuple[int, ...], mask: Any, lengths: Any) -> Layout:
        rows, width = shape
        if mask is not None:
            keep = to_numpy(mask).astype(bool)
            if keep.shape != shape:
                raise Invalid(f"attention_mask: {list(keep.shape)}: want the shape of tokens, {list(shape)}")
            counts = keep.sum(axis=1, dtype=np.int64)
            return cls(counts, None if keep.all() else keep)
        if lengths is None:
            return cls(np.full(rows, width, np.int64), None)
        counts = _lengths(lengths, width)
        if len(counts) != rows:
            raise Invalid(f"lengths: {len(counts)} of them: want {rows}, one for each row of tokens")
        if (counts == width).all():
            return cls(counts, None)
        return cls(counts, np.arange(width) < counts[:, None])

    def lists(self, name: str, value: Any) -> pa.Array:
        """Return a column with one entry per token as list<...>, whatever form it has."""
        if isinstance(value, (pa.Array, pa.ChunkedArray)):
            return _list_array(name, value)
        dtype, arrow = schema.TOKEN_COLUMNS[name]
        dense = dense_array(value)
        if dense is None:
            return self._ragged(name, value, dtype, arrow)
        if dense.ndim == 2:
            dense = self._compact(name, dense)
        elif dense.ndim != 1 or len(dense) != self.total:
            raise Invalid(f"{name}: shape {list(dense.shape)}: want what tokens has: {self.total} tokens of {self.rows} rollouts")
        return pa.ListArray.from_arrays(self.offsets, pa.array(cast_to(name, dense, dtype, _in_token(self.lengths)), type=arrow))

    def _compact(self, name: str, dense: Array) -> Array:
        """Return the tokens' entries of a padded [B, W] array as one flat array."""
        if self.keep is not None and dense.shape == self.keep.shape:
            return dense[self.keep]
        if self.keep is None and dense.size == self.total and dense.shape[0] == self.rows:
            return dense.reshape(-1)
        want = [self.rows, int(self.lengths.max(initial=0))] if self.keep is None else list(self.keep.shape)
        raise Invalid(f"{name}: shape {list(dense.shape)}: want that of tokens, {want}")

    def _ragged(self, name: str, value: Any, dtype: Any, arrow: Any) -> pa.Array:
        """Return one list or 1-D array for each rollout as list<...>; None stands for a null row."""
        if len(value) != self.rows:
            raise Invalid(f"{name}: {len(value)} rows: want {self.rows}, as tokens has")
        parts = [None if part is None else np.atleast_1d(numbers_of(name, row, part)) for row, part in enumerate(value)]
        for row, part in enumerate(parts):
            if part is not None and part.shape != (self.lengths[row],):
                raise Invalid(f"{name}: row {row}: shape {list(part.shape)}: want {self.lengths[row]} entries, one per token")
        present = [part for part in parts if part is not None]
        flat = np.concatenate(present) if present else np.empty(0, dtype)
        absent = np.array([part is None for part in parts])
        lengths = np.where(absent, 0, self.lengths)
        values = pa.array(cast_to(name, flat, dtype, _in_token(lengths)), type=arrow)
        if len(present) == len(parts):
            return pa.ListArray.from_arrays(self.offsets, values)
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
        return pa.ListArray.from_arrays(pa.array(offsets), values, mask=pa.array(absent))

    def mask(self, prompt_lengths: Any) -> pa.Array:
        """Return the column mask: 0 for the first so many tokens of each rollout, 1 for those after them."""
        given = to_numpy(prompt_lengths)
        counts = cast_to("prompt_lengths", given, np.int64).reshape(given.shape)
        if counts.shape not in ((), (self.rows,)):
            raise Invalid(f"prompt_lengths: shape {list(counts.shape)}: want one number for each of {self.rows} rollouts, or one for all")
        counts = np.broadcast_to(counts, (self.rows,))
        wrong = np.flatnonzero((counts < 0) | (counts >= self.lengths))
        if len(wrong):
            most = self.lengths[wrong[0]] - 1
            raise Invalid(f"prompt_lengths: row {wrong[0]}: {counts[wrong[0]]}: want 0 to {most}, which leaves a token to the policy")
        starts = np.asarray(self.offsets)[:-1]
        position = np.arange(self.total) - np.repeat(starts, self.lengths)
        return pa.ListArray.from_arrays(self.offsets, pa.array((position >= np.repeat(counts, self.lengths)).view(np.uint8)))


def _in_token(lengths: Array) -> Callable[[int], str]:
    """Return what says where an entry of a flat array [N] stands."""

    def where(entry: int) -> str:
        ends = np.cumsum(lengths)
        row = int(np.searchsorted(ends, entry, side="right"))
        return f"row {row}: token {entry - int(ends[row] - lengths[row])}"

    return where


def _length(name: str, row: int, part: Any) -> int:
    try:
        return len(part)
    except TypeError as error:
        raise Invalid(f"{name}: row {row} is {type(part).__name__}: want a list of numbers for each rollout") from error


def _lengths(value: Any, most: int) -> Array:
    counts = cast_to("lengths", to_numpy(value), np.int64)
    if counts.ndim != 1:
        raise Invalid(f"lengths: {counts.ndim} dimensions: want one number for each rollout")
    wrong = np.flatnonzero((counts < 0) | (counts > most))
    if len(wrong):
        raise Invalid(f"lengths: row {wrong[0]}: {counts[wrong[0]]}: want 0 to {most}")
    return counts


def _list_array(name: str, value: Any) -> pa.Array:
    array = one_array(value)
    if not hasattr(array, "flatten"):
        raise Invalid(f"{name}: {array.type}: want a list of numbers for each rollout")
    return array


def _lengths_of(array: pa.Array) -> Array:
    return np.asarray(array.value_lengths().fill_null(0)).astype(np.int64)
