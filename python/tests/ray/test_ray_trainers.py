"""Training on two shards of which one is killed in the middle: make test-ray-trainers, which takes half an hour."""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys
import threading
from collections.abc import Callable
from os import kill
from typing import Any

import pytest
import ray
from conftest import PYTHON, Nodes

import reprise
import reprise.ray

torch = pytest.importorskip("torch", reason="PyTorch is not installed: make test-ray-trainers")
pytest.importorskip("trl", reason="TRL is not installed: make test-ray-trainers")
sys.path[:0] = [str(PYTHON / "examples"), str(PYTHON / "tests" / "trainers")]

import tiny  # noqa: E402
import torch_grpo  # noqa: E402

from reprise.trl import Replay  # noqa: E402

PATIENCE = 600.0  # seconds, on a machine that is busy


def pid(name: str) -> int:
    """Return the process id of the service of shard 1, once it serves."""
    pause = threading.Event()
    for _ in range(int(PATIENCE * 5)):
        with contextlib.suppress(ray.exceptions.ActorUnavailableError):  # it is being restarted
            found: int = ray.get(ray.get_actor(f"{name}.1", namespace="reprise").pid.remote())
            return found
        pause.wait(0.2)
    pytest.fail(f"shard 1 of {name} was not restarted within {PATIENCE:g} s")


def killing(name: str, when: int | None) -> Callable[[int], None]:
    """Return what kills the service of shard 1 once the update of that number is over."""

    def tell(update: int) -> None:
        if update == when:
            kill(pid(name), signal.SIGKILL)

    return tell


def add(name: str, when: int | None) -> float:
    """Return the held-out accuracy of the plain PyTorch example."""
    with reprise.ray.start(2, name=name, timeout=PATIENCE), reprise.connect(f"ray:{name}", timeout=PATIENCE) as client:
        torch.manual_seed(1)
        torch.set_num_threads(1)
        adder, tell, before = torch_grpo.Adder(), killing(name, when), pid(name)
        torch_grpo.warm_up(adder, 50, 9)
        table = client.create("sums", capacity=512, sampler="prioritized", max_staleness=8, group_size=8, min_size=128)
        report = table.report

        def counted(*arguments: Any, version: int, **named: Any) -> reprise.TableInfo:
            tell(version)
            return report(*arguments, version=version, **named)

        table.report = counted  # type: ignore[method-assign]
        options = argparse.Namespace(largest=9, updates=120, batch=256, learning_rate=1e-3)
        first, last = torch_grpo.train(table, adder, options)
        assert last > first + 0.1
        assert (pid(name) != before) == (when is not None)
        return last


def test_the_torch_example_learns_as_much_with_a_shard_killed_in_the_middle(nodes: Nodes) -> None:
    undisturbed, disturbed = add("whole", None), add("killed", 60)
    assert abs(disturbed - undisturbed) < 0.1, (undisturbed, disturbed)


def reward(name: str, when: int | None) -> float:
    """Return the mean reward of the last updates of a run of TRL."""
    with reprise.ray.start(2, name=name, timeout=PATIENCE):
        before, replay = pid(name), Replay(address=f"ray:{name}", table="letters", timeout=PATIENCE)
        trained = tiny.train(replay, max_steps=60, tell=killing(name, when))
        rewards = [entry["reward"] for entry in trained.state.log_history if "reward" in entry]
        assert sum(rewards[-10:]) > sum(rewards[:10])
        assert (pid(name) != before) == (when is not None)
        return sum(rewards[-10:]) / 10


def test_trl_learns_as_much_with_a_shard_killed_in_the_middle(nodes: Nodes) -> None:
    undisturbed, disturbed = reward("whole-trl", None), reward("killed-trl", 30)
    assert abs(disturbed - undisturbed) < 0.1, (undisturbed, disturbed)
