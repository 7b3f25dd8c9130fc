"""Rollouts in whatever form they come -> one Arrow record batch of the wire schema.

Nothing here goes token by token: padded arrays are compacted with one boolean selection, flat arrays are taken over
without a copy where their type is the wire's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Union

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from . import schema
from .errors import Invalid

Rows = Union[Mapping[str, Any], Sequence[Mapping[str, Any]], pa.Table, pa.RecordBatch]
"""What can be inserted: a dict of columns, a list of dicts with a rollout each, or something of Arrow."""

Array = npt.NDArray[Any]


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
        batch = _from_columns(_columns(rows), extra)
    else:
        raise Invalid(f"rows: {type(rows).__name__}: want a dict of columns, a list of dicts, or a table of pyarrow")
    if batch.num_rows == 0:
        raise Invalid("rows: none: want at least one rollout")
    if group_size and "group" not in batch.schema.names:
        batch = _with_groups(batch, group_size)
    return batch


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
        dense = _dense(tokens)
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
            keep = _numpy(mask).astype(bool)
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
        dense = _dense(value)
        if dense is None:
            return self._ragged(name, value, dtype, arrow)
        if dense.ndim == 2:
            dense = self._compact(name, dense)
        elif dense.ndim != 1 or len(dense) != self.total:
            raise Invalid(f"{name}: shape {list(dense.shape)}: want what tokens has: {self.total} tokens of {self.rows} rollouts")
        return pa.ListArray.from_arrays(self.offsets, pa.array(_cast(name, dense, dtype), type=arrow))

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
        parts = [None if part is None else np.atleast_1d(_number_array(name, row, part)) for row, part in enumerate(value)]
        for row, part in enumerate(parts):
            if part is not None and part.shape != (self.lengths[row],):
                raise Invalid(f"{name}: row {row}: shape {list(part.shape)}: want {self.lengths[row]} entries, one per token")
        present = [part for part in parts if part is not None]
        flat = np.concatenate(present) if present else np.empty(0, dtype)
        values = pa.array(_cast(name, flat, dtype), type=arrow)
        if len(present) == len(parts):
            return pa.ListArray.from_arrays(self.offsets, values)
        absent = np.array([part is None for part in parts])
        offsets = np.concatenate([[0], np.cumsum(np.where(absent, 0, self.lengths))]).astype(np.int32)
        return pa.ListArray.from_arrays(pa.array(offsets), values, mask=pa.array(absent))

    def mask(self, prompt_lengths: Any) -> pa.Array:
        """Return the column mask: 0 for the first so many tokens of each rollout, 1 for those after them."""
        counts = np.broadcast_to(_numpy(prompt_lengths), (self.rows,)).astype(np.int64)
        starts = np.asarray(self.offsets)[:-1]
        position = np.arange(self.total) - np.repeat(starts, self.lengths)
        return pa.ListArray.from_arrays(self.offsets, pa.array((position >= np.repeat(counts, self.lengths)).view(np.uint8)))


def _row_numbers(name: str, value: Any, rows: int) -> pa.Array:
    dtype, arrow = schema.ROW_COLUMNS[name]
    if isinstance(value, (pa.Array, pa.ChunkedArray)):
        return _flat_chunks(value)
    if isinstance(value, list) and any(item is None for item in value):
        _check_rows(name, len(value), rows)
        absent = np.array([item is None for item in value])
        filled = np.array([0 if item is None else item for item in value])
        return pa.array(_cast(name, filled, dtype), type=arrow, mask=absent)
    numbers = _numpy(value)
    if numbers.ndim == 0:  # one for all
        numbers = np.full(rows, numbers)
    if numbers.ndim == 2 and numbers.shape[1] == 1:
        numbers = numbers[:, 0]
    if numbers.ndim != 1:
        raise Invalid(f"{name}: shape {list(numbers.shape)}: want one number for each of {rows} rollouts, or one for all")
    _check_rows(name, len(numbers), rows)
    return pa.array(np.ascontiguousarray(_cast(name, numbers, dtype)), type=arrow)


def _other(name: str, value: Any, rows: int, arrow: Any) -> pa.Array:
    if isinstance(value, (pa.Array, pa.ChunkedArray)):
        return _flat_chunks(value)
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
        return _flat_chunks(value)
    arrow = None
    if extra is not None:
        if extra.get_field_index(name) < 0:
            raise Invalid(f"{name}: not a column of the table: declare it when the table is created")
        arrow = extra.field(name).type
    dense = _dense(value)
    items = list(dense) if dense is not None and dense.ndim > 1 else value if dense is None else dense
    _check_rows(name, len(items), rows)
    try:
        return pa.array([_plain(item) for item in items] if isinstance(items, list) else items, type=arrow)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise Invalid(f"{name}: {error}: want {arrow or 'one type'} for each rollout") from error


def _plain(item: Any) -> Any:
    return _numpy(item) if hasattr(item, "detach") else item


def _check_rows(name: str, have: int, want: int) -> None:
    if have != want:
        raise Invalid(f"{name}: {have} rows: want {want}, as tokens has")


def _numpy(value: Any) -> Array:
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


def _dense(value: Any) -> Array | None:
    """Return an array or tensor as numpy; None for lists with an entry for each rollout."""
    if isinstance(value, np.ndarray) and value.dtype == object:
        return None
    if isinstance(value, np.ndarray) or hasattr(value, "detach"):
        return _numpy(value)
    return None


def _number_array(name: str, row: int, part: Any) -> Array:
    array = np.asarray(part, np.float64) if isinstance(part, list) and not part else _numpy(part)
    if array.dtype.kind not in "biuf":
        raise Invalid(f"{name}: row {row}: {array.dtype}: want numbers, none of them null")
    return array


def _length(name: str, row: int, part: Any) -> int:
    try:
        return len(part)
    except TypeError as error:
        raise Invalid(f"{name}: row {row} is {type(part).__name__}: want a list of numbers for each rollout") from error


def _lengths(value: Any, most: int) -> Array:
    counts = _numpy(value).astype(np.int64)
    if counts.ndim != 1:
        raise Invalid(f"lengths: {counts.ndim} dimensions: want one number for each rollout")
    wrong = np.flatnonzero((counts < 0) | (counts > most))
    if len(wrong):
        raise Invalid(f"lengths: row {wrong[0]}: {counts[wrong[0]]}: want 0 to {most}")
    return counts


def _cast(name: str, numbers: Array, dtype: Any) -> Array:
    """Cast to the wire's type; a number that does not fit it is an error."""
    want = np.dtype(dtype)
    if numbers.dtype == want:
        return np.ascontiguousarray(numbers)
    if numbers.dtype.kind not in "biuf":
        raise Invalid(f"{name}: {numbers.dtype}: want numbers that fit {want}")
    if numbers.dtype == np.bool_:
        return np.ascontiguousarray(numbers).view(np.uint8).astype(want, copy=False)
    if want.kind in "iu":
        _check_range(name, numbers, np.iinfo(want).min, np.iinfo(want).max)
    elif want.kind == "b":
        _check_range(name, numbers, 0, 1)
    with np.errstate(over="ignore"):
        out = np.ascontiguousarray(numbers.astype(want))
    if want.kind == "f" and numbers.dtype.itemsize > want.itemsize:
        # Infinities and NaN are the service's to refuse; a number that became one is ours.
        _first(name, numbers, np.isinf(out) & np.isfinite(numbers), f"want what fits {want}")
    return out


