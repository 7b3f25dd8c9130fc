"""A Ray cluster of three nodes, as processes of this machine that see loopback alone."""

from __future__ import annotations

import importlib.util
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import pytest

if importlib.util.find_spec("ray") is None:
    pytest.skip("Ray is not installed: make test-ray", allow_module_level=True)
if [name for _, name in socket.if_nameindex()] != ["lo"]:
    pytest.skip("Ray listens on every address: make test-ray runs in a network namespace", allow_module_level=True)

PYTHON = pathlib.Path(__file__).resolve().parents[2]
FOLDER = tempfile.mkdtemp(prefix="ray")  # short: Ray has sockets in it

# Ray reads these when it is imported. Starting three nodes takes a busy machine minutes, in which Ray would give up.
os.environ |= {
    "PYTHONPATH": os.pathsep.join([str(PYTHON / "src"), os.environ.get("PYTHONPATH", "")]),  # of Ray's processes
    "REPRISE": os.environ.get("REPRISE", str(PYTHON.parent / "bin" / "reprise")),
    "TMPDIR": FOLDER,
    "RAY_AUTH_MODE": "disabled",
    "RAY_DASHBOARD_STARTUP_TIMEOUT_S": "600",
    "RAY_agent_register_timeout_ms": "600000",
    "RAY_raylet_start_wait_time_s": "600",
    "RAY_worker_register_timeout_seconds": "600",
    "RAY_health_check_timeout_ms": "60000",
    "RAY_enable_worker_prestart": "0",
    "RAY_prestart_worker_first_driver": "0",
}
tempfile.tempdir = FOLDER

import ray  # noqa: E402
from ray.cluster_utils import Cluster  # noqa: E402


class Nodes:
    """The cluster: a head and other nodes, each with a CPU, which is what a part takes."""

    def __init__(self) -> None:
        self._options = {"num_cpus": 1, "object_store_memory": 80 << 20, "node_ip_address": "127.0.0.1",
                         "include_log_monitor": False}  # fmt: skip
        head = {**self._options, "include_dashboard": False, "no_monitor": True}
        self.cluster = Cluster(True, head_node_args=head)
        self._added: list[Any] = []

    def fill(self) -> None:
        """Add what is missing of two nodes."""
        while len(self._added) < 2:
            self._added.append(self.cluster.add_node(**self._options))
        self.cluster.wait_for_nodes(600)

    def is_head(self, node_id: str) -> bool:
        return all(node.node_id != node_id for node in self._added)

    def kill(self, node_id: str) -> None:
        """Kill the processes of a node."""
        node = next(node for node in self._added if node.node_id == node_id)
        self._added.remove(node)
        self.cluster.remove_node(node, allow_graceful=False)


@pytest.fixture(scope="session")
def started() -> Iterator[Nodes]:
    nodes = Nodes()
    try:
        nodes.fill()
        ray.init(address=nodes.cluster.address, log_to_driver=False)
        yield nodes
    finally:
        ray.shutdown()
        nodes.cluster.shutdown()
        shutil.rmtree(FOLDER, ignore_errors=True)


@pytest.fixture
def nodes(started: Nodes) -> Nodes:
    """Three nodes, whatever an earlier test killed."""
    started.fill()
    return started


@pytest.fixture
def run(nodes: Nodes) -> Callable[[str], str]:
    """Runs Python in a process of its own, as another job of the cluster, and returns what it printed."""

    def run(program: str) -> str:
        environment = {**os.environ, "RAY_ADDRESS": nodes.cluster.address}
        ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=1200,
                             env=environment)  # fmt: skip
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    return run
