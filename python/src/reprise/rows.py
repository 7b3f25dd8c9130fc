"""Rollouts in whatever form they come -> one Arrow record batch of the wire schema.

Nothing here goes token by token: padded arrays are compacted with one boolean selection, flat arrays are taken over
without a copy where their type is the wire's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Union

import numpy as np
import pyarrow as pa

from . import schema
from .casting import cast_to, dense_array, one_array, to_numpy
from .errors import Invalid
from .layout import Layout

Rows = Union[Mapping[str, Any], Sequence[Mapping[str, Any]], pa.Table, pa.RecordBatch]
"""What can be inserted: a dict of columns, a list of dicts with a rollout each, or something of Arrow."""


def record_batch(rows: Rows, *, group_size: int = 0, extra: pa.Schema | None = None) -> pa.RecordBatch:
    """Return rollouts as one record batch, B rows with L tokens each, prompts included.

    Args:
        rows: a mapping from column names to values, as `Table.insert` describes; a sequence of mappings, one for each
            rollout; or a `pyarrow.Table` or `RecordBatch`, which is taken as it is.
        group_size: where there is no column ``group``: so many consecutive rollouts form a group.
        extra: schema with the types of the ``x_`` columns; without it they are inferred.

    Raises:
        Invalid: naming the column, the row where it is about one, and the remedy.
    """
    if isinstance(rows, pa.RecordBatch):
        batch = rows
    elif isinstance(rows, pa.Table):
        batch = _one_batch(rows)
    elif isinstance(rows, Mapping):
        batch = _from_columns(rows, extra)
    elif isinstance(rows, Sequence) and not isinstance(rows, (str, bytes)):
        if not rows:
            raise Invalid("rows: none: want at least one rollout")
        batch = _from_columns(_columns(rows), extra)
    else:
        raise Invalid(f"rows: {type(rows).__name__}: want a dict of columns, a list of dicts, or a table of pyarrow")
    if batch.num_rows == 0:
        raise Invalid("rows: none: want at least one rollout")
    if group_size and "group" not in batch.schema.names:
        batch = _with_groups(batch, group_size)
    return batch


def merged(rows: Rows | None, columns: Mapping[str, Any]) -> Rows:
    """Return rows and columns that were given beside them as one."""
    if rows is None or not columns:
        return columns if rows is None else rows
    if isinstance(rows, (pa.Table, pa.RecordBatch)):
        raise Invalid(f"{', '.join(columns)}: beside a table of pyarrow: want it as a column of that table")
    known = rows if isinstance(rows, Mapping) else _columns(rows)
    twice = set(known) & set(columns)
    if twice:
        raise Invalid(f"{', '.join(sorted(twice))}: given twice: want it in rows or as a keyword argument")
    return {**known, **columns}


def _one_batch(table: pa.Table) -> pa.RecordBatch:
    batches = table.combine_chunks().to_batches()
    if not batches:
        return pa.RecordBatch.from_pylist([], schema=table.schema)
    if len(batches) > 1:
        raise Invalid(f"rows: {table.num_rows} rows do not fit one record batch: insert them in parts")
    return batches[0]


def _with_groups(batch: pa.RecordBatch, size: int) -> pa.RecordBatch:
    if size < 1 or batch.num_rows % size:
        raise Invalid(f"group_size: {size}: want a divisor of the {batch.num_rows} rows, or a column group")
    numbers = np.arange(batch.num_rows, dtype=np.uint64) // np.uint64(size)
    names = [*batch.schema.names, "group"]
    return pa.RecordBatch.from_arrays([*batch.columns, pa.array(numbers)], names=names)


def _columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Turn one dict for each rollout into one of columns; what a rollout does not have is None."""
    names: dict[str, None] = {}
    for row, rollout in enumerate(rows):
        if not isinstance(rollout, Mapping):
            raise Invalid(f"rows: row {row} is a {type(rollout).__name__}: want a dict")
        names.update(dict.fromkeys(rollout))
    return {name: [rollout.get(name) for rollout in rows] for name in names}


