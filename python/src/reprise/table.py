"""Table: rollouts in, batches out. Its methods have the names of Go's `replay.Buffer` and `client.Table`."""

from __future__ import annotations

import json
import threading
import uuid
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.flight as flight

from . import errors
from .arrays import finite_numbers, seconds, whole, whole_numbers
from .batch import DEFAULT_COLUMNS, Batch, BatchInfo
from .connection import Connection, encode, this_call
from .rollouts import Rows, record_batch, require
from .stats import Checkpoint, Rewarded, Stats, TableInfo
from .stream import Exchange, Stream, warn_of_repeats

Ids = npt.NDArray[np.uint64]

Scope = Literal["own", "global"]


@dataclass(frozen=True)
class Grant:
    """Groups that a generator may start now: insert them with the grant, or abandon them.

    Attributes:
        number: of the grant; 0 if nothing was granted.
        groups: that may be started; 0 after the timeout.
        version: of the table.
        expires_seconds: until the grant expires.
    """

    number: int
    groups: int
    version: int
    expires_seconds: float

    def __bool__(self) -> bool:
        return self.groups > 0


@dataclass(frozen=True)
class Prompt:
    """A prompt to generate for again.

    Attributes:
        id: of the prompt, as in the column ``prompt_id``.
        ref: the caller's number from its report, such as a row in a data set.
    """

    id: str
    ref: int = 0


@dataclass(frozen=True)
class PromptResult:
    """The outcome of a prompt.

    Attributes:
        id, ref: of the prompt.
        correct: responses that were correct.
        total: responses.
        replayed: the prompt came from `Table.prompts_next`.
        difficulty: by any measure, for expressions. With one ``correct`` and ``total`` may be 0: it was not asked yet.
    """

    id: str
    correct: int
    total: int
    ref: int = 0
    replayed: bool = False
    difficulty: float | None = None


