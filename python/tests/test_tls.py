"""TLS, client certificates and tokens, against the service itself."""

from __future__ import annotations

import pathlib
import shutil
import subprocess
from collections.abc import Callable, Iterator

import pytest
from conftest import Server, rollouts

import reprise

pytestmark = pytest.mark.skipif(
    shutil.which("openssl") is None,
    reason="the certificates are made by openssl, which is not installed here; .ci/run installs it",
)

TOKENS = """
tokens:
  - {name: trainer, token: all-of-it-0123456789, read: ["*"], write: ["*"]}
  - {name: looker, token: only-reads-0123456789, read: ["math"]}
"""


@pytest.fixture(scope="module")
def pem(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A folder with two authorities, what the first signed for the service and for a client, and a client of the
    second."""
    folder = tmp_path_factory.mktemp("pem")

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True, timeout=60)

    new_key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    for name in ("ca", "other-ca"):
        openssl(
            "req",
            "-x509",
            *new_key,
            "-keyout",
            f"{name}.key",
            "-out",
            f"{name}.pem",
            "-subj",
            f"/CN={name}",
            "-days",
            "2",
        )
    for name, ca, extension in (
        ("server", "ca", "subjectAltName=DNS:localhost,IP:127.0.0.1"),
        ("named", "ca", "subjectAltName=DNS:replay.example"),
        ("client", "ca", "extendedKeyUsage=clientAuth"),
        ("stranger", "other-ca", "extendedKeyUsage=clientAuth"),
    ):
        (folder / "extension").write_text(extension)
        openssl("req", *new_key, "-keyout", f"{name}.key", "-out", "request", "-subj", f"/CN={name}")
        openssl("x509", "-req", "-in", "request", "-CA", f"{ca}.pem", "-CAkey", f"{ca}.key", "-CAcreateserial",
                "-extfile", "extension", "-out", f"{name}.pem", "-days", "2")  # fmt: skip
    (folder / "tokens.yaml").write_text(TOKENS)
    (folder / "tokens.yaml").chmod(0o600)
    return folder


@pytest.fixture
def serve(binary: pathlib.Path, pem: pathlib.Path) -> Iterator[Callable[..., Server]]:
    running: list[Server] = []

    def start(*arguments: str, name: str = "server") -> Server:
        certificate = ("--tls-certificate", str(pem / f"{name}.pem"), "--tls-key", str(pem / f"{name}.key"))
        running.append(Server(*certificate, *arguments))
        assert running[-1].address.startswith("grpc+tls://")
        return running[-1]

    yield start
    for server in running:
        server.stop()


def test_everything_works_over_tls_with_a_token(serve: Callable[..., Server], pem: pathlib.Path) -> None:
    server = serve("--tokens", str(pem / "tokens.yaml"))
    with reprise.connect(server.address, token="all-of-it-0123456789", ca=pem / "ca.pem") as client:
        table = client.create("math")
        ids = table.insert(rollouts([5, 9, 3, 7]))
        assert sorted(table.sample(4).ids.tolist()) == ids.tolist()
        with table.stream(2) as stream:
            assert len(next(stream)) == 2
        assert len(client.list()) == 1


def test_a_token_gives_its_rights_and_no_others(serve: Callable[..., Server], pem: pathlib.Path) -> None:
    server = serve("--tokens", str(pem / "tokens.yaml"))
    ca = (pem / "ca.pem").read_bytes()
    with reprise.connect(server.address, token="all-of-it-0123456789", ca=ca) as client:
        for name in ("math", "secret"):
            client.create(name).insert(rollouts([5, 9]))
    with reprise.connect(server.address, token="only-reads-0123456789", ca=ca) as client:
        table = client.table("math")
        assert [info.name for info in client.list()] == ["math"] and table.info().present == 2
        for call in (
            lambda: table.insert(rollouts([3])),
            lambda: table.advance(1),
            lambda: client.drop("math"),
            lambda: client.create("mine"),
            client.table("secret").info,
            lambda: client.table("secret").sample(1),
            lambda: next(client.table("secret").stream(1)),
        ):
            with pytest.raises(reprise.Denied) as caught:
                call()
            assert "looker" in str(caught.value) or "right" in str(caught.value), caught.value
    for token in ("wrong-token-0123456789", None):
        with reprise.connect(server.address, token=token, ca=ca) as client:
            for call in (client.list, client.table("math").info, lambda: client.table("math").insert(rollouts([3]))):
                with pytest.raises(reprise.Unauthenticated, match="token"):
                    call()


def test_a_service_whose_certificate_nobody_vouches_for_is_not_talked_to(
    serve: Callable[..., Server], pem: pathlib.Path
) -> None:
    server = serve()
    for ca in (pem / "other-ca.pem", None):
        with (
            reprise.connect(server.address, ca=ca, timeout=1) as client,
            pytest.raises(reprise.Unavailable, match="(?i)certificate"),
        ):
            client.list()
    with reprise.connect(server.address.replace("+tls", ""), timeout=1) as client, pytest.raises(reprise.Unavailable):
        client.list()


def test_a_certificate_of_another_name_takes_server_name(serve: Callable[..., Server], pem: pathlib.Path) -> None:
    server = serve(name="named")
    with (
        reprise.connect(server.address, ca=pem / "ca.pem", timeout=1) as client,
        pytest.raises(reprise.Unavailable, match="(?i)name"),
    ):
        client.list()
    with reprise.connect(server.address, ca=pem / "ca.pem", server_name="replay.example") as client:
        assert client.list() == []


def test_mutual_tls_wants_a_certificate_that_is_known(serve: Callable[..., Server], pem: pathlib.Path) -> None:
    server = serve("--tls-client-ca", str(pem / "ca.pem"))
    mine = {"certificate": pem / "client.pem", "key": pem / "client.key"}
    with reprise.connect(server.address, ca=pem / "ca.pem", **mine) as client:
        assert len(client.create("math").insert(rollouts([3, 4]))) == 2
    for wrong in ({}, {"certificate": pem / "stranger.pem", "key": pem / "stranger.key"}):
        with (
            reprise.connect(server.address, ca=pem / "ca.pem", timeout=1, **wrong) as client,
            pytest.raises(reprise.Unavailable),
        ):
            client.list()


def test_a_file_that_is_not_there_is_named(pem: pathlib.Path) -> None:
    with pytest.raises(reprise.Invalid, match="^ca: .*nowhere.pem"):
        reprise.connect("grpc+tls://localhost:1", ca=pem / "nowhere.pem")
    with pytest.raises(reprise.Invalid, match="^ca: .*tokens.yaml: want PEM"):
        reprise.connect("grpc+tls://localhost:1", ca=pem / "tokens.yaml")
