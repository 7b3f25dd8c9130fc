"""reprise.aio: what asyncio adds to the client, against the service and a scripted one."""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from conftest import Fake, Server, rollouts

import reprise
from reprise import aio

LENGTHS = [5, 9, 3, 7]


@asynccontextmanager
async def tables(server: Server, name: str, **options: Any) -> AsyncIterator[aio.Table]:
    """A table of the service, dropped afterwards."""
    async with aio.connect(server.address, timeout=20) as client:
        table = await client.create(name, **options)
        try:
            yield table
        finally:
            await client.drop(name)


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Wait until the service is in a state, for less time than the calls of these tests may wait."""
    end = time.monotonic() + 10
    while not await condition():
        assert time.monotonic() < end, "the service did not get there"
        await asyncio.sleep(0.02)


async def waiting(table: aio.Table, kind: str, number: int) -> None:
    """Wait until the given number of calls wait at the service."""

    async def so_many() -> bool:
        return (await table.stats()).waiting.get(kind, 0) == number

    await until(so_many)


def threads() -> set[threading.Thread]:
    return {each for each in threading.enumerate() if each.name.startswith("reprise")}


def test_coroutines_do_what_the_methods_of_the_client_do(server: Server) -> None:
    async def main() -> None:
        client = await aio.connect(server.address, timeout=20)
        async with client:
            assert client.address == server.address
            table = await client.create("aio", capacity=64, sampler="prioritized")
            assert table.name == "aio" and "aio" in [info.name for info in await client.list()]
            ids = await table.insert(rollouts(LENGTHS), group_size=2)
            assert (await table.advance(1)).version == 1
            batch = await table.sample(4)
            await table.report(batch.ids, batch.staleness, advantage=[1.0] * 4, version=2)
            await client.table("aio").update(ids, [1.0] * 4)
            leased = await table.lease(2)
            await table.acknowledge(leased)
            stats = await table.stats()
            assert (stats.version, stats.inserted, stats.acknowledged) == (2, 4, 6)
            await client.drop("aio")
            with pytest.raises(reprise.NotFound):
                await table.info()

    asyncio.run(main())


def test_every_method_is_there_with_its_parameters() -> None:
    for ours, theirs in ((aio.Table, reprise.Table), (aio.Client, reprise.Client)):
        for name, method in inspect.getmembers(theirs, inspect.isfunction):
            if not name.startswith("_"):
                assert inspect.signature(getattr(ours, name)).parameters.keys() == (
                    inspect.signature(method).parameters.keys()
                ), name


def test_calls_that_wait_do_not_hold_up_200_insertions(server: Server) -> None:
    async def main() -> None:
        async with tables(server, "aio-many", capacity=1000, sampler="fifo") as table:
            samples = [asyncio.create_task(table.sample(10)) for _ in range(40)]
            await waiting(table, "samples", 40)
            ids = await asyncio.gather(*(table.insert(rollouts([4, 6], seed=seed)) for seed in range(200)))
            assert len({id for each in ids for id in each.tolist()}) == 400
            drawn = [id for batch in await asyncio.gather(*samples) for id in batch.ids.tolist()]
            assert len(set(drawn)) == len(drawn) == 400

    asyncio.run(main())


@pytest.mark.parametrize("method", ["sample", "lease"])
def test_a_cancelled_draw_takes_nothing(server: Server, method: str) -> None:
    async def main() -> None:
        async with tables(server, f"aio-{method}", capacity=64, sampler="fifo") as table:
            task = asyncio.create_task(getattr(table, method)(4))
            await waiting(table, "samples", 1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await waiting(table, "samples", 0)
            await table.insert(rollouts(LENGTHS))
            assert len(await table.sample(4)) == 4  # each of them is still there

    asyncio.run(main())


def test_a_draw_that_was_cancelled_before_its_acknowledgement_sends_none(fake: Fake) -> None:
    async def main() -> None:
        loop, asked = asyncio.get_running_loop(), asyncio.Event()
        cancelled = threading.Event()

        def on_request(number: int, request: dict[str, Any]) -> None:
            loop.call_soon_threadsafe(asked.set)
            cancelled.wait(10)

        fake.on_request = on_request
        async with aio.connect(fake.address, timeout=10) as client:
            task = asyncio.create_task(client.table("t").sample(2))
            await asked.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            cancelled.set()
            assert await asyncio.to_thread(fake.ended.acquire, timeout=10)
        assert [request for request in fake.requests if "acknowledge" in request] == []

    asyncio.run(main())


def test_a_cancelled_insertion_happens_once_under_its_batch_id(server: Server) -> None:
    async def main() -> None:
        async with tables(server, "aio-insert", capacity=4, sampler="fifo") as table:
            await table.insert(rollouts(LENGTHS))
            task = asyncio.create_task(table.insert(rollouts(LENGTHS, seed=1), batch_id="mine"))
            await waiting(table, "inserts", 1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await table.sample(4)  # makes room: the insertion goes on
            await table.insert(rollouts(LENGTHS, seed=1), batch_id="mine")
            assert (await table.stats()).inserted == 8

    asyncio.run(main())


def test_a_stream_is_an_asynchronous_iterator(server: Server) -> None:
    async def main() -> None:
        async with tables(server, "aio-stream", capacity=64, sampler="fifo") as table:
            await table.insert(rollouts(LENGTHS * 2))
            seen = []
            async with table.stream(2, prefetch=2) as batches:
                async for batch in batches:
                    seen += batch.ids.tolist()
                    if len(seen) == 8:
                        break
                assert batches.lapsed == 0
            assert len(set(seen)) == 8 and (await table.stats()).acknowledged == 8
            assert [batch async for batch in batches] == []  # it is closed

            await table.insert(rollouts([4, 6]))
            with pytest.raises(ZeroDivisionError):
                async with table.stream(2) as batches:
                    await anext(batches)
                    raise ZeroDivisionError
            assert len(await table.sample(2)) == 2  # it went back

    asyncio.run(main())


def test_a_batch_whose_wait_was_cancelled_is_the_next_one(server: Server) -> None:
    async def main() -> None:
        async with tables(server, "aio-next", capacity=64, sampler="fifo") as table:
            async with table.stream(4) as batches:
                with pytest.raises(asyncio.TimeoutError):
                    await asyncio.wait_for(anext(batches), 0.2)
                await table.insert(rollouts(LENGTHS))
                assert len(await anext(batches)) == 4
            assert (await table.stats()).acknowledged == 4

            await table.insert(rollouts(LENGTHS))
            async with table.stream(4) as batches:
                asking = asyncio.create_task(anext(batches))
                await asyncio.sleep(0)
                asking.cancel()
                while not batches._next.done():
                    await asyncio.sleep(0.02)
            assert (await table.stats()).acknowledged == 4  # nobody saw that batch

            await table.sample(4)
            async with table.stream(4, timeout=0.1) as batches:
                for _ in range(2):
                    with pytest.raises(reprise.Starved):
                        await anext(batches)

    asyncio.run(main())


def test_two_tasks_that_ask_a_stream_at_once_are_refused(server: Server) -> None:
    async def main() -> None:
        async with tables(server, "aio-two", capacity=64) as table, table.stream(4) as batches:
            first = asyncio.create_task(anext(batches))
            await asyncio.sleep(0)
            with pytest.raises(reprise.Invalid, match="stream: two tasks ask for a batch at the same time"):
                await anext(batches)
            await table.insert(rollouts(LENGTHS))
            assert len(await first) == 4

    asyncio.run(main())


def test_a_closed_client_ends_what_waits_and_its_threads(server: Server, client: reprise.Client) -> None:
    async def main() -> None:
        connected = aio.connect(server.address, timeout=20)
        table = await connected.create("aio-closed", capacity=64)
        batches = table.stream(4)
        asked = [asyncio.create_task(table.sample(4)), asyncio.create_task(anext(batches))]
        await waiting(table, "samples", 2)
        await connected.close()
        await connected.close()
        for each in asked:
            with pytest.raises(reprise.Unavailable):
                await each
        for call in (table.info, lambda: anext(batches)):
            with pytest.raises(reprise.Unavailable, match="the client was closed"):
                await call()
        await batches.close()

    before = threads()
    asyncio.run(main())
    client.drop("aio-closed")
    end = time.monotonic() + 10
    while threads() - before and time.monotonic() < end:
        time.sleep(0.02)
    assert not threads() - before  # those of an earlier test may end meanwhile


def test_a_service_of_this_process_can_be_awaited(binary: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPRISE", str(binary))

    async def main() -> None:
        async with aio.Client(reprise.serve()) as client:
            table = await client.create("t", capacity=8)
            await table.insert(rollouts(LENGTHS))
            assert len(await table.sample(2)) == 2

    asyncio.run(main())


def test_wrong_use_is_named(fake: Fake) -> None:
    async def main() -> None:
        with pytest.raises(reprise.Invalid, match="client: 'grpc://x': want a reprise.Client; with an address"):
            aio.Client("grpc://x")  # type: ignore[arg-type]
        with pytest.raises(reprise.Invalid, match="timeout: 0"):
            aio.connect(fake.address, timeout=0)
        async with aio.connect(fake.address, timeout=10) as client:
            with pytest.raises(reprise.Invalid, match="size: 0: want at least 1"):
                await client.table("t").sample(0)
            with pytest.raises(reprise.Invalid, match="prefetch: -1"):
                client.table("t").stream(4, prefetch=-1)
            with pytest.raises(TypeError, match="sise"):
                await client.table("t").sample(sise=4)  # type: ignore[call-arg]

    asyncio.run(main())
