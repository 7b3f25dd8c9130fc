"""Rollouts in any form as one Arrow record batch: a row per rollout, lists with an entry per token.

Nothing here loops over tokens: padded arrays are compacted by one boolean selection, and flat arrays of the wire's type
are not copied.
"""

from __future__ import annotations

import difflib
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Union

import numpy as np
import pyarrow as pa

from .arrays import Array, cast, dense, to_numpy, type_name, whole
from .errors import Invalid

Rows = Union[Mapping[str, Any], Sequence[Mapping[str, Any]], pa.Table, pa.RecordBatch]
"""What can be inserted: a dict of columns, a list of dicts with one rollout each, or an Arrow table or record batch."""

TOKEN_COLUMNS: dict[str, pa.DataType] = {
    "tokens": pa.int32(),
    "mask": pa.uint8(),
    "logprobs": pa.float32(),
    "versions": pa.int32(),
    "advantages": pa.float32(),
    "values": pa.float32(),
    "ref_logprobs": pa.float32(),
}
"""Columns with one entry per token, and the type of an entry."""

ROW_COLUMNS: dict[str, pa.DataType] = {
    "group": pa.uint64(),
    "version": pa.int32(),
    "temperature": pa.float32(),
    "top_p": pa.float32(),
    "reward": pa.float32(),
    "advantage": pa.float32(),
    "truncated": pa.bool_(),
}
"""Columns with one number per rollout."""

OTHER_COLUMNS: dict[str, pa.DataType] = {
    "prompt_id": pa.utf8(),
    "text": pa.utf8(),
    "images": pa.list_(pa.binary()),
    "turns": pa.list_(
        pa.struct([("start", pa.int32()), ("end", pa.int32()), ("reward", pa.float32()), ("done", pa.bool_())])
    ),
    "meta": pa.map_(pa.utf8(), pa.utf8()),
}
"""Columns of text and nested columns."""

ENGINE_COLUMNS: dict[str, pa.DataType] = {
    "sampling_mask": pa.list_(pa.list_(pa.int32())),
    "routed_experts": pa.list_(pa.uint16()),
}
"""Columns with several numbers per token, which inference engines give."""

SYNONYMS = {"input_ids": "tokens", "loss_mask": "mask", "rewards": "reward"}
"""Names of sampled arrays under which the columns can be inserted too."""

REQUIRED = {
    ("tokens",): "token ids, prompt included",
    ("mask",): "1 where the policy produced the token, or prompt_lengths",
    ("logprobs",): "the log-probs of the policy that sampled the tokens",
    ("versions", "version"): "the version of the weights for each token, or one for all as version",
    ("reward",): "a number for each rollout",
}
"""Columns of every insertion, one of each line, and what they are."""

LAYOUT_KEYS = ("lengths", "attention_mask", "prompt_lengths")
"""Keys of an insertion that are not columns: they locate the tokens in padded or flat columns."""


def rollout(
    prompt_id: str,
    prompt: Any,
    tokens: Any,
    *,
    logprobs: Any,
    version: int,
    reward: float | None,
    temperature: float = 1.0,
    top_p: float = 1.0,
    sampling_mask: Sequence[Any] | None = None,
    **columns: Any,
) -> dict[str, Any]:
    """Return the rollout of one completion: a row for `Table.insert`, with prompt and completion joined.

    Args:
        prompt_id: names the prompt; stable across runs.
        prompt: its token ids [P].
        tokens: of the completion [C], the end-of-sequence token included.
        logprobs: [C] of the policy that sampled the tokens, natural log of softmax(logits / temperature) over the ids
            of the sampling mask, or without one over the whole vocabulary, before top-p. None: nobody knows them, as of
            experts and chat logs, and only tables with ``unknown_logprobs`` take the rollout; they become NaN.
        version: of the weights that sampled them.
        reward: of the completion. None: it comes later, by `Table.reward`, and only tables with ``pending_rewards``
            take the rollout; it becomes NaN.
        temperature, top_p: of the sampling.
        sampling_mask: [C] for each token of the completion the ids that could have been drawn.
        columns: any other column of `Table.insert`; one per token has P + C entries.
    """
    prompt, tokens = to_numpy(prompt), to_numpy(tokens)
    logprobs = np.full(tokens.shape, np.nan, np.float32) if logprobs is None else to_numpy(logprobs)
    for name, ids in (("prompt", prompt), ("tokens", tokens)):
        if ids.ndim != 1 or ids.dtype.kind not in "biuf":
            raise Invalid(f"{name}: {type_name(ids)} of shape {list(ids.shape)}: want a list of token ids")
    if logprobs.shape != tokens.shape:
        raise Invalid(
            f"logprobs: shape {list(logprobs.shape)}: want {list(tokens.shape)}, one for each token of the completion"
        )
    if sampling_mask is not None:
        if _length_of("sampling_mask", sampling_mask) != len(tokens):
            raise Invalid(f"sampling_mask: {len(sampling_mask)} lists: want {len(tokens)}, one for each token of the "
                          "completion")  # fmt: skip
        columns["sampling_mask"] = [[]] * len(prompt) + list(sampling_mask)
    pad = np.zeros(len(prompt), np.uint8)
    return {
        "prompt_id": prompt_id,
        "tokens": np.concatenate([prompt.astype(tokens.dtype) if prompt.size == 0 else prompt, tokens]),
        "mask": np.concatenate([pad, np.ones(len(tokens), np.uint8)]),
        "logprobs": np.concatenate([pad, logprobs]),
        "version": version,
        "reward": math.nan if reward is None else reward,
        "temperature": temperature,
        "top_p": top_p,
        **columns,
    }


