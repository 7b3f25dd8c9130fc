"""Tables in parts: one table over several services, each of which has a part as an ordinary table.

`reprise.connect` with several addresses returns this `Client`, whose `Table` has the methods of a single service's.
Nobody but the clients knows that the parts belong together, so every client names the services in the same order.

- Groups go to a part by rendezvous hashing (`division.order`), so that a part that is lost moves no other part's
  groups. Ids of the whole have the number of the part in their top bits.
- Draws with scope ``own`` come from one part at a time, with scope ``global`` from all, with the law of one table that
  holds everything (`division.divide`).
- A part that does not answer is down: calls go to the others, and it is asked again after a second. One that comes back
  gets the newest version, and its table if it lost it, before it is used.

Four classes share the work: `Client` has the connections, `Table` the methods, `Part` says whether one part is up, and
`Exchanges` draws batches for a `stream.Stream`.
"""

from __future__ import annotations

import contextlib
import contextvars
import itertools
import logging
import math
import queue
import threading
import time
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar, cast

import numpy as np
import pyarrow as pa

from . import client, errors, stream, table
from .arrays import Array, whole
from .batch import Batch
from .connection import FIRST_PAUSE, Connection, Deadline
from .definition import Definition
from .division import MOST_PARTS, PART_BITS, QUEUES, Plan, Totals
from .division import cut, divide, join, key, merge, order, share, unshare
from .rollouts import consecutive_groups
from .stats import Checkpoint, Stats, TableInfo
from .table import Grant, Prompt, Scope, in_scope

T = TypeVar("T")

log = logging.getLogger("reprise")

PATIENCE = 5.0  # seconds for what a service answers without waiting; one that is silent for longer is down
RECENT = 1.0  # seconds for which a part that answered is taken to be up
JUST_NOW = 0.05  # and by insertions, which wait for a part that breaks off in the middle
AWAY = 1.0  # seconds until a part that is down is asked again
TURN = 0.25  # seconds that a call waits at one part where another may be able to answer it
REMEMBERED = 1024  # insertions whose ways are remembered for repetitions

DOWN = (errors.Unavailable, errors.Closing, errors.Timeout, errors.Elsewhere)
"""Errors of a part that does not answer."""


class Client(client.Client):
    """Connections to several services, whose tables are parts of larger ones. Threads may share it. Each process needs
    its own, also after a fork."""

    def __init__(
        self, addresses: Sequence[str], dial: Callable[[str], Connection], trainer: int = 0, trainers: int = 1
    ) -> None:
        self.addresses = [each.strip() if isinstance(each, str) else each for each in addresses]
        if not 1 <= len(self.addresses) <= MOST_PARTS:
            raise errors.Invalid(f"address: {len(self.addresses)} of them: want 1 to {MOST_PARTS} services")
        for each in self.addresses:
            if self.addresses.count(each) > 1:
                raise errors.Invalid(f"address: {each}: given twice: want each service once")
        self.trainers = whole("trainers", trainers, 1)
        self.trainer = whole("trainer", trainer, 0)
        if self.trainer >= self.trainers:
            raise errors.Invalid(f"trainer: {trainer}: want 0 to {self.trainers - 1}, with {self.trainers} trainers")
        self._dial = dial
        self._dialled: dict[str, Connection] = {}
        self._dialling = threading.Lock()  # guards _dialled
        self.connections = [self.connection(each) for each in self.addresses]
        self.clustered = False  # the services are a cluster: tables have owners among them, which change
        self._threads = ThreadPoolExecutor(max_workers=1 << 12, thread_name_prefix="reprise-parts")
        super().__init__(self.connections[0])

    def close(self) -> None:
        """Close the connections and their streams. Batches that were not acknowledged go back."""
        for each in list(self._dialled.values()):  # streams depend on the first, and end before the others close
            each.close()
        self._threads.shutdown(wait=False)

    @property
    def address(self) -> str:
        """The services' addresses, with commas: `reprise.connect` takes them so."""
        return ",".join(self.addresses)

    def connection(self, address: str) -> Connection:
        """Return the connection to a service."""
        with self._dialling:
            if address not in self._dialled:
                self._dialled[address] = self._dial(address)
                self._dialled[address].among_others = True
            return self._dialled[address]

    def locate(self, name: str) -> list[tuple[str, Connection]]:
        """Return where the parts of a table are, and their names there: one on each service, unless these are a cluster
        and say otherwise; none if a cluster has no such table."""
        for connection in list(self._dialled.values()):
            answer = _outcome(partial(connection.action, "locate", {"table": name}, timeout=PATIENCE))
            if isinstance(answer, DOWN):
                continue
            if isinstance(answer, errors.Error) and not isinstance(answer, errors.NotFound):
                raise answer
            parts = [] if isinstance(answer, errors.Error) else answer.get("parts") or []
            if not self.clustered and (isinstance(answer, errors.Error) or not answer.get("cluster")):
                break
            self.clustered = True
            # A part that nobody owns now is asked for at the service that said so, until somebody does.
            return [
                (each["table"], self.connection(each["address"]) if each["address"] else connection)
                for each in sorted(parts, key=lambda each: each["part"])
            ]
        if self.clustered:
            raise errors.Unavailable(f"table {name}: no node of the cluster says where it is")
        return [(name, each) for each in self.connections]

    def create(
        self, name: str, definition: Definition | None = None, *, parts: int | None = None, **options: Any
    ) -> Table:
        """Create a table in parts, one on each service, or return the existing one if its definition is the same.

        Args:
            parts: of a cluster, by default one for each address given. Services that are not one have a part each.

        The definition is of the whole: each part gets its share of ``capacity``, ``capacity_bytes``, ``min_size``, the
        gate's ``rollouts_per_update`` and the limiter's ``error_buffer``, rounded up to what a part must have. Parts on
        services that are away are created when these come back.
        """
        keys = Definition.given(definition, options).asdict()
        made = self.table(name)
        made.create(keys, None if parts is None else whole("parts", parts, 1))
        return made

    def drop(self, name: str) -> None:
        """Remove a table and its contents, on disk too, from all services, all of which must be up."""

        def drop(part: Part) -> None:
            part.table._connection.action("drop_table", {"table": part.table.name}, repeatable=False)

        outcomes: list[object] = []
        # A cluster looks for parts from 0 on: those that remain are found.
        for part in reversed(self.table(name).located()):
            outcomes.append(_outcome(partial(drop, part)))
            if isinstance(outcomes[-1], errors.Error) and not isinstance(outcomes[-1], errors.NotFound):
                break
        self._check(outcomes)

    def _on_all(self, name: str, call: Callable[[Part], object]) -> None:
        self._check(self.each([partial(call, part) for part in self.table(name).located()]))

    @staticmethod
    def _check(outcomes: Sequence[object]) -> None:
        """Raise the first problem of all parts; that some lack what was to be removed is none."""
        problems = [each for each in outcomes if isinstance(each, errors.Error)]
        if problems and (len(problems) == len(outcomes) or not all(isinstance(x, errors.NotFound) for x in problems)):
            raise next((each for each in problems if not isinstance(each, errors.NotFound)), problems[0])

    def table(self, name: str) -> Table:
        """Return a table by its name. The first call raises `NotFound` if it does not exist."""
        return Table(self, name)

    def list(self) -> list[TableInfo]:
        """Return all tables that the token may read, by name, of the services that are up."""
        listed = self.each([each.flights for each in self.connections])
        found = [each for each in listed if not isinstance(each, errors.Error)]
        if not found:
            raise cast(errors.Error, listed[0])
        names = {flight.descriptor.path[0].decode() for flights in found for flight in flights}
        wholes = {name: name.rpartition(".")[0] for name in names if name.rpartition(".")[2].isdecimal()}
        for name, whole_name in wholes.items():
            if self.clustered and any(part == name for part, _ in self.locate(whole_name)):
                names = names - {name} | {whole_name}
        return [self.table(name).info() for name in sorted(names)]

    def each(self, calls: Sequence[Callable[[], T]]) -> Sequence[T | errors.Error]:
        """Make calls at the same time, and return their results or errors."""
        with self._connection.using():  # in a fork, where the threads are missing, it says so
            pass
        rest = [self._threads.submit(contextvars.copy_context().run, _outcome, call) for call in calls[1:]]
        return [*map(_outcome, calls[:1]), *(each.result() for each in rest)]


