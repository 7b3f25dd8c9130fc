"""Grid: where the tokens of each rollout stand in arrays [B, L]."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

ALIGN = 64  # bytes, of a line of the processor's cache

LONG = 128  # tokens per rollout from which copying row by row is faster than picking entries


class Grid:
    """Lays flat arrays [N] out as arrays [B, L].

    They lie one after the other in one block, since what a block costs that the system has to provide page by page is more
    than all the copying: a large one comes in large pages, or from memory that a block before it left.
    """

    def __init__(self, offsets: Array, width: int, left: bool, entry_bytes: int) -> None:
        """Make a grid for arrays [B, L] that have so many bytes to an entry, all together."""
        self._lengths = np.diff(offsets)
        self._starts = width - self._lengths if left else np.zeros_like(self._lengths)
        self._offsets = offsets
        self._shape = (len(self._lengths), width)
        self._full = bool((self._lengths == width).all())
        self._long = int(offsets[-1]) >= LONG * len(self._lengths)
        self._block = np.empty(len(self._lengths) * width * entry_bytes + 16 * ALIGN, np.uint8)
        self._taken = 0

    def _new(self, dtype: Any) -> Array:
        """Return an array [B, L] with anything in it."""
        dtype = np.dtype(dtype)
        begin = self._taken + -self._taken % ALIGN
        end = begin + self._shape[0] * self._shape[1] * dtype.itemsize
        if end > len(self._block):
            return np.empty(self._shape, dtype)
        self._taken = end
        out: Array = self._block[begin:end].view(dtype).reshape(self._shape)
        return out

    @cached_property
    def keep(self) -> Array:
        """bool [B, L]: where there is a token."""
        out = self._new(np.bool_)
        at = np.arange(self._shape[1])
        np.less(at, (self._starts + self._lengths)[:, None], out=out)
        if self._starts.any():
            out &= at >= self._starts[:, None]
        return out

    def lay(self, flat: Array, fill: Any, dtype: Any = None) -> Array:
        """Return entries [N] as [B, L], filled up."""
        dtype = np.dtype(dtype or flat.dtype)
        if self._full:
            out = self._new(dtype)
            out.reshape(-1)[:] = flat
            return out
        if not self._long:
            out = self._new(dtype)
            out.fill(fill)
            out[self.keep] = flat
            return out
        return self._rows(flat, self._offsets[:-1], fill, dtype)

    def positions(self) -> Array:
        """int64 [B, L]: position of each token in its rollout; 0 in padding."""
        at = np.arange(self._shape[1])
        if self._full:
            out = self._new(at.dtype)
            out[:] = at
            return out
        if self._long:
            return self._rows(at, np.zeros_like(self._lengths), 0, at.dtype)
        out = self._new(at.dtype)
        np.subtract(at, self._starts[:, None], out=out)
        out *= self.keep
        return out

    def _rows(self, source: Array, begins: Array, fill: Any, dtype: Any) -> Array:
        """Copy each row's entries, which begin so far into the source."""
        out = self._new(dtype)
        places = zip(out, begins.tolist(), self._starts.tolist(), self._lengths.tolist())
        for row, begin, start, length in places:
            row[:start] = fill
            row[start : start + length] = source[begin : begin + length]
            row[start + length :] = fill
        return out
