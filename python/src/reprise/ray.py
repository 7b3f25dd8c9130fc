"""Tables in parts, placed by Ray: `start` runs a service on each of several nodes, and any process of the Ray cluster
finds them by name.

    import ray, reprise.ray

    ray.init(address="auto")
    parts = reprise.ray.start(parts=4, tables={"math": {"capacity": 65536}})

    @ray.remote
    def trainer(rank):
        with reprise.ray.connect("replay", trainer=rank, trainers=2) as client:
            batch = client.table("math").sample(512)

Each part is an actor with a process `reprise serve`. Ray restarts an actor whose process or node dies, on another node
if need be, and clients ask Ray for the new address. Services speak TLS with a certificate made by `start`, and take its
token alone; clients get both from the actors. So whoever may run code in the Ray cluster may read and write the tables,
and nobody else. docs/ray.md is the guide.

It needs the extra `ray` of this package, and the package on every node.
"""

from __future__ import annotations

import contextlib
import ipaddress
import json
import os
import secrets
import socket
import subprocess
import tempfile
import threading
import time
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, cast

import ray
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from ray.exceptions import RayError
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from . import _program, client, errors
from .connection import Connection, Deadline, log
from .definition import Definition, Keys
from .parts import Client as ClientOfParts
from .service import Service

__all__ = ["Parts", "connect", "shutdown", "start"]

NAMESPACE = "reprise"
"""Ray's namespace of the actors: jobs without a namespace have each their own, and would not find them."""

SERVER_NAME = "replay.reprise"
"""The name in the certificate: addresses are known only once a service listens."""

NOWHERE = "grpc+tls://127.0.0.1"
"""Stands for the host of a part that is down when a client connects. Nothing listens on its port, which is the part's
number plus 1."""

LOOK_UP = 3.0
"""Seconds that a look-up of addresses waits for actors that do not answer."""

LOCKED = 30.0
"""Seconds that a restarted part waits until the service before it let go of the data."""


@dataclass(frozen=True)
class _Plan:
    """What the parts of a name have in common."""

    name: str
    parts: int
    replicas: int
    settings: Mapping[str, Any]
    arguments: Sequence[str]
    timeout: float
    certificate: bytes
    key: bytes = field(repr=False)
    token: str = field(repr=False)
    secret: str = field(repr=False)
    """Of the cluster that replicas form."""


class Parts:
    """The parts that `start` started. Leaving a ``with`` block shuts them down."""

    def __init__(self, name: str, actors: list[Any], group: PlacementGroup) -> None:
        self.name = name
        self._actors, self._group = actors, group

    def __enter__(self) -> Parts:
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()

    def connect(self, *, trainer: int = 0, trainers: int = 1, timeout: float = 60.0) -> client.Client:
        """Connect to them, as `reprise.ray.connect` does."""
        return connect(self.name, trainer=trainer, trainers=trainers, timeout=timeout)

    def shutdown(self, *, timeout: float = 60.0) -> None:
        """End the services, which finish their calls and save what they keep, then their actors and the placement
        group. Calls that still run after the timeout are cut off."""
        stopping = [actor.stop.remote() for actor in self._actors]
        if stopping:
            ray.wait(stopping, num_returns=len(stopping), timeout=timeout)
        for actor in self._actors:
            ray.kill(actor, no_restart=True)
        remove_placement_group(self._group)
        self._actors = []
        _started.discard(self)


_started: set[Parts] = set()
"""The parts of this process: Ray ends an actor when the last handle is gone, and the caller may drop its reference."""


