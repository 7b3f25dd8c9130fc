"""Redis over its unix socket: a ring of keys with a pickled rollout at each, by redis-py with hiredis."""

import pickle
import random
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import redis
from rollouts import BATCH, Batch, Rollout, collate

from . import Connection, Missing

PACKAGES = ("redis", "hiredis")
IN_MEMORY = ("--save", "", "--appendonly", "no")


@contextmanager
def serve(settings: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Start redis-server with the flags ``config``, by default so that it writes nothing."""
    if not shutil.which("redis-server"):
        raise Missing("redis-server is not installed (apt-get install redis-server)")
    socket = f"{tempfile.mkdtemp()}/socket"
    flags = ["--port", "0", "--unixsocket", socket, "--dir", settings["folder"], *settings.get("config", IN_MEMORY)]
    process = subprocess.Popen(["redis-server", *flags], stdout=2)
    try:
        while True:
            try:
                redis.Redis(unix_socket_path=socket).ping()
                break
            except redis.ConnectionError:  # not there yet, or loading its file
                if process.poll() is not None:
                    raise
                time.sleep(0.005)
        yield {"socket": socket}
    finally:
        process.terminate()
        process.wait()


class Client(Connection):
    """Keys are 0 to capacity - 1, and ``head``: the number of insertions."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.redis = redis.Redis(unix_socket_path=settings["socket"])
        self.capacity: int = settings["capacity"]
        self.head = self.present = 0

    def insert(self, rollouts: Sequence[Rollout]) -> None:
        keys = [(self.head + i) % self.capacity for i in range(len(rollouts))]
        values: dict[Any, Any] = {key: pickle.dumps(r, protocol=5) for key, r in zip(keys, rollouts)}
        self.redis.mset({**values, "head": self.head + len(rollouts)})
        self.head += len(rollouts)

    def sample(self) -> Batch:
        if self.present < self.capacity:  # once the ring is full, nobody has to ask
            self.present = self.count()
        values: Any = self.redis.mget(random.sample(range(self.present), BATCH))
        return collate([pickle.loads(value) for value in values])

    def count(self) -> int:
        head: Any = self.redis.get("head")
        return min(int(head or 0), self.capacity)
