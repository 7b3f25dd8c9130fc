"""Fixtures: a running replay service, a scripted one, and batches as a service would send them."""

from __future__ import annotations

import http.server
import json
import os
import pathlib
import re
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.flight as flight
import pytest

import reprise

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = pathlib.Path(os.environ.get("REPRISE", ROOT / "bin" / "reprise"))


class Server:
    """`reprise serve` as a process, ended by its process id."""

    def __init__(self, *arguments: str, listen: str = "127.0.0.1:0") -> None:
        self.process = subprocess.Popen(
            [str(BINARY), "serve", "--listen", listen, "--http", "off", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd="/",
        )
        self.output: list[str] = []
        self.address = ""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.output.append(line)
            found = re.search(r"grpc(?:\+tls)?://[\w.:\[\]-]+", line)
            if found:
                self.address = found[0]
                break
        else:
            raise RuntimeError(f"{BINARY} serve ended: {''.join(self.output)}")
        self._reader = threading.Thread(target=self._drain, daemon=True)
        self._reader.start()

    def _drain(self) -> None:
        assert self.process.stdout is not None
        self.output.extend(self.process.stdout)

    def stop(self, with_signal: int = signal.SIGTERM) -> None:
        if self.process.poll() is None:
            self.process.send_signal(with_signal)
        try:
            self.process.wait(timeout=40)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._reader.join(timeout=10)
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture(scope="session")
def binary() -> pathlib.Path:
    if not BINARY.exists():
        pytest.fail(f"{BINARY} does not exist: run make build, or set REPRISE to another program")
    return BINARY


@pytest.fixture(scope="session")
def server(binary: pathlib.Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    running = Server("--data", str(tmp_path_factory.mktemp("data")), "--sync", "off")
    yield running
    running.stop()


@pytest.fixture
def client(server: Server) -> Iterator[reprise.Client]:
    with reprise.connect(server.address, timeout=20) as connected:
        yield connected


@pytest.fixture
def table(client: reprise.Client, request: pytest.FixtureRequest) -> Iterator[Callable[..., reprise.Table]]:
    """Creates tables, and drops them after the test."""
    made: list[reprise.Table] = []

    def create(**options: object) -> reprise.Table:
        name = re.sub(r"[^a-zA-Z0-9]+", "-", request.node.name)[:80] + f"-{len(made)}"
        made.append(client.create(name, **options))
        return made[-1]

    yield create
    for each in made:
        client.drop(each.name)


def rollouts(lengths: list[int], *, seed: int = 0, prompt: int = 2, version: int = 0) -> dict[str, list[object]]:
    """Columns of random rollouts. Their log-probs fit float32, so that they come back bit for bit."""
    rng = np.random.default_rng(seed)
    masks = [[0] * prompt + [1] * (length - prompt) for length in lengths]
    return {
        "prompt_id": [f"prompt {i // 2}" for i in range(len(lengths))],
        "tokens": [rng.integers(0, 50_000, length).tolist() for length in lengths],
        "mask": masks,
        "logprobs": [
            [float(np.float32(-value)) if kept else 0.0 for value, kept in zip(rng.random(len(mask)), mask)]
            for mask in masks
        ],
        "versions": [[version if kept else -1 for kept in mask] for mask in masks],
        "reward": [float(i % 2) for i in range(len(lengths))],
    }


def sampled(columns: dict[str, list[object]], **more: pa.Array) -> reprise.Batch:
    """The batch that a service would send for such rollouts."""
    rows = len(columns["tokens"])
    arrays = {name: array for name, array in zip(*_arrow(columns))}
    arrays |= {
        "id": pa.array(np.arange(10, 10 + rows, dtype=np.uint64)),
        "group": pa.array(np.arange(rows, dtype=np.uint64) // 2),
        "advantage": pa.array(np.linspace(-1, 1, rows, dtype=np.float32)),
        "probability": pa.array(np.full(rows, 1 / rows)),
        "weight": pa.array(np.linspace(0.5, 1, rows, dtype=np.float32)),
        "staleness": pa.array(np.arange(rows, dtype=np.int32)),
        "uses": pa.array(np.zeros(rows, np.int32)),
        **more,
    }
    batch = pa.RecordBatch.from_arrays(list(arrays.values()), names=list(arrays))
    return reprise.Batch(batch, reprise.BatchInfo(batch=7, version=3, rows=rows, present=rows))


def _arrow(columns: dict[str, list[object]]) -> tuple[list[str], list[pa.Array]]:
    batch = reprise.record_batch(columns)
    return batch.schema.names, batch.columns


class Fake(flight.FlightServerBase):
    """A service scripted by a test: answers actions, insertions and streams, and records the requests."""

    def __init__(self, location: str = "grpc://127.0.0.1:0") -> None:
        super().__init__(location)
        self.actions: list[tuple[str, dict[str, Any]]] = []
        self.puts: list[dict[str, Any]] = []
        self.requests: list[dict[str, Any]] = []
        self.answer: Callable[[str, dict[str, Any]], Any] = lambda name, body: {}
        self.fail_puts: list[Exception] = []  # one for each of the next insertions, after it was taken
        self.on_request: Callable[[int, dict[str, Any]], dict[str, Any] | None] = lambda number, request: None
        self.info: Callable[[int], dict[str, Any]] = lambda number: {"batch": number, "version": 1, "rows": 2}
        self.put_streams = 0
        self.put_ended = threading.Semaphore(0)  # released when a stream of insertions is over
        self.exchanges = 0
        self.ended = threading.Semaphore(0)  # released when an exchange is over

    @property
    def address(self) -> str:
        return f"grpc://127.0.0.1:{self.port}"

    def do_action(self, context: flight.ServerCallContext, action: flight.Action) -> list[bytes]:
        body = json.loads(action.body.to_pybytes())
        self.actions.append((action.type, body))
        return [json.dumps(self.answer(action.type, body)).encode()]

    def do_put(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        self.put_streams += 1
        try:
            for chunk in reader:
                self.puts.append(json.loads(chunk.app_metadata.to_pybytes()))
                if self.fail_puts:
                    raise self.fail_puts.pop(0)
                writer.write(json.dumps({"ids": list(range(1, chunk.data.num_rows + 1))}).encode())
        finally:
            self.put_ended.release()

    def do_exchange(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        self.exchanges += 1
        batch = sampled(rollouts([4, 6])).record_batch
        begun = False
        try:
            for chunk in reader:
                request = json.loads(chunk.app_metadata.to_pybytes())
                self.requests.append(request)
                number = len(self.requests)
                instead = self.on_request(number, request)
                if not begun:
                    writer.begin(batch.schema)
                    begun = True
                if instead is not None:
                    writer.write_metadata(json.dumps(instead).encode())
                else:
                    writer.write_with_metadata(batch, json.dumps(self.info(number)).encode())
        finally:
            self.ended.release()


@pytest.fixture
def fake() -> Iterator[Fake]:
    with Fake() as running:
        yield running


@pytest.fixture
def scripted(fake: Fake) -> Iterator[reprise.Table]:
    """A table of the fake service."""
    with reprise.connect(fake.address, timeout=10) as client:
        yield client.table("t")


class SGLang(http.server.BaseHTTPRequestHandler):
    """SGLang's answers, of different lengths. The server has the weights' version, and counts what it generated."""

    def log_message(self, *arguments: Any) -> None:
        pass

    def do_GET(self) -> None:  # its health; the router's /workers
        self._answer({"workers": []})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.server.lock:
            number = self.server.generated = self.server.generated + 1
        assert body["return_logprob"]
        length, prompt = 2 + number % 3, len(body["input_ids"])
        tokens = [[-0.125 * (at + 1), 100 * number + at] for at in range(length)]
        info: dict[str, Any] = {
            "output_token_logprobs": tokens,
            "finish_reason": {"type": "length" if number % 3 == 0 else "stop"},
            "weight_version": str(self.server.version),
        }
        if self.server.nucleus:
            info["top_p_token_ids"] = [id for _, token in tokens for id in (token, token + 1)]
            info["top_p_token_offsets"] = [2 * at for at in range(length + 1)]
            info["routed_experts"] = list(range((prompt + length - 1) * 4))
        self._answer({"text": f"answer {number}", "meta_info": info})

    def _answer(self, body: Any) -> None:
        payload = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(payload)))
        self.end_headers()
        self.wfile.write(payload)


@pytest.fixture
def sglang() -> Iterator[Any]:
    """A scripted server of SGLang, for the frameworks that generate with it."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), SGLang)
    server.lock, server.generated, server.version, server.nucleus = threading.Lock(), 0, 1, False
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()