def record_batch(
    rows: Rows | None = None,
    *,
    group_size: int = 0,
    extra: pa.Schema | Callable[[], pa.Schema] | None = None,
    **columns: Any,
) -> pa.RecordBatch:
    """Return rollouts as one record batch of B rows.

    Args:
        rows: as of `Table.insert`. An Arrow table or record batch is taken as it is.
        group_size: number of consecutive rollouts in a group, where there is no column ``group``.
        extra: a schema with the types of the ``x_`` columns, or a function that returns it; by default they are
            inferred.
        columns: added to rows.

    Raises:
        Invalid: naming the column, the row if it concerns one, and the remedy.
    """
    if isinstance(rows, (pa.RecordBatch, pa.Table)):
        if columns:
            raise Invalid(f"{', '.join(columns)}: next to an Arrow table: want it as a column of that table")
        batch = _one_batch(rows) if isinstance(rows, pa.Table) else rows
    else:
        batch = _from_columns(_merge(rows, columns), extra)
    if batch.num_rows == 0:
        raise Invalid("rows: none: want at least one rollout")
    if whole("group_size", group_size, 0) and "group" not in batch.schema.names:
        numbers = pa.array(consecutive_groups(batch.num_rows, group_size), pa.uint64())
        batch = pa.RecordBatch.from_arrays([*batch.columns, numbers], names=[*batch.schema.names, "group"])
    return batch


def require(batch: pa.RecordBatch) -> None:
    """Refuse a record batch without a column that every insertion has."""
    for names, remedy in REQUIRED.items():
        if not set(names) & set(batch.schema.names):
            raise Invalid(f"{names[0]}: missing: want {remedy}")


def consecutive_groups(rows: int, size: int) -> Array:
    """Return the group numbers [B] of rollouts that form groups of consecutive rows."""
    if size < 1 or rows % size:
        raise Invalid(f"group_size: {size}: want a divisor of the {rows} rows, or a column group")
    return np.arange(rows) // size


def _one_batch(table: pa.Table) -> pa.RecordBatch:
    batches = table.combine_chunks().to_batches()
    if len(batches) > 1:
        raise Invalid(f"rows: {table.num_rows} rows do not fit one record batch: insert them in parts")
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=table.schema)