def start(
    parts: int = 4,
    *,
    replicas: int = 1,
    name: str = "replay",
    tables: Mapping[str, Definition | Keys] | None = None,
    data: str | Path | None = None,
    sync: str | None = None,
    cpus: float = 1.0,
    memory: int | None = None,
    resources: Mapping[str, float] | None = None,
    detached: bool = False,
    arguments: Sequence[str] = (),
    timeout: float = 120.0,
) -> Parts:
    """Start services on nodes of the Ray cluster that this process is connected to.

    Each goes to a node of its own if enough nodes have room for one; otherwise nodes share, with a warning.

    Args:
        parts: services, 1 to 256.
        replicas: with 3 the services form a cluster that keeps each rollout on three nodes, in ``data``.
        name: by which `connect` finds them.
        tables: to create, by name: a `Definition`, or its keys; of all parts together.
        data: folder on each node for journals; those of a part are in ``data/NAME.I``. A part that restarts where its
            journals are has its rollouts again. Without it rollouts are in memory, and a part that restarts is empty.
        sync: what an acknowledged insertion survives, with ``data``: as in `reprise.serve`.
        cpus: that a part reserves.
        memory: bytes that a part reserves, and uses at most. Without it Ray reserves none, and a service uses at most
            three quarters of its node's.
        resources: further resources that a part reserves, such as ``{"storage_node": 1}``.
        detached: whether the parts go on when the job that starts them ends; `shutdown` ends them.
        arguments: more flags of ``reprise serve``.
        timeout: seconds until all serve.

    Raises:
        Invalid: an argument is wrong, or Ray is not connected.
        Exists: there are parts of that name.
        Failed: a service did not start; the message has its log.
        Timeout: Ray found no room within the timeout.
    """
    _check_ray()
    if not 1 <= parts <= 256:
        raise errors.Invalid(f"parts: {parts}: want 1 to 256")
    if replicas not in (1, 3, 5) or replicas > parts:
        raise errors.Invalid(f"replicas: {replicas}: want 1, 3 or 5, and at most as many as parts ({parts})")
    if replicas > 1 and data is None:
        raise errors.Invalid(f"data: None: want a folder on each node for the copies, with replicas={replicas}")
    if replicas > 1 and sync not in (None, "always"):
        raise errors.Invalid(f"sync: {sync!r}: want 'always' or None with replicas={replicas}: copies are synced")
    if cpus <= 0:
        raise errors.Invalid(f"cpus: {cpus}: want more than 0")
    if _parts(name):
        raise _taken(name)
    settings = {"data": None if data is None else str(data), "sync": sync, "memory_bytes": memory}
    certificate, key = _certificate()  # signs those of the parts
    plan = _Plan(name, parts, replicas, settings, list(arguments), timeout, certificate, key,
                 token=secrets.token_hex(32), secret=secrets.token_hex(32))  # fmt: skip
    bundle = {"CPU": cpus, **({"memory": memory} if memory else {}), **(resources or {})}
    lifetime = "detached" if detached else None
    group = placement_group([bundle] * parts, strategy=_strategy(bundle, parts), lifetime=lifetime)
    started, deadline = Parts(name, [], group), Deadline(timeout)
    try:
        if not group.wait(deadline.left()):
            raise errors.Timeout(
                f"parts: {parts}: Ray found no room for bundles of {bundle} within {timeout:g} s: add nodes, or ask "
                "for fewer parts or less for each"
            )
        for part in range(parts):
            at = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=part)
            remote = ray.remote(_Part).options(
                name=f"{name}.{part}", namespace=NAMESPACE, lifetime=lifetime, max_restarts=-1, scheduling_strategy=at,
                num_cpus=cpus, memory=memory, resources=dict(resources or {}))  # fmt: skip
            started._actors.append(remote.remote(plan, part))
        peers = ray.get([actor.peer.remote() for actor in started._actors], timeout=deadline.left())
        ray.get([actor.serve.remote(peers) for actor in started._actors], timeout=deadline.left())
        if tables:
            with connect(name, timeout=max(deadline.left(), 1.0)) as connected:
                connected._create_all(tables)
    except BaseException as error:
        started.shutdown(timeout=LOOK_UP)
        if type(error) is ValueError and "already" in str(error):  # another start took the name meanwhile
            raise _taken(name) from error
        if isinstance(error, ray.exceptions.GetTimeoutError):
            raise errors.Timeout(f"the parts of {name} did not serve within {timeout:g} s: see Ray's logs") from error
        if isinstance(error, RayError):
            raise errors.Failed(f"a part of {name} did not start: {error}") from error
        raise
    _started.add(started)
    return started


