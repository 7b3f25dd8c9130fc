"""A service of a few lines, scripted by a test: for what a real one does only when its network breaks."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any

import pyarrow.flight as flight
from conftest import rollouts, sampled


class Fake(flight.FlightServerBase):
    """Answers actions, insertions and streams as it is told, and notes what it was asked."""

    def __init__(self, location: str = "grpc://127.0.0.1:0") -> None:
        super().__init__(location)
        self.actions: list[tuple[str, dict[str, Any]]] = []
        self.puts: list[dict[str, Any]] = []
        self.requests: list[dict[str, Any]] = []
        self.answer: Callable[[str, dict[str, Any]], Any] = lambda name, body: {}
        self.fail_puts: list[Exception] = []  # one for each of the next insertions, after it was taken
        self.on_request: Callable[[int, dict[str, Any]], dict[str, Any] | None] = lambda number, request: None
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
        chunk = reader.read_chunk()
        self.puts.append(json.loads(chunk.app_metadata.to_pybytes()))
        if self.fail_puts:
            raise self.fail_puts.pop(0)
        writer.write(json.dumps({"ids": list(range(1, chunk.data.num_rows + 1))}).encode())

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
                    writer.write_with_metadata(batch, json.dumps({"batch": number, "version": 1, "rows": 2}).encode())
        finally:
            self.ended.release()