class Table:
    """A table of the service. Threads may share it.

    The ``timeout`` of its methods is in seconds; the default is the client's.
    """

    def __init__(self, connection: Connection, name: str) -> None:
        if not isinstance(name, str) or not name:
            raise errors.Invalid(f"table: {name!r}: want the name of a table")
        self.name = name
        self._connection = connection
        self._schema: pa.Schema | None = None
        self._leases: dict[int, Stream] = {}  # by number of the batch
        self._lock = threading.Lock()  # guards _leases

    def __repr__(self) -> str:
        return f"<reprise.Table {self.name} at {self._connection.address}>"

    def __len__(self) -> int:
        return self.info().present

    # Rollouts in.

    def insert(
        self,
        /,
        rows: Rows | None = None,
        *,
        group_size: int = 0,
        grant: Grant | int | None = None,
        batch_id: str | None = None,
        timeout: float | None = None,
        **columns: Any,
    ) -> Ids:
        """Insert rollouts, all or none. It returns once they are as durable as the service promises (``--sync``).

        A call that is retried because the connection broke never inserts twice.

        Args:
            rows: a list of dicts with one rollout each, such as `rollout` returns; or a dict of the columns below; or a
                `pyarrow.Table` or `RecordBatch` of them. Keyword arguments are further columns.
            group_size: number of consecutive rollouts in a group; by default the table's. Without either, and without
                the column ``group``, each rollout is a group of its own.
            grant: of `start`, for the groups inserted.
            batch_id: names the insertion; random by default.
            timeout: seconds to wait for room, or for the limiter.

        Columns per token, for B rollouts of L tokens, prompts included; entry i is about token i. They may be lists of
        B lists or 1-D arrays; 2-D arrays or tensors [B, W] padded on any side with ``attention_mask`` [B, W], or on the
        right with ``lengths`` [B]; or flat arrays [N] with ``lengths``:

        - ``tokens`` (required): in the range of int32.
        - ``mask`` (required, or ``prompt_lengths`` [B]): 1 where the policy produced the token.
        - ``logprobs`` (required): of the behaviour policy, natural log of softmax(logits / temperature) over the ids of
          ``sampling_mask``, or without one over the whole vocabulary, before top-p. Where mask is 0 they become 0. NaN
          where nobody knows them, in tables with ``unknown_logprobs``.
        - ``versions`` (required, or ``version``): of the weights that produced the token; -1 where mask is 0.
        - ``advantages``, ``values``, ``ref_logprobs``: optional.
        - ``sampling_mask``, optional: for each rollout L lists of the ids that the sampler could have drawn, the
          sampled token among them; empty where mask is 0, and where the token was drawn from the whole vocabulary.
        - ``routed_experts``, optional: of the engine's router, for each rollout an array [L, ...] or, as engines return
          it, [L - 1, ...], of 0 to 65535; or padded [B, W, ...], or flat [N, ...].

        Columns per rollout, as lists, arrays or tensors [B], or one value for all:

        - ``reward`` (required; NaN if it comes later, in tables with ``pending_rewards``), ``version``,
          ``temperature`` (1), ``top_p`` (1), ``truncated`` (False), ``advantage`` (from the group), ``group``: a number
          that the rollouts of a group share within the insertion.
        - ``prompt_id``: str; ``text``: str; ``meta``: dicts of str and numbers, which become text; ``images``: lists of
          bytes; ``turns``: lists of dicts with start, end, reward, done.
        - ``x_…``: columns of your own, declared when the table was created.

        Returns:
            uint64 [B]: the ids of the rows in their order, also of those that ``max_staleness`` keeps out: a
            `StaleWarning` says how many, and what to do.

        Raises:
            Invalid: naming column, row and value; nothing was inserted.
            Full: no room within the timeout.
            Ahead: a rollout is newer than the table.
        """
        batch = record_batch(rows, group_size=whole("group_size", group_size, 0), extra=self._own_columns, **columns)
        require(batch)
        wait = self._connection.timeout if timeout is None else timeout
        request = {
            "batch_id": batch_id or uuid.uuid4().hex,
            "timeout_ms": _milliseconds(wait),
            **_given(group_size=group_size, grant=grant.number if isinstance(grant, Grant) else grant),
        }
        answer = self._insert(batch, request, wait)
        if late := answer.get("too_old"):
            self._connection.warn_once(self.name, errors.StaleWarning(self.name, late, answer["note"]), stacklevel=2)
        return np.array(answer["ids"], np.uint64)

    def _insert(self, batch: pa.RecordBatch, request: dict[str, Any], wait: float) -> dict[str, Any]:
        return self._connection.insert(self.name, batch, request, timeout=wait)

    def _own_columns(self) -> pa.Schema:
        if self._schema is None:
            self._schema = self.schema()
        return self._schema

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
        scope: Scope = "own",
    ) -> Batch:
        """Draw a batch, receive it whole, acknowledge it, and return it once the service has answered that.

        If this process ends before, the draws go back: a queue delivers its rollouts again and names them
        (`Batch.redelivered`).

        Args:
            size: B, in rollouts, or in the table's unit if that is group or step.
            fresh: how many of them must never have been drawn as fresh before, oldest first.
            columns: of the batch, by name (`schema`), or ``"all"``; by default those that a trainer uses
                (`DEFAULT_COLUMNS`). Each one left out saves time, most with a column per token.
            shard: to draw from.
            request_id: names the request, for callers that may die: who repeats it gets the same batch, with
                ``info.repeated`` if it had been acknowledged. Random by default.
            timeout: seconds to wait while the table holds too little, or the limiter holds samples back; 0: do not
                wait for that, but up to the client's timeout for a service that is away.
            scope: of a table in parts (`reprise.connect`): ``own`` draws from one of this trainer's parts, ``global``
                from all of them, as one table would. A table that is not in parts has one scope.

        Raises:
            Starved: too little within the timeout.
            NoLease: the batch of a repeated ``request_id`` was acknowledged, and its rollouts have left the queue.
        """
        in_scope(scope)
        size = whole("size", size, 1)
        batch = self._sample(request_id, timeout, size=size, fresh=fresh, shard=shard, columns=columns)
        warn_of_repeats(self._connection, self.name, batch, stacklevel=2)
        return batch

    def sample_prompts(
        self,
        prompts: Sequence[str],
        per_prompt: int = 1,
        *,
        where: str | None = None,
        order: str | None = None,
        columns: Sequence[str] | None = None,
        shard: int = 0,
        request_id: str | None = None,
        timeout: float | None = None,
    ) -> Batch:
        """Draw rollouts of given prompts and acknowledge them, as `sample` does, from a table with ``prompt_index``.

        A prompt without rollouts gets none. ``info.prompt_counts`` says how many each got;
        they stand in the order of the prompts. Their weight is 1.

        Args:
            prompts: values of the column ``prompt_id``, none twice.
            per_prompt: rollouts of each, at most; none comes twice.
            where: a condition that they meet, such as ``"reward >= 1 && age < 8"``; by default all do. The columns
                are in docs/replay.md.
            order: a number of which the greatest come first, such as ``"mean_logprob - 0.1 * age"``, of equals the
                newest; by default they are drawn at random.
            columns, shard, request_id, timeout: as of `sample`; it waits for no insertion.

        Raises:
            Invalid: the table has no index, or an expression is wrong: the message says where, and what to write.
        """
        if isinstance(prompts, str) or not prompts or not all(isinstance(prompt, str) for prompt in prompts):
            raise errors.Invalid(f"prompts: {prompts!r}: want a list of prompt ids, each a str")
        named = {"prompts": list(prompts), "per_prompt": whole("per_prompt", per_prompt, 1)}
        return self._sample(request_id, timeout, shard=shard, columns=columns, where=where, order=order, **named)

    def _sample(
        self, request_id: str | None, timeout: float | None, *, columns: Sequence[str] | None, **asked: Any
    ) -> Batch:
        """Draw a batch, receive it, acknowledge it, and return it once the service has answered that."""
        wait = self._connection.timeout if timeout is None else timeout
        request = {
            "request_id": request_id or uuid.uuid4().hex,
            "timeout_ms": _milliseconds(wait),
            "prefetch": 0,
            **_given(columns=_sampled(columns), **asked),
        }
        held: Batch | None = None  # received, and its acknowledgement sent

        def talk(writer: flight.FlightStreamWriter, reader: flight.FlightStreamReader) -> Batch:
            nonlocal held
            writer.write_metadata(encode(request))
            chunk, answer = _answer(reader)
            if chunk.data is None:
                raise errors.Failed(f"{self.name}: the service answered a request with neither a batch nor an error")
            repeated = answer.get("repeated", False)
            if held is None or not repeated:  # a service that crashed may give other rollouts under the same batch id
                held = Batch(chunk.data, BatchInfo.of(answer))
            this_call().check()  # what was not acknowledged goes back
            if not repeated:
                writer.write_metadata(encode({"acknowledge": [answer["batch"]]}))
                try:
                    _answer(reader)
                except errors.NoLease as error:  # it went back: its time was over, or the table was rewound
                    held = None
                    raise errors.Unavailable(str(error)) from error  # draw another
            return held

        try:
            # Without a wait the service answers at once, and the time is for an outage alone.
            return self._connection.converse(self.name, talk, timeout=wait or self._connection.timeout)
        except errors.NoLease:
            if held is None:
                raise
            return held  # the service had acknowledged it; only the answer was lost

    def lease(
        self,
        size: int,
        *,
        fresh: int = 0,
        columns: Sequence[str] | None = None,
        shard: int = 0,
        timeout: float | None = None,
        scope: Scope = "own",
    ) -> Batch:
        """Draw a batch that counts as used once you `acknowledge` it. For batch after batch, `stream` costs less.

        It goes back if it is released, or not settled before the table's ``lease_seconds`` are over or the client
        closes.

        Args:
            size, fresh, columns, shard, timeout, scope: as of `sample`.
        """
        stream = self.stream(size, fresh=fresh, columns=columns, shard=shard, prefetch=0, timeout=timeout, scope=scope)
        try:
            with this_call().by(stream.cancel):
                batch = next(stream)
            this_call().check()
        except BaseException:
            stream.close(acknowledge=False)
            raise
        with self._lock:
            self._leases[batch.info.batch] = stream
        return batch

    def acknowledge(self, *batches: Batch | int) -> TableInfo:
        """Count leased batches as used, all or none."""
        return self._settle("acknowledge", batches)

    def release(self, *batches: Batch | int) -> TableInfo:
        """Return leased batches unused, all or none."""
        return self._settle("release", batches)

    def _settle(self, action: str, batches: Iterable[Batch | int]) -> TableInfo:
        numbers = [number for batch in batches for number in self._numbers(batch)]
        info = self._action(action, batches=numbers, repeatable=False)
        with self._lock:
            streams = [self._leases.pop(number, None) for number in numbers]
        for stream in streams:
            if stream is not None:
                stream.close(acknowledge=False)
        return info

    def _numbers(self, batch: Batch | int) -> tuple[int, ...]:
        if isinstance(batch, Batch):
            return batch.info.batches or (batch.info.batch,)
        return (whole("batch", batch),)

    def stream(
        self,
        size: int,
        *,
        fresh: int = 0,
        columns: Sequence[str] | None = None,
        shard: int = 0,
        prefetch: int = 1,
        prefetch_slack: int = 0,
        timeout: float | None = None,
        scope: Scope = "own",
    ) -> Stream:
        """Draw batch after batch, the next ones while you work on this one.

        A batch is on lease until you ask for the next one, which acknowledges it. Batches that were not acknowledged
        when the stream closes, or its connection breaks, go back to the table. At the end of a ``with`` block the last
        batch is acknowledged too, unless the block raises.

        >>> with table.stream(64, prefetch=2) as batches:  # doctest: +SKIP
        ...     for batch in batches:
        ...         train(batch.padded().torch("cuda"))

        Args:
            size, fresh, columns, shard, scope: as of `sample`.
            prefetch: batches that wait in this process; the service draws and packs one more. 0: draw on demand.
            prefetch_slack: versions that a batch prefetched by the service may lag behind the table at hand-over; the
                service draws older ones again. Batches that wait in this process are not checked again.
            timeout: seconds that the service may wait for one batch. Then the stream raises `Starved`, and can be asked
                again.
        """
        in_scope(scope)
        wait = self._connection.timeout if timeout is None else timeout
        request = {
            "size": whole("size", size, 1),
            "timeout_ms": _milliseconds(wait),
            "prefetch": min(whole("prefetch", prefetch, 0), 1),
            **_given(fresh=fresh, shard=shard, columns=_sampled(columns), prefetch_slack=prefetch_slack),
        }
        return self._stream(request, whole("prefetch", prefetch, 0), wait, scope)

    def _stream(self, request: dict[str, Any], prefetch: int, wait: float, scope: Scope) -> Stream:
        source = Exchange(self._connection, self.name, request, wait)
        return Stream(self._connection, self.name, source, prefetch)

    # Feedback of the trainer.

    def update(self, ids: npt.ArrayLike, priorities: npt.ArrayLike, *, version: int | None = None) -> TableInfo:
        """Set the priorities of rollouts. Those that have left the table are ignored and counted.

        Args:
            ids: uint64 [B], as of `Batch.ids`; a torch tensor works too.
            priorities: [B], finite and >= 0.
            version: to `advance` the table to in the same call, after the update.
        """
        numbers = whole_numbers("ids", ids)
        values = finite_numbers("priorities", priorities, len(numbers))
        for entry, value in enumerate(values):
            if value < 0:
                raise errors.Invalid(f"priorities: entry {entry}: {value}: want at least 0")
        return self._feedback("update_priorities", version, ids=numbers, priorities=values)

    def _feedback(self, action: str, version: int | None, *, repeatable: bool = True, **body: Any) -> TableInfo:
        if version is not None:
            body["version"] = version
        info = self._action(action, repeatable=repeatable, **body)
        self._warn(info.note)
        return info

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
        version: int | None = None,
    ) -> TableInfo:
        """Report measurements of draws, for the table's priorities and its ESS by age.

        Args:
            ids: uint64 [B].
            staleness: int32 [B], as of `Batch.staleness`.
            advantage, td_error, grad_norm: float [B]: magnitudes that may be the base of priorities.
            tokens: [B]: number of tokens that the policy produced.
            ratio_sum, ratio_squares: [B]: sums over these tokens of the importance ratio and of its square.
            version: to `advance` the table to in the same call, after the report.
        """
        numbers, stale = whole_numbers("ids", ids), whole_numbers("staleness", staleness)
        if len(stale) != len(numbers):
            raise errors.Invalid(f"staleness: {len(stale)} of them: want {len(numbers)}, one for each id")
        measured = _given(
            advantage=advantage, td_error=td_error, grad_norm=grad_norm,
            tokens=tokens, ratio_sum=ratio_sum, ratio_squares=ratio_squares,
        )  # fmt: skip
        columns: dict[str, Sequence[float]] = {"id": numbers, "staleness": stale}
        columns.update({name: finite_numbers(name, values, len(numbers)) for name, values in measured.items()})
        draws = [dict(zip(columns, row)) for row in zip(*columns.values())]
        return self._feedback("report", version, draws=draws, repeatable=False)

    def reward(
        self, ids: npt.ArrayLike, rewards: npt.ArrayLike, *, by: str = "", request_id: str | None = None
    ) -> Rewarded:
        """Give rollouts their rewards, or others than they have: all of it happens, or nothing does.

        Advantages of their groups and priorities follow; batches that were drawn keep what they had. Rollouts may have
        been inserted with reward NaN in a table with ``pending_rewards``: a group is drawn once all of its rewards are
        known. A call that is retried because the connection broke happens once.

        Args:
            ids: uint64 [B], none twice, at most 1024.
            rewards: [B], within -1e9 to 1e9.
            by: who says so, such as ``judge-3``: the table keeps it, up to 128 bytes.
            request_id: names the call, random by default: repeated, it changes nothing and gets the same answer.
        """
        numbers = whole_numbers("ids", ids)
        values = finite_numbers("rewards", rewards, len(numbers))
        return self._reward(numbers, values, by, request_id or uuid.uuid4().hex)

    def _reward(self, ids: list[int], rewards: list[float], by: str, request_id: str) -> Rewarded:
        body = {"table": self.name, "ids": ids, "rewards": rewards, "by": by, "request_id": request_id}
        return Rewarded.of(self._connection.action("reward", body))

    def advance(self, version: int) -> TableInfo:
        """Set the table's version. Call it before publishing the weights of that version. A lower one changes
        nothing, with a warning: `rewind` goes back."""
        info = self._action("advance", version=whole("version", version))
        self._warn(info.note)
        return info

    def rewind(self, version: int) -> TableInfo:
        """Go back to a version, for a trainer restored from a checkpoint. Newer rollouts are dropped."""
        return self._action("rewind", version=whole("version", version))

    # The generator's gate and prompt replay.

    def start(self, groups: int, *, group_size: int = 0, timeout: float = 0.0) -> Grant:
        """Ask to start groups, at a table with a gate.

        Args:
            groups: wanted.
            group_size: rollouts in each; 0: the table's.
            timeout: seconds to wait until at least one may be started.
        """
        body = {
            "table": self.name,
            "groups": whole("groups", groups),
            **_given(group_size=group_size, timeout_ms=_milliseconds(timeout)),
        }
        answer = self._connection.action("start", body, wait=timeout, repeatable=False)
        numbers = [answer.get(name, 0) for name in ("grant", "groups", "version", "expires_seconds")]
        return Grant(*numbers)

    def abandon(self, grant: Grant | int, groups: int | None = None) -> TableInfo:
        """Return granted groups that will not be inserted.

        Args:
            grant: that they were started under.
            groups: how many; by default all of the grant.
        """
        if isinstance(grant, Grant):
            groups = grant.groups if groups is None else groups
            grant = grant.number
        if groups is None:
            raise errors.Invalid("groups: missing: want the number of groups that will not be inserted")
        return self._action("abandon", grant=whole("grant", grant), groups=whole("groups", groups), repeatable=False)

    def prompts_next(self, batch: int) -> list[Prompt]:
        """Return prompts to generate for again, at most the table's fraction of a batch."""
        # Not repeatable: the prompts returned are on cooldown, and a repetition would lose them.
        answer = self._connection.action("prompts_next", {"table": self.name, "batch": whole("batch", batch)},
                                         repeatable=False)  # fmt: skip
        return [Prompt(prompt["id"], prompt.get("ref", 0)) for prompt in answer.get("prompts") or []]

    def prompts_report(self, results: Iterable[PromptResult]) -> TableInfo:
        """Report the outcomes of prompts, new ones and replayed ones."""
        given = list(results) if isinstance(results, Iterable) else [results]
        for result in given:
            if not isinstance(result, PromptResult):
                raise errors.Invalid(f"results: {result!r}: want a list of reprise.PromptResult")
        return self._action("prompts_report", results=[asdict(result) for result in given], repeatable=False)

    # State.

    def info(self) -> TableInfo:
        """Return the table's version, size and definition."""
        return self._action("info")

    def stats(self) -> Stats:
        """Return the table's counters."""
        return Stats.of(self._connection.action("stats", {"table": self.name}))

    def rollouts(
        self, *, where: str = "", order: str = "", text: str = "", prompt: str = "", skip: int = 0, limit: int = 100
    ) -> list[dict[str, Any]]:
        """Return what the table knows of the rollouts that meet a condition, without drawing any.

        Args:
            where: a condition, such as ``"reward < 0.5 && age > 10"``; "": all.
            order: a number, the greatest first, such as ``"-mean_logprob"``; "": the newest first.
            text: that the text or the prompt's id has, in upper or lower case.
            prompt: the prompt's id.
            skip: rollouts before the first that is returned.
            limit: rollouts to return, at most 1,000.
        """
        body = {"table": self.name, "where": where, "order": order, "text": text, "prompt": prompt,
                "skip": whole("skip", skip), "limit": whole("limit", limit)}  # fmt: skip
        return list(self._connection.action("rollouts", body)["rollouts"])

    def rollout(self, id: int) -> dict[str, Any]:
        """Return all that the table knows of a rollout, with its tokens and log-probs, its group and its prompt's others.

        A table with ``history`` adds its ``life``: the insertion and the latest draws, reports and the eviction. Of a
        rollout that has left, which has ``left``, little else is known.
        """
        return self._connection.action("rollout", {"table": self.name, "id": whole("id", id)})

    def schema(self) -> pa.Schema:
        """Return the schema of sampled batches, your own columns included."""
        return self._connection.schema(self.name)

    def checkpoint(self, name: str, *, timeout: float | None = None) -> TableInfo:
        """Save the table on the service's disk under a name, replacing a checkpoint of that name."""
        return self._action("checkpoint", name=name, timeout=timeout)

    def checkpoints(self) -> list[Checkpoint]:
        """Return the table's checkpoints, in order of names."""
        answer = self._connection.action("list_checkpoints", {"table": self.name})
        return [Checkpoint.of(saved) for saved in answer["checkpoints"]]

    def delete_checkpoint(self, name: str) -> None:
        """Delete a checkpoint."""
        self._connection.action("delete_checkpoint", {"table": self.name, "name": name}, repeatable=False)

    def restore(self, name: str, *, timeout: float | None = None) -> TableInfo:
        """Bring the table back to a checkpoint."""
        return self._action("restore", name=name, timeout=timeout)

    def export(
        self,
        *,
        where: str | None = None,
        columns: Sequence[str] | None = None,
        rows: int = 256,
        timeout: float | None = None,
    ) -> pa.Table:
        """Return the whole table by ascending id, without drawing anything. ``.to_pandas()`` makes a data frame.

        Args:
            where: a condition that the rollouts meet, such as ``"reward >= 1 && age < 8"``; by default all do.
            columns: by name (`schema`); all by default.
            rows: of one message.
        """
        request = {"table": self.name, "size": whole("rows", rows, 1), "export": True}
        request |= _given(columns=columns, where=where)
        wait = self._connection.timeout if timeout is None else seconds("timeout", timeout)
        return self._connection.read(request, lambda reader: reader.read_all(), timeout=wait)

    def _warn(self, note: str | None) -> None:
        if note:
            warnings.warn(f"table {self.name}: {note}", stacklevel=3)

    def _action(
        self, action: str, /, *, repeatable: bool = True, timeout: float | None = None, **body: Any
    ) -> TableInfo:
        body = {"table": self.name, **body}
        return TableInfo.of(self._connection.action(action, body, repeatable=repeatable, timeout=timeout))


