"""Part and Parts: where the parts of a table are, and which are up."""

from __future__ import annotations

import contextlib
import itertools
import math
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar, cast

import numpy as np

from .. import errors, table
from ..connection import FIRST_PAUSE, Connection, Deadline
from ..stats import TableInfo
from .plan import QUEUES, Plan, Totals, divide, join_definitions, order, part_of
from .services import DOWN, PATIENCE, Services, outcome

T = TypeVar("T")

RECENT = 1.0  # seconds for which a part that answered is taken to be up
AWAY = 1.0  # seconds until a part that is down is asked again
LOOK = 1.0  # seconds in which a part that is down may still answer before a call that needs it fails
TURN = 0.25  # seconds that a call waits at one part where another may be able to answer it


class Part:
    """A part of a table, and whether its service answers."""

    def __init__(self, number: int, ordinary: table.Table) -> None:
        self.number, self.table = number, ordinary
        self.why: errors.Error | None = None  # it counts as down
        self.behind = True  # it may have missed versions, or have lost its table
        self.info = TableInfo("", 0, 0, 0)  # as it answered last
        self._last_seen = -math.inf
        self._ask_at = 0.0

    @property
    def address(self) -> str:
        return self.table._connection.address

    def due(self, now: float, recent: float) -> bool:
        """Report whether to ask whether it is up."""
        if self.why is not None:
            return now >= self._ask_at
        return self.behind or now - self._last_seen > recent

    def found(self) -> None:
        """Note that it answered."""
        self._last_seen, self.why = time.monotonic(), None

    def lost(self, why: errors.Error) -> None:
        """Note that it did not."""
        now = time.monotonic()
        if isinstance(why, errors.Elsewhere) and why.address:
            self._ask_at = 0.0
        elif self.why is None or now >= self._ask_at:
            self._ask_at = now + AWAY
        self.why, self.behind = why, True

    def retry_now(self) -> None:
        """Ask it again before its time."""
        self._ask_at = 0.0

    def act(self, action: str, *, timeout: float | None = None, repeatable: bool = True, **body: Any) -> TableInfo:
        """Carry out an action on it."""
        self.info = self.table._action(action, timeout=timeout, repeatable=repeatable, **body)
        return self.info

    def ask(self, action: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Ask the part's table something, and return the answer as it comes."""
        return dict(self.table._connection.action(action, {"table": self.table.name, **body}))

    def totals(self, shard: int) -> Totals:
        """Return what it adds to a draw."""
        body = {"table": self.table.name, "shard": shard}
        return Totals.of(self.table._connection.action("totals", body, timeout=PATIENCE))


class Parts:
    """The parts of a table. Threads may share it.

    Attributes:
        name: of the table.
        all: the parts, up or not; empty: not located yet.
        definition: of the table, with defaults; empty: not known yet.
        led: the version, if this client was the last to set it.
    """

    def __init__(self, services: Services, name: str) -> None:
        self.name, self.services = name, services
        self.all: list[Part] = []
        self.definition: Mapping[str, Any] = {}
        self.led: int | None = None
        self._turn = itertools.count(services.trainer)
        self._random: np.random.Generator | None = None
        self._told: tuple[str, ...] = ()  # addresses that the last warning said are down
        self._state = threading.Lock()  # guards all, definition, _random and _told

    @property
    def clustered(self) -> bool:
        """Whether the services are a cluster."""
        return self.services.clustered

    @property
    def down(self) -> tuple[str, ...]:
        """Addresses of the services that did not answer last."""
        return tuple(part.address for part in self.all if part.why is not None)

    def rest(self, pause: float) -> None:
        """Sleep, unless the client is closed."""
        self.services.entries[0].rest(pause)

    # Where they are.

    def located(self, again: bool = False) -> list[Part]:
        """Return the parts, up or not.

        Raises:
            NotFound: a cluster has no such table.
        """
        if again or not self.all:
            places = self.services.locate(self.name)
            if not places:
                raise errors.NotFound(f"table {self.name}: the cluster has no such table")
            self._place(places)
        return self.all

    def _place(self, places: Sequence[tuple[str, Connection]]) -> None:
        with self._state:
            if len(places) != len(self.all):
                self.all = [Part(i, table.Table(each, name)) for i, (name, each) in enumerate(places)]
            for part, (name, connection) in zip(self.all, places):
                if part.table._connection is not connection:
                    part.table = table.Table(connection, name)

    def create(self, keys: Mapping[str, Any], count: int | None) -> None:
        """Create the parts that are up."""
        places, entries = self.services.locate(self.name), self.services.entries
        new = not places
        if new:
            number = count or len(entries)
            names = [f"{self.name}.{i}" for i in range(number)] if number > 1 else [self.name]
            places = [(name, entries[i % len(entries)]) for i, name in enumerate(names)]
        if count is not None and count != len(places):
            held = "the table has that number" if self.clustered else "each service has one"
            raise errors.Invalid(f"parts: {count}: want {len(places)}: {held}")
        self._place(places)
        calls = [partial(self._make, keys, part) for part in self.all]
        outcomes: list[TableInfo | errors.Error] = []
        # A cluster finds the parts from 0 on: with the first part made last, a table that lacks parts is not found.
        for these in (calls[1:], calls[:1]):
            outcomes = [*self.services.each(these), *outcomes]
            if new and (failed := next((x for x in outcomes if isinstance(x, errors.Error)), None)):
                raise failed
        self.note(list(zip(self.all, outcomes)))

    def _make(self, keys: Mapping[str, Any], part: Part) -> TableInfo:
        body = {"name": part.table.name, **part_of(keys, part.number, len(self.all))}
        try:
            return TableInfo.of(part.table._connection.action("create_table", body))
        except errors.Elsewhere as error:  # its owner has it already, or takes it
            if not error.address:
                raise
            part.table = table.Table(self.services.connection(error.address), part.table.name)
            return TableInfo.of(part.table._connection.action("create_table", body))

    # Which are up.

    def up(self, timeout: float | None = None, recent: float = RECENT) -> list[Part]:
        """Return the parts that are up: those that answered lately, and those that answer now. Waits for one."""
        deadline = Deadline(self.services.entries[0].timeout if timeout is None else timeout)
        pause = FIRST_PAUSE
        while True:
            now = time.monotonic()
            due = [part for part in self.located() if part.due(now, recent)]
            if any(isinstance(part.why, errors.Elsewhere) for part in due):
                self.services.clustered = True
            if self.clustered and any(part.why is not None for part in due):
                with contextlib.suppress(*DOWN):
                    self.located(again=True)
                due = [part for part in self.all if part.due(now, recent)]
            if any(part.behind for part in due):  # then what is the newest version?
                due = [part for part in self.all if part.why is None or part in due]
            if due:
                self._greet(due)
            up = [part for part in self.all if part.why is None]
            if up:
                return up
            if deadline.left() <= 0:
                why = self.all[0].why
                assert why is not None
                raise type(why)(f"table {self.name}: all {len(self.all)} parts are away: {why}")
            self.rest(min(pause, deadline.left()))
            pause = min(2 * pause, AWAY)
            for part in self.all:
                part.retry_now()

    def look(self) -> None:
        """Ask parts that are down again, for a call that needs all: they may be back since they were found so."""
        deadline = Deadline(LOOK)
        while self.down and deadline.left() > 0:
            for part in self.all:
                part.retry_now()
            self.up(deadline.left())
            if self.down:
                self.rest(FIRST_PAUSE)

    def _greet(self, parts: Sequence[Part]) -> None:
        """Ask parts whether they are up, and bring those that were not to the table's version."""
        asked = [partial(part.act, "info", timeout=PATIENCE) for part in parts]
        outcomes = list(self.services.each(asked))
        there = next((part for part, info in zip(parts, outcomes) if isinstance(info, TableInfo)), None)
        for i, part in enumerate(parts):
            # Lost for a second while another part has it: its service came back without it, or joins the others.
            twice = isinstance(outcomes[i], errors.NotFound) and isinstance(part.why, errors.NotFound)
            if there is not None and twice:
                outcomes[i] = outcome(partial(self._copy, there, part))
        found = self.note(list(zip(parts, outcomes)))
        newest = max((info.version for _, info in found), default=0)
        here = max((info.version for part, info in found if not part.behind), default=None)
        if here is not None and here == self.led:
            newest = here  # this client set it: a part that is ahead missed a rewind
        others = [(part, info.version) for part, info in found if part.behind and info.version != newest]
        calls = [partial(part.act, "advance" if at < newest else "rewind", version=newest) for part, at in others]
        self.note([*zip([part for part, _ in others], self.services.each(calls))])
        for part, info in found:
            part.behind = part.why is not None
        if found and not self.definition:
            self._learn(found[0][0], [info.definition for _, info in found])

    def _learn(self, first: Part, definitions: Sequence[Mapping[str, Any]]) -> None:
        """Note the definition of the table from those of parts, of which one is the first."""
        joined = join_definitions([definitions[i % len(definitions)] for i in range(len(self.all))])
        with self._state:
            self.definition = {**joined, "seed": (joined.get("seed", 0) - first.number) % (1 << 64)}
            seed = [self.definition["seed"], self.services.trainer, len(self.all)]
            self._random = np.random.default_rng(seed)

    def _copy(self, there: Part, part: Part) -> TableInfo:
        """Create a part by the definition of another."""
        definition = there.info.definition
        seed = (definition.get("seed", 0) - there.number + part.number) % (1 << 64)
        body = {**definition, "name": part.table.name, "seed": seed}
        part.table._connection.action("create_table", body)
        return part.act("info", timeout=PATIENCE)

    def note(self, outcomes: Sequence[tuple[Part, T | errors.Error]]) -> list[tuple[Part, T]]:
        """Note which parts answered, and return those with their answers.

        Raises:
            Error: what a part refused. A part alone in having no such table is down instead.
        """
        found = [(part, answer) for part, answer in outcomes if not isinstance(answer, errors.Error)]
        for part, _ in found:
            part.found()
        asked = [part for part, _ in outcomes]
        others = found or any(part.why is None for part in self.all if part not in asked)
        problem = None
        for part, error in outcomes:
            if isinstance(error, DOWN) or (isinstance(error, errors.NotFound) and others):
                part.lost(error)
            elif isinstance(error, errors.Error):
                problem = problem or error
        self.tell()
        if problem is not None:
            raise problem
        return found

    def tell(self) -> None:
        """Warn if other parts are down than before."""
        down = self.down
        with self._state:
            changed, self._told = down != self._told, down
        if changed:
            why = next((str(part.why) for part in self.all if part.why is not None), "")
            warnings.warn(errors.PartWarning(self.name, down, len(self.all), why), stacklevel=4)

    def ask(self, parts: Sequence[Part], call: Callable[[Part], T]) -> list[tuple[Part, T]]:
        """Call parts at the same time, and return those that answered with their answers. At least one does."""
        outcomes = list(zip(parts, self.services.each([partial(call, part) for part in parts])))
        found = self.note(outcomes)
        if not found and outcomes:
            raise cast(errors.Error, outcomes[0][1])
        return found

    def reachable(self) -> list[Part]:
        """Return the parts that can be reached within a call: those that are up, and all of a cluster, where another
        service takes over what one leaves."""
        return [part for part in self.all if part.why is None or self.clustered]

    def in_turn(self, parts: Sequence[Part]) -> list[Part]:
        """Return parts, the one whose turn it is first."""
        turn = next(self._turn) % len(parts)
        return [*parts[turn:], *parts[:turn]]

    # Draws.

    def together(self, from_all: bool) -> bool:
        """Report whether draws come from several parts at once: if they are to, and always from a queue."""
        if not self.definition:
            self.up(0)
        return from_all or self.definition["sampler"] in QUEUES

    def waits(self, up: list[Part], deadline: Deadline, name: str | None = None) -> Iterable[tuple[Part, float]]:
        """Yield the parts to ask for a batch in turn, each with how long to wait there: one that is starved gives its
        turn to the next, and the last waits for a while.

        They are the trainer's own that are up, and any others only if none of them is. A request of a name always
        begins with the same.
        """
        trainers = min(self.services.trainers, len(self.all))
        own = [part for part in up if part.number % trainers == self.services.trainer % trainers] or up
        if name is None:
            own = self.in_turn(own)
        else:
            places = order(name.encode(), len(self.all))
            own = sorted(own, key=lambda part: places.index(part.number))
        for part in own:
            last = part is own[-1]
            yield part, min(deadline.left(), PATIENCE if len(own) == 1 else TURN) if last else 0

    def totals(self, parts: Sequence[Part], shard: int) -> list[tuple[Part, Totals]]:
        """Return the totals of parts, at one version if they agree on one within a moment."""
        for _ in range(4):
            found = self.ask(parts, lambda part: part.totals(shard))
            if len({totals.version for _, totals in found}) == 1:
                break
            parts = [part for part, _ in found]
            self.rest(FIRST_PAUSE)  # an advance is on its way
        return found

    def divide(self, totals: Sequence[Totals], size: int, fresh: int) -> Plan:
        """Divide a batch by the table's own random stream."""
        with self._state:
            assert self._random is not None
            return divide(self._random, self.definition, totals, size, fresh)
