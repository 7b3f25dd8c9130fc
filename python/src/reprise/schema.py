"""The columns of the wire schema (DESIGN.md, `wire`): one row is one rollout, and lists have one entry per token."""

from __future__ import annotations

import difflib
from typing import Any

import numpy as np
import pyarrow as pa

VERSION = "1"
"""Of the schema, under the metadata key ``reprise.schema``."""

TOKEN_COLUMNS: dict[str, tuple[Any, Any]] = {
    "tokens": (np.int32, pa.int32()),
    "mask": (np.uint8, pa.uint8()),
    "logprobs": (np.float32, pa.float32()),
    "versions": (np.int32, pa.int32()),
    "advantages": (np.float32, pa.float32()),
    "values": (np.float32, pa.float32()),
    "ref_logprobs": (np.float32, pa.float32()),
}
"""Columns with one entry per token, and the type of the entries in numpy and in Arrow."""

ROW_COLUMNS: dict[str, tuple[Any, Any]] = {
    "group": (np.uint64, pa.uint64()),
    "version": (np.int32, pa.int32()),
    "temperature": (np.float32, pa.float32()),
    "top_p": (np.float32, pa.float32()),
    "reward": (np.float32, pa.float32()),
    "advantage": (np.float32, pa.float32()),
    "truncated": (np.bool_, pa.bool_()),
}
"""Columns of numbers with one value per rollout."""

OTHER_COLUMNS: dict[str, Any] = {
    "prompt_id": pa.utf8(),
    "text": pa.utf8(),
    "images": pa.list_(pa.binary()),
    "turns": pa.list_(
        pa.struct([("start", pa.int32()), ("end", pa.int32()), ("reward", pa.float32()), ("done", pa.bool_())])
    ),
    "meta": pa.map_(pa.utf8(), pa.utf8()),
}
"""Columns of text and of nested things."""

LAYOUT_KEYS = ("lengths", "attention_mask", "prompt_lengths")
"""Keys of an insertion that are no columns: they say where the tokens of padded or packed columns stand."""


def nearest(name: str) -> str:
    """Return a hint at the column that a misspelt name may mean, or nothing."""
    known = [*TOKEN_COLUMNS, *ROW_COLUMNS, *OTHER_COLUMNS, *LAYOUT_KEYS]
    found = difflib.get_close_matches(name, known, n=1)
    return f" (did you mean {found[0]}?)" if found else ""
