"""Arrays, tensors and lists as numpy arrays of the wire's types. A number that does not fit its type is an error."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from .errors import Invalid

Array = npt.NDArray[Any]


def to_numpy(value: Any) -> Array:
    """Return an array, a torch tensor or a list as numpy, without a copy where possible."""
    if hasattr(value, "detach"):  # a torch tensor; torch need not be installed
        value = value.detach()
        if str(value.dtype) == "torch.bfloat16":  # numpy has no such type
            value = value.float()
        value = value.cpu().numpy()
    try:
        return np.asarray(value)
    except ValueError as error:
        raise Invalid(
            "rows: lists of different lengths where numbers are wanted: want one number for each rollout or token"
        ) from error


def type_name(array: Array) -> str:
    """Return what the entries of an array are, in words for an error."""
    return {"U": "str", "S": "bytes", "O": "objects"}.get(array.dtype.kind, str(array.dtype))


def dense(value: Any) -> Array | None:
    """Return an array or tensor as numpy, and None for anything else, such as a list with an entry for each rollout."""
    if isinstance(value, np.ndarray) and value.dtype == object:
        return None
    return to_numpy(value) if isinstance(value, np.ndarray) or hasattr(value, "detach") else None


def cast(name: str, numbers: Array, dtype: Any, where: Callable[[int], str] = "row {}".format) -> Array:
    """Cast to a type of the wire.

    Raises:
        Invalid: naming the first number that does not fit, and its place according to ``where``.
    """
    want = np.dtype(dtype)
    if numbers.dtype == want:
        return np.ascontiguousarray(numbers)
    if numbers.dtype.kind not in "biuf":
        raise Invalid(f"{name}: {type_name(numbers)}: want numbers that fit {want}")
    if numbers.dtype == np.bool_:
        return np.ascontiguousarray(numbers).view(np.uint8).astype(want, copy=False)
    if want.kind != "f" and numbers.size:
        low, high = (0, 1) if want.kind == "b" else (np.iinfo(want).min, np.iinfo(want).max)
        if numbers.dtype.kind == "f" or numbers.min() < low or numbers.max() > high:
            fits = (numbers >= low) & (numbers <= high)
            if numbers.dtype.kind == "f":
                fits &= numbers == np.floor(numbers)  # False for NaN
            _refuse_first(name, numbers, ~fits, f"want a whole number from {low} to {high}", where)
    with np.errstate(over="ignore"):
        out = np.ascontiguousarray(numbers.astype(want))
    if want.kind == "f" and numbers.dtype.itemsize > want.itemsize:
        # The service refuses infinities and NaN. This is a finite number that became one.
        _refuse_first(name, numbers, np.isinf(out) & np.isfinite(numbers), f"want what fits {want}", where)
    return out


def whole(name: str, value: Any, least: int | None = None) -> int:
    """Return an argument that is a whole number, of Python, numpy or torch."""
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or isinstance(value, bool) or (least is not None and number < least):
        shown = repr(value) if number is None else number
        raise Invalid(f"{name}: {shown}: want {'a whole number' if least is None else f'at least {least}'}")
    return number


def seconds(name: str, value: Any) -> float:
    """Return an argument that is a time."""
    if not hasattr(value, "__float__") or not 0 <= float(value) <= 1e9:
        raise Invalid(f"{name}: {value!r}: want 0 to 1e9 seconds")
    return float(value)


def whole_numbers(name: str, values: Any) -> list[int]:
    """Return whole numbers >= 0 [B], such as ids or versions."""
    array = to_numpy(values).reshape(-1)
    if array.size and array.dtype.kind not in "iu":
        raise Invalid(f"{name}: {type_name(array)}: want whole numbers, as they came with the batch")
    _refuse_first(name, array, array < 0, "want at least 0", "entry {}".format)
    return [int(number) for number in array.tolist()]


def finite_numbers(name: str, values: Any, rows: int) -> list[float]:
    """Return finite numbers [B], one for each rollout."""
    array = to_numpy(values)
    if array.size and array.dtype.kind not in "biuf":
        raise Invalid(f"{name}: {type_name(array)}: want numbers")
    array = array.reshape(-1).astype(np.float64)
    if len(array) != rows:
        raise Invalid(f"{name}: {len(array)} of them: want {rows}, one for each id")
    _refuse_first(name, array, ~np.isfinite(array), "want a finite number", "entry {}".format)
    return [float(number) for number in array.tolist()]


def _refuse_first(name: str, numbers: Array, bad: Array, want: str, where: Callable[[int], str]) -> None:
    found = np.flatnonzero(bad)
    if len(found):
        raise Invalid(f"{name}: {where(int(found[0]))}: {numbers.reshape(-1)[found[0]]}: {want}")
