"""A process of the comparison: python child.py serve|client PEER SETTINGS.

It prints a line of JSON once it is ready, and another for each command on standard input, with which it ends.
"""

import importlib
import itertools
import json
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from importlib import metadata
from typing import Any

from adapters import Connection, Missing
from process import processor_seconds
from rollouts import check, pool

answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # what libraries print goes to standard error


def answer(**what: Any) -> None:
    print(json.dumps(what), file=answers, flush=True)


class Worker:
    """Executes the commands of a client. Insertions take the pool's rollouts in turn."""

    def __init__(self, client: Connection, length: int) -> None:
        self.client = client
        self.pool = pool(length)
        self.place = itertools.count()
        self.acknowledged = 0

    def insert(self, size: int) -> None:
        start = next(self.place) * size % len(self.pool)
        self.client.insert(self.pool[start : start + size])
        self.acknowledged += size

    def execute(
        self, do: str, seconds: float = 0, size: int = 0, count: int = 0, pids: Sequence[int] = ()
    ) -> dict[str, Any]:
        """Do what is asked; return the answer. ``pids`` are the processes whose processor time counts."""
        if do == "insert":
            return timed(lambda: self.insert(size), seconds, pids)
        if do == "sample":
            return timed(self.client.sample, seconds, pids)
        if do == "both":  # where producer and consumer are threads of one process
            found: dict[str, Any] = {}
            producer = threading.Thread(target=lambda: found.update(insert=self.execute("insert", seconds, size)))
            producer.start()
            found["sample"] = self.execute("sample", seconds)
            producer.join()
            return found
        if do == "check":
            for _ in range(count):
                check(self.client.sample(), self.pool)
        elif do == "fill":
            for _ in range(count // size):
                self.insert(size)
        elif do == "produce":  # until it is killed
            threading.Thread(target=lambda: timed(lambda: self.insert(size), float("inf")), daemon=True).start()
        elif do in ("rest", "save"):
            getattr(self.client, do)()
        return {"acknowledged": self.acknowledged, "count": self.client.count() if do == "count" else None}


def timed(call: Callable[[], object], seconds: float, pids: Sequence[int] = ()) -> dict[str, Any]:
    """Call for so long, at least once; return the seconds of each call, and the processes' of the processor."""
    latencies: list[float] = []
    processor = processor_seconds(pids)
    start = now = time.perf_counter()
    while not latencies or now < start + seconds:
        call()
        before, now = now, time.perf_counter()
        latencies.append(now - before)
    return {"seconds": now - start, "latencies": latencies, "cpu": processor_seconds(pids) - processor}


def run(role: str, peer: str, settings: dict[str, Any]) -> None:
    try:
        module = importlib.import_module(f"adapters.{peer}")
        versions = {package: metadata.version(package) for package in module.PACKAGES}
    except ImportError as error:  # a PackageNotFoundError is one too
        raise Missing(f"{error.name} is not installed in {sys.prefix}") from error
    start = time.perf_counter()
    if role == "serve":
        with module.serve(settings) as found:
            answer(seconds=time.perf_counter() - start, versions=versions, settings=found)
            sys.stdin.read()
        return
    worker = Worker(module.Client(settings), settings["length"])
    answer(versions=versions)
    for line in sys.stdin:
        answer(**worker.execute(**json.loads(line)))
    os._exit(0)  # whatever other threads do


if __name__ == "__main__":
    try:
        run(sys.argv[1], sys.argv[2], json.loads(sys.argv[3]))
    except Missing as missing:
        answer(missing=str(missing))
    except Exception as error:
        traceback.print_exc()
        answer(error=f"{type(error).__name__}: {error}"[:400])
        os._exit(1)
