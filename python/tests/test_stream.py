"""Streams: what is acknowledged when, and what happens when the exchange breaks."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
from typing import Any

import pyarrow.flight as flight
import pytest
from conftest import Fake, ROOT

import reprise


def acknowledged(fake: Fake) -> list[list[int]]:
    return [request["acknowledge"] for request in fake.requests]


def test_attack_a_sample_is_on_lease_until_it_was_received(fake: Fake, scripted: reprise.Table) -> None:
    fake.on_request = lambda number, request: {} if "acknowledge" in request else None
    assert scripted.sample(2).info.batch == 1
    asked, settled = fake.requests
    assert asked["prefetch"] == 0 and asked["request_id"] and settled == {"acknowledge": [1]}


def test_attack_the_lost_answer_to_an_acknowledgement_loses_no_batch(fake: Fake, scripted: reprise.Table) -> None:
    def consumed(number: int, request: dict[str, Any]) -> dict[str, Any] | None:
        if number == 2:
            raise flight.FlightUnavailableError("connection reset")
        return {"error": {"code": "no_lease", "message": "acknowledged before"}} if number == 3 else None

    fake.on_request = consumed
    assert scripted.sample(2).info.batch == 1
    assert fake.requests[2]["request_id"] == fake.requests[0]["request_id"]


def test_attack_a_batch_drawn_anew_after_a_crash_is_the_answer(fake: Fake, scripted: reprise.Table) -> None:
    def crashing(number: int, request: dict[str, Any]) -> dict[str, Any] | None:
        if number == 2:
            raise flight.FlightUnavailableError("connection reset")
        return {} if number == 4 else None

    fake.on_request = crashing
    fake.info = lambda number: {"batch": 1, "version": number, "rows": 2}  # another batch under the same id
    assert scripted.sample(2).info.version == 3


def test_a_sample_whose_lease_ended_on_the_way_is_drawn_again(fake: Fake, scripted: reprise.Table) -> None:
    lapsed = {"error": {"code": "no_lease", "message": "batch 1 is not on lease"}}
    fake.on_request = lambda number, request: lapsed if number == 2 else {} if number == 4 else None
    assert scripted.sample(2).info.batch == 3


def test_asking_for_the_next_batch_acknowledges_the_one_before(fake: Fake, scripted: reprise.Table) -> None:
    with scripted.stream(2, prefetch=0) as stream:
        assert [next(stream).info.batch for _ in range(3)] == [1, 2, 3]
    assert acknowledged(fake) == [[], [1], [2]]
    assert fake.actions == [("acknowledge", {"table": "t", "batches": [3]})]


def test_a_block_that_ends_by_an_exception_gives_its_batch_back(fake: Fake, scripted: reprise.Table) -> None:
    with pytest.raises(ZeroDivisionError), scripted.stream(2, prefetch=0) as stream:
        next(stream)
        next(stream)
        raise ZeroDivisionError
    assert acknowledged(fake) == [[], [1]] and not fake.actions
    assert fake.ended.acquire(timeout=10), "the exchange goes on"


def test_batches_fetched_ahead_are_acknowledged_only_once_they_were_used(fake: Fake, scripted: reprise.Table) -> None:
    asked = threading.Semaphore(0)
    fake.on_request = lambda number, request: asked.release()
    with scripted.stream(2, prefetch=2) as stream:
        for _ in range(2):
            assert asked.acquire(timeout=10), "it does not fetch ahead"
        assert next(stream).info.batch == 1
        assert asked.acquire(timeout=10)
        assert acknowledged(fake) == [[], [], []], "batch 1 is being used"
        assert next(stream).info.batch == 2
        assert asked.acquire(timeout=10)
        assert acknowledged(fake)[3] == [1]
        assert not asked.acquire(blocking=False), "it fetches further ahead than it was told"
    # Batch 1 was told on the stream; if that was not answered yet, it is told again.
    assert fake.actions[-1] == ("acknowledge", {"table": "t", "batches": [2]})
    assert [body["batches"] for _, body in fake.actions][:-1] in ([], [[1]])


def test_a_starved_stream_says_so_and_goes_on(fake: Fake, scripted: reprise.Table) -> None:
    starved = {"error": {"code": "starved", "message": "3 rollouts: want 4"}}
    fake.on_request = lambda number, request: starved if number == 2 else None
    for prefetch in (0, 1):
        fake.requests.clear()
        with scripted.stream(2, prefetch=prefetch, timeout=5) as stream:
            assert next(stream).info.batch == 1
            with pytest.raises(reprise.Starved, match="3 rollouts: want 4"):
                next(stream)
            assert next(stream).info.batch == 3
            assert fake.requests[0]["timeout_ms"] == 5000


def test_a_broken_exchange_is_opened_again_and_its_batches_are_not_acknowledged(
    fake: Fake, scripted: reprise.Table
) -> None:
    def breaking(number: int, request: dict[str, Any]) -> None:
        if number == 2:
            raise flight.FlightUnavailableError("connection reset")

    fake.on_request = breaking
    with scripted.stream(2, prefetch=0) as stream:
        assert [next(stream).info.batch for _ in range(3)] == [1, 3, 4]
    assert fake.exchanges == 2
    # Batch 1 may have been acknowledged by the request that broke; the new exchange does not know it.
    assert acknowledged(fake) == [[], [1], [], [3]]


def test_batches_of_a_broken_exchange_are_not_handed_over(fake: Fake, scripted: reprise.Table) -> None:
    asked = threading.Semaphore(0)
    go_on = threading.Event()

    def breaking(number: int, request: dict[str, Any]) -> None:
        asked.release()
        if number == 3:
            go_on.wait(10)
            raise flight.FlightUnavailableError("connection reset")

    fake.on_request = breaking
    with scripted.stream(2, prefetch=2) as stream:
        assert next(stream).info.batch == 1
        for _ in range(3):
            assert asked.acquire(timeout=10)
        go_on.set()
        assert asked.acquire(timeout=10)
        # Batch 2 was waiting here when its exchange broke: the service has taken it back.
        assert next(stream).info.batch == 4
    # Batch 1 was in use when it went back: nobody acknowledges it on the new exchange.
    told = [*acknowledged(fake), *(body["batches"] for _, body in fake.actions)]
    assert all(1 not in batches and 2 not in batches for batches in told)


def test_an_error_for_good_ends_the_loop(fake: Fake, scripted: reprise.Table) -> None:
    def refusing(number: int, request: dict[str, Any]) -> None:
        raise flight.FlightServerError("invalid: size: 0: want at least 1")

    fake.on_request = refusing
    with scripted.stream(2) as stream, pytest.raises(reprise.Invalid, match="size: 0"):
        for _ in stream:
            pass
    assert fake.exchanges >= 1


def test_a_stream_that_was_closed_gives_nothing_more(scripted: reprise.Table) -> None:
    stream = scripted.stream(2)
    next(stream)
    stream.close()
    stream.close()
    assert list(stream) == []


def test_a_loop_broken_off_leaves_no_thread_and_no_exchange(fake: Fake, scripted: reprise.Table) -> None:
    for batch in scripted.stream(2, prefetch=2):
        break
    del batch
    gc.collect()
    assert fake.ended.acquire(timeout=10), "the exchange goes on"
    assert not fake.actions
    for thread in threading.enumerate():
        if thread.name == "reprise-prefetch":
            thread.join(timeout=10)
            assert not thread.is_alive()


def test_closing_does_not_wait_for_a_batch_that_does_not_come(fake: Fake, scripted: reprise.Table) -> None:
    asked, release = threading.Event(), threading.Event()

    def silent(number: int, request: dict[str, Any]) -> None:
        asked.set()
        release.wait(30)

    fake.on_request = silent
    stream = scripted.stream(2, prefetch=1, timeout=300)
    assert asked.wait(10)
    closing = threading.Thread(target=stream.close)
    closing.start()
    closing.join(timeout=4)
    waits = closing.is_alive()
    release.set()
    assert not waits


def test_closing_the_client_ends_its_streams(fake: Fake) -> None:
    for prefetch in (0, 2):
        client = reprise.connect(fake.address, timeout=10)
        stream = client.table("t").stream(2, prefetch=prefetch)
        next(stream)
        client.close()
        assert fake.ended.acquire(timeout=10), "the exchange goes on"
        with pytest.raises(reprise.Unavailable, match="closed"):
            for _ in range(prefetch + 2):
                next(stream)
        stream.close()


@pytest.mark.parametrize("prefetch", [0, 2])
def test_a_stream_closed_by_another_thread_wakes_who_waits(fake: Fake, scripted: reprise.Table, prefetch: int) -> None:
    asked, release = threading.Event(), threading.Event()

    def silent(number: int, request: dict[str, Any]) -> None:
        asked.set()
        release.wait(30)

    fake.on_request = silent
    stream = scripted.stream(2, prefetch=prefetch, timeout=300)
    caught: list[BaseException] = []

    def take() -> None:
        try:
            next(stream)
        except BaseException as error:
            caught.append(error)

    waiting = threading.Thread(target=take)
    waiting.start()
    assert asked.wait(10)
    stream.close()
    waiting.join(timeout=10)
    woken = not waiting.is_alive()
    release.set()
    assert woken and isinstance(caught[0], reprise.Unavailable)


def test_what_is_no_answer_is_an_error_and_not_silence(fake: Fake, scripted: reprise.Table) -> None:
    fake.on_request = lambda number, request: {"error": {"code": ["nonsense"]}} if number == 1 else None
    with scripted.stream(2, prefetch=1) as stream:
        with pytest.raises(reprise.Failed):
            next(stream)
        assert next(stream).info.batch == 2


def test_a_stream_in_a_cycle_that_any_thread_collects_ends(fake: Fake, scripted: reprise.Table) -> None:
    for _ in range(5):
        stream = scripted.stream(2, prefetch=2)
        next(stream)
        cycle: list[object] = [stream]
        cycle.append(cycle)
        del stream, cycle
        collecting = threading.Thread(target=gc.collect)
        collecting.start()
        collecting.join(timeout=10)
        assert not collecting.is_alive()
        assert fake.ended.acquire(timeout=10), "the exchange goes on"


PROGRAM = """
import sys, reprise
table = reprise.connect(sys.argv[1], timeout=20).table("t")
stream = table.stream(2, prefetch=int(sys.argv[2]))
for _ in range(3):
    next(stream)