def _outcome(call: Callable[[], T]) -> T | errors.Error:
    try:
        return call()
    except errors.Error as error:
        return error


class Part:
    """A part of a table, and whether its service answers."""

    def __init__(self, number: int, ordinary: table.Table) -> None:
        self.number, self.table = number, ordinary
        self.why: errors.Error | None = None  # it counts as down
        self.behind = True  # it may have missed versions, or have lost its table
        self.info = TableInfo("", 0, 0, 0)  # as it answered last
        self._heard = -math.inf
        self._ask_at = 0.0

    @property
    def address(self) -> str:
        return self.table._connection.address

    def due(self, now: float, recent: float) -> bool:
        """Report whether to ask whether it is up."""
        if self.why is not None:
            return now >= self._ask_at
        return self.behind or now - self._heard > recent

    def found(self) -> None:
        """Note that it answered."""
        self._heard, self.why = time.monotonic(), None

    def lost(self, why: errors.Error) -> None:
        """Note that it did not."""
        now = time.monotonic()
        if isinstance(why, errors.Elsewhere) and why.address:
            self._ask_at = 0.0
        elif self.why is None or now >= self._ask_at:
            self._ask_at = now + AWAY
        self.why, self.behind = why, True

    def hurry(self) -> None:
        """Ask it again before its time."""
        self._ask_at = 0.0

    def act(self, action: str, *, timeout: float | None = None, repeatable: bool = True, **body: Any) -> TableInfo:
        """Carry out an action on it."""
        self.info = self.table._action(action, timeout=timeout, repeatable=repeatable, **body)
        return self.info

    def totals(self, shard: int) -> Totals:
        """Return what it adds to a draw."""
        body = {"table": self.table.name, "shard": shard}
        return Totals.of(self.table._connection.action("totals", body, timeout=PATIENCE))


