"""Arrays, tensors and lists -> numpy, in the wire's types: what does not fit is an error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .errors import Invalid

Array = npt.NDArray[Any]


def to_numpy(value: Any) -> Array:
    """Return an array, a torch tensor or a list as numpy, without a copy where there need not be one."""
    if hasattr(value, "detach"):  # torch's, told without importing torch
        value = value.detach()
        if str(value.dtype) == "torch.bfloat16":  # which numpy does not have
            value = value.float()
        value = value.cpu().numpy()
    try:
        return np.asarray(value)
    except ValueError as error:
        raise Invalid(f"rows: {error}: want lists of one length, or one list for each rollout") from error


def dense_array(value: Any) -> Array | None:
    """Return an array or tensor as numpy; None for lists with an entry for each rollout."""
    if isinstance(value, np.ndarray) and value.dtype == object:
        return None
    if isinstance(value, np.ndarray) or hasattr(value, "detach"):
        return to_numpy(value)
    return None


def numbers_of(name: str, row: int, part: Any) -> Array:
    """Return the numbers of one rollout, a list or 1-D array [L], as numpy."""
    array = np.asarray(part, np.float64) if isinstance(part, list) and not part else to_numpy(part)
    if array.dtype.kind not in "biuf":
        raise Invalid(f"{name}: row {row}: {array.dtype}: want numbers, none of them null")
    return array


def in_row(entry: int) -> str:
    """Say where an entry of a column with one number per rollout stands."""
    return f"row {entry}"


def cast_to(name: str, numbers: Array, dtype: Any, where: Callable[[int], str] = in_row) -> Array:
    """Cast to the wire's type; a number that does not fit it is an error, which says where it stands."""
    want = np.dtype(dtype)
    if numbers.dtype == want:
        return np.ascontiguousarray(numbers)
    if numbers.dtype.kind not in "biuf":
        raise Invalid(f"{name}: {numbers.dtype}: want numbers that fit {want}")
    if numbers.dtype == np.bool_:
        return np.ascontiguousarray(numbers).view(np.uint8).astype(want, copy=False)
    if want.kind in "iu":
        _check_range(name, numbers, np.iinfo(want).min, np.iinfo(want).max, where)
    elif want.kind == "b":
        _check_range(name, numbers, 0, 1, where)
    with np.errstate(over="ignore"):
        out = np.ascontiguousarray(numbers.astype(want))
    if want.kind == "f" and numbers.dtype.itemsize > want.itemsize:
        # Infinities and NaN are the service's to refuse; a number that became one is ours.
        _first(name, numbers, np.isinf(out) & np.isfinite(numbers), f"want what fits {want}", where)
    return out


def _check_range(name: str, numbers: Array, low: int, high: int, where: Callable[[int], str]) -> None:
    if not numbers.size:
        return
    if numbers.min() < low or numbers.max() > high or numbers.dtype.kind == "f":
        bad = (numbers < low) | (numbers > high)
        if numbers.dtype.kind == "f":
            bad |= numbers != np.floor(numbers)  # NaN too
        _first(name, numbers, bad, f"want a whole number from {low} to {high}", where)


def _first(name: str, numbers: Array, bad: Array, want: str, where: Callable[[int], str]) -> None:
    found = np.flatnonzero(bad)
    if len(found):
        raise Invalid(f"{name}: {where(int(found[0]))}: {numbers.reshape(-1)[found[0]]}: {want}")


def one_array(value: Any) -> pa.Array:
    """Return an array of Arrow, chunked or not, in one piece."""
    if not isinstance(value, pa.ChunkedArray):
        return value
    combined = value.combine_chunks()
    return pa.concat_arrays(combined.chunks) if isinstance(combined, pa.ChunkedArray) else combined
