"""Batch: the rollouts of one draw."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa

from .arrays import Array, whole
from .columns import Columns
from .errors import Invalid
from .padded import Packed, Padded

DEFAULT_COLUMNS = (
    "id", "group", "prompt_id", "tokens", "mask", "logprobs", "versions", "reward", "advantage", "advantages", "values",
    "ref_logprobs", "sampling_mask", "routed_experts", "meta", "probability", "weight", "staleness", "uses",
    "group_mean", "group_std", "fresh", "redelivered",
)  # fmt: skip
"""The columns that are sampled unless others are asked for: what `Batch.padded`, `Batch.packed` and the adapters hold,
and the numbers of the draw. Not among them: temperature, top_p, truncated, turns, images, text, and columns of your
own."""


@dataclass(frozen=True)
class BatchInfo:
    """What the service sends with a batch.

    Attributes:
        batch: its number, for `Table.acknowledge` and `Table.release`.
        version: of the table when the batch was drawn.
        shard: that it was drawn from.
        rows: rollouts in it.
        present: rollouts in the table after the draw.
        prompt_counts: of `Table.sample_prompts`, how many of the rows each prompt got, in the order of both; else ().
        source_counts: of a table with ``sources``, how many of the rows each gave, in the order of both, behind the
            fresh draws that were asked for; the rest are the sampler's.
        log_weight_scale: logarithm of the importance weight by which ``weights`` were divided: the largest of this
            batch, or of its shard (``importance_norm``). Where several batches make one update, multiply the weights of
            each, but for fresh draws and draws by prompt, by ``exp(log_weight_scale - m)``, m the largest
            ``log_weight_scale`` of them all.
        repeated: the batch was acknowledged before: it answers a repeated request id.
        batches: the numbers of what it was merged of, where it was drawn from several parts of a table.
    """

    batch: int = 0
    version: int = 0
    shard: int = 0
    rows: int = 0
    present: int = 0
    log_weight_scale: float = 0.0
    repeated: bool = False
    batches: tuple[int, ...] = ()
    prompt_counts: tuple[int, ...] = ()
    source_counts: tuple[int, ...] = ()

    @classmethod
    def of(cls, answer: Mapping[str, Any]) -> BatchInfo:
        """Read the metadata of a batch."""
        numbers = {name: answer.get(name, 0) for name in ("batch", "version", "shard", "rows", "present")}
        scale = float(answer.get("log_weight_scale", 0.0))
        return cls(
            **numbers,
            log_weight_scale=scale,
            repeated=answer.get("repeated", False),
            prompt_counts=tuple(answer.get("prompt_counts", ())),
            source_counts=tuple(answer.get("source_counts", ())),
        )


class Batch(Columns):
    """B rollouts that a table drew. Its arrays are read-only views of what was received; `padded` and `packed` return
    the arrays that a trainer takes.

    N is the number of tokens in the batch. Rollout i has the entries ``offsets[i]:offsets[i + 1]`` of an array [N].

    A batch of several parts of a table has a piece of each. A column is joined, which copies it, when it is asked for;
    `padded` takes from the pieces.
    """

    def __init__(self, record_batch: pa.RecordBatch | Sequence[pa.RecordBatch], info: BatchInfo = BatchInfo()) -> None:
        super().__init__(record_batch)
        self.info = info

    def __repr__(self) -> str:
        return f"<reprise.Batch {self.info.batch}: {len(self)} rollouts, version {self.info.version}>"

    @property
    def version(self) -> int:
        """Version of the table when the batch was drawn."""
        return self.info.version

    def padded(
        self,
        *,
        side: Literal["right", "left"] = "right",
        pad_id: int = 0,
        multiple_of: int = 1,
        length: int | None = None,
    ) -> Padded[Array]:
        """Return numpy arrays [B, L], rows padded to one length. ``padded(...).torch(device)`` returns tensors.

        Args:
            side: of the padding.
            pad_id: token of the padding.
            multiple_of: L is the longest rollout's length rounded up to a multiple of this.
            length: L, for a constant shape; longer rollouts are an error.
        """
        whole("multiple_of", multiple_of, 1)
        longest = int(self.lengths.max(initial=0))
        width = longest if length is None else whole("length", length, 0)
        width += -width % multiple_of
        if longest > width:
            row = int(self.lengths.argmax())
            raise Invalid(f"length: {width}: want at least the {longest} tokens of row {row}")
        if side not in ("right", "left"):
            raise Invalid(f"side: {side}: want right or left")
        return Padded.of(self, side == "left", pad_id, width)

    def packed(self, *, pad_id: int = 0, multiple_of: int = 1) -> Packed[Array]:
        """Return numpy arrays [N], rollouts one after the other, with ``cu_seqlens`` for variable-length attention
        kernels. ``packed(...).torch(device)`` returns tensors.

        Args:
            pad_id: token of the padding at the end.
            multiple_of: N is rounded up to a multiple of this; the padding is a sequence of its own in ``cu_seqlens``.
        """
        whole("multiple_of", multiple_of, 1)
        return Packed.of(self, pad_id, multiple_of)
