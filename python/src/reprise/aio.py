"""asyncio: the client whose methods are coroutines, for rollout workers and trainers on an event loop.

>>> async def main() -> None:
...     async with reprise.aio.connect("grpc://127.0.0.1:7447") as client:
...         table = await client.create("math", capacity=4096)
...         await table.insert(rows, group_size=8)
...         async with table.stream(64, prefetch=2) as batches:
...             async for batch in batches:
...                 await table.report(batch.ids, batch.staleness, version=train(batch))

The methods take what those of `reprise.Client`, `reprise.Table` and `reprise.Stream` take, and raise the same errors.
Each call in progress has a thread of its own, so calls that wait hold up no others.

A coroutine that is cancelled raises at once. ``sample``, ``sample_prompts`` and ``lease`` then give back what they
drew, unless the service has answered already. Other calls go on in their thread until they succeed, fail or reach their
timeout, so an insertion may happen: repeat it with the same ``batch_id``, and it happens once. Groups that a cancelled
``start`` was granted come back when the grant expires.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from . import address, client, stream, table
from .batch import Batch
from .connection import CALL, Cancellation
from .definition import Creator
from .errors import Invalid, Unavailable

__all__ = ["Client", "Stream", "Table", "connect"]

B = TypeVar("B")
P = ParamSpec("P")
T = TypeVar("T")


class _Calls:
    """The calls of a client, each in a thread. A thread whose call is over takes another."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(max_workers=1 << 20, thread_name_prefix="reprise-aio")
        self._running: set[Cancellation] = set()
        self.closed = False

    def start(self, function: Callable[[], T], cancellation: Cancellation) -> Future[T]:
        """Call a function in a thread."""
        if self.closed:
            raise Unavailable("the client was closed")
        context = contextvars.copy_context()
        context.run(CALL.set, cancellation)
        self._running.add(cancellation)
        future: Future[T] = self._threads.submit(context.run, function)
        future.add_done_callback(lambda _: self._running.discard(cancellation))
        return future

    async def run(self, function: Callable[[], T]) -> T:
        """Call a function in a thread. If this coroutine is cancelled, so is the call."""
        cancellation = Cancellation()
        try:
            return await asyncio.wrap_future(self.start(function, cancellation))
        except asyncio.CancelledError:
            cancellation.cancel()
            raise

    async def close(self, close: Callable[[], None]) -> None:
        """Cancel the calls in progress and close the client. Threads end with their calls."""
        if self.closed:
            return
        for cancellation in list(self._running):
            cancellation.cancel()
        closing = self.start(close, Cancellation())
        self.closed = True
        self._threads.shutdown(wait=False)
        await asyncio.wrap_future(closing)


class _Wrapper(Generic[B]):
    """An object of the client, and the calls on it."""

    def __init__(self, blocking: B, calls: _Calls) -> None:
        self._blocking, self._calls = blocking, calls


def _awaited(method: Callable[Concatenate[B, P], T]) -> Callable[Concatenate[_Wrapper[B], P], Coroutine[Any, Any, T]]:
    """Return a method as a coroutine that runs it in a thread."""

    @functools.wraps(method)
    async def call(self: _Wrapper[B], /, *args: P.args, **kwargs: P.kwargs) -> T:
        bound = getattr(self._blocking, method.__name__)  # of a table in parts, its own
        return await self._calls.run(lambda: bound(*args, **kwargs))

    return call


class Client(_Wrapper[client.Client], Creator[Coroutine[Any, Any, "Table"]]):
    """A connection to a replay service, made by `connect`, or of a `reprise.Client`: ``Client(reprise.serve())``.

    Use it in ``async with``, or close it. ``await`` returns the client itself.
    """

    def __init__(self, blocking: client.Client) -> None:
        if not isinstance(blocking, client.Client):
            raise Invalid(f"client: {blocking!r}: want a reprise.Client; with an address reprise.aio.connect")
        super().__init__(blocking, _Calls())

    def __await__(self) -> Generator[Any, None, Client]:
        return self
        yield

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection and its streams. Calls that wait for a batch end; other calls finish, and are not
        retried."""
        await self._calls.close(self._blocking.close)

    @property
    def address(self) -> str:
        """The service's address."""
        return self._blocking.address

    async def _create(self, name: str, parts: int | None, keys: dict[str, Any]) -> Table:
        return Table(await self._calls.run(lambda: self._blocking._create(name, parts, keys)), self._calls)

    def table(self, name: str) -> Table:
        """Return a table by its name. The first call raises `NotFound` if it does not exist."""
        return Table(self._blocking.table(name), self._calls)

    drop = _awaited(client.Client.drop)
    list = _awaited(client.Client.list)


