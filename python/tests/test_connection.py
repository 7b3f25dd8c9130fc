"""What happens when the connection, or the service, fails: repetitions that do nothing twice, and clear exceptions."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.flight as flight
import pytest
from conftest import Fake, rollouts

import reprise
from reprise import errors


def raising(*problems: Exception) -> Any:
    left = list(problems)

    def answer(name: str, body: dict[str, Any]) -> dict[str, Any]:
        if left:
            raise left.pop(0)
        return {"table": "t", "version": 5}

    return answer


@pytest.mark.parametrize(
    ("raised", "kind"),
    [
        (flight.FlightUnavailableError("starved: 3 rollouts: want 4"), errors.Starved),
        (flight.FlightInternalError("failed: the disk is full"), errors.Failed),
        (flight.FlightUnauthenticatedError("unauthenticated: no token"), errors.Unauthenticated),
        (flight.FlightUnauthorizedError("denied: token reader may not write"), errors.Denied),
        (flight.FlightServerError("exists: t has another definition"), errors.Exists),
        (flight.FlightServerError("not_found: no table t"), errors.NotFound),
        (flight.FlightServerError("invalid: size: 0: want at least 1"), errors.Invalid),
        (flight.FlightServerError("full: no room"), errors.Full),
        (flight.FlightServerError("ahead: version 9: the table is at 3"), errors.Ahead),
        (flight.FlightServerError("no_lease: batch 3"), errors.NoLease),
        (flight.FlightServerError("too_large: 3 GB"), errors.TooLarge),
        (flight.FlightUnavailableError("disk_full: disk of data: it is full"), errors.DiskFull),
        (flight.FlightServerError("something else: broke"), errors.Failed),
    ],
)
def test_each_code_is_an_exception_of_its_own(
    fake: Fake, scripted: reprise.Table, raised: Exception, kind: type
) -> None:
    fake.answer = raising(raised)
    with pytest.raises(errors.Error) as caught:
        scripted.info()
    assert type(caught.value) is kind
    assert len(fake.actions) == 1
    text = str(raised)
    message = text.split(": ", 1)[1] if kind is not errors.Failed or text.startswith("failed") else text
    assert str(caught.value).rstrip(".").startswith(message)
    assert "gRPC" not in str(caught.value) and "Flight" not in str(caught.value)


def test_a_code_within_a_message_is_not_taken_for_the_code() -> None:
    error = errors.from_flight(
        flight.FlightServerError("Flight error, with message: invalid: full: no. Client context: OK")
    )
    assert type(error) is errors.Invalid and str(error) == "full: no"


def test_a_call_is_repeated_while_the_service_is_away(fake: Fake, scripted: reprise.Table) -> None:
    fake.answer = raising(*map(flight.FlightUnavailableError, ("gone", "closing: it stops", "interrupted: it stopped")))
    assert scripted.advance(5).version == 5
    assert fake.actions == [("advance", {"table": "t", "version": 5})] * 4


def test_what_would_count_twice_is_not_repeated(fake: Fake, scripted: reprise.Table) -> None:
    for call in (lambda: scripted.abandon(3, 1), lambda: scripted.prompts_next(8), lambda: scripted.report([1], [0])):
        for why in ("connection reset", "interrupted: it stopped"):
            fake.actions.clear()
            fake.answer = raising(flight.FlightUnavailableError(why))
            with pytest.raises(reprise.Unavailable):
                call()
            assert len(fake.actions) == 1


def test_an_insertion_is_repeated_under_the_same_name(fake: Fake, scripted: reprise.Table) -> None:
    fake.fail_puts = [flight.FlightUnavailableError("connection reset")] * 2
    assert scripted.insert(rollouts([3, 4]), group_size=2).tolist() == [1, 2]
    assert len(fake.puts) == 3
    assert len({put["batch_id"] for put in fake.puts}) == 1 and len(fake.puts[0]["batch_id"]) == 32
    scripted.insert(rollouts([3]))
    assert fake.puts[3]["batch_id"] != fake.puts[0]["batch_id"]
    assert fake.puts[0]["group_size"] == 2 and "group_size" not in fake.puts[3]


def test_insertions_of_one_schema_share_a_stream(fake: Fake, scripted: reprise.Table) -> None:
    for _ in range(5):
        scripted.insert(rollouts([3, 4]), group_size=2)
    assert fake.put_streams == 1
    scripted.insert(rollouts([3]))  # without the column group
    scripted.insert(rollouts([3, 4]), group_size=2)
    assert fake.put_streams == 2 and len(fake.puts) == 7
    tokens = pa.array(["a", "a"]).dictionary_encode()
    for number in (3, 4):  # the service would keep each one's dictionary
        scripted.insert(reprise.record_batch(rollouts([3, 4])).append_column("x", tokens))
        assert fake.put_streams == number


def test_insertions_at_the_same_time_have_a_stream_each(fake: Fake, scripted: reprise.Table) -> None:
    together = threading.Barrier(8)

    def insert() -> None:
        together.wait(30)
        for _ in range(20):
            assert scripted.insert(rollouts([3])).tolist() == [1]

    threads = [threading.Thread(target=insert) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(fake.puts) == 160 == len({put["batch_id"] for put in fake.puts}) and 1 <= fake.put_streams <= 8


def test_an_insertion_on_a_stream_that_broke_goes_on_at_once_on_another(fake: Fake, scripted: reprise.Table) -> None:
    scripted.insert(rollouts([3]))
    pauses: list[float] = []
    scripted._connection._closed.wait = lambda seconds: bool(pauses.append(seconds))  # type: ignore[method-assign]
    fake.fail_puts = [flight.FlightUnavailableError("connection reset")]
    assert scripted.insert(rollouts([3])).tolist() == [1]
    assert fake.put_streams == 2 and not pauses
    assert len(fake.puts) == 3 and fake.puts[1] == fake.puts[2] and fake.puts[0] != fake.puts[1]


def test_a_stream_is_left_to_those_whose_time_it_has(fake: Fake, scripted: reprise.Table) -> None:
    scripted.insert(rollouts([3]))
    scripted.insert(rollouts([3]), timeout=120)  # the stream might end before
    scripted.insert(rollouts([3]), timeout=1)  # would notice a silent service too late
    assert fake.put_streams == 3
    for put in scripted._connection._puts._idle:
        put._ends = 0.0
    scripted.insert(rollouts([3]))
    assert fake.put_streams == 4 and len(scripted._connection._puts._idle) == 1


def test_closing_the_client_ends_the_streams_of_insertions(fake: Fake) -> None:
    with reprise.connect(fake.address) as client:
        client.table("t").insert(rollouts([3]))
        assert not fake.put_ended.acquire(blocking=False)
    assert fake.put_ended.acquire(timeout=30)


def test_a_refused_insertion_is_not_repeated(fake: Fake, scripted: reprise.Table) -> None:
    fake.fail_puts = [flight.FlightServerError("invalid: reward: row 0: nan: want a finite number")]
    with pytest.raises(reprise.Invalid, match="^reward: row 0: nan: want a finite number"):
        scripted.insert(rollouts([3]))
    assert len(fake.puts) == 1


def test_a_service_that_is_not_there_is_unavailable_after_the_timeout() -> None:
    with Fake() as running:
        address = running.address
    with reprise.connect(address, timeout=0.5) as client, pytest.raises(reprise.Unavailable) as caught:
        client.table("t").info()
    assert isinstance(caught.value, ConnectionError) and caught.value.retryable


def test_closing_the_client_ends_the_waiting_for_a_service() -> None:
    with Fake() as running:
        address = running.address
    client = reprise.connect(address, timeout=600)
    caught: list[BaseException] = []

    def ask() -> None:
        try:
            client.table("t").info()
        except BaseException as error:
            caught.append(error)

    asking = threading.Thread(target=ask)
    asking.start()
    client.close()
    asking.join(timeout=20)
    assert not asking.is_alive() and isinstance(caught[0], reprise.Error)


def test_a_client_may_be_closed_while_threads_are_in_calls(fake: Fake) -> None:
    # pyarrow frees what they use, unless it is kept from it: this crashed within a few rounds.
    with Fake() as ended:
        away = ended.address
    for address in [fake.address, away] * 10:
        client = reprise.connect(address, timeout=5)
        outcomes: list[BaseException] = []

        def ask(call: Callable[[], object]) -> None:
            try:
                while True:
                    call()
            except BaseException as error:
                outcomes.append(error)

        calls = (client.table("t").info, client.list, lambda: client.table("t").insert(rollouts([3])))
        threads = [threading.Thread(target=ask, args=(call,)) for call in calls]
        for thread in threads:
            thread.start()
        client.close()
        for thread in threads:
            thread.join(timeout=30)
            assert not thread.is_alive()
        assert all(isinstance(outcome, reprise.Error) for outcome in outcomes), outcomes
    with pytest.raises(reprise.Unavailable, match="the client was closed"):
        client.table("t").info()


def test_the_channel_is_closed_by_the_last_who_uses_it(fake: Fake) -> None:
    asked, release, closed = threading.Event(), threading.Event(), threading.Event()

    def answer(name: str, body: dict[str, Any]) -> dict[str, Any]:
        asked.set()
        release.wait(30)
        return {"version": 5}

    class Spy:
        def __init__(self, watched: Any) -> None:
            self.watched = watched

        def __getattr__(self, name: str) -> Any:
            return getattr(self.watched, name)

        def close(self) -> None:
            closed.set()
            self.watched.close()

    fake.answer = answer
    client = reprise.connect(fake.address, timeout=20)
    client._connection._client = Spy(client._connection._client)
    versions: list[int] = []
    asking = threading.Thread(target=lambda: versions.append(client.table("t").info().version))
    asking.start()
    assert asked.wait(10)
    client.close()
    early = closed.is_set()
    release.set()
    asking.join(timeout=20)
    assert not early and closed.is_set() and versions == [5]


def test_a_call_without_an_answer_ends_at_its_deadline(fake: Fake) -> None:
    release = threading.Event()

    def answer(name: str, body: dict[str, Any]) -> dict[str, Any]:
        release.wait(30)
        return {}

    fake.answer = answer
    try:
        with reprise.connect(fake.address, timeout=0.3) as client, pytest.raises(reprise.Timeout):
            client.table("t").info()
    finally:
        release.set()


def test_a_token_travels_as_a_bearers_and_never_in_the_clear() -> None:
    seen: list[str] = []

    class Middleware(flight.ServerMiddlewareFactory):
        def start_call(self, info: Any, headers: dict[str, list[str]]) -> None:
            seen.extend(headers.get("authorization", []))

    class Listening(flight.FlightServerBase):
        def do_action(self, context: Any, action: Any) -> list[bytes]:
            return [b"{}"]

    with Listening("grpc://127.0.0.1:0", middleware={"m": Middleware()}) as running:
        with reprise.connect(f"grpc://127.0.0.1:{running.port}", token="secret") as client:
            client.table("t").info()
    assert seen == ["Bearer secret"]
    with pytest.raises(reprise.Invalid, match=r"want grpc\+tls"):
        reprise.connect("grpc://replay.example:7447", token="secret")


def test_wrong_arguments_are_named_before_anything_is_sent(fake: Fake, scripted: reprise.Table) -> None:
    for message, call in {
        "address: nowhere": lambda: reprise.connect("nowhere"),
        "timeout: 0": lambda: reprise.connect(fake.address, timeout=0),
        "certificate, key": lambda: reprise.connect(fake.address, key=b""),
        "priorities: 1 of them: want 2": lambda: scripted.update([1, 2], [1]),
        "priorities: entry 1: nan": lambda: scripted.update([1, 2], [1, np.nan]),
        "priorities: entry 0: -1": lambda: scripted.update([1], [-1]),
        "ids: float64": lambda: scripted.update([1.5], [1]),
        "ids: entry 0: -1": lambda: scripted.update([-1], [1]),
        "staleness: 2 of them: want 1": lambda: scripted.report([1], [0, 0]),
        "td_error: entry 0: inf": lambda: scripted.report([1], [0], td_error=[np.inf]),
        "tokens: str": lambda: scripted.report([1], [0], tokens=["x"]),
        "size: 0: want at least 1": lambda: scripted.sample(0),
        "size: -1": lambda: scripted.stream(np.int64(-1)),
        "columns: 'tokens': want a list of names": lambda: scripted.sample(1, columns="tokens"),
        "token: want printable ASCII": lambda: reprise.connect(fake.address, token="secret\n"),
        "version: ": lambda: scripted.advance(np.float64("nan")),
        "version: array([1, 2]): want a whole number": lambda: scripted.advance(np.array([1, 2])),
        "rows: none": lambda: scripted.insert([]),
        "timeout: -1": lambda: scripted.sample(1, timeout=-1),
        "prefetch: -1": lambda: scripted.stream(1, prefetch=-1),
        "reward: given twice": lambda: scripted.insert({"reward": [1]}, reward=[1]),
        "groups: missing": lambda: scripted.abandon(3),
        "advantage: 2 of them: want 1": lambda: scripted.report([1], [0], advantage=[1, 2]),
    }.items():
        with pytest.raises(reprise.Invalid) as caught:
            call()
        assert str(caught.value).startswith(message)
    assert not fake.actions and not fake.puts


def test_numbers_of_numpy_are_numbers(fake: Fake, scripted: reprise.Table) -> None:
    scripted.advance(np.int64(7))
    scripted.advance(np.array(8, np.uint8))
    assert [body["version"] for _, body in fake.actions] == [7, 8]


def test_reports_hold_what_was_measured(fake: Fake, scripted: reprise.Table) -> None:
    scripted.report(np.array([3, 4], np.uint64), [0, 1], td_error=np.array([0.5, 0.25]), tokens=[7, 8])
    assert fake.actions == [
        (
            "report",
            {
                "table": "t",
                "draws": [
                    {"id": 3, "staleness": 0, "td_error": 0.5, "tokens": 7.0},
                    {"id": 4, "staleness": 1, "td_error": 0.25, "tokens": 8.0},
                ],
            },
        )
    ]
