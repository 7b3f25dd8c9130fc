"""`reprise.ray` on a real Ray cluster of several nodes."""

from __future__ import annotations

import contextlib
import pathlib
import re
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator
from os import kill

import pyarrow.flight as flight
import pytest
import ray
from conftest import PYTHON, Nodes

import reprise
import reprise.ray

PATIENCE = 300.0  # seconds, on a machine that is busy
TABLES = {"sums": {"capacity": 256, "group_size": 2, "sampler": "prioritized"}}
JOB = 'import ray, reprise.ray\nray.init(address="auto", log_to_driver=False)\n'
INSERT = """
table.insert(tokens=[[1, 2], [1, 3]], prompt_lengths=[1, 1], logprobs=[[0, -0.5], [0, -0.5]], version=0, reward=[1, 0])
"""


def insert(table: reprise.Table, groups: int = 1) -> None:
    for _ in range(groups):
        exec(INSERT, {"table": table})


def await_that(condition: Callable[[], bool], what: str, seconds: float = PATIENCE) -> None:
    pause = threading.Event()
    for _ in range(int(seconds * 5)):
        if condition():
            return
        pause.wait(0.2)
    pytest.fail(f"after {seconds:g} s it is still not so that {what}")


def has_ended(pid: int) -> bool:
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def pid_of(name: str, part: int = 0) -> int:
    pid: int = ray.get(ray.get_actor(f"{name}.{part}", namespace="reprise").pid.remote())
    return pid


def left_behind(name: str) -> list[str]:
    """What there still is of parts, but for processes: actors, placement groups, and folders with keys."""
    actors = [actor["name"] for actor in ray.util.list_named_actors(all_namespaces=True)]
    groups = [group["state"] for group in ray.util.placement_group_table().values()]
    folders = [str(folder) for folder in pathlib.Path(tempfile.gettempdir()).glob("reprise-*")]
    return [actor for actor in actors if actor.startswith(f"{name}.")] + [
        state for state in groups if state != "REMOVED"
    ] + folders  # fmt: skip


def await_nothing(*names: str) -> None:
    with contextlib.suppress(pytest.fail.Exception):
        await_that(lambda: not any(map(left_behind, names)), "nothing is left", 30)
    assert [left for name in names for left in left_behind(name)] == []


def test_ray_must_be_connected_first() -> None:
    assert not ray.is_initialized()
    for call in (reprise.ray.start, reprise.ray.connect, reprise.ray.shutdown):
        with pytest.raises(reprise.Invalid, match="ray.init"):
            call()


@pytest.fixture(scope="module")
def part(started: Nodes) -> Iterator[reprise.ray.Parts]:
    """One part with a journal."""
    data = tempfile.mkdtemp()
    with reprise.ray.start(1, name="one", tables=TABLES, data=data, sync="off", timeout=PATIENCE) as parts:
        yield parts


def test_parts_are_found_by_name_from_another_process(part: reprise.ray.Parts, run: Callable[[str], str]) -> None:
    printed = run(f"{JOB}with reprise.ray.connect('one') as client:\n"
                  f"    table = client.table('sums')\n    {INSERT.strip()}\n"
                  "    print(client.address)")  # fmt: skip
    with part.connect(timeout=PATIENCE) as client:
        assert sorted(client.table("sums").sample(2).rewards.tolist()) == [0, 1]
        assert printed.strip() == client.address and client.address.startswith("grpc+tls://127.0.0.1:")


def test_nobody_gets_in_without_token_and_certificate(part: reprise.ray.Parts) -> None:
    with part.connect() as client:
        address, plan = client.address, reprise.ray._plan("one", PATIENCE)
    pinned = {"ca": plan.certificate, "server_name": reprise.ray.SERVER_NAME}
    for token in (None, "a-token-that-is-wrong"):
        with reprise.connect(address, token=token, **pinned) as client, pytest.raises(reprise.Unauthenticated):
            client.list()
    another, _ = reprise.ray._certificate()
    with reprise.connect(address, timeout=1, ca=another, server_name=reprise.ray.SERVER_NAME) as client:
        with pytest.raises(reprise.Unavailable):
            client.list()
    with flight.FlightClient(address.replace("+tls", "")) as plain, pytest.raises(flight.FlightError):
        list(plain.list_flights(options=flight.FlightCallOptions(timeout=5)))


def test_a_name_is_given_once(part: reprise.ray.Parts) -> None:
    with pytest.raises(reprise.Exists, match="name: one"):
        reprise.ray.start(1, name="one")
    with part.connect() as client:
        assert len(client.list()) == 1


def test_a_killed_service_is_restarted_with_its_journal_and_clients_follow(part: reprise.ray.Parts) -> None:
    with part.connect(timeout=PATIENCE) as client:
        table = client.table("sums")
        insert(table, 4)
        before, address, killed = table.stats().present, client.address, pid_of("one")
        with table.stream(2) as stream:
            next(stream)
            kill(killed, signal.SIGKILL)
            assert len(next(stream)) == 2  # of the new process
        assert table.stats().present == before and client.address != address
        insert(table)
        assert table.stats().present == before + 2
    assert has_ended(killed) and not has_ended(pid_of("one"))


def test_a_shutdown_leaves_nothing_and_ends_nothing_else(part: reprise.ray.Parts) -> None:
    with reprise.ray.start(1, name="other", timeout=PATIENCE):
        parts, pid = pid_of("one"), pid_of("other")
    assert has_ended(pid) and not has_ended(parts)
    part.shutdown()
    assert has_ended(parts)
    await_nothing("other", "one")
    with pytest.raises(reprise.NotFound, match="name: one"):
        reprise.ray.connect("one")