class Table(table.Table):
    """A table in parts, with the methods of a single service's table. Threads may share it.

    What one part would do all or none of, an insertion or `acknowledge`, several do each for itself. Draws with scope
    ``own`` are from this trainer's parts, one part a batch; samplers ``fifo`` and ``lifo`` draw from all in any scope.
    """

    def __init__(self, owner: Client, name: str) -> None:
        super().__init__(owner.connections[0], name)
        self._client = owner
        self.parts: list[Part] = []  # empty: not located yet
        self._turn = itertools.count(owner.trainer)
        self._definition: Mapping[str, Any] = {}  # of the whole, with defaults; empty: not known yet
        self._random: np.random.Generator | None = None
        self._led: int | None = None  # the version, if this client was the last to set it
        self._told: tuple[str, ...] = ()  # addresses that the last warning said are down
        # By batch id and group: the step of its way that it took, and whether it may be in that part.
        self._ways: OrderedDict[str, tuple[list[int], Array]] = OrderedDict()
        self._state = threading.Lock()  # guards the last four

    def __repr__(self) -> str:
        return f"<reprise.Table {self.name} in {len(self.parts)} parts at {self._client.address}>"

    @property
    def down(self) -> tuple[str, ...]:
        """Addresses of the services that did not answer last."""
        return tuple(part.address for part in self.parts if part.why is not None)

    # Which parts are up.

    def located(self, again: bool = False) -> list[Part]:
        """Return the parts, up or not.

        Raises:
            NotFound: a cluster has no such table.
        """
        if again or not self.parts:
            places = self._client.locate(self.name)
            if not places:
                raise errors.NotFound(f"table {self.name}: the cluster has no such table")
            self._place(places)
        return self.parts

    def _place(self, places: Sequence[tuple[str, Connection]]) -> None:
        with self._state:
            if len(places) != len(self.parts):
                self.parts = [Part(i, table.Table(each, name)) for i, (name, each) in enumerate(places)]
            for part, (name, connection) in zip(self.parts, places):
                if part.table._connection is not connection:
                    part.table = table.Table(connection, name)

    def create(self, keys: Mapping[str, Any], parts: int | None) -> None:
        """Create the parts that are up."""
        places, entries = self._client.locate(self.name), self._client.connections
        new = not places
        if new:
            count = parts or len(entries)
            names = [f"{self.name}.{i}" for i in range(count)] if count > 1 else [self.name]
            places = [(name, entries[i % len(entries)]) for i, name in enumerate(names)]
        if parts is not None and parts != len(places):
            held = "the table has that number" if self._client.clustered else "each service has one"
            raise errors.Invalid(f"parts: {parts}: want {len(places)}: {held}")
        self._place(places)
        calls = [partial(self._make, keys, part) for part in self.parts]
        outcomes = self._client.each(calls[1:])
        # A cluster finds the parts from 0 on: with the first part made last, a table that lacks parts is not found.
        if new and (failed := next((x for x in outcomes if isinstance(x, errors.Error)), None)):
            raise failed
        self._note(list(zip(self.parts, [*self._client.each(calls[:1]), *outcomes])))

    def _make(self, keys: Mapping[str, Any], part: Part) -> TableInfo:
        body = {"name": part.table.name, **share(keys, part.number, len(self.parts))}
        try:
            return TableInfo.of(part.table._connection.action("create_table", body))
        except errors.Elsewhere as error:  # its owner has it already, or takes it
            if not error.address:
                raise
            part.table = table.Table(self._client.connection(error.address), part.table.name)
            return TableInfo.of(part.table._connection.action("create_table", body))

    def up(self, timeout: float | None = None, recent: float = RECENT) -> list[Part]:
        """Return the parts that are up: those heard of lately, and those that answer now. Waits for one."""
        deadline = Deadline(self._connection.timeout if timeout is None else timeout)
        pause = FIRST_PAUSE
        while True:
            now = time.monotonic()
            due = [part for part in self.located() if part.due(now, recent)]
            if any(isinstance(part.why, errors.Elsewhere) for part in due):
                self._client.clustered = True
            if self._client.clustered and any(part.why is not None for part in due):
                with contextlib.suppress(*DOWN):
                    self.located(again=True)
                due = [part for part in self.parts if part.due(now, recent)]
            if any(part.behind for part in due):  # then what is the newest version?
                due = [part for part in self.parts if part.why is None or part in due]
            if due:
                self._greet(due)
            up = [part for part in self.parts if part.why is None]
            if up:
                return up
            if deadline.left() <= 0:
                why = self.parts[0].why
                assert why is not None
                raise type(why)(f"table {self.name}: all {len(self.parts)} parts are away: {why}")
            self._connection.rest(min(pause, deadline.left()))
            pause = min(2 * pause, AWAY)
            for part in self.parts:
                part.hurry()

    def _greet(self, parts: Sequence[Part]) -> None:
        """Ask parts whether they are up, and bring those that were not to the table's version."""
        asked = [partial(part.act, "info", timeout=PATIENCE) for part in parts]
        outcomes = list(self._client.each(asked))
        there = next((part for part, info in zip(parts, outcomes) if isinstance(info, TableInfo)), None)
        for i, part in enumerate(parts):
            # Lost for a second while another part has it: its service came back without it, or joins the others.
            twice = isinstance(outcomes[i], errors.NotFound) and isinstance(part.why, errors.NotFound)
            if there is not None and twice:
                outcomes[i] = _outcome(partial(self._copy, there, part))
        found = self._note(list(zip(parts, outcomes)))
        newest = max((info.version for _, info in found), default=0)
        here = max((info.version for part, info in found if not part.behind), default=None)
        if here is not None and here == self._led:
            newest = here  # this client set it: a part that is ahead missed a rewind
        others = [(part, info.version) for part, info in found if part.behind and info.version != newest]
        calls = [partial(part.act, "advance" if at < newest else "rewind", version=newest) for part, at in others]
        self._note([*zip([part for part, _ in others], self._client.each(calls))])
        for part, info in found:
            part.behind = part.why is not None
        if found and not self._definition:
            definitions = [info.definition for _, info in found]
            whole = unshare([definitions[i % len(definitions)] for i in range(len(self.parts))])
            with self._state:
                self._definition = {**whole, "seed": (whole.get("seed", 0) - found[0][0].number) % (1 << 64)}
                seed = [self._definition["seed"], self._client.trainer, len(self.parts)]
                self._random = np.random.default_rng(seed)

    def _copy(self, there: Part, part: Part) -> TableInfo:
        """Create a part by the definition of another."""
        definition = there.info.definition
        seed = (definition.get("seed", 0) - there.number + part.number) % (1 << 64)
        body = {**definition, "name": part.table.name, "seed": seed}
        part.table._connection.action("create_table", body)
        return part.act("info", timeout=PATIENCE)

    def _note(self, outcomes: Sequence[tuple[Part, T | errors.Error]]) -> list[tuple[Part, T]]:
        """Note which parts answered, and return those with their answers.

        Raises:
            Error: what a part refused. A part alone in having no such table is down instead.
        """
        found = [(part, answer) for part, answer in outcomes if not isinstance(answer, errors.Error)]
        for part, _ in found:
            part.found()
        asked = [part for part, _ in outcomes]
        others = found or any(part.why is None for part in self.parts if part not in asked)
        problem = None
        for part, error in outcomes:
            if isinstance(error, DOWN) or (isinstance(error, errors.NotFound) and others):
                part.lost(error)
            elif isinstance(error, errors.Error):
                problem = problem or error
        self._tell()
        if problem is not None:
            raise problem
        return found

    def _tell(self) -> None:
        """Warn if other parts are down than before."""
        down = self.down
        with self._state:
            changed, self._told = down != self._told, down
        if changed:
            why = next((str(part.why) for part in self.parts if part.why is not None), "")
            warnings.warn(errors.PartWarning(self.name, down, len(self.parts), why), stacklevel=4)

    def ask(self, parts: Sequence[Part], call: Callable[[Part], T]) -> list[tuple[Part, T]]:
        """Call parts at the same time, and return those that answered with their answers. At least one does."""
        outcomes = list(zip(parts, self._client.each([partial(call, part) for part in parts])))
        found = self._note(outcomes)
        if not found and outcomes:
            raise cast(errors.Error, outcomes[0][1])
        return found

    def reachable(self) -> list[Part]:
        """Return the parts that can be reached within a call: those that are up, and all of a cluster, where another
        service takes over what one leaves."""
        return [part for part in self.parts if part.why is None or self._client.clustered]

    def _turns(self, up: list[Part], name: str | None) -> list[Part]:
        """Return the parts that a batch may come from, the one whose turn it is first: its own that are up, and any
        others only if none of them is. A request of a name always begins with the same."""
        trainers = min(self._client.trainers, len(self.parts))
        own = [part for part in up if part.number % trainers == self._client.trainer % trainers] or up
        if name is not None:
            places = order(name.encode(), len(self.parts))
            return sorted(own, key=lambda part: places.index(part.number))
        turn = next(self._turn) % len(own)
        return own[turn:] + own[:turn]

    # Rollouts in.

    def _insert(self, batch: pa.RecordBatch, request: dict[str, Any], wait: float) -> dict[str, Any]:
        deadline = Deadline(wait)
        if not self._definition:
            self.up(wait)
        batch_id, grant = request["batch_id"], request.pop("grant", 0)
        groups = self._groups(batch, request.get("group_size") or self._definition.get("group_size", 0))
        firsts = np.unique(groups, return_index=True)[1]
        prompts = [""] * len(firsts)
        if "prompt_id" in batch.schema.names:
            prompts = batch.column("prompt_id").take(pa.array(firsts)).to_pylist()
        ways = [order(key(prompt or "", batch_id, i), len(self.parts)) for i, prompt in enumerate(prompts)]
        if grant:
            granter = cut(grant)[0]
            ways = [sorted(way, key=lambda part: part != granter) for way in ways]
        with self._state:
            known = self._ways.get(batch_id)
        # By group, which part of its way it takes. A repetition takes those of the first, whatever was down then.
        steps, stays = [0] * len(ways), np.zeros(len(ways), bool)
        if known is not None and len(known[0]) == len(ways):
            steps, stays = list(known[0]), known[1].copy()
        entered = np.zeros(len(ways), bool)
        counts = np.ones(len(batch), np.int64)  # ids of each row
        if self._definition.get("unit") == "step" and "turns" in batch.schema.names:
            counts = np.maximum(np.asarray(batch.column("turns").value_lengths().fill_null(0)), 1)
        rows_of_ids = np.repeat(np.arange(len(batch)), counts)
        ids = np.zeros(len(rows_of_ids), np.uint64)
        late, note = 0, ""

        def insert(path: tuple[int, ...], part: Part, rows: Array) -> dict[str, Any]:
            some = batch if len(rows) == len(batch) else batch.take(pa.array(rows))
            # Groups that a part gets in another's place have an id of their own there: it may know the plain one.
            own_id = "/".join([batch_id, *map(str, path)])
            body = {**request, "batch_id": own_id, "timeout_ms": int(1000 * deadline.left())}
            if grant and granter == part.number:
                body["grant"] = cut(grant)[1]
            call, once = part.table._connection.insert, self._client.clustered
            return call(part.table.name, some, body, timeout=deadline.left(), repeatable=not once)

        while True:
            self.up(deadline.left(), JUST_NOW)
            up = {part.number: part for part in self.reachable()}
            paths: dict[tuple[int, ...], list[int]] = {}
            problem: errors.Error | None = None
            for i in np.flatnonzero(~entered).tolist():
                way = ways[i]
                if way[steps[i]] not in up:
                    if stays[i]:
                        problem = None if deadline.left() > 0 else self.parts[way[steps[i]]].why
                        continue
                    steps[i] = next(step for step, part in enumerate(way) if part in up)
                paths.setdefault(tuple(way[: steps[i] + 1]), []).append(i)
            before = stays.copy()
            for some in paths.values():
                stays[some] = True
            with self._state:
                self._ways[batch_id] = steps, stays
                while len(self._ways) > REMEMBERED:
                    self._ways.popitem(last=False)
            asked = [(up[path[-1]], np.flatnonzero(np.isin(groups, some))) for path, some in paths.items()]
            calls = [partial(insert, path, part, rows) for path, (part, rows) in zip(paths, asked)]
            for (part, rows), outcome in zip(asked, self._client.each(calls)):
                if not isinstance(outcome, errors.Error):
                    part.found()
                    entered[groups[rows]] = True
                    tops = np.uint64(part.number << PART_BITS)
                    ids[np.isin(rows_of_ids, rows)] = np.array(outcome["ids"], np.uint64) | tops
                    late, note = late + outcome.get("too_old", 0), outcome.get("note", note)
                    continue
                elsewhere = isinstance(outcome, errors.NotFound) and len(self.parts) > 1
                if not isinstance(outcome, (*DOWN, errors.DiskFull, errors.Failed)):
                    stays[groups[rows]] = False
                elif not outcome.sent:
                    stays[groups[rows]] = before[groups[rows]]
                if elsewhere or isinstance(outcome, DOWN):
                    part.lost(outcome)
                    # It goes to the next part, or in a cluster to whoever owns this one now and knows what entered.
                    if deadline.left() > 0 and (elsewhere or not outcome.sent or self._client.clustered):
                        continue
                problem = problem or outcome
            self._tell()
            if problem is not None:
                raise self._partial(problem, batch_id, np.flatnonzero(entered[groups]))
            if entered.all():
                return {"ids": ids, "too_old": late, "note": note}
            if self._client.clustered or not asked:
                self._connection.rest(FIRST_PAUSE)

    def _groups(self, batch: pa.RecordBatch, size: int) -> Array:
        """Return the number [B] of each row's group, in order of their first rows, as the service sees them."""
        if "group" in batch.schema.names:
            seen: dict[int, int] = {}
            named = enumerate(batch.column("group").to_pylist())
            return np.array([seen.setdefault(-1 - row if name is None else name, len(seen)) for row, name in named])
        return consecutive_groups(len(batch), size) if size > 1 else np.arange(len(batch))

    def _partial(self, problem: errors.Error, batch_id: str, rows: Array) -> errors.Error:
        """Add to an error which rows of an insertion entered all the same."""
        if not len(rows) and not (isinstance(problem, DOWN) and problem.sent):
            return problem
        runs = np.split(rows, np.flatnonzero(np.diff(rows) > 1) + 1) if len(rows) else []
        spans = ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)
        known = f"{spans} entered" if spans else "none is known to have entered"
        return type(problem)(
            f"{problem}; of the rows, {known}: repeat the insertion with batch_id={batch_id!r} for the rest"
        )

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
        self.up(deadline.left())
        together = self.together(scope)
        if together and request_id is not None:
            raise errors.Invalid(
                f"request_id: {request_id!r}: want none for a batch from several parts: how it is divided differs from "
                "request to request"
            )
        while True:
            problem: errors.Error | None = None
            if together:
                batch = self.lease(size, timeout=deadline.left(), scope=scope, **request)
                try:
                    self.acknowledge(batch)
                    return batch
                except (errors.NoLease, *DOWN) as error:  # it went back: draw another
                    problem = error
            for part, wait in [] if together else self.waits(self.up(deadline.left()), deadline, request_id):
                call = partial(part.table.sample, size, request_id=request_id, timeout=wait, **request)
                answer = _outcome(call)
                if isinstance(answer, Batch):
                    part.found()
                    return merge([(part.number, answer)], None, 0)
                problem = answer
                if isinstance(answer, DOWN):
                    part.lost(answer)
                    self._tell()
                elif not isinstance(answer, errors.Starved):
                    raise answer
            if deadline.left() <= 0:
                assert problem is not None
                raise problem
            self._connection.rest(FIRST_PAUSE)

    def together(self, scope: Scope) -> bool:
        """Report whether draws of a scope come from several parts at once."""
        if not self._definition:
            self.up(0)
        return in_scope(scope) or self._definition["sampler"] in QUEUES

    def waits(self, up: list[Part], deadline: Deadline, name: str | None = None) -> Iterable[tuple[Part, float]]:
        """Yield the parts to ask for a batch in turn, each with how long to wait there: one that is starved gives its
        turn to the next, and the last waits for a while."""
        parts = self._turns(up, name)
        for part in parts:
            last = part is parts[-1]
            yield part, min(deadline.left(), PATIENCE if len(parts) == 1 else TURN) if last else 0

    def _stream(self, request: dict[str, Any], prefetch: int, wait: float, scope: Scope) -> stream.Stream:
        return stream.Stream(self._connection, self.name, Exchanges(self, request, wait, scope), prefetch)

    def totals(self, parts: Sequence[Part], shard: int) -> list[tuple[Part, Totals]]:
        """Return the totals of parts, at one version if they agree on one within a moment."""
        for _ in range(4):
            found = self.ask(parts, lambda part: part.totals(shard))
            if len({totals.version for _, totals in found}) == 1:
                break
            parts = [part for part, _ in found]
            self._connection.rest(FIRST_PAUSE)  # an advance is on its way
        return found

    def divide(self, totals: Sequence[Totals], size: int, fresh: int) -> Plan:
        """Divide a batch by the table's own random stream."""
        with self._state:
            assert self._random is not None
            return divide(self._random, self._definition, totals, size, fresh)

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
        self.up(timeout)
        said = dict(self._bodies(action, body, self.reachable()))
        if action in ("checkpoint", "restore") and len(said) < len(self.parts):
            raise errors.Unavailable(f"{action}: {', '.join(self.down)}: away: want all parts up")

        def act(part: Part) -> TableInfo:
            name, own = said[part]
            return part.act(name, repeatable=repeatable, timeout=timeout, **own)

        left, found = list(said), []
        while left:
            found += self._note([*zip(left, self._client.each([partial(act, part) for part in left]))])
            left = [part for part in left if part.why is not None and (repeatable or not part.why.sent)]
            if not self._client.clustered or deadline.left() <= 0:
                break
            if left:  # until they have an owner
                self._connection.rest(FIRST_PAUSE)
                self.up(deadline.left())
        if said and not found:
            raise next(part.why for part in said if part.why is not None)
        if not said and action in ("acknowledge", "release"):
            raise errors.NoLease(f"{action}: the parts that drew the batch are away, and took it back")
        infos = [part.info for part in self.parts if part.why is None]
        note = next((info.note for _, info in found if info.note), "")
        version = max((info.version for info in infos), default=0)
        if action in ("advance", "rewind") or "version" in body:
            self._led = version
        present, size = sum(info.present for info in infos), sum(info.bytes for info in infos)
        return TableInfo(self.name, version, present, size, self._definition if action == "info" else {}, note)

    def _bodies(
        self, action: str, body: dict[str, Any], parts: Sequence[Part]
    ) -> list[tuple[Part, tuple[str, dict[str, Any]]]]:
        """Return what to ask of each part. What concerns parts that are down is left out: it left with them."""
        if action in ("update_priorities", "report"):
            rows: dict[int, list[Any]] = {}
            given = zip(body.get("ids", []), body.get("priorities", []))
            for draw in body.get("draws") or [{"id": id, "p": p} for id, p in given]:
                number, own = cut(draw["id"])
                rows.setdefault(number, []).append({**draw, "id": own})
            version = {"version": body["version"]} if "version" in body else {}
            out: list[tuple[Part, tuple[str, dict[str, Any]]]] = []
            for part in parts:
                mine = rows.get(part.number, [])
                if mine and action == "report":
                    out.append((part, (action, {"draws": mine, **version})))
                elif mine:
                    ids, values = [each["id"] for each in mine], [each["p"] for each in mine]
                    out.append((part, (action, {"ids": ids, "priorities": values, **version})))
                elif version:
                    out.append((part, ("advance", version)))
            return out
        if action in ("acknowledge", "release"):
            batches = _by_part(body["batches"], cut)
            return [(part, (action, {"batches": batches[part.number]})) for part in parts if part.number in batches]
        if action == "abandon":
            number, grant = cut(body["grant"])
            return [(part, (action, {**body, "grant": grant})) for part in parts if part.number == number]
        if action == "prompts_report":
            up = {part.number for part in parts}
            routes = [(next(i for i in self._prompt_order(each["id"]) if i in up), each) for each in body["results"]]
            results = _by_part(routes, lambda route: route)
            return [(part, (action, {"results": results[part.number]})) for part in parts if part.number in results]
        return [(part, (action, body)) for part in parts]

    def _prompt_order(self, prompt_id: str) -> list[int]:
        return order(prompt_id.encode(), len(self.parts))

    # The generator's gate and prompt replay.

    def start(self, groups: int, *, group_size: int = 0, timeout: float = 0.0) -> Grant:
        """Ask to start groups, as `reprise.Table.start`. One part grants them, and they are inserted there."""
        deadline, pause = Deadline(timeout), FIRST_PAUSE
        while True:
            up = self.up(timeout or None)
            turn = next(self._turn) % len(up)
            for part in up[turn:] + up[:turn]:
                answer = _outcome(partial(part.table.start, groups, group_size=group_size))
                self._note([(part, answer)])
                if isinstance(answer, Grant) and answer:
                    return replace(answer, number=join(part.number, answer.number))
            if deadline.left() <= 0:
                return Grant(0, 0, max(part.info.version for part in up), 0.0)
            self._connection.rest(min(pause, deadline.left()))
            pause = min(2 * pause, TURN)

    def prompts_next(self, batch: int) -> list[Prompt]:
        """Return prompts to generate for again, as `reprise.Table.prompts_next`: of one part after the other."""
        up, left = self.up(), float(whole("batch", batch))
        turn = next(self._turn) % len(up)
        fraction = (self._definition.get("prompts") or {}).get("fraction") or 1.0
        prompts: list[Prompt] = []
        for part in up[turn:] + up[:turn]:
            if left >= 1:
                for _, some in self._note([(part, _outcome(partial(part.table.prompts_next, int(left))))]):
                    prompts += some
                    left -= len(some) / fraction
        return prompts

    # State.

    def stats(self) -> Stats:
        """Return the counters of all parts that are up, summed; ``down`` has the addresses of the others."""
        found = self.ask(self.up(), lambda part: part.table.stats())
        shares = [float(each.present) for _, each in found]
        if self._definition["sampler"] == "prioritized":  # of ages, by mass
            totals = [each for _, each in self.totals([part for part, _ in found], 0)]
            logs = [each.log_mass if each.units else -math.inf for each in totals]
            shares = [math.exp(each - max(logs)) if each > -math.inf else 0.0 for each in logs]
        return replace(Stats.merged([each for _, each in found], shares), down=self.down)

    def schema(self) -> pa.Schema:
        """Return the schema of sampled batches, your own columns included."""
        return self.ask(self.up()[:1], lambda part: part.table.schema())[0][1]

    def checkpoints(self) -> list[Checkpoint]:
        """Return the checkpoints that all parts have, in order of names."""
        found = self.ask(self.up(), lambda part: {each.name: each for each in part.table.checkpoints()})
        listed = [each for _, each in found]
        names = sorted(set.intersection(*(set(each) for each in listed)))
        sizes = {name: sum(each[name].file_bytes for each in listed) for name in names}
        return [Checkpoint(name, sizes[name], max(each[name].saved for each in listed)) for name in names]

    def delete_checkpoint(self, name: str) -> None:
        """Delete a checkpoint in all parts."""
        self._client._on_all(self.name, lambda part: part.table.delete_checkpoint(name))

    def export(
        self, *, columns: Sequence[str] | None = None, rows: int = 256, timeout: float | None = None
    ) -> pa.Table:
        """Return what the parts that are up hold, by ascending id, without drawing anything."""
        found = self.ask(self.up(), lambda part: part.table.export(columns=columns, rows=rows, timeout=timeout))
        tables = []
        for part, some in found:
            for at, name in enumerate(some.schema.names):
                if name in ("id", "group"):
                    numbers = some.column(at).to_numpy() | np.uint64(part.number << PART_BITS)
                    some = some.set_column(at, some.schema.field(at), pa.chunked_array([numbers]))
            tables.append(some)
        return pa.concat_tables(tables)