def _wrapped(connect: Callable[P, client.Client]) -> Callable[P, Client]:
    @functools.wraps(connect)
    def call(*args: P.args, **kwargs: P.kwargs) -> Client:
        return Client(connect(*args, **kwargs))

    return call


connect = _wrapped(address.connect)


class Stream(_Wrapper[stream.Stream]):
    """Batch after batch, for one task, made by `Table.stream`. Use it in ``async with``, or close it.

    Asking for the next batch acknowledges the one before. If that is cancelled, asking again returns the batch.
    """

    _next: Future[Batch | Exception | None] | None = None  # asked for, and not yet returned; None: the end
    _asking = False

    async def __aenter__(self) -> Stream:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        await self.close(acknowledge=kind is None)

    def __aiter__(self) -> Stream:
        return self

    async def __anext__(self) -> Batch:
        if self._asking:
            raise Invalid("stream: two tasks ask for a batch at the same time: want a stream for each")
        if self._next is None:
            self._next = self._calls.start(self._outcome, Cancellation())
        self._asking = True
        try:
            outcome = await asyncio.shield(asyncio.wrap_future(self._next))
        finally:
            self._asking = False
        self._next = None
        if outcome is None:
            raise StopAsyncIteration
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def _outcome(self) -> Batch | Exception | None:
        """Return the next batch, or what went wrong: asyncio complains of exceptions that no task waits for."""
        try:
            return next(self._blocking, None)
        except Exception as error:
            return error

    async def close(self, *, acknowledge: bool = True) -> None:
        """End the stream. Batches that the caller never got go back.

        Args:
            acknowledge: count the last batch as used; otherwise it goes back too.
        """
        if not self._calls.closed:  # else it ended with the client
            got_it = self._next is None
            await self._calls.run(lambda: self._blocking.close(acknowledge=acknowledge and got_it))

    @property
    def lapsed(self) -> int:
        """Batches whose lease expired before they were acknowledged, as of `reprise.Stream`."""
        return self._blocking.lapsed


def _streaming(method: Callable[Concatenate[table.Table, P], stream.Stream]) -> Callable[Concatenate[Table, P], Stream]:
    @functools.wraps(method)
    def call(self: Table, /, *args: P.args, **kwargs: P.kwargs) -> Stream:
        return Stream(getattr(self._blocking, method.__name__)(*args, **kwargs), self._calls)

    return call


class Table(_Wrapper[table.Table]):
    """A table of the service. Tasks may share it."""

    @property
    def name(self) -> str:
        """The table's name."""
        return self._blocking.name

    insert = _awaited(table.Table.insert)
    sample = _awaited(table.Table.sample)
    sample_prompts = _awaited(table.Table.sample_prompts)
    lease = _awaited(table.Table.lease)
    acknowledge = _awaited(table.Table.acknowledge)
    release = _awaited(table.Table.release)
    stream = _streaming(table.Table.stream)
    update = _awaited(table.Table.update)
    report = _awaited(table.Table.report)
    reward = _awaited(table.Table.reward)
    advance = _awaited(table.Table.advance)
    rewind = _awaited(table.Table.rewind)
    start = _awaited(table.Table.start)
    abandon = _awaited(table.Table.abandon)
    prompts_next = _awaited(table.Table.prompts_next)
    prompts_report = _awaited(table.Table.prompts_report)
    info = _awaited(table.Table.info)
    stats = _awaited(table.Table.stats)
    rollouts = _awaited(table.Table.rollouts)
    rollout = _awaited(table.Table.rollout)
    schema = _awaited(table.Table.schema)
    checkpoint = _awaited(table.Table.checkpoint)
    checkpoints = _awaited(table.Table.checkpoints)
    delete_checkpoint = _awaited(table.Table.delete_checkpoint)
    restore = _awaited(table.Table.restore)
    export = _awaited(table.Table.export)
