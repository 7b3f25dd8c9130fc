"""Processes of the comparison: start, questions, processor time, memory and end. Needs Linux."""

import json
import os
import pathlib
import signal
import subprocess
import time
from collections.abc import Iterable
from typing import Any

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
ENVIRONMENT = {
    "REPRISE": f"{ROOT}/bin/reprise", "OMP_NUM_THREADS": "1", "TQ_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "",
    "RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0", "TF_CPP_MIN_LOG_LEVEL": "3", **os.environ,
    "PYTHONPATH": f"{HERE}:{ROOT}/python/src:{os.environ.get('PYTHONPATH', '')}",  # for Ray's workers too
}  # fmt: skip


class Skipped(Exception):
    """A peer cannot run here."""


class Failed(Exception):
    """A peer did not do what it was asked."""


class Process:
    """child.py in one role for one peer. What it prints goes to a log."""

    def __init__(self, python: str, role: str, peer: str, settings: dict[str, Any], log: pathlib.Path) -> None:
        self.name, self.log = f"{role} {peer}", log
        with log.open("ab") as output:
            try:
                self.popen = subprocess.Popen(
                    [python, str(HERE / "child.py"), role, peer, json.dumps(settings)], text=True, stderr=output,
                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=ENVIRONMENT,
                )  # fmt: skip
            except FileNotFoundError:
                raise Skipped(f"there is no {python}") from None
        try:
            self.ready = self.receive()
        except BaseException:
            self.end()
            raise

    def send(self, do: str, **arguments: Any) -> None:
        assert self.popen.stdin is not None
        self.popen.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
        self.popen.stdin.flush()

    def receive(self) -> dict[str, Any]:
        assert self.popen.stdout is not None
        answer: dict[str, Any] = json.loads(self.popen.stdout.readline() or '{"error": "the process ended"}')
        if "missing" in answer:
            raise Skipped(answer["missing"])
        if "error" in answer:
            raise Failed(f"{self.name}: {answer['error']}\n{self.log.read_text(errors='replace')[-1000:]}")
        return answer

    def ask(self, do: str, **arguments: Any) -> dict[str, Any]:
        self.send(do, **arguments)
        return self.receive()

    def tree(self) -> list[int]:
        """Return the ids of this process and its descendants, parents first."""
        return descendants(self.popen.pid) if self.popen.poll() is None else []

    def end(self) -> None:
        """End it in order, and what is left of its descendants after 30 s by force."""
        left = self.tree()
        assert self.popen.stdin is not None
        try:
            self.popen.stdin.close()
            self.popen.wait(30)
        except (BrokenPipeError, subprocess.TimeoutExpired):
            pass
        kill(left)
        self.popen.wait()

    def kill(self) -> None:
        """kill -9 it and its descendants, those first."""
        kill(self.tree())
        self.popen.wait()


def descendants(pid: int) -> list[int]:
    found = [pid]
    for children in pathlib.Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found += [each for child in children.read_text().split() for each in descendants(int(child))]
        except OSError:  # the thread has ended
            pass
    return found


def kill(pids: list[int]) -> None:
    for pid in reversed(pids):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


def processor_seconds(pids: Iterable[int]) -> float:
    """Return what all threads of the processes have used so far."""
    total = 0.0
    for pid in pids:
        try:
            total += time.clock_gettime(~pid << 3 | 2)  # clock_getcpuclockid(3)
        except OSError:  # it has ended
            pass
    return total


def busy_seconds() -> float:
    """Return what all cores have worked so far, for anybody."""
    with open("/proc/stat") as file:
        user, nice, system, _, _, irq, softirq, steal = map(int, file.readline().split()[1:9])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def memory_bytes(pids: Iterable[int]) -> int:
    """Return the processes' memory without files. What they share counts once."""
    total = 0
    for pid in pids:
        try:
            lines = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        except OSError:  # it has ended
            continue
        total += sum(1024 * int(line.split()[1]) for line in lines if line.startswith(("Pss_Anon:", "Pss_Shmem:")))
    return total