print("the end", flush=True)
"""


@pytest.mark.parametrize("prefetch", [0, 1, 3])
def test_a_program_that_closes_nothing_ends(fake: Fake, prefetch: int) -> None:
    # A thread in a read while the interpreter is taken apart is what crashes pyarrow.
    for _ in range(3):
        command = [sys.executable, "-X", "faulthandler", "-c", PROGRAM, fake.address, str(prefetch)]
        path = os.pathsep.join(["src", *os.environ.get("PYTHONPATH", "").split(os.pathsep)])
        ran = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=60,
            cwd=ROOT / "python",
            env={**os.environ, "PYTHONPATH": path},
        )
        assert (ran.returncode, ran.stdout, ran.stderr) == (0, "the end\n", "")


def test_a_lease_that_is_over_does_not_keep_others_from_counting(fake: Fake, scripted: reprise.Table) -> None:
    lapsed = {"error": {"code": "no_lease", "message": "settling batch 1"}}
    fake.on_request = lambda number, request: lapsed if request["acknowledge"] == [1] else None

    def answer(name: str, body: dict[str, Any]) -> dict[str, Any]:
        if body["batches"] == [1]:
            raise flight.FlightServerError("no_lease: settling batch 1")
        return {}

    fake.answer = answer
    with scripted.stream(2, prefetch=0) as stream:
        assert [next(stream).info.batch for _ in range(3)] == [1, 3, 4]
        assert stream.lapsed == 1
    assert acknowledged(fake) == [[], [1], [], [3]]
    assert [body["batches"] for _, body in fake.actions] == [[1], [4]]
