"""Training on two parts of which one is killed in the middle: make test-ray-trainers, which takes five minutes."""

from __future__ import annotations

import argparse
import contextlib
import signal
import statistics
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

from reprise.torch import RolloutStore  # noqa: E402
from reprise.trl import Replay  # noqa: E402

PATIENCE = 600.0  # seconds, on a machine that is busy


def pid(name: str) -> int:
    """Return the process id of the service of part 1, once it serves."""
    pause = threading.Event()
    for _ in range(int(PATIENCE * 5)):
        with contextlib.suppress(ray.exceptions.ActorUnavailableError):  # it is being restarted
            found: int = ray.get(ray.get_actor(f"{name}.1", namespace="reprise").pid.remote())
            return found
        pause.wait(0.2)
    pytest.fail(f"part 1 of {name} was not restarted within {PATIENCE:g} s")


def killing(name: str, when: int | None) -> Callable[[int], None]:
    """Return what kills the service of part 1 once the update of that number is over."""

    def tell(update: int) -> None:
        if update == when:
            kill(pid(name), signal.SIGKILL)

    return tell


PAIRS = 10  # of seeds, because single runs of the example differ by 0.1 from seed to seed


def runs(name: str, when: int | None, train: Callable[[str, int, Callable[[int], None]], float]) -> list[float]:
    """Train once for each seed on two parts, kill one after the update of that number, and return the results."""
    results = []
    with reprise.ray.start(2, name=name, timeout=PATIENCE):
        for seed in range(PAIRS):
            before = pid(name)
            results.append(train(f"ray:{name}", seed, killing(name, when)))
            assert (pid(name) != before) == (when is not None)
    return results


def check_same(what: str, undisturbed: list[float], disturbed: list[float], most: float) -> None:
    differences = [b - a for a, b in zip(undisturbed, disturbed)]
    mean, error = statistics.mean(differences), statistics.stdev(differences) / PAIRS**0.5
    print(f"{what}: {statistics.mean(undisturbed):.3f}, and {statistics.mean(disturbed):.3f} with a part killed; "
          f"difference {mean:+.3f}, standard error {error:.3f}, of {PAIRS} pairs")  # fmt: skip
    assert abs(mean) < most, (undisturbed, disturbed)


def add(address: str, seed: int, tell: Callable[[int], None]) -> float:
    """Return the held-out accuracy after the plain PyTorch example."""
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    adder = torch_grpo.Adder()
    torch_grpo.warm_up(adder, 50, 9)
    with reprise.connect(address, timeout=PATIENCE) as client:
        table = client.create(f"sums-{seed}", capacity=512, sampler="prioritized", max_staleness=8, group_size=8,
                              min_size=128)  # fmt: skip
        report = table.report

        def counted(*arguments: Any, version: int, **named: Any) -> reprise.TableInfo:
            tell(version)
            return report(*arguments, version=version, **named)

        table.report = counted  # type: ignore[method-assign]
        options = argparse.Namespace(largest=9, updates=120, batch=256, learning_rate=1e-3)
        return torch_grpo.train(RolloutStore(table, torch_grpo.GRPO, batch=256), adder, options)[1]


def test_the_torch_example_learns_as_much_with_a_part_killed_in_the_middle(nodes: Nodes) -> None:
    check_same("accuracy of plain PyTorch", runs("whole", None, add), runs("killed", 60, add), 0.1)


def reward(address: str, seed: int, tell: Callable[[int], None]) -> float:
    """Return the mean reward of the last 10 of 60 updates of TRL."""
    replay = Replay(address=address, table=f"letters-{seed}", timeout=PATIENCE)
    trained = tiny.train(replay, max_steps=60, seed=seed, tell=tell)
    rewards = [entry["reward"] for entry in trained.state.log_history if "reward" in entry]
    return sum(rewards[-10:]) / 10


def test_trl_learns_as_much_with_a_part_killed_in_the_middle(nodes: Nodes) -> None:
    check_same("reward of TRL", runs("whole-trl", None, reward), runs("killed-trl", 30, reward), 0.1)