def in_scope(scope: Scope) -> bool:
    """Check a scope, and report whether it is the global one."""
    if scope not in ("own", "global"):
        raise errors.Invalid(f"scope: {scope!r}: want own or global")
    return scope == "global"


def _given(**values: Any) -> dict[str, Any]:
    """Return the values that are neither None, 0 nor empty, which mean the service's defaults."""
    columns = values.get("columns")
    if columns is not None and (isinstance(columns, str) or not isinstance(columns, Iterable)):
        raise errors.Invalid(f"columns: {columns!r}: want a list of names, such as [{str(columns)!r}]")
    out: dict[str, Any] = {}
    for name, value in values.items():
        if value is not None and name in ("fresh", "shard", "prefetch_slack", "group_size", "grant"):
            value = whole(name, value)
        if value is not None and not (isinstance(value, (int, float, list, tuple)) and not value):
            out[name] = list(value) if name == "columns" else value
    return out


def _sampled(columns: Sequence[str] | None) -> Sequence[str] | None:
    """Return the columns to ask for; None means all to the service."""
    return None if columns == "all" else DEFAULT_COLUMNS if columns is None else columns


def _answer(reader: flight.FlightStreamReader) -> tuple[flight.FlightStreamChunk, dict[str, Any]]:
    """Return the next message of a sampling stream with its metadata, or raise the error that it carries."""
    try:
        chunk = reader.read_chunk()
    except StopIteration:
        raise errors.Unavailable("the service ended the stream") from None
    answer: dict[str, Any] = json.loads(chunk.app_metadata.to_pybytes()) if chunk.app_metadata is not None else {}
    if reported := answer.get("error"):
        raise errors.from_status(reported)
    return chunk, answer


def _milliseconds(timeout: float) -> int:
    return round(1000 * seconds("timeout", timeout))
