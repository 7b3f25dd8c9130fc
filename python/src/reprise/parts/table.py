"""Table: a table in parts, with the methods of a single service's."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar, cast

import numpy as np
import pyarrow as pa

from .. import errors, table
from ..arrays import whole
from ..batch import Batch
from ..connection import FIRST_PAUSE, Deadline
from ..stats import Checkpoint, Rewarded, Stats, TableInfo
from ..stream import Stream
from ..table import Grant, Prompt, Scope, in_scope
from .exchanges import Exchanges
from .insertion import Insertion, Ways
from .part import TURN, Part, Parts
from .plan import cut, join, join_all, merge, order
from .services import DOWN, Services, outcome

T = TypeVar("T")

MOST_FOUND = 1000  # rows of a page
MOST_OTHERS = 100  # rollouts of other groups beside one


@dataclass(frozen=True)
class Ask:
    """What an action asks of one part."""

    action: str
    body: Mapping[str, Any]


class Table(table.Table):
    """A table in parts, with the methods of a single service's table. Threads may share it.

    What one part would do all or none of, an insertion or `acknowledge`, several do each for itself. Draws with scope
    ``own`` are from this trainer's parts, one part a batch; samplers ``fifo`` and ``lifo`` draw from all in any scope.
    """

    def __init__(self, services: Services, name: str) -> None:
        super().__init__(services.entries[0], name)
        self._services, self._parts, self._ways = services, Parts(services, name), Ways()

    def __repr__(self) -> str:
        return f"<reprise.Table {self.name} in {len(self.parts)} parts at {','.join(self._services.addresses)}>"

    @property
    def parts(self) -> list[Part]:
        """The parts, up or not; empty before the first call."""
        return self._parts.all

    @property
    def down(self) -> tuple[str, ...]:
        """Addresses of the services that did not answer last."""
        return self._parts.down

    def create(self, keys: Mapping[str, Any], parts: int | None) -> None:
        """Create the parts that are up."""
        self._parts.create(keys, parts)

    def drop(self) -> None:
        """Remove the parts and their contents, all of whose services must be up."""
        outcomes: list[object] = []
        # A cluster looks for parts from 0 on: those that remain are found.
        for part in reversed(self._parts.located()):
            ordinary = part.table
            body = {"table": ordinary.name}
            outcomes.append(outcome(partial(ordinary._connection.action, "drop_table", body, repeatable=False)))
            if isinstance(outcomes[-1], errors.Error) and not isinstance(outcomes[-1], errors.NotFound):
                break
        _check(outcomes)

    # Rollouts in.

    def _insert(self, batch: pa.RecordBatch, request: dict[str, Any], wait: float) -> dict[str, Any]:
        return Insertion(self._parts, self._ways, batch, request, wait).run()

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
        """Draw a batch and acknowledge it, as `reprise.Table.sample`. A batch from several parts is leased and then
        acknowledged at each, so a ``request_id`` cannot name it."""
        deadline = Deadline(self._connection.timeout if timeout is None else timeout)
        request: dict[str, Any] = {"fresh": fresh, "columns": columns, "shard": shard}
        self._parts.up(deadline.left())
        together = self._parts.together(in_scope(scope))
        if together and request_id is not None:
            raise errors.Invalid(
                f"request_id: {request_id!r}: want none for a batch from several parts: how it is divided differs from "
                "request to request"
            )
        while True:
            try:
                if not together:
                    return self._sample_own(size, deadline, request_id, request)
                batch = self.lease(size, timeout=deadline.left(), scope=scope, **request)
            except (errors.Starved, *DOWN):
                if together or deadline.left() <= 0:  # a lease from all has waited
                    raise
            else:
                try:
                    self.acknowledge(batch)
                    return batch
                except (errors.NoLease, *DOWN):  # it went back: draw another
                    if deadline.left() <= 0:
                        raise
            self._connection.rest(FIRST_PAUSE)

    def _sample(
        self, request_id: str | None, timeout: float | None, *, columns: Sequence[str] | None, **asked: Any
    ) -> Batch:
        raise errors.Invalid(
            f"prompts: {self.name} is in parts, each of which has some of a prompt's rollouts: want a table of one "
            "service"
        )

    def _sample_own(self, size: int, deadline: Deadline, request_id: str | None, request: dict[str, Any]) -> Batch:
        """Draw from the first of the trainer's parts that has enough."""
        problem: errors.Error | None = None
        for part, wait in self._parts.waits(self._parts.up(deadline.left()), deadline, request_id):
            answer = outcome(partial(part.table.sample, size, request_id=request_id, timeout=wait, **request))
            if isinstance(answer, Batch):
                part.found()
                return merge([(part.number, answer)], None, 0)
            problem = answer
            if isinstance(answer, DOWN):
                part.lost(answer)
                self._parts.tell()
            elif not isinstance(answer, errors.Starved):
                break
        assert problem is not None
        raise problem

    def _stream(self, request: dict[str, Any], prefetch: int, wait: float, scope: Scope) -> Stream:
        exchanges = Exchanges(self._parts, request, wait, in_scope(scope))
        return Stream(self._connection, self.name, exchanges, prefetch)

    def _numbers(self, batch: Batch | int) -> tuple[int, ...]:
        if not isinstance(batch, Batch):
            with self._lock:
                leased = self._leases.get(batch)
            batch = leased.current if leased is not None and leased.current is not None else batch
        return super()._numbers(batch)

    # Actions: of one part, of several with their share each, or of all.

    def _action(
        self, action: str, /, *, repeatable: bool = True, timeout: float | None = None, **body: Any
    ) -> TableInfo:
        deadline = Deadline(self._connection.timeout if timeout is None else timeout)
        self._parts.up(timeout)
        needs_all = action in ("checkpoint", "restore")
        if needs_all and not self._services.clustered:
            self._parts.look()
        asks = self._asks(action, body)
        if needs_all and len(asks) < len(self.parts):
            raise errors.Unavailable(f"{action}: {', '.join(self.down)}: away: want all parts up")
        if not asks and action in ("acknowledge", "release"):
            raise errors.NoLease(f"{action}: the parts that drew the batch are away, and took it back")

        def act(part: Part) -> TableInfo:
            return part.act(asks[part].action, repeatable=repeatable, timeout=timeout, **asks[part].body)

        left, found = list(asks), []
        while left:
            found += self._parts.note([*zip(left, self._services.each([partial(act, part) for part in left]))])
            left = [part for part in left if part.why is not None and (repeatable or not part.why.sent)]
            if not self._services.clustered or deadline.left() <= 0:
                break
            if left:  # until they have an owner
                self._connection.rest(FIRST_PAUSE)
                self._parts.up(deadline.left())
        if asks and not found:
            raise next(part.why for part in asks if part.why is not None)
        infos = [part.info for part in self.parts if part.why is None]
        note = next((info.note for _, info in found if info.note), "")
        version = max((info.version for info in infos), default=0)
        if action in ("advance", "rewind") or "version" in body:
            self._parts.led = version
        present, size = sum(info.present for info in infos), sum(info.bytes for info in infos)
        definition = self._parts.definition if action == "info" else {}
        return TableInfo(self.name, version, present, size, definition, note)

    def _asks(self, action: str, body: Mapping[str, Any]) -> dict[Part, Ask]:
        """Return what to ask of each part. What concerns parts that are down is left out: it left with them."""
        parts = self._parts.reachable()
        if action not in ("update_priorities", "report", "acknowledge", "release", "abandon", "prompts_report"):
            return {part: Ask(action, body) for part in parts}
        shares = self._shares(body, {part.number for part in parts})
        version = {"version": body["version"]} if "version" in body else {}
        asks = {}
        for part in parts:
            if part.number in shares:
                asks[part] = Ask(action, {**shares[part.number], **version})
            elif version:
                asks[part] = Ask("advance", version)
        return asks

    def _shares(self, body: Mapping[str, Any], up: set[int]) -> dict[int, dict[str, Any]]:
        """Return, for each part, which of a body's rollouts, batches, grants or prompts are its own, by its ids."""
        shares: dict[int, dict[str, Any]] = {}

        def add(part: int, name: str, value: Any) -> None:
            shares.setdefault(part, {}).setdefault(name, []).append(value)

        for draw in body.get("draws", ()):
            part, own = cut(draw["id"])
            add(part, "draws", {**draw, "id": own})
        for id, priority in zip(body.get("ids", ()), body.get("priorities", ())):
            part, own = cut(id)
            add(part, "ids", own)
            add(part, "priorities", priority)
        for batch in body.get("batches", ()):
            part, own = cut(batch)
            add(part, "batches", own)
        for result in body.get("results", ()):
            way = order(result["id"].encode(), len(self.parts))
            add(next(part for part in way if part in up), "results", result)
        if "grant" in body:
            part, own = cut(body["grant"])
            shares[part] = {**body, "grant": own}
        return shares

    def _reward(self, ids: list[int], rewards: list[float], by: str, request_id: str) -> Rewarded:
        self._parts.up()
        shares: dict[int, tuple[list[int], list[float]]] = {}
        for id, reward in zip(ids, rewards):
            number, own = cut(id)
            if number >= len(self.parts):
                raise errors.Invalid(f"ids: {id}: it is of part {number}: want one of the {len(self.parts)} parts")
            share = shares.setdefault(number, ([], []))
            share[0].append(own)
            share[1].append(reward)
        asked = [part for part in self.parts if part.number in shares]
        found = self._parts.ask(asked, lambda part: part.table._reward(*shares[part.number], by, request_id))
        if len(found) < len(asked):
            raise errors.Unavailable(f"reward: {', '.join(self.down)}: away, and others have their rewards: repeat the "
                                     f"call with request_id={request_id!r} when all are up")  # fmt: skip
        return Rewarded(*(sum(getattr(one, name) for _, one in found) for name in ("rewarded", "left", "entered")))

    # The generator's gate and prompt replay.

    def start(self, groups: int, *, group_size: int = 0, timeout: float = 0.0) -> Grant:
        """Ask to start groups, as `reprise.Table.start`. One part grants them, and they are inserted there."""
        deadline, pause = Deadline(timeout), FIRST_PAUSE
        while True:
            up = self._parts.up(timeout or None)
            for part in self._parts.in_turn(up):
                answer = outcome(partial(part.table.start, groups, group_size=group_size))
                self._parts.note([(part, answer)])
                if isinstance(answer, Grant) and answer:
                    return replace(answer, number=join(part.number, answer.number))
            if deadline.left() <= 0:
                return Grant(0, 0, max(part.info.version for part in up), 0.0)
            self._connection.rest(min(pause, deadline.left()))
            pause = min(2 * pause, TURN)

    def prompts_next(self, batch: int) -> list[Prompt]:
        """Return prompts to generate for again, as `reprise.Table.prompts_next`: of one part after the other."""
        up, left = self._parts.up(), float(whole("batch", batch))
        fraction = (self._parts.definition.get("prompts") or {}).get("fraction") or 1.0
        prompts: list[Prompt] = []
        for part in self._parts.in_turn(up):
            if left >= 1:
                for _, some in self._parts.note([(part, outcome(partial(part.table.prompts_next, int(left))))]):
                    prompts += some
                    left -= len(some) / fraction
        return prompts

    # State.

    def stats(self) -> Stats:
        """Return the counters of all parts that are up, summed; ``down`` has the addresses of the others."""
        found = self._ask(lambda part: part.table.stats())
        shares = [float(each.present) for _, each in found]
        if self._parts.definition["sampler"] == "prioritized":  # of ages, by mass
            totals = [each for _, each in self._parts.totals([part for part, _ in found], 0)]
            logs = [each.log_mass if each.units else -math.inf for each in totals]
            shares = [math.exp(each - max(logs)) if each > -math.inf else 0.0 for each in logs]
        return replace(Stats.merged([each for _, each in found], shares), down=self.down)

    def _ask(self, call: Callable[[Part], T]) -> list[tuple[Part, T]]:
        return self._parts.ask(self._parts.up(), call)

    def schema(self) -> pa.Schema:
        """Return the schema of sampled batches, your own columns included."""
        return self._parts.ask(self._parts.up()[:1], lambda part: part.table.schema())[0][1]

    def rollouts(
        self, *, where: str = "", order: str = "", text: str = "", prompt: str = "", skip: int = 0, limit: int = 100
    ) -> list[dict[str, Any]]:
        """Return what the parts that are up know of the rollouts that meet a condition, as `reprise.Table.rollouts`.

        Each part sends the beginning of its list, so ``skip`` and ``limit`` are at most 1,000 together. Without an
        order the parts take turns: nobody knows which of two parts' rollouts is the newer.
        """
        query = {"where": where, "order": order, "text": text, "prompt": prompt}
        return list(self._find(query, whole("skip", skip), whole("limit", limit))["rollouts"])

    def _find(self, query: dict[str, Any], skip: int, limit: int) -> dict[str, Any]:
        """Return the rows that a query finds, and how many there are, in the order of each part's list."""
        if skip and skip + limit > MOST_FOUND:
            raise errors.Invalid(
                f"skip: {skip} with limit {limit}: want {MOST_FOUND} together in a table in parts, with where for fewer "
                "or another order"
            )
        found = self._ask(lambda part: part.ask("rollouts", {**query, "limit": skip + limit}))
        rows = [(part.number, row) for part, page in found for row in page["rollouts"]]

        def place(at: tuple[int, dict[str, Any]]) -> tuple[bool, float, int, int]:
            order = at[1].get("order")
            return order is None, -(order or 0.0), -at[1]["id"], at[0]

        listed = [_joined(number, row) for number, row in sorted(rows, key=place)]
        matched, version = sum(page["matched"] for _, page in found), max(page["version"] for _, page in found)
        return {"version": version, "matched": matched, "rollouts": listed[skip : skip + limit]}

    def rollout(self, id: int) -> dict[str, Any]:
        """Return all that its part knows of a rollout, as `reprise.Table.rollout`, and its prompt's others in all."""
        number, own = cut(whole("id", id))
        self._parts.up()
        if number >= len(self.parts):
            raise errors.NotFound(f"rollout {id}: table {self.name} has {len(self.parts)} parts, and no part {number}")
        part = self.parts[number]
        answer = outcome(partial(part.ask, "rollout", {"id": own}))
        if isinstance(answer, errors.NotFound):  # the rollout is gone, not the part
            raise answer
        if not self._parts.note([(part, answer)]):
            raise cast(errors.Error, answer)
        shown = _joined(number, cast("dict[str, Any]", answer))
        for mate in shown["group_rollouts"] or ():
            _joined(number, mate)
        if "life" in shown:
            life = shown["life"]
            life["id"], life["group"] = shown["id"], shown["group"]
            for event in life["events"]:
                if "draw" in event:
                    event["draw"]["batch"] = join(number, event["draw"]["batch"])
        if shown["prompt_id"] and not shown.get("left"):
            query = {"prompt": shown["prompt_id"], "order": "version"}
            others = self._find(query, 0, MOST_OTHERS + len(shown["group_rollouts"]))
            rows = [row for row in others["rollouts"] if row["group"] != shown["group"]]
            others["matched"] -= len(others["rollouts"]) - len(rows)
            shown["prompt_rollouts"] = {**others, "rollouts": rows[:MOST_OTHERS]}
        return shown

    def checkpoints(self) -> list[Checkpoint]:
        """Return the checkpoints that all parts have, in order of names."""
        found = self._ask(lambda part: {each.name: each for each in part.table.checkpoints()})
        listed = [each for _, each in found]
        names = sorted(set.intersection(*(set(each) for each in listed)))
        sizes = {name: sum(each[name].file_bytes for each in listed) for name in names}
        return [Checkpoint(name, sizes[name], max(each[name].saved for each in listed)) for name in names]

    def delete_checkpoint(self, name: str) -> None:
        """Delete a checkpoint in all parts."""
        calls = [partial(part.table.delete_checkpoint, name) for part in self._parts.located()]
        _check(self._services.each(calls))

    def export(
        self,
        *,
        where: str | None = None,
        columns: Sequence[str] | None = None,
        rows: int = 256,
        timeout: float | None = None,
    ) -> pa.Table:
        """Return what the parts that are up hold, by ascending id, without drawing anything."""
        asked: dict[str, Any] = {"where": where, "columns": columns, "rows": rows, "timeout": timeout}
        tables = []
        for part, some in self._ask(lambda part: part.table.export(**asked)):
            for at, name in enumerate(some.schema.names):
                if name in ("id", "group"):
                    joined = join_all(part.number, some.column(at).to_numpy())
                    some = some.set_column(at, some.schema.field(at), pa.chunked_array([joined]))
            tables.append(some)
        return pa.concat_tables(tables)


def _joined(part: int, row: dict[str, Any]) -> dict[str, Any]:
    """Give a row of a part the table's ids, and return it."""
    row["id"], row["group"] = join(part, row["id"]), join(part, row["group"])
    return row


def _check(outcomes: Sequence[object]) -> None:
    """Raise the first problem of all parts; that some lack what was to be removed is none."""
    problems = [each for each in outcomes if isinstance(each, errors.Error)]
    if problems and (len(problems) == len(outcomes) or not all(isinstance(x, errors.NotFound) for x in problems)):
        raise next((each for each in problems if not isinstance(each, errors.NotFound)), problems[0])