def _by_part(values: Iterable[Any], cut: Callable[[Any], tuple[int, Any]]) -> dict[int, list[Any]]:
    out: dict[int, list[Any]] = {}
    for part, value in map(cut, values):
        out.setdefault(part, []).append(value)
    return out


class Exchanges:
    """The batches of a stream on a table in parts: an exchange with each part that is asked. See `stream.Exchange` for
    which thread may call what."""

    def __init__(self, parts: Table, request: dict[str, Any], timeout: float, scope: Scope) -> None:
        self._table, self._request, self._timeout = parts, request, timeout
        self._scope: Scope = scope
        self._open: dict[Part, stream.Exchange] = {}
        self._using = contextlib.ExitStack()  # the channels of those
        self._pieces: dict[int, list[tuple[stream.Exchange, Batch]]] = {}  # by number of the batch merged of them
        self._lapsed = 0  # of exchanges that broke
        self._stopped = False
        self._wake: queue.SimpleQueue[None] = queue.SimpleQueue()  # ends a pause

    @property
    def lapsed(self) -> int:
        return self._lapsed + sum(each.lapsed for each in list(self._open.values()))

    def fetch(self) -> stream.Item:
        """Request a batch and wait for it. Returns exceptions instead of raising them."""
        deadline, pause = Deadline(self._timeout), FIRST_PAUSE
        while True:
            try:
                together = self._table.together(self._scope)
                item = self._from_all() if together else self._from_one(deadline)
            except errors.Error as error:
                item = error
            if self._stopped:  # batches that came go back with their exchanges
                return errors.Unavailable("the stream was closed")
            if not isinstance(item, (errors.Starved, *DOWN)) or deadline.left() <= 0:
                return item
            with contextlib.suppress(queue.Empty):
                self._wake.get(timeout=min(pause, deadline.left()))
            pause = min(2 * pause, TURN)

    def _from_one(self, deadline: Deadline) -> stream.Item:
        problem: stream.Item | None = None
        for part, wait in self._table.waits(self._table.up(0), deadline):
            answer = self._round({part: {"timeout_ms": int(1000 * wait)}})[part]
            if isinstance(answer, Batch):
                return self._merged([(part, answer)], None, 0)
            if not isinstance(answer, (errors.Starved, *DOWN)):
                return answer
            if problem is None or isinstance(answer, errors.Starved):
                problem = answer
        assert problem is not None
        return problem

    def _from_all(self) -> stream.Item:
        found = self._table.totals(self._table.up(0), self._request.get("shard", 0))
        plan = self._table.divide([each for _, each in found], self._request["size"], self._request.get("fresh", 0))
        asks: dict[Part, dict[str, Any]] = {}
        for (part, _), new, others in zip(found, plan.fresh.tolist(), plan.drawn.tolist()):
            if new + others:
                some = {"size": plan.unit * (new + others), "fresh": plan.unit * new}
                asks[part] = {**some, "timeout_ms": 0, "prefetch": 0}
        answers = self._round(asks)
        pieces = [(part, answer) for part, answer in answers.items() if isinstance(answer, Batch)]
        problems = [answer for answer in answers.values() if not isinstance(answer, Batch)]
        if problems:  # what was drawn goes back, and all is divided again
            for part, piece in pieces:
                self._open[part].give_back(piece)
            passing = (errors.Starved, *DOWN)
            return next((each for each in problems if not isinstance(each, passing)), problems[0])
        elsewhere = sum(each.units * plan.unit for part, each in found if part not in asks)
        return self._merged(pieces, plan, elsewhere)

    def _merged(self, pieces: list[tuple[Part, Batch]], plan: Plan | None, present: int) -> Batch:
        batch = merge([(part.number, piece) for part, piece in pieces], plan, present)
        self._pieces[batch.info.batch] = [(self._open[part], piece) for part, piece in pieces]
        return batch

    def _round(self, asks: Mapping[Part, dict[str, Any]]) -> dict[Part, stream.Item]:
        """Ask parts, all before the first answer is awaited. The others acknowledge what waits for it."""
        idle = {part: {"size": 0} for part, each in self._open.items() if part not in asks and each.unsettled()}
        answers: dict[Part, stream.Item | None] = {}
        known = set(self._open)
        for part, changes in (*asks.items(), *idle.items()):
            try:
                self._exchange(part).ask(**changes)
            except Exception as error:
                answers[part] = self._broken(part, error, changes if part in known else None)
        for part, changes in (*asks.items(), *idle.items()):
            if part not in answers:
                try:
                    answers[part] = self._answer(part, changes)
                except Exception as error:
                    answers[part] = self._broken(part, error, changes if part in known else None)
        failed = errors.Failed(f"{self._table.name}: the service answered with neither a batch nor an error")
        outcomes = {part: answers[part] for part in asks}
        return {part: failed if answer is None else answer for part, answer in outcomes.items()}

    def _exchange(self, part: Part) -> stream.Exchange:
        if part not in self._open:
            connection = part.table._connection
            self._using.enter_context(connection.using())
            self._open[part] = stream.Exchange(connection, part.table.name, self._request, PATIENCE)
            if self._stopped:
                raise errors.Unavailable("the stream was closed")
        return self._open[part]

    def _answer(self, part: Part, changes: dict[str, Any]) -> stream.Item | None:
        exchange = self._open[part]
        item = exchange.answer()
        if isinstance(item, errors.NoLease):  # the request acknowledged nothing, and drew nothing
            exchange.send_acknowledgements()
            exchange.ask(**changes)
            item = exchange.answer()
        part.found()
        return item

    def _broken(self, part: Part, error: Exception, again: dict[str, Any] | None) -> stream.Item | None:
        """Close an exchange that broke. One that was open before may have broken with a service that is back: ask
        again."""
        if self._stopped:
            raise errors.Unavailable("the stream was closed")
        if part in self._open:
            broken = self._open.pop(part)
            self._lapsed += broken.lapsed
            broken.close()
        if again is not None:
            try:
                self._exchange(part).ask(**again)
                return self._answer(part, again)
            except Exception as anew:
                return self._broken(part, anew, None)
        problem = stream.problem_of(error)
        if isinstance(problem, (errors.NotFound, *DOWN)):
            part.lost(problem)
            self._table._tell()
            return errors.Unavailable(str(problem))
        return problem

    def acknowledge(self, batch: Batch) -> None:
        """Acknowledge a batch with the next request to each of its parts."""
        for exchange, piece in self._pieces.pop(batch.info.batch, []):
            exchange.acknowledge(piece)

    def on_lease(self, batch: Batch) -> bool:
        """Report whether a batch is still on lease. If a part took its draws back, the others' go back too."""
        pieces = self._pieces.get(batch.info.batch, [])
        if all(exchange.on_lease(piece) for exchange, piece in pieces):
            return True
        for exchange, piece in self._pieces.pop(batch.info.batch, []):
            exchange.give_back(piece)
        return False

    def send_acknowledgements(self) -> None:
        for each in list(self._open.values()):
            each.send_acknowledgements()

    def stop(self) -> None:
        self._stopped = True
        for each in list(self._open.values()):
            each.stop()
        self._wake.put(None)

    def cancel(self) -> None:
        for each in list(self._open.values()):
            each.cancel()

    def cancel_if_overdue(self) -> None:
        for each in list(self._open.values()):
            each.cancel_if_overdue()

    def log_waiting(self, seconds: float) -> None:
        present = sum(part.info.present for part in self._table.parts)
        text = "table %s: waiting for a batch of %d rollouts for %.0f s: its parts held %d. The timeout is %.0f s"
        log.warning(text, self._table.name, self._request["size"], seconds, present, self._timeout)

    def close(self) -> None:
        while self._open:
            self._open.popitem()[1].close()
        self._using.close()
