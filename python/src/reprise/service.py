"""serve: a replay service for this process and its children."""

from __future__ import annotations

import atexit
import json
import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from . import _program, errors
from .client import Client
from .connection import Connection
from .definition import Definition, Keys

MAX_FOLDER = 80  # bytes of a path below which a socket still fits: 104 with its name and terminator, on macOS


def serve(
    data: str | Path | None = None,
    *,
    tables: Mapping[str, Definition | Keys] | None = None,
    sync: str | None = None,
    http: str = "off",
    arguments: Sequence[str] = (),
    timeout: float = 60.0,
) -> Service:
    """Start a replay service that ends with this process, and connect to it.

    It listens on a unix socket that only you can open, or, where the temporary folder's path is too long for one, on a
    free port of loopback. Child processes, and programs that you tell ``service.address``, connect to it with
    ``reprise.connect(service.address)``. It ends with ``close``, with the ``with`` block, or with the process that
    started it, however that ends, kill -9 included. Ctrl-C does not reach it.

    The program is ``$REPRISE``, or the one that came with this package, or ``reprise`` on PATH.

    Args:
        data: folder of journals and checkpoints. Existing tables are reloaded. Without it they are in memory.
        tables: to create, by name: a `Definition`, or its keys. An existing one must have the same definition.
        sync: what an acknowledged insertion survives, with ``data``: ``always`` (power loss), the default,
            ``interval`` (kill -9, and power loss but for the last second), ``off`` (kill -9).
        http: address for the dashboard, such as ``127.0.0.1:7448``; port 0 takes a free one (`Service.dashboard`).
        arguments: more flags of ``reprise serve``, such as ``["--max-message", "1GiB"]``.
        timeout: as in `connect`.

    Raises:
        NotFound: there is no program.
        Failed: the service did not start; the message has its log.

    >>> with reprise.serve("runs/rollouts", tables={"math": {"capacity": 4096}}) as service:  # doctest: +SKIP
    ...     table = service.table("math")
    """
    program = _program.find()
    folder = Path(tempfile.mkdtemp(prefix="reprise-"))  # for the socket; mode 0700
    fits = len(os.fsencode(folder)) <= MAX_FOLDER
    command = [program, "serve", "--ready-file", "-", "--stop-at-eof", "--http", http]
    command += ["--listen", "off", "--unix", str(folder / "socket")] if fits else ["--listen", "127.0.0.1:0"]
    if data is not None:
        command += ["--data", str(data)]
    if sync is not None:
        command += ["--sync", sync]
    try:
        if data is not None:
            Path(data).mkdir(mode=0o700, parents=True, exist_ok=True)
        service = Service([*command, *arguments], folder, None if data is None else Path(data).resolve(), timeout)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    try:
        service._create_all(tables or {})
    except BaseException:
        service.close()
        raise
    return service


def serve_once(data: str | Path, timeout: float) -> Service:
    """Serve a folder, unless this process serves it already."""
    folder = Path(data).resolve()
    with _starting:
        for service in list(_running):
            if service.data == folder and service.runs():
                return service
        return serve(folder, timeout=timeout)


class Service(Client):
    """A service that this process started with `serve`, and a connection to it.

    Attributes:
        dashboard: the address of its pages; empty without ``http``.
        data: the folder of its tables; None if they are in memory.
        log: path of its log: ``serve.log`` in ``data``, else in a temporary folder, which `close` removes.
        pid: its process id.
    """

    def __init__(self, command: list[str], folder: Path, data: Path | None, timeout: float) -> None:
        self.data = data
        self.log = log = (data or folder) / "serve.log"
        self._folder = folder
        self._owner = os.getpid()
        # The service stops when the other end of its standard input closes. The kernel closes it, however we end;
        # prctl(PR_SET_PDEATHSIG) would do so on Linux alone, and at the end of the thread that called serve.
        standard_input, self._pipe = os.pipe()
        _pipes.add(self._pipe)
        with log.open("ab") as output:
            written = output.tell()
            # A session of its own: Ctrl-C is for us, who may still save the state of training.
            self._process = subprocess.Popen(
                command, stdin=standard_input, stdout=subprocess.PIPE, stderr=output, start_new_session=True
            )
        os.close(standard_input)
        _running.add(self)
        assert self._process.stdout is not None
        with self._process.stdout as announcement:
            try:
                addresses = announcement.readline()  # empty if the program ended
            except BaseException:
                self._stop()
                raise
        if not addresses:
            said = log.read_bytes()[written:].decode(errors="replace")
            code = self._stop()
            raise errors.Failed(f"reprise serve ended with exit code {code}:\n{said}")
        at = json.loads(addresses)
        self.dashboard: str = at.get("http", "")
        self.pid = self._process.pid
        super().__init__(Connection(at.get("unix") or at["grpc"], timeout))

    def __repr__(self) -> str:
        kept = "in memory" if self.data is None else f"tables in {self.data}"
        return f"<reprise.Service at {self.address}, process {self.pid}, {kept}>"

    def close(self) -> None:
        """Close the connection and end the service. Calls in progress have 30 s. In a forked child it does nothing.

        Raises:
            Failed: the service exited with an error; the log is kept.
        """
        with _closing:
            if os.getpid() != self._owner or self not in _running:
                return
            _running.discard(self)
        super().close()
        code = self._stop()
        if code != 0:
            raise errors.Failed(f"the service ended with exit code {code}: {self.log} says why")
        shutil.rmtree(self._folder, ignore_errors=True)

    def runs(self) -> bool:
        """Tell whether this process started the service and it has not ended."""
        return os.getpid() == self._owner and self._process.poll() is None

    def _stop(self) -> int:
        """End the process and return its exit code."""
        _running.discard(self)
        self._process.terminate()
        try:
            code = self._process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        _pipes.discard(self._pipe)
        os.close(self._pipe)
        return code


_starting = threading.RLock()
"""Held while `serve_once` looks for a service and starts one."""

_closing = threading.RLock()
"""Held while a service leaves _running."""

_running: set[Service] = set()
"""The services of this process: alive when the caller drops its reference."""

_pipes: set[int] = set()
"""Descriptors that keep them alive."""


def _close_pipes() -> None:
    """Close the descriptors in a forked child: the service must not outlive its owner because of it."""
    global _starting, _closing
    _starting, _closing = threading.RLock(), threading.RLock()  # another thread may have held them
    while _pipes:
        os.close(_pipes.pop())


def _close_all() -> None:
    for service in list(_running):
        service.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_pipes)
atexit.register(_close_all)
