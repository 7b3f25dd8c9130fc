"""Columns: rollouts as they came from the service, as numpy arrays."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, cast

import numpy as np
import pyarrow as pa

from .arrays import Array
from .errors import Invalid, NotFound
from .rollouts import ENGINE_COLUMNS, TOKEN_COLUMNS


class Columns:
    """B rollouts. Arrays are read-only views of what was received.

    N is the number of their tokens. Rollout i has the entries ``offsets[i]:offsets[i + 1]`` of an array [N].

    They may come in pieces. A column is then joined, which copies it, when it is asked for.
    """

    def __init__(self, record_batch: pa.RecordBatch | Sequence[pa.RecordBatch]) -> None:
        self._pieces = [record_batch] if isinstance(record_batch, pa.RecordBatch) else list(record_batch)
        self._joined: dict[str, pa.Array] = {}
        self.schema: pa.Schema = self._pieces[0].schema
        if "tokens" in self.schema.names:
            self._frame = "tokens"
        else:
            known = [name for name in self.schema.names if name in TOKEN_COLUMNS]
            self._frame = known[0] if known else ""

    @property
    def record_batch(self) -> pa.RecordBatch:
        """All columns, as they were received; joined if they came in pieces."""
        if len(self._pieces) > 1:
            columns = [self._arrow(name) for name in self.schema.names]
            self._pieces = [pa.RecordBatch.from_arrays(columns, schema=self.schema)]
            self._joined.clear()
        return self._pieces[0]

    def __len__(self) -> int:
        return sum(piece.num_rows for piece in self._pieces)

    # One value per rollout.

    @property
    def ids(self) -> Array:
        """uint64 [B]: the rollouts' ids, for `Table.update` and `Table.report`."""
        return self.column("id")

    @property
    def groups(self) -> Array:
        """uint64 [B]: global numbers of their groups."""
        return self.column("group")

    @property
    def rewards(self) -> Array:
        """float32 [B]."""
        return self.column("reward")

    @property
    def weights(self) -> Array:
        """float32 [B]: importance weights of the draws; 1 if all rollouts are equally likely."""
        return self.column("weight")

    @property
    def probabilities(self) -> Array:
        """float64 [B]: the probability of each draw."""
        return self.column("probability")

    @property
    def staleness(self) -> Array:
        """int32 [B]: version of the table minus the oldest of the rollout, >= 0."""
        return self.column("staleness")

    @property
    def uses(self) -> Array:
        """int32 [B]: acknowledged uses before this draw."""
        return self.column("uses")

    @property
    def redelivered(self) -> Array:
        """bool [B]: from a queue, the rollout may have been delivered before, by a draw that was not acknowledged."""
        return self.column("redelivered")

    @property
    def group_means(self) -> Array:
        """float32 [B]: mean reward of the rollout's group when it was inserted."""
        return self.column("group_mean")

    @property
    def group_stds(self) -> Array:
        """float32 [B]: population standard deviation of the rewards of the rollout's group."""
        return self.column("group_std")

    @property
    def prompt_ids(self) -> list[str]:
        """[B]: names of the prompts."""
        return cast("list[str]", self._arrow("prompt_id").to_pylist())

    @property
    def prompts(self) -> Array:
        """int64 [B]: numbers of the prompts in this batch, from 0."""
        return cast(Array, self._arrow("prompt_id").dictionary_encode().indices.to_numpy().astype(np.int64))

    def column(self, name: str) -> Array:
        """Return a column with one value per rollout as numpy [B]. Null is 0, and NaN in ``x_`` columns of numbers."""
        array = self._arrow(name)
        if name in TOKEN_COLUMNS:
            raise Invalid(f"{name}: one value per token: want flat({name!r}) or ragged({name!r})")
        if name in ENGINE_COLUMNS:
            raise Invalid(f"{name}: several values per token: want the attribute {name}")
        if (
            array.null_count and pa.types.is_floating(array.type) and not name.startswith("x_")
        ):  # only advantage may be null
            array = array.fill_null(pa.scalar(0, array.type))
        return cast(Array, array.to_numpy(zero_copy_only=False))

    # One value per token.

    @cached_property
    def lengths(self) -> Array:
        """int64 [B]: tokens of each rollout, prompt included."""
        return np.diff(self.offsets)

    @cached_property
    def offsets(self) -> Array:
        """int64 [B + 1]: the start of each rollout in the arrays [N], and N."""
        if not self._frame:
            raise NotFound("tokens: not among the sampled columns: ask for them with columns=[...]")
        columns = [piece.column(self._frame) for piece in self._pieces]
        lengths = [np.diff(np.asarray(column.offsets).astype(np.int64)) for column in columns]
        return np.concatenate([[0], np.cumsum(np.concatenate(lengths))])

    def flat(self, name: str) -> Array:
        """Return a column with one value per token as numpy [N], 0 in rollouts where it is null."""
        array = self._arrow(name)
        if not pa.types.is_list(array.type):
            raise Invalid(f"{name}: {array.type}, one value per rollout: want column({name!r})")
        if name in ENGINE_COLUMNS:
            raise Invalid(f"{name}: several values per token: want the attribute {name}")
        if array.null_count == 0:
            return _values(array)
        values = array.flatten().to_numpy(zero_copy_only=False)
        out = np.zeros(int(self.offsets[-1]), values.dtype)
        out[np.repeat(np.asarray(array.is_valid()), self.lengths)] = values
        return out

    def flat_pieces(self, name: str) -> list[Array]:
        """Return `flat` in pieces, one after the other, without a copy where none is null."""
        at = self.schema.get_field_index(name)
        if len(self._pieces) == 1 or at < 0 or any(piece.column(at).null_count for piece in self._pieces):
            return self.pieces_of(self.flat(name))
        return [_values(piece.column(at)) for piece in self._pieces]

    def pieces_of(self, flat: Array) -> list[Array]:
        """Cut an array [N] where the pieces of the batch end."""
        return list(np.split(flat, self.offsets[np.cumsum(self.rows_of_pieces)[:-1]]))

    @property
    def rows_of_pieces(self) -> list[int]:
        """The rollouts of each piece."""
        return [piece.num_rows for piece in self._pieces]

    def ragged(self, name: str) -> list[Array]:
        """Return a column with one value per token as B arrays [L], views of the flat one."""
        return list(np.split(self.flat(name), self.offsets[1:-1]))

    @cached_property
    def sampling_mask(self) -> list[list[Array] | None]:
        """[B]: per rollout L arrays, int32, of the ids that could have been drawn for each token; an empty array means
        the whole vocabulary. None for a rollout without a mask."""
        column = self._arrow("sampling_mask")
        ends, ids = self._lists(column.flatten())
        lists = np.split(ids, ends[1:-1]) if len(ends) > 1 else []
        starts, _ = self._lists(column)
        spans = zip(column.is_valid().to_pylist(), starts[:-1].tolist(), starts[1:].tolist())
        return [lists[begin:end] if known else None for known, begin, end in spans]

    @cached_property
    def kept_ids(self) -> tuple[Array, Array]:
        """int64 [K] and int32 [K]: `sampling_mask` as flat arrays, for each id its token's place in [N], and the id."""
        column = self._arrow("sampling_mask")
        ends, ids = self._lists(column.flatten())
        known = np.repeat(np.diff(self._lists(column)[0]) > 0, self.lengths)
        return np.repeat(np.flatnonzero(known), np.diff(ends)), ids

    @cached_property
    def routed_experts(self) -> list[Array | None]:
        """[B]: per rollout an array [L, E], uint16, of the experts that the engine's router chose for each token, with
        E = layers x experts per token. None for a rollout without them."""
        column = self._arrow("routed_experts")
        starts, flat = self._lists(column)
        parts = zip(column.is_valid().to_pylist(), np.split(flat, starts[1:-1]), self.lengths.tolist())
        return [part.reshape(length, -1) if known else None for known, part, length in parts]

    @staticmethod
    def _lists(column: pa.Array) -> tuple[Array, Array]:
        """Return where the lists of a column begin and end, int64 [B + 1], and their items. Null is an empty list."""
        lengths = np.asarray(column.value_lengths().fill_null(0)).astype(np.int64)
        items = column.flatten()
        values = np.arange(len(items)) if pa.types.is_list(items.type) else items.to_numpy(zero_copy_only=False)
        return np.concatenate([[0], np.cumsum(lengths)]), values

    @cached_property
    def advantages(self) -> Array:
        """float32 [N]: per token. Rollouts without advantages per token have their advantage at each token of the
        policy and 0 elsewhere."""
        if self.has("advantage"):
            out = np.repeat(self.column("advantage").astype(np.float32, copy=False), self.lengths)
            if self.has("mask"):
                out[~self.flat("mask").view(np.bool_)] = 0
        elif self.has("advantages"):
            out = np.zeros(int(self.offsets[-1]), np.float32)
        else:
            raise NotFound("advantage: not among the sampled columns")
        if self.has("advantages"):
            given = self._arrow("advantages")
            where = np.repeat(np.asarray(given.is_valid()), self.lengths)
            out[where] = given.flatten().to_numpy(zero_copy_only=False)
        return out

    @cached_property
    def prompt_lengths(self) -> Array:
        """int64 [B]: tokens before the first that the policy produced."""
        first = np.where(self.flat("mask").astype(bool), self.positions, np.iinfo(np.int64).max)
        empty = self.lengths == 0
        out = np.zeros(len(self), np.int64)
        if len(first):
            out[~empty] = np.minimum.reduceat(first, self.offsets[:-1][~empty])
        return np.minimum(out, self.lengths)

    @cached_property
    def positions(self) -> Array:
        """int64 [N]: position of each token in its rollout."""
        position: Array = np.arange(int(self.offsets[-1])) - np.repeat(self.offsets[:-1], self.lengths)
        return position

    def has(self, name: str) -> bool:
        """Report whether the batch has a column with a value that is not null."""
        at = self.schema.get_field_index(name)
        return at >= 0 and (len(self) == 0 or sum(piece.column(at).null_count for piece in self._pieces) < len(self))

    # Other forms.

    def to_table(self) -> pa.Table:
        """Return the batch as a `pyarrow.Table`."""
        return pa.Table.from_batches(self._pieces)

    def to_pandas(self) -> Any:
        """Return the batch as a `pandas.DataFrame`."""
        return self.record_batch.to_pandas()

    def _arrow(self, name: str) -> pa.Array:
        at = self.schema.get_field_index(name)
        if at < 0:
            raise NotFound(
                f"{name}: not among the sampled columns: {', '.join(self.schema.names)}: ask for it with columns=[...], "
                "or for all with columns=\"all\""
            )
        if len(self._pieces) == 1:
            return self._pieces[0].column(at)
        if name not in self._joined:
            self._joined[name] = pa.concat_arrays([piece.column(at) for piece in self._pieces])
        return self._joined[name]


def _values(column: pa.Array) -> Array:
    """Return the values of a column of lists, none of which is null, as they lie in memory."""
    values = column.values
    begin, end = column.offsets[0].as_py(), column.offsets[-1].as_py()
    return cast(Array, values.slice(begin, end - begin).to_numpy(zero_copy_only=not pa.types.is_boolean(values.type)))
