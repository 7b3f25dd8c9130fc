"""Table: rollouts in, batches out."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from . import errors
from .arguments import measured, milliseconds, optional, size_of, whole
from .batch import Batch, BatchInfo
from .connection import GRACE, Connection
from .definition import TableInfo
from .gate import Grant
from .prompts import PromptBuffer
from .rows import Rows, merged, record_batch
from .stats import Stats
from .stream import Stream

Ids = npt.NDArray[np.uint64]


class Table:
    """A table of the service. Threads may share it.

    ``timeout`` of its methods is in seconds, and by default the connection's.
    """

    def __init__(self, connection: Connection, name: str) -> None:
        self.name = name
        self._connection = connection
        self._extra: pa.Schema | None = None

    def __repr__(self) -> str:
        return f"<reprise.Table {self.name} at {self._connection.address}>"

    def __len__(self) -> int:
        return self.info().present

    # Rollouts in.

    def insert(
        self,
        rows: Rows | None = None,
        *,
        group_size: int = 0,
        grant: Grant | int | None = None,
        batch_id: str | None = None,
        timeout: float | None = None,
        **columns: Any,
    ) -> Ids:
        """Insert rollouts: all of them, or none. Returns when they are as safe as the service promises.

        A call that is repeated because the connection broke never inserts twice.

        Args:
            rows: the columns below in a dict; or a list of dicts, one for each rollout; or a `pyarrow.Table` or
                `RecordBatch`. Columns may also be given as keyword arguments, with or without ``rows``.
            group_size: so many consecutive rollouts form a group; others say so in the column ``group``, and without
                either each rollout is alone. The service refuses groups of another size.
            grant: of `start`, that the groups were started under.
            batch_id: names the insertion; by default a new random one.
            timeout: seconds to wait for room, or for the limiter.

        Columns with one entry per token, prompt included, for B rollouts of L tokens; entry i speaks of token i. They may be
        lists of B lists or 1-D arrays; 2-D arrays or tensors [B, W] padded on any side, with ``attention_mask`` [B, W] or
        ``lengths`` [B] (padding on the right) beside them; or flat arrays [N] with ``lengths``:

        - ``tokens`` (required): int32 range.
        - ``mask`` (required, or ``prompt_lengths`` [B]): 1 where the policy produced the token.
        - ``logprobs`` (required): of the behaviour policy, natural log of softmax(logits / temperature) before top-p; 0 where
          mask is 0.
        - ``versions`` (required, or ``version``): that produced the token; -1 where mask is 0.
        - ``advantages``, ``values``, ``ref_logprobs``: optional.

        Columns with one value per rollout, as lists, arrays or tensors [B], or one number for all:

        - ``reward`` (required), ``version``, ``temperature``, ``top_p`` (1), ``truncated`` (False), ``advantage`` (from the
          group), ``group``: a number that groups share within the insertion.
        - ``prompt_id``: str; ``text``: str; ``meta``: dicts; ``images``: lists of bytes; ``turns``: lists of dicts with
          start, end, reward, done.
        - ``x_…``: columns of your own that were declared when the table was created.

        Returns:
            uint64 [B]: the ids of the rows in their order.

        Raises:
            Invalid: naming column, row and value; nothing of the insertion was kept.
            Full: no room within the timeout.
            Ahead: a rollout is newer than the table.
        """
        batch = record_batch(merged(rows, columns), group_size=group_size, extra=self._own(rows, columns))
        wait = self._connection.timeout if timeout is None else timeout
        request: dict[str, Any] = {"batch_id": batch_id or uuid.uuid4().hex, "timeout_ms": milliseconds(wait)}
        if group_size:
            request["group_size"] = group_size
        if grant is not None:
            number = grant.number if isinstance(grant, Grant) else grant
            if number:
                request["grant"] = number
        # An insertion that need not wait for room still needs time to travel.
        answer = self._connection.put(self.name, batch, request, timeout=max(wait, GRACE))
        return np.array(answer["ids"], np.uint64)

    def _own(self, rows: Rows | None, columns: Mapping[str, Any]) -> pa.Schema | None:
        """The table's schema, if there are columns of the user's own in what is inserted."""
        first = rows[0] if isinstance(rows, Sequence) and rows else rows
        names = [*columns, *(first if isinstance(first, Mapping) else ())]
        if not any(name.startswith("x_") for name in names):
            return None
        if self._extra is None:
            self._extra = self.schema()
        return self._extra

    # Batches out.

    def sample(
        self,
        size: int,
        *,
        fresh: int = 0,
        columns: Sequence[str] | None = None,
        shard: int = 0,
        request_id: str | None = None,
        timeout: float | None = None,
    ) -> Batch:
        """Draw one batch. It counts as used once it has arrived; `batches` counts when you come back for the next.

        Args:
            size: B, in the table's units: rollouts, unless it draws groups or steps.
            fresh: how many of them must never have been handed out as fresh before, the oldest first.
            columns: to send, of the sampling schema (`schema`); by default all.
            shard: to draw from.
            request_id: names the request: a repeated one gets the same batch. By default a new random one.
            timeout: seconds to wait while the table holds too little, or the limiter holds samples back; 0: not at all.

        Raises:
            Starved: too little within the timeout.
        """
        wait = self._connection.timeout if timeout is None else timeout
        request: dict[str, Any] = {
            "table": self.name,
            "size": size_of(size),
            "request_id": request_id or uuid.uuid4().hex,
            "timeout_ms": milliseconds(wait),
        }
        request.update(optional(fresh=fresh, shard=shard, columns=columns))
        chunks = self._connection.get(request, timeout=max(wait, GRACE))
        info: dict[str, Any] = {}
        data = []
        for chunk in chunks:
            if chunk.app_metadata is not None:
                info.update(json.loads(chunk.app_metadata.to_pybytes()))
            if chunk.data is not None:
                data.append(chunk.data)
        if len(data) != 1:
            raise errors.Failed(f"{self.name}: {len(data)} record batches: want one, with the draws")
        return Batch(data[0], BatchInfo.of(info))

    def batches(
        self,
        size: int,
        *,
        fresh: int = 0,
        columns: Sequence[str] | None = None,
        shard: int = 0,
        prefetch: int = 1,
        prefetch_slack: int = 0,
        timeout: float | None = None,
    ) -> Stream:
        """Draw batch after batch on one stream, the next ones while you work on this one.

        A batch is on lease until you come back for the next one, which acknowledges it: only then it counts as used. What
        was not acknowledged when the stream closes, or the connection breaks, goes back to the table. Within ``with``, the
        last batch is acknowledged too, unless the block ends by an exception.

        >>> with table.batches(64, prefetch=2) as stream:  # doctest: +SKIP
        ...     for batch in stream:
        ...         train(batch.padded().torch("cuda"))

        Args:
            size, fresh, columns, shard: as of `sample`.
            prefetch: batches that wait in this process; one more is drawn and packed by the service. 0: each batch is drawn
                when it is asked for.
            prefetch_slack: versions by which a batch that the service prefetched may be older than the table when it is
                handed over; older ones are drawn again. (Those that wait in this process are not looked at again.)
            timeout: seconds that the service may wait for one batch. Afterwards the stream raises `Starved`, and can be
                asked for the next batch again.
        """
        wait = self._connection.timeout if timeout is None else timeout
        request: dict[str, Any] = {"size": size_of(size), "timeout_ms": milliseconds(wait), "prefetch": min(prefetch, 1)}
        request.update(optional(fresh=fresh, shard=shard, columns=columns, prefetch_slack=prefetch_slack))
        return Stream(self._connection, self.name, request, prefetch, wait)

    def acknowledge(self, batches: Iterable[int | Batch]) -> TableInfo:
        """Count leased batches as used, all or none. Streams do it by themselves."""
        return self._settle("acknowledge", batches)

    def release(self, batches: Iterable[int | Batch]) -> TableInfo:
        """Give leased batches back unused, all or none."""
        return self._settle("release", batches)

    def _settle(self, action: str, batches: Iterable[int | Batch]) -> TableInfo:
        numbers = [batch.info.batch if isinstance(batch, Batch) else int(batch) for batch in batches]
        return self._action(action, batches=numbers, repeatable=False)

    # What the trainer says.

    def update_priorities(self, ids: npt.ArrayLike, priorities: npt.ArrayLike) -> TableInfo:
        """Give rollouts new priorities; those that have left the table are ignored, and counted.

        Args:
            ids: uint64 [B], as of `Batch.ids` (a torch tensor will do).
            priorities: [B], finite and >= 0.
        """
        numbers = whole("ids", ids)
        values = measured("priorities", priorities, len(numbers))
        for entry, value in enumerate(values):
            if value < 0:
                raise errors.Invalid(f"priorities: entry {entry}: {value}: want at least 0")
        return self._action("update_priorities", ids=numbers, priorities=values)

    def report(
        self,
        ids: npt.ArrayLike,
        staleness: npt.ArrayLike,
        *,
        advantage: npt.ArrayLike | None = None,
        td_error: npt.ArrayLike | None = None,
        grad_norm: npt.ArrayLike | None = None,
        tokens: npt.ArrayLike | None = None,
        ratio_sum: npt.ArrayLike | None = None,
        ratio_squares: npt.ArrayLike | None = None,
    ) -> TableInfo:
        """Tell what was measured of draws, for priorities that are made of it and for the table's ESS by age.

        Args:
            ids: uint64 [B].
            staleness: int32 [B], as of `Batch.staleness`.
            advantage, td_error, grad_norm: float [B], magnitudes that the table's priority may be made of.
            tokens: [B]: tokens that the policy produced.
            ratio_sum, ratio_squares: [B]: sums over them of the importance ratio and of its square.
        """
        columns: dict[str, list[Any]] = {"id": whole("ids", ids), "staleness": whole("staleness", staleness)}
        rows = len(columns["id"])
        if len(columns["staleness"]) != rows:
            raise errors.Invalid(f"staleness: {len(columns['staleness'])} of them: want {rows}, one for each id")
        given = optional(
            advantage=advantage, td_error=td_error, grad_norm=grad_norm,
            tokens=tokens, ratio_sum=ratio_sum, ratio_squares=ratio_squares,
        )  # fmt: skip
        columns.update({name: measured(name, values, rows) for name, values in given.items()})
        draws = [dict(zip(columns, row)) for row in zip(*columns.values())]
        return self._action("report", draws=draws, repeatable=False)

    def advance(self, version: int) -> TableInfo:
        """Set the table's version, before the weights of that version are published. One below the table's changes nothing;
        the answer tells where it stands."""
        return self._action("advance", version=version)

    def rewind(self, version: int) -> TableInfo:
        """Go back to a version, as a trainer does that was restored from a checkpoint: newer rollouts are dropped."""
        return self._action("rewind", version=version)

    # What generators ask.

    def start(self, groups: int, *, group_size: int = 0, timeout: float = 0.0) -> Grant:
        """Ask how many of so many groups may be started now, of a table with a gate.

        Args:
            groups: wanted.
            group_size: rollouts in each; 0: the table's.
            timeout: seconds to wait until at least one may be started.
        """
        body = {"table": self.name, "groups": groups, **optional(group_size=group_size, timeout_ms=milliseconds(timeout))}
        answer = self._connection.action("start", body, wait=timeout, repeatable=False)
        return Grant(
            answer.get("grant", 0), answer.get("groups", 0), answer.get("version", 0), answer.get("expires_seconds", 0.0)
        )

    def abandon(self, grant: Grant | int, groups: int | None = None) -> TableInfo:
        """Give groups back that will not be inserted.

        Args:
            grant: that they were started under.
            groups: how many; by default all that were granted.
        """
        if isinstance(grant, Grant):
            groups = grant.groups if groups is None else groups
            grant = grant.number
        if groups is None:
            raise errors.Invalid("groups: missing: want how many of the grant's will not come")
        return self._action("abandon", grant=grant, groups=groups, repeatable=False)

    def prompts(self) -> PromptBuffer:
        """Return the prompt replay beside the table."""
        return PromptBuffer(self._connection, self.name)

    # What there is to see and to keep.

    def info(self) -> TableInfo:
        """Tell the table's version, size and definition."""
        return self._action("info")

    def stats(self) -> Stats:
        """Tell everything that the service counts of the table."""
        return Stats.of(self._connection.action("stats", {"table": self.name}))

    def schema(self) -> pa.Schema:
        """Return the sampling schema, the user's own columns included."""
        return self._connection.info(self.name).schema

    def checkpoint(self, name: str, *, timeout: float | None = None) -> TableInfo:
        """Save everything of the table on the service's disk under a name; one of that name is replaced."""
        return self._action("checkpoint", name=name, timeout=timeout)

    def restore(self, name: str, *, timeout: float | None = None) -> TableInfo:
        """Bring the table back to a checkpoint."""
        return self._action("restore", name=name, timeout=timeout)

    def export(self, *, columns: Sequence[str] | None = None, rows: int = 256, timeout: float | None = None) -> pa.Table:
        """Return everything in the table in order of ids, without drawing anything; ``.to_pandas()`` makes a data frame.

        Args:
            columns: of the sampling schema; by default all.
            rows: of one record batch on the way.
        """
        request = {"table": self.name, "size": rows, "export": True, **optional(columns=columns)}
        wait = self._connection.timeout if timeout is None else timeout
        return self._connection.read_all(request, timeout=wait)

    def drop(self) -> None:
        """Remove the table with everything in it, on disk too."""
        self._connection.action("drop_table", {"table": self.name}, repeatable=False)

    def _action(self, action: str, /, *, repeatable: bool = True, timeout: float | None = None, **body: Any) -> TableInfo:
        return TableInfo.of(
            self._connection.action(action, {"table": self.name, **body}, repeatable=repeatable, timeout=timeout)
        )