def _merge(rows: Any, columns: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return rows as a dict of columns, together with the columns given separately."""
    if rows is None:
        return columns
    if isinstance(rows, Mapping):
        known = rows
    elif isinstance(rows, Sequence) and not isinstance(rows, (str, bytes)):
        known = _columns(rows)
    else:
        raise Invalid(f"rows: {type(rows).__name__}: want a dict of columns, a list of dicts, or an Arrow table")
    twice = set(known) & set(columns)
    if twice:
        raise Invalid(f"{', '.join(sorted(twice))}: given twice: want it in rows or as a keyword argument")
    return {**known, **columns}


def _columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Turn one dict per rollout into a dict of columns. Missing entries are None."""
    if not rows:
        raise Invalid("rows: none: want at least one rollout")
    names: dict[str, None] = {}
    for row, entries in enumerate(rows):
        if not isinstance(entries, Mapping):
            raise Invalid(f"rows: row {row} is a {type(entries).__name__}: want a dict")
        names.update(dict.fromkeys(entries))
    return {name: [entries.get(name) for entries in rows] for name in names}


def _from_columns(given: Mapping[str, Any], extra: Any) -> pa.RecordBatch:
    columns: dict[str, Any] = {}
    for name, value in given.items():
        column = SYNONYMS.get(name, name)
        if column in columns:
            raise Invalid(f"{name}: another name for {column}, which was given too: want one of them")
        columns[column] = value
    if columns.get("tokens") is None:
        raise Invalid("tokens: missing: want one list of token ids for each rollout, prompt included")
    layout = Layout.of(columns)
    arrays: dict[str, pa.Array] = {}
    for name, value in columns.items():
        if name in LAYOUT_KEYS or value is None:
            continue
        if name in TOKEN_COLUMNS:
            arrays[name] = layout.lists(name, value)
        elif name == "sampling_mask":
            arrays[name] = layout.id_lists(name, value)
        elif name == "routed_experts":
            arrays[name] = layout.experts(name, value)
        elif isinstance(value, (pa.Array, pa.ChunkedArray)) and (
            name in ROW_COLUMNS or name in OTHER_COLUMNS or name[:2] == "x_"
        ):
            arrays[name] = _one_chunk(value)
        elif name in ROW_COLUMNS:
            arrays[name] = _row_column(name, value, layout.rows)
        elif name in OTHER_COLUMNS:
            arrays[name] = _other_column(name, value, layout.rows)
        elif name.startswith("x_"):
            extra = extra() if callable(extra) else extra
            arrays[name] = _extra_column(name, value, layout.rows, extra)
        else:
            ours = [*TOKEN_COLUMNS, *ENGINE_COLUMNS, *ROW_COLUMNS, *OTHER_COLUMNS, *LAYOUT_KEYS]
            known = difflib.get_close_matches(name, ours, n=1)
            hint = f" (did you mean {known[0]}?)" if known else ""
            raise Invalid(
                f"{name}: no such column{hint}: columns of your own begin with x_ and are declared with the table"
            )
    if "mask" not in arrays and columns.get("prompt_lengths") is not None:
        arrays["mask"] = layout.mask(columns["prompt_lengths"])
    for name, outside in (("logprobs", 0), ("versions", -1)):
        if name in arrays and "mask" in arrays:
            arrays[name] = _outside_mask(arrays[name], arrays["mask"], outside)
    return pa.RecordBatch.from_arrays(list(arrays.values()), names=list(arrays))


def _outside_mask(column: pa.Array, mask: pa.Array, value: int) -> pa.Array:
    """Return a column per token with a value where the mask is 0. Engines give numbers for prompts too."""
    kinds = pa.types.is_list(column.type) and pa.types.is_list(mask.type)
    if not kinds or column.null_count or not column.offsets.equals(mask.offsets):
        return column  # the service refuses what does not fit
    entries, kept = (array.values.to_numpy(zero_copy_only=False) for array in (column, mask))
    if len(entries) != len(kept) or not (wrong := (kept == 0) & (entries != value)).any():
        return column
    if not (entries[kept != 0] != value).any():
        return column  # only the prompt has numbers: the mask is wrong, as the service will say
    return pa.ListArray.from_arrays(column.offsets, pa.array(np.where(wrong, value, entries), column.type.value_type))


@functools.cache
def _numpy_type(kind: pa.DataType) -> Any:
    """Return numpy's type. Arrow's ``to_pandas_dtype`` needs pandas in some versions."""
    return pa.array([], kind).to_numpy(zero_copy_only=False).dtype


def _row_column(name: str, value: Any, rows: int) -> pa.Array:
    arrow = ROW_COLUMNS[name]
    dtype = _numpy_type(arrow)
    if isinstance(value, list) and any(item is None for item in value):
        _check_rows(name, len(value), rows)
        absent = np.array([item is None for item in value])
        filled = np.array([0 if item is None else item for item in value])
        return pa.array(cast(name, filled, dtype), type=arrow, mask=absent)
    numbers = to_numpy(value)
    if numbers.ndim == 0:  # one for all
        numbers = np.full(rows, numbers)
    if numbers.ndim == 2 and numbers.shape[1] == 1:
        numbers = numbers[:, 0]
    if numbers.ndim != 1:
        raise Invalid(
            f"{name}: shape {list(numbers.shape)}: want one number for each of {rows} rollouts, or one for all"
        )
    _check_rows(name, len(numbers), rows)
    return pa.array(cast(name, numbers, dtype), type=arrow)


def _other_column(name: str, value: Any, rows: int) -> pa.Array:
    arrow = OTHER_COLUMNS[name]
    if isinstance(value, str) or (name == "prompt_id" and isinstance(value, (int, np.integer))):  # one for all
        value = [value] * rows
    if name == "meta" and isinstance(value, Mapping):
        value = [value] * rows
    _check_rows(name, _length_of(name, value), rows)
    if name == "meta":
        value = [[_entry(*item) for item in row.items()] if isinstance(row, Mapping) else row for row in value]
    if name == "prompt_id":
        value = [item if item is None else str(item) for item in value]
    try:
        return pa.array(list(value), type=arrow)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise Invalid(f"{name}: {error}: want {arrow} for each rollout") from error


def _entry(key: Any, value: Any) -> tuple[str, str]:
    """Return an entry of ``meta``, its number as text."""
    if not isinstance(value, (str, int, float, np.generic)):
        raise Invalid(f"meta: {key}: {value!r}: want a str or a number: turn others into text, such as by json.dumps")
    return str(key), str(value)


def _extra_column(name: str, value: Any, rows: int, extra: pa.Schema | None) -> pa.Array:
    arrow = None
    if extra is not None:
        if extra.get_field_index(name) < 0:
            raise Invalid(f"{name}: not a column of the table: declare it when the table is created")
        arrow = extra.field(name).type
    array = dense([value] * rows if isinstance(value, (str, int, float)) else value)
    items = value if array is None else list(array) if array.ndim > 1 else array
    _check_rows(name, _length_of(name, items), rows)
    if isinstance(items, list):
        items = [to_numpy(item) if hasattr(item, "detach") else item for item in items]
    try:
        return pa.array(items, type=arrow)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise Invalid(f"{name}: {error}: want {arrow or 'one type'} for each rollout") from error


def _length_of(name: str, value: Any) -> int:
    if not hasattr(value, "__len__"):
        raise Invalid(f"{name}: {value!r}: want one entry for each rollout")
    return len(value)


def _check_rows(name: str, have: int, want: int) -> None:
    if have != want:
        raise Invalid(f"{name}: {have} rows: want {want}, as tokens has")


def _one_chunk(value: Any) -> pa.Array:
    """Return an Arrow array, chunked or not, in one piece."""
    if not isinstance(value, pa.ChunkedArray):
        return value
    combined = value.combine_chunks()
    return pa.concat_arrays(combined.chunks) if isinstance(combined, pa.ChunkedArray) else combined


class Layout:
    """The place of each rollout's tokens in columns that are padded [B, W], flat [N], or lists."""

    def __init__(self, lengths: Array, keep: Array | None = None) -> None:
        self.lengths = lengths  # [B]
        self.keep = keep  # [B, W] bool: where padded columns hold tokens; None: everywhere, or they are not padded
        self.rows = len(lengths)
        offsets = np.zeros(self.rows + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        if offsets[-1] > np.iinfo(np.int32).max:
            raise Invalid(f"tokens: {offsets[-1]} in one insertion: want fewer than 2**31; insert in parts")
        self.total = int(offsets[-1])
        self.offsets = pa.array(offsets.astype(np.int32))

    @classmethod
    def of(cls, columns: Mapping[str, Any]) -> Layout:
        """Infer the layout from the tokens, and ``attention_mask`` or ``lengths`` if given."""
        tokens, mask, lengths = columns["tokens"], columns.get("attention_mask"), columns.get("lengths")
        if isinstance(tokens, (pa.Array, pa.ChunkedArray)):
            return cls(np.asarray(_list_array("tokens", tokens).value_lengths().fill_null(0)).astype(np.int64))
        array = dense(tokens)
        if array is None:
            _length_of("tokens", tokens)
            return cls(np.fromiter((_length(row, part) for row, part in enumerate(tokens)), np.int64))
        if array.ndim == 1:
            if lengths is None:
                raise Invalid(
                    "tokens: a flat array: want the number of tokens of each rollout as lengths, or a 2-D array; one "
                    "rollout is a list of one, insert([row])"
                )
            counts = _lengths(lengths, len(array))
            if counts.sum() != len(array):
                raise Invalid(f"lengths: {counts.sum()} tokens in all: want the {len(array)} of tokens")
            return cls(counts)
        if array.ndim != 2:
            raise Invalid(
                f"tokens: {array.ndim} dimensions: want [B, L], flat with lengths, or one list for each rollout"
            )
        rows, width = array.shape
        if mask is not None:
            keep = to_numpy(mask).astype(bool)
            if keep.shape != array.shape:
                raise Invalid(f"attention_mask: {list(keep.shape)}: want the shape of tokens, {list(array.shape)}")
            return cls(keep.sum(axis=1, dtype=np.int64), None if keep.all() else keep)
        if lengths is None:
            return cls(np.full(rows, width, np.int64))
        counts = _lengths(lengths, width)
        if len(counts) != rows:
            raise Invalid(f"lengths: {len(counts)} of them: want {rows}, one for each row of tokens")
        return cls(counts, None if (counts == width).all() else np.arange(width) < counts[:, None])

    def lists(self, name: str, value: Any) -> pa.Array:
        """Return a column with one entry per token as an Arrow list array."""
        if isinstance(value, (pa.Array, pa.ChunkedArray)):
            return _list_array(name, value)
        array = dense(value)
        if array is None:
            return self._ragged(name, value)
        if array.ndim == 2:
            array = self._compact(name, array)
        elif array.ndim != 1 or len(array) != self.total:
            raise Invalid(
                f"{name}: shape {list(array.shape)}: want what tokens has: {self.total} tokens of {self.rows} rollouts"
            )
        return pa.ListArray.from_arrays(self.offsets, self._cast(name, array, self.lengths))

    def _compact(self, name: str, padded: Array) -> Array:
        """Return the tokens' entries of an array [B, W] as a flat array [N]."""
        if self.keep is not None and padded.shape == self.keep.shape:
            return padded[self.keep]
        if self.keep is None and padded.size == self.total and padded.shape[0] == self.rows:
            return padded.reshape(-1)
        want = [self.rows, int(self.lengths.max(initial=0))] if self.keep is None else list(self.keep.shape)
        raise Invalid(f"{name}: shape {list(padded.shape)}: want that of tokens, {want}")

    def _ragged(self, name: str, value: Any) -> pa.Array:
        """Return one list or 1-D array per rollout as an Arrow list array; None is a null row."""
        _check_rows(name, _length_of(name, value), self.rows)
        if all(isinstance(part, np.ndarray) and part.ndim == 1 and part.dtype.kind in "biuf" for part in value) and (
            [len(part) for part in value] == self.lengths.tolist()
        ):  # the usual form, without a step for each rollout
            flat = np.concatenate(value) if len(value) else np.empty(0)
            return pa.ListArray.from_arrays(self.offsets, self._cast(name, flat, self.lengths))
        parts: list[Array] = []
        absent = np.zeros(self.rows, bool)
        for row, part in enumerate(value):
            if part is None:
                absent[row] = True
                continue
            array = np.empty(0) if isinstance(part, list) and not part else np.atleast_1d(to_numpy(part))
            if array.dtype.kind not in "biuf":
                raise Invalid(f"{name}: row {row}: {type_name(array)}: want numbers, none of them null")
            if array.shape != (self.lengths[row],):
                raise Invalid(
                    f"{name}: row {row}: shape {list(array.shape)}: want {self.lengths[row]} entries, one per token"
                )
            parts.append(array)
        lengths = np.where(absent, 0, self.lengths)
        values = self._cast(name, np.concatenate(parts) if parts else np.empty(0), lengths)
        if not absent.any():
            return pa.ListArray.from_arrays(self.offsets, values)
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
        return pa.ListArray.from_arrays(pa.array(offsets), values, mask=pa.array(absent))

    def id_lists(self, name: str, value: Any) -> pa.Array:
        """Return lists of ids, for each rollout one per token, as nested Arrow lists; None is a null row, or no ids.

        Ids are sorted within their list, as the service wants them: engines give them in any order.
        """
        if isinstance(value, (pa.Array, pa.ChunkedArray)):
            return _list_array(name, value)
        _check_rows(name, _length_of(name, value), self.rows)
        try:
            rows = pa.array(list(value), type=ENGINE_COLUMNS[name])
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise Invalid(f"{name}: {error}: want for each token a list of ids in the range of int32") from error
        lists = rows.flatten()
        ids = lists.flatten().to_numpy(zero_copy_only=False)
        lengths = np.asarray(lists.value_lengths().fill_null(0)).astype(np.int64)
        token = np.repeat(np.arange(len(lists)), lengths)
        if ((np.diff(ids) < 0) & (np.diff(token) == 0)).any():
            ids = ids[np.lexsort((ids, token))]
        ends = pa.array(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32))
        sorted_lists = pa.ListArray.from_arrays(ends, pa.array(ids, pa.int32()))
        return pa.ListArray.from_arrays(rows.offsets, sorted_lists, mask=rows.is_null())

    def experts(self, name: str, value: Any) -> pa.Array:
        """Return the experts of each token, an array [L, ...] per rollout, as an Arrow list array; None is a null row.

        Engines return L - 1 rows: they do not run the last token, whose row becomes 0.
        """
        if isinstance(value, (pa.Array, pa.ChunkedArray)):
            return _list_array(name, value)
        array = dense(value)
        if array is not None:
            if len(array) == self.total and array.ndim > 1:
                value = np.split(array, np.asarray(self.offsets)[1:-1])
            elif self.keep is not None and array.shape[:2] == self.keep.shape:
                value = [part[keep] for part, keep in zip(array, self.keep)]
        _check_rows(name, _length_of(name, value), self.rows)
        parts: list[Array | None] = []
        for row, part in enumerate(value):
            if part is None:
                parts.append(None)
                continue
            array, length = to_numpy(part), int(self.lengths[row])
            if array.ndim > 1 and len(array) == length - 1:
                array = np.concatenate([array, np.zeros((1, *array.shape[1:]), array.dtype)])
            if array.ndim == 0 or (len(array) % length if array.ndim == 1 else len(array) != length):
                raise Invalid(f"{name}: row {row}: shape {list(array.shape)}: want [{length}, E], a row for each token")
            where = "row {}: token {{}}".format(row).format
            width = max(array.size // length, 1)
            parts.append(cast(name, array.reshape(-1), np.uint16, lambda entry: where(entry // width)))
        sizes = [0 if part is None else len(part) for part in parts]
        if sum(sizes) > np.iinfo(np.int32).max:
            raise Invalid(f"{name}: {sum(sizes)} in one insertion: want fewer than 2**31; insert in parts")
        flat = np.concatenate([part for part in parts if part is not None] or [np.empty(0, np.uint16)])
        offsets = pa.array(np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32))
        absent = pa.array([part is None for part in parts])
        return pa.ListArray.from_arrays(offsets, pa.array(flat), mask=absent)

    @staticmethod
    def _cast(name: str, flat: Array, lengths: Array) -> pa.Array:
        def where(entry: int) -> str:
            ends = np.cumsum(lengths)
            row = int(np.searchsorted(ends, entry, side="right"))
            return f"row {row}: token {entry - int(ends[row] - lengths[row])}"

        arrow = TOKEN_COLUMNS[name]
        return pa.array(cast(name, flat, _numpy_type(arrow), where), type=arrow)

    def mask(self, prompt_lengths: Any) -> pa.Array:
        """Return the column mask: 0 for the prompt's tokens, 1 for those after them."""
        given = to_numpy(prompt_lengths)
        counts = cast("prompt_lengths", given, np.int64).reshape(given.shape)
        if counts.shape not in ((), (self.rows,)):
            raise Invalid(
                f"prompt_lengths: shape {list(counts.shape)}: want one for each of {self.rows} rollouts, or one for all"
            )
        counts = np.broadcast_to(counts, (self.rows,))
        wrong = np.flatnonzero((counts < 0) | (counts >= self.lengths))
        if len(wrong):
            row, most = wrong[0], self.lengths[wrong[0]] - 1
            raise Invalid(
                f"prompt_lengths: row {row}: {counts[row]}: want 0 to {most}, which leaves a token to the policy"
            )
        position = np.arange(self.total) - np.repeat(np.asarray(self.offsets)[:-1], self.lengths)
        mask = (position >= np.repeat(counts, self.lengths)).view(np.uint8)
        return pa.ListArray.from_arrays(self.offsets, pa.array(mask))


def _length(row: int, part: Any) -> int:
    try:
        return len(part)
    except TypeError as error:
        raise Invalid(f"tokens: row {row} is {type(part).__name__}: want a list of numbers for each rollout") from error


def _lengths(value: Any, most: int) -> Array:
    counts = cast("lengths", to_numpy(value), np.int64)
    if counts.ndim != 1:
        raise Invalid(f"lengths: {counts.ndim} dimensions: want one number for each rollout")
    wrong = np.flatnonzero((counts < 0) | (counts > most))
    if len(wrong):
        raise Invalid(f"lengths: row {wrong[0]}: {counts[wrong[0]]}: want 0 to {most}")
    return counts


def _list_array(name: str, value: Any) -> pa.Array:
    array = _one_chunk(value)
    if not hasattr(array, "flatten"):
        raise Invalid(f"{name}: {array.type}: want a list of numbers for each rollout")
    return array