def connect(name: str = "replay", *, trainer: int = 0, trainers: int = 1, timeout: float = 60.0) -> client.Client:
    """Connect to the parts of a name, from any process of the Ray cluster. The client follows parts that move.

    Args:
        name: as given to `start`.
        trainer, trainers, timeout: as in `reprise.connect`.

    Raises:
        NotFound: there are no parts of that name.
        Unavailable: none of them answers within the timeout.
    """
    plan = _plan(name, timeout)
    found = _ask(name, "address", range(plan.parts), LOOK_UP)
    parts = {found.get(part, f"{NOWHERE}:{part + 1}"): part for part in range(plan.parts)}

    def dial(address: str) -> Connection:  # in a cluster also to addresses that it names
        where = _Where(name, parts[address]) if address in parts else None
        return Connection(address, timeout, plan.token, plan.certificate, server_name=SERVER_NAME, where=where)

    if plan.parts == 1:
        return client.Client(dial(*parts))
    return ClientOfParts(list(parts), dial, trainer, trainers)


def shutdown(name: str = "replay", *, timeout: float = 60.0) -> None:
    """End the parts of a name, as `Parts.shutdown` does, from any process of the Ray cluster.

    Raises:
        NotFound: there are none.
        Unavailable: none of them answers within the timeout, and nothing was ended.
    """
    _plan(name, timeout)
    group = next(iter(_ask(name, "group", _parts(name), timeout, enough=1).values()))
    actors = [ray.get_actor(f"{name}.{part}", namespace=NAMESPACE) for part in _parts(name)]
    Parts(name, actors, group).shutdown(timeout=timeout)


