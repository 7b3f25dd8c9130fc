"""Arguments of calls -> what requests hold."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from .casting import to_numpy
from .errors import Invalid


def encoded(body: Mapping[str, Any]) -> bytes:
    """Return a request as JSON; numbers of numpy and torch are taken for what they are."""
    try:
        return json.dumps(body, allow_nan=False, default=_number).encode()
    except Invalid:
        raise
    except ValueError as error:
        raise Invalid(f"{', '.join(body)}: {error}: want finite numbers") from error


def _number(value: Any) -> Any:
    if hasattr(value, "item") and getattr(value, "ndim", 0) == 0:
        return value.item()
    raise Invalid(f"{value!r}: {type(value).__name__}: want a number, a text, or lists and dicts of them")


def size_of(batch: Any) -> Any:
    """Check the size of a batch that is asked for."""
    if not isinstance(batch, str) and batch < 1:
        raise Invalid(f"size: {batch}: want at least 1")
    return batch


def optional(**given: Any) -> dict[str, Any]:
    """Return what is there: neither None, nor 0 or empty, which stand for the service's defaults."""
    out: dict[str, Any] = {}
    for name, value in given.items():
        if value is None or (isinstance(value, (int, float, list, tuple)) and not value):
            continue
        if name == "columns" and isinstance(value, str):
            raise Invalid(f"columns: {value!r}: want a list of names, such as [{value!r}]")
        out[name] = list(value) if name == "columns" else value
    return out


def milliseconds(seconds: float) -> int:
    """Return a time to wait as requests hold it."""
    if not seconds >= 0 or seconds > 1e9:
        raise Invalid(f"timeout: {seconds}: want 0 to 1e9 seconds")
    return round(seconds * 1000)


def whole(name: str, values: Any) -> list[int]:
    """Return whole numbers >= 0 [B], such as ids or versions: a list, an array or a tensor."""
    array = to_numpy(values).reshape(-1)
    if array.size and array.dtype.kind not in "iu":
        raise Invalid(f"{name}: {array.dtype}: want whole numbers, as they came with the batch")
    wrong = np.flatnonzero(array < 0)
    if len(wrong):
        raise Invalid(f"{name}: entry {wrong[0]}: {array[wrong[0]]}: want at least 0")
    out: list[int] = array.tolist() if array.size else []
    return out


def measured(name: str, values: Any, rows: int) -> list[float]:
    """Return what was measured of so many rollouts as finite numbers."""
    array = to_numpy(values)
    if array.size and array.dtype.kind not in "biuf":
        raise Invalid(f"{name}: {array.dtype}: want numbers")
    array = array.reshape(-1).astype(np.float64)
    if len(array) != rows:
        raise Invalid(f"{name}: {len(array)} of them: want {rows}, one for each id")
    wrong = np.flatnonzero(~np.isfinite(array))
    if len(wrong):
        raise Invalid(f"{name}: entry {wrong[0]}: {array[wrong[0]]}: want a finite number")
    out: list[float] = array.tolist()
    return out