def _from_columns(columns: Mapping[str, Any], extra: pa.Schema | None) -> pa.RecordBatch:
    if "tokens" not in columns:
        raise Invalid("tokens: missing: want one list of token ids for each rollout, prompt included")
    layout = Layout.of(columns)
    arrays: dict[str, pa.Array] = {}
    for name, value in columns.items():
        if name in schema.LAYOUT_KEYS or value is None:
            continue
        if name in schema.TOKEN_COLUMNS:
            arrays[name] = layout.lists(name, value)
        elif name in schema.ROW_COLUMNS:
            arrays[name] = _row_numbers(name, value, layout.rows)
        elif name in schema.OTHER_COLUMNS:
            arrays[name] = _other(name, value, layout.rows, schema.OTHER_COLUMNS[name])
        elif name.startswith("x_"):
            arrays[name] = _extra(name, value, layout.rows, extra)
        else:
            hint = schema.nearest(name)
            raise Invalid(f"{name}: no such column{hint}: columns of your own begin with x_ and are declared with the table")
    if "mask" not in arrays and columns.get("prompt_lengths") is not None:
        arrays["mask"] = layout.mask(columns["prompt_lengths"])
    return pa.RecordBatch.from_arrays(list(arrays.values()), names=list(arrays))


def _row_numbers(name: str, value: Any, rows: int) -> pa.Array:
    dtype, arrow = schema.ROW_COLUMNS[name]
    if isinstance(value, (pa.Array, pa.ChunkedArray)):
        return one_array(value)
    if isinstance(value, list) and any(item is None for item in value):
        _check_rows(name, len(value), rows)
        absent = np.array([item is None for item in value])
        filled = np.array([0 if item is None else item for item in value])
        return pa.array(cast_to(name, filled, dtype), type=arrow, mask=absent)
    numbers = to_numpy(value)
    if numbers.ndim == 0:  # one for all
        numbers = np.full(rows, numbers)
    if numbers.ndim == 2 and numbers.shape[1] == 1:
        numbers = numbers[:, 0]
    if numbers.ndim != 1:
        raise Invalid(f"{name}: shape {list(numbers.shape)}: want one number for each of {rows} rollouts, or one for all")
    _check_rows(name, len(numbers), rows)
    return pa.array(np.ascontiguousarray(cast_to(name, numbers, dtype)), type=arrow)


def _other(name: str, value: Any, rows: int, arrow: Any) -> pa.Array:
    if isinstance(value, (pa.Array, pa.ChunkedArray)):
        return one_array(value)
    if isinstance(value, str):  # one for all
        value = [value] * rows
    if name == "meta":
        value = [None if row is None else list(row.items()) if isinstance(row, Mapping) else row for row in value]
    _check_rows(name, len(value), rows)
    try:
        if name == "prompt_id":
            value = [item if item is None else str(item) for item in value]
        return pa.array(list(value), type=arrow)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise Invalid(f"{name}: {error}: want {arrow} for each rollout") from error


def _extra(name: str, value: Any, rows: int, extra: pa.Schema | None) -> pa.Array:
    if isinstance(value, (pa.Array, pa.ChunkedArray)):
        return one_array(value)
    arrow = None
    if extra is not None:
        if extra.get_field_index(name) < 0:
            raise Invalid(f"{name}: not a column of the table: declare it when the table is created")
        arrow = extra.field(name).type
    dense = dense_array(value)
    items = list(dense) if dense is not None and dense.ndim > 1 else value if dense is None else dense
    _check_rows(name, len(items), rows)
    try:
        return pa.array([_plain(item) for item in items] if isinstance(items, list) else items, type=arrow)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise Invalid(f"{name}: {error}: want {arrow or 'one type'} for each rollout") from error


def _plain(item: Any) -> Any:
    return to_numpy(item) if hasattr(item, "detach") else item


def _check_rows(name: str, have: int, want: int) -> None:
    if have != want:
        raise Invalid(f"{name}: {have} rows: want {want}, as tokens has")
