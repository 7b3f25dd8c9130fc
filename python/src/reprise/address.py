"""What an address leads to: `connect` to a service, to several, or to a Ray cluster, or else serve a folder."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from . import parts, service
from .arrays import seconds
from .client import Client
from .connection import Connection
from .errors import Invalid


def connect(
    address: str | list[str] | tuple[str, ...],
    *,
    token: str | None = None,
    ca: bytes | str | Path | None = None,
    certificate: bytes | str | Path | None = None,
    key: bytes | str | Path | None = None,
    server_name: str | None = None,
    timeout: float = 60.0,
    trainer: int = 0,
    trainers: int = 1,
) -> Client:
    """Connect to a replay service, or to several that hold tables in parts. Nothing is sent before the first call.

    Args:
        address: ``grpc://host:port``, ``grpc+tls://host:port`` or ``grpc+unix:///path/of/socket``. A list of them, or a
            str with commas, names services whose tables are parts of larger ones: name them in the same order
            everywhere. ``ray:NAME`` names services in the Ray cluster that this process is in (`reprise.ray`).
        token: bearer token, as in the service's tokens file.
        ca: PEM of the authorities that may sign the service's certificate, as bytes or a path; by default those of
            gRPC.
        certificate, key: PEM of the client's own certificate, for mutual TLS.
        server_name: name in the service's certificate, if it is not the address's host.
        timeout: seconds that a call takes at most, retries and waiting included, unless the call has its own.
        trainer, trainers: of several services, which parts draws with scope ``own`` come from: those whose number is
            trainer modulo trainers; with more trainers than parts, the part trainer modulo parts.

    >>> with reprise.connect("grpc://127.0.0.1:7447") as client:  # doctest: +SKIP
    ...     table = client.create("math", capacity=4096)
    """
    if seconds("timeout", timeout) == 0:
        raise Invalid(f"timeout: {timeout}: want more than 0 seconds")
    if (certificate is None) != (key is None):
        raise Invalid("certificate, key: only one of them: want both, or neither")

    if isinstance(address, str) and address.startswith("ray:"):
        from . import ray  # which needs Ray

        return ray.connect(address.removeprefix("ray:"), trainer=trainer, trainers=trainers, timeout=timeout)

    def dial(one: Any) -> Connection:
        return Connection(one, timeout, token, ca, certificate, key, server_name)

    if isinstance(address, str) and "," in address:
        address = address.split(",")
    if not isinstance(address, (list, tuple)):
        return Client(dial(address))
    return parts.Client(address, dial, trainer, trainers)


def connect_or_serve(
    address: str | None, data: str | Path, *, token: str | None = None, timeout: float = 60.0
) -> Client:
    """Connect to an address, or to that in the environment's REPRISE_ADDRESS; without either serve a folder. A folder
    that this process serves already is not served twice."""
    address = address or os.environ.get("REPRISE_ADDRESS")
    if address:
        return connect(address, token=token, timeout=timeout)
    return service.serve_once(data, timeout)