def test_a_service_that_does_not_start_is_reported_with_its_log_and_leaves_nothing(nodes: Nodes) -> None:
    with pytest.raises(reprise.Failed, match="unknown flag --nonsense"):
        reprise.ray.start(1, name="wrong", arguments=["--nonsense"], timeout=PATIENCE)
    await_nothing("wrong")


def test_parts_without_room_are_refused_and_leave_nothing(nodes: Nodes) -> None:
    with pytest.warns(UserWarning, match="3 nodes"), pytest.raises(reprise.Timeout, match="found no room"):
        reprise.ray.start(5, name="many", timeout=2)
    await_nothing("many")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"parts": 0}, "parts: 0: want 1 to 256"),
        ({"parts": 2, "replicas": 3}, "replicas: 3: want"),
        ({"parts": 3, "replicas": 3}, "data: None: want a folder"),
        ({"cpus": 0}, "cpus: 0: want more"),
    ],
)
def test_wrong_arguments_are_named(nodes: Nodes, arguments: dict[str, int], message: str) -> None:
    with pytest.raises(reprise.Invalid, match=message):
        reprise.ray.start(**arguments)


def test_a_lost_node_takes_one_part_which_comes_back_on_another_node(nodes: Nodes) -> None:
    with reprise.ray.start(2, name="pair", tables=TABLES, timeout=PATIENCE) as parts:
        places = ray.util.placement_group_table(parts._group)["bundles_to_node_id"]
        assert places[0] != places[1]
        lost = next(part for part in (1, 0) if not nodes.is_head(places[part]))
        with parts.connect(timeout=PATIENCE) as client:
            table = client.table("sums")
            table.advance(3)
            insert(table, 40)
            pids = [pid_of("pair", part) for part in (0, 1)]
            held = [part.table.info().present for part in table.parts]
            assert table.stats().present == sum(held) == 80 and min(held) > 0
            nodes.kill(places[lost])
            await_that(lambda: has_ended(pids[lost]), "its service ended with its node")
            with pytest.warns(reprise.PartWarning):
                table.stats()
            insert(table, 40)  # goes on meanwhile
            await_that(lambda: table.info() is not None and not table.down, "both parts are up")
            insert(table, 40)
            info = [part.table.info() for part in table.parts]
            assert info[lost].version == 3 and info[lost].present > 0  # empty, with the newest version, and used again
            assert info[1 - lost].present > held[1 - lost]
            assert len(table.sample(8, scope="global")) == 8
        moved = ray.util.placement_group_table(parts._group)["bundles_to_node_id"]
        assert moved[lost] not in places.values() and moved[1 - lost] == places[1 - lost]
        pids = [pid_of("pair", part) for part in (0, 1)]
    assert all(map(has_ended, pids))


def test_replicas_keep_every_rollout_when_a_node_is_lost(nodes: Nodes) -> None:
    data = tempfile.mkdtemp()
    with reprise.ray.start(3, replicas=3, name="kept", tables=TABLES, data=data, timeout=PATIENCE) as parts:
        places = ray.util.placement_group_table(parts._group)["bundles_to_node_id"]
        lost = next(part for part in (2, 1, 0) if not nodes.is_head(places[part]))
        with parts.connect(timeout=PATIENCE) as client:
            table = client.table("sums")
            insert(table, 20)
            killed = pid_of("kept", lost)
            nodes.kill(places[lost])
            await_that(lambda: has_ended(killed), "its service ended with its node")
            insert(table, 20)  # goes on, and nothing is lost
            await_that(lambda: table.stats().present == 80 and not table.down, "all is there, from two nodes")
            nodes.fill()
            await_that(lambda: len(reprise.ray._ask("kept", "address", range(3), 5)) == 3, "all three serve again")
            insert(table, 20)
            await_that(lambda: table.stats().present == 120 and not table.down, "all is there, from three nodes")
            for part in (1, 2):  # which ask each other where they are when they restart
                kill(pid_of("kept", part), signal.SIGKILL)
            insert(table, 20)
            await_that(lambda: table.stats().present == 160 and not table.down, "all is there, from restarted ones")


def test_parts_end_with_their_job_unless_they_are_detached(nodes: Nodes, run: Callable[[str], str]) -> None:
    printed = run(f"{JOB}for detached in (False, True):\n"
                  f"    reprise.ray.start(1, name=f'detached-{{detached}}', detached=detached, timeout={PATIENCE})\n"
                  "    actor = ray.get_actor(f'detached-{detached}.0', namespace='reprise')\n"
                  "    print(ray.get(actor.pid.remote()))")  # fmt: skip
    bound, detached = map(int, printed.split())
    await_that(lambda: has_ended(bound), "the service ended with its job")
    with reprise.ray.connect("detached-True", timeout=PATIENCE) as client:
        client.create("sums")
    reprise.ray.shutdown("detached-True", timeout=PATIENCE)
    assert has_ended(detached)
    await_nothing("detached-False", "detached-True")


def test_the_example_of_the_guide_prints_what_the_guide_shows(nodes: Nodes, run: Callable[[str], str]) -> None:
    guide = (PYTHON.parent / "docs" / "ray.md").read_text()
    found = re.search(r"```python\n(.*?)```\n+```\n(.*?)```", guide, re.DOTALL)
    assert found
    printed = run(found[1])
    assert re.sub(r":\d+", ":PORT", printed) == re.sub(r":\d+", ":PORT", found[2])