class _Part:
    """The actor of a part: a process of the service. It ends with its service, so that Ray restarts both."""

    def __init__(self, plan: _Plan, part: int) -> None:
        self._plan, self._part = plan, part
        self._host = ray.util.get_node_ip_address()
        self._service: Service | None = None
        self._stopping, self._starting = False, threading.Lock()
        self._peer = f"{self._host}:{_free_port(self._host)}" if plan.replicas > 1 else ""
        self._restarted = ray.get_runtime_context().was_current_actor_reconstructed
        if self._restarted and plan.replicas > 1:
            threading.Thread(target=self._rejoin, name="reprise-part", daemon=True).start()
        elif self._restarted:  # nobody calls serve
            self.serve([])

    def plan(self) -> _Plan:
        """Return what all parts have in common, but for what clients need not know."""
        return replace(self._plan, key=b"", secret="")

    def peer(self) -> str:
        """Return HOST:PORT where the other nodes of a cluster reach this one."""
        return self._peer

    def group(self) -> PlacementGroup | None:
        """Return the placement group of the parts."""
        return ray.util.get_current_placement_group()

    def address(self) -> str:
        """Return where clients reach the service."""
        if self._service is None:
            raise errors.Unavailable(f"part {self._part} of {self._plan.name} does not serve yet")
        return self._service.address

    def pid(self) -> int:
        """Return the process id of the service."""
        if self._service is None:
            raise errors.Unavailable(f"part {self._part} of {self._plan.name} does not serve yet")
        return self._service.pid

    def _rejoin(self) -> None:
        """Start the service again as a node of the cluster, once enough others are known. Parts that restart at the
        same time answer `peer` before they serve. If it cannot be started the actor ends, and Ray restarts it."""
        others = [other for other in range(self._plan.parts) if other != self._part]
        deadline = Deadline(LOCKED)
        while self._service is None and not self._stopping:
            try:
                peers = _ask(self._plan.name, "peer", others, LOOK_UP).values()
                if len(peers) + 1 >= self._plan.replicas:
                    self.serve([*peers, self._peer])
            except Exception as error:
                log.warning("part %d of %s does not start: %s", self._part, self._plan.name, error)
                if not isinstance(error, errors.Failed) or deadline.left() == 0:  # the one before may hold the data
                    os._exit(1)
            time.sleep(1)

    def serve(self, peers: Sequence[str]) -> None:
        """Start the service, unless a restart has."""
        with self._starting:
            if self._service is not None:
                return
            deadline = Deadline(LOCKED if self._restarted and self._plan.replicas == 1 else 0)
            while self._service is None:
                try:
                    self._service = self._start(peers)
                except errors.Failed:  # a service whose actor was killed may still finish, and hold the data
                    if deadline.left() == 0:
                        raise
                    time.sleep(1)
        threading.Thread(target=self._watch, args=(self._service,), name="reprise-part", daemon=True).start()

    def stop(self) -> None:
        """End the service, and let calls in progress finish."""
        self._stopping = True
        if self._service is not None:
            self._service.close()

    def _start(self, peers: Sequence[str]) -> Service:
        plan, me = self._plan, f"{self._plan.name}.{self._part}"
        folder = Path(tempfile.mkdtemp(prefix="reprise-"))  # mode 0700
        # The kernel ends this input, however the actor ends: then no key stays on the disk. Who reads it is no child
        # and of another process group, since Ray kills these with the actor.
        remover = 'exec 3<&0; { cat <&3; rm -rf "$0"; } >/dev/null 2>&1 &'
        self._remover = subprocess.Popen(
            ["sh", "-c", remover, str(folder)], stdin=subprocess.PIPE, start_new_session=True
        )
        self._remover.wait()

        def private(name: str, content: bytes | str) -> str:
            (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
            (folder / name).chmod(0o600)
            return str(folder / name)

        host = f"[{self._host}]" if ":" in self._host else self._host
        rights = {"name": "ray", "token": plan.token, "read": ["*"], "write": ["*"]}
        settings = {key: value for key, value in plan.settings.items() if value is not None}
        certificate, key = _certificate((plan.certificate, plan.key), self._host)
        settings |= {
            "listen": f"{host}:0",
            "http": "off",
            "stop_timeout": "5s",
            "tls": {
                "certificate": private("certificate.pem", certificate),
                "key": private("key.pem", key),
                "client_ca": private("authority.pem", plan.certificate),
                "clients": "optional",
            },
            "tokens": private("tokens.yaml", json.dumps({"tokens": [rights]})),
        }
        data = None
        if "data" in settings:
            data = Path(settings["data"], me)
            data.mkdir(mode=0o700, parents=True, exist_ok=True)
            settings["data"] = str(data)
        if plan.replicas > 1:
            settings["cluster"] = {
                "node": f"part-{self._part}", "listen": self._peer, "peers": list(peers),
                "domain": ray.get_runtime_context().get_node_id(), "replicas": plan.replicas,
                "secret_file": private("secret", plan.secret)}  # fmt: skip
        elif self._restarted:
            settings["tables"] = self._tables()
        # JSON is YAML, too.
        config = private("serve.yaml", json.dumps(settings))
        command = [_program.find(), "serve", "--ready-file", "-", "--stop-at-eof", "--config", config]
        return Service([*command, *plan.arguments], folder, data, plan.timeout)

    def _tables(self) -> list[dict[str, Any]]:
        """Return the definitions of another part's tables, for a restart without the journals: the tables are empty,
        but there. Seeds differ by the part's number."""
        others = [part for part in range(self._plan.parts) if part != self._part]
        for part, address in _ask(self._plan.name, "address", others, LOOK_UP).items():
            with contextlib.suppress(errors.Error), _dial(self._plan, address) as peer:
                return [{**table.definition, "seed": table.definition.get("seed", 0) + self._part - part}
                        for table in peer.list()]  # fmt: skip
        return []

    def _watch(self, service: Service) -> None:
        """End the actor when the service ends by itself."""
        service._process.wait()
        if not self._stopping:
            os._exit(1)


def _check_ray() -> None:
    if not ray.is_initialized():  # otherwise Ray would start a cluster that listens on all addresses
        raise errors.Invalid('Ray is not connected: call ray.init(address="auto") first')


def _taken(name: str) -> errors.Exists:
    return errors.Exists(f"name: {name}: there are parts of that name: shut them down (reprise.ray.shutdown), or "
                         "choose another")  # fmt: skip


def _strategy(bundle: Mapping[str, float], parts: int) -> str:
    """Return Ray's strategy: a node for each part if enough have room, empty as they may be."""
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    room = sum(all(node.get(key, 0) >= value for key, value in bundle.items()) for node in nodes)
    if room >= parts:
        return "STRICT_SPREAD"
    warnings.warn(f"parts: {parts}: {room} nodes have {dict(bundle)}, so parts share nodes, and a node that is lost "
                  "takes several with it", stacklevel=3)  # fmt: skip
    return "SPREAD"


def _parts(name: str) -> list[int]:
    """Return the numbers of the parts of a name that are alive or will be restarted."""
    named = ray.util.list_named_actors(all_namespaces=True)
    ours = [actor["name"].rpartition(".") for actor in named if actor["namespace"] == NAMESPACE]
    return sorted(int(part) for of, _, part in ours if of == name and part.isdecimal())


def _plan(name: str, timeout: float) -> _Plan:
    _check_ray()
    parts = _parts(name)
    if not parts:
        raise errors.NotFound(f"name: {name}: no parts of that name: reprise.ray.start makes them")
    plans = _ask(name, "plan", parts, timeout, enough=1)
    if not plans:
        raise errors.Unavailable(f"none of the {len(parts)} parts of {name} answered within {timeout:g} s")
    plan: _Plan = next(iter(plans.values()))
    return plan


def _ask(name: str, method: str, parts: Iterable[int], timeout: float, enough: int | None = None) -> dict[int, Any]:
    """Call a method of some parts at once, and return the answers by part of those that answered in time."""
    waiting: dict[Any, int] = {}
    answers: dict[int, Any] = {}
    deadline = Deadline(timeout)
    for part in parts:
        with contextlib.suppress(ValueError):  # it died for good
            actor = ray.get_actor(f"{name}.{part}", namespace=NAMESPACE)
            waiting[getattr(actor, method).remote()] = part
    while waiting and len(answers) < (enough or len(answers) + 1):
        ready, _ = ray.wait(list(waiting), timeout=deadline.left())
        if not ready:
            break
        part = waiting.pop(ready[0])
        with contextlib.suppress(RayError):
            answers[part] = ray.get(ready[0])
    return answers


class _Where:
    """Asks Ray where a part is. A connection calls it before each attempt to reach a part that is away, so it hardly
    waits: an answer that takes longer is there for the next call."""

    def __init__(self, name: str, part: int) -> None:
        self._name, self._part = name, part
        self._asked: Any = None
        self._lock = threading.Lock()

    def __call__(self) -> str | None:
        with self._lock:
            try:
                if not ray.is_initialized():
                    return None
                if self._asked is None:
                    self._asked = ray.get_actor(f"{self._name}.{self._part}", namespace=NAMESPACE).address.remote()
                if not ray.wait([self._asked], timeout=0.2)[0]:
                    return None
                asked, self._asked = self._asked, None
                address: str = ray.get(asked)
                return address
            except Exception as error:  # of many kinds: the part died for good, is being restarted, or Ray's head died
                log.debug("part %d of %s: Ray does not say where it is: %s", self._part, self._name, error)
                return None


def _dial(plan: _Plan, address: str) -> client.Client:
    return client.Client(Connection(address, LOOK_UP, plan.token, plan.certificate, server_name=SERVER_NAME))


def _free_port(host: str) -> int:
    """Return a port that is free now: the nodes of a cluster must know each other's before they start."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as listener:
        listener.bind((host, 0))
        port: int = listener.getsockname()[1]
        return port


def _certificate(authority: tuple[bytes, bytes] | None = None, host: str = "127.0.0.1") -> tuple[bytes, bytes]:
    """Return a certificate and its key, as PEM: an authority's, or one that an authority signs for a host."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, SERVER_NAME)])
    issuer, signer, purpose = name, key, x509.BasicConstraints(ca=True, path_length=0)
    if authority is not None:
        signer = cast(ec.EllipticCurvePrivateKey, serialization.load_pem_private_key(authority[1], None))
        issuer, purpose = x509.load_pem_x509_certificate(authority[0]).subject, x509.BasicConstraints(False, None)
        name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, host)])
    hosts = [x509.DNSName(SERVER_NAME), x509.IPAddress(ipaddress.ip_address(host))]
    now = datetime.now(timezone.utc)
    certificate = (
        x509.CertificateBuilder(issuer, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))  # clocks differ between nodes
        .not_valid_after(now + timedelta(days=3650))
        .add_extension(purpose, critical=True)
        .add_extension(x509.SubjectAlternativeName(hosts), critical=False)
        .sign(signer, hashes.SHA256())
    )
    unencrypted = serialization.NoEncryption()
    private = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, unencrypted)
    return certificate.public_bytes(serialization.Encoding.PEM), private