def _check_range(name: str, numbers: Array, low: int, high: int) -> None:
    if not numbers.size:
        return
    if numbers.min() < low or numbers.max() > high or numbers.dtype.kind == "f":
        bad = (numbers < low) | (numbers > high)
        if numbers.dtype.kind == "f":
            bad |= numbers != np.floor(numbers)  # NaN too
        _first(name, numbers, bad, f"want a whole number from {low} to {high}")


def _first(name: str, numbers: Array, bad: Array, want: str) -> None:
    where = np.flatnonzero(bad)
    if len(where):
        raise Invalid(f"{name}: entry {where[0]}: {numbers.reshape(-1)[where[0]]}: {want}")


def _flat_chunks(value: Any) -> pa.Array:
    if not isinstance(value, pa.ChunkedArray):
        return value
    combined = value.combine_chunks()
    return pa.concat_arrays(combined.chunks) if isinstance(combined, pa.ChunkedArray) else combined


def _list_array(name: str, value: Any) -> pa.Array:
    array = _flat_chunks(value)
    if not hasattr(array, "flatten"):
        raise Invalid(f"{name}: {array.type}: want a list of numbers for each rollout")
    return array


def _lengths_of(array: pa.Array) -> Array:
    return np.asarray(array.value_lengths().fill_null(0)).astype(np.int64)
