"""A service that belongs to a process: how it starts, and every way in which it ends."""

from __future__ import annotations

import os
import pathlib
import select
import signal
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

import pytest
from conftest import ROOT, Server, rollouts

import reprise
from reprise import _program
from reprise.address import connect_or_serve

needs_pidfd = pytest.mark.skipif(
    not hasattr(os, "pidfd_open"), reason="only Linux can wait for the end of a process that is no child"
)


@pytest.fixture(autouse=True)
def program(binary: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPRISE", str(binary))
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "python" / "src"))


def test_two_lines_make_a_table() -> None:
    table = (service := reprise.serve(http="127.0.0.1:0")).create("math", capacity=4)
    table.insert(rollouts([4, 6]), group_size=2)
    assert table.sample(2).rewards.sum() == 1
    assert service.address == f"grpc+unix://{service.log.parent}/socket"
    assert service.dashboard.startswith("http://127.0.0.1:")
    assert f"serving {service.address}" in service.log.read_text()
    service.close()
    service.close()
    assert not service.log.parent.exists(), "the temporary folder is left"
    with pytest.raises(ProcessLookupError):
        os.kill(service.pid, 0)


def test_a_long_wait_keeps_its_connection(server: Server) -> None:
    """The client pings every 3 s while it waits, and gRPC ends a connection at the third ping that comes too early."""

    def wait(client: reprise.Client) -> None:
        table = client.create("waits", capacity=4)
        with pytest.raises(reprise.Starved):
            table.sample(4, timeout=12)
        table.insert(rollouts([4, 6]), group_size=2)
        assert table.sample(2, timeout=0).rewards.sum() == 1

    with reprise.serve() as socket, reprise.connect(server.address) as tcp, ThreadPoolExecutor() as pool:
        for waiting in [pool.submit(wait, socket), pool.submit(wait, tcp)]:
            waiting.result()


def test_what_is_in_the_folder_is_there_again(tmp_path: pathlib.Path) -> None:
    data = tmp_path / "new" / "data"
    with reprise.serve(data, tables={"math": reprise.Definition(capacity=4)}, sync="off") as service:
        service.table("math").insert(rollouts([4, 6]), group_size=2)
    with pytest.raises(reprise.Exists, match="capacity"):
        reprise.serve(data, tables={"math": {"capacity": 8}})
    with reprise.serve(data, tables={"math": {"capacity": 4}}) as service:
        assert service.table("math").stats().present == 2
    assert service.log == data / "serve.log"
    assert service.log.read_text().count("\nstopped in ") == 3


def test_a_service_that_does_not_start_says_why(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(reprise.Failed, match="exit code 1:\n.*\n?.*sync: sometimes: want always"):
        reprise.serve(sync="sometimes")
    assert not list(tmp_path.iterdir())


def test_a_service_that_was_killed_is_an_error_at_its_end(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    service = reprise.serve()
    os.kill(service.pid, signal.SIGKILL)
    with pytest.raises(reprise.Failed, match="exit code -9: .*serve.log says why"):
        service.close()
    assert service.log.exists()


def test_where_a_socket_has_no_room_it_takes_a_free_port(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = tmp_path / ("long" * 25)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    with reprise.serve() as service:
        assert service.address.startswith("grpc://127.0.0.1:")
        assert service.list() == []


class Owner:
    """A Python process that calls serve and then does as a script says; it goes on when its input has a line."""

    def __init__(self, script: str, data: pathlib.Path, keep: tuple[int, ...] = ()) -> None:
        begin = "import atexit, os, signal, sys, reprise\n"
        begin += "service = reprise.serve(sys.argv[1])\nprint(service.pid, flush=True)\n"
        self.process = subprocess.Popen(
            [sys.executable, "-c", begin + script, str(data)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, pass_fds=keep,
            env=os.environ | {"TMPDIR": str(data)},
        )  # fmt: skip
        assert self.process.stdout is not None
        self.service = os.pidfd_open(int(self.process.stdout.readline()))

    def go_on(self) -> str:
        """Let the script go on to its end, and return what it printed."""
        printed, failed = self.process.communicate("\n", timeout=120)
        assert "Traceback" not in failed, failed
        return printed

    def assert_the_service_ends(self) -> None:
        ended, _, _ = select.select([self.service], [], [], 120)
        os.close(self.service)
        assert ended, "the service outlives its owner"


@needs_pidfd
@pytest.mark.parametrize(
    "end", ["pass", "sys.exit(3)", "os._exit(1)", "os.kill(os.getpid(), signal.SIGKILL)"],
)  # fmt: skip
def test_it_ends_with_its_owner(end: str, tmp_path: pathlib.Path) -> None:
    owner = Owner("table = service.create('math', capacity=4)\ninput()\n" + end, tmp_path)
    owner.go_on()
    owner.assert_the_service_ends()
    assert "stopped in " in (tmp_path / "serve.log").read_text(), "it did not flush its journals"


@needs_pidfd
def test_a_forked_child_neither_ends_it_nor_keeps_it(tmp_path: pathlib.Path) -> None:
    read, write = os.pipe()
    owner = Owner(
        f"""
if os.fork() == 0:
    service.close()
    atexit._run_exitfuncs()
    os._exit(0)         # gRPC does not survive a fork: leaving by sys.exit hangs
os.wait()
service.create("math", capacity=4)
if os.fork() == 0:      # outlives its parent
    os.closerange(0, 3)
    os.read({read}, 1)  # ends with the test
    os._exit(0)
print(len(service.list()), flush=True)
input()
os.kill(os.getpid(), signal.SIGKILL)
""",
        tmp_path,
        keep=(read,),
    )
    assert owner.go_on() == "1\n"
    owner.assert_the_service_ends()
    os.close(write)
    os.close(read)


def test_threads_share_one_service_and_end_it_once(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("REPRISE_ADDRESS", raising=False)
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda _: connect_or_serve(None, tmp_path / "data"), range(8)))
        assert all(each is found[0] for each in found)
        assert list(threads.map(lambda each: each.close(), found)) == [None] * 8


def test_a_failed_start_leaves_no_temporary_folder(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError):
        reprise.serve(tmp_path / "file" / "data")
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


def test_children_connect_by_the_address() -> None:
    with reprise.serve(tables={"math": {"capacity": 4}}) as service:
        code = "import reprise, sys; print(reprise.connect(sys.argv[1]).list()[0].name)"
        ran = subprocess.run(
            [sys.executable, "-c", code, service.address], capture_output=True, text=True, timeout=120
        )
        assert ran.stdout == "math\n", ran.stderr


def executable(path: pathlib.Path, text: str) -> str:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


def test_the_program_is_found(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, binary: pathlib.Path) -> None:
    assert _program.find() == str(binary)
    monkeypatch.setenv("REPRISE", "/nowhere")
    with pytest.raises(reprise.NotFound, match="REPRISE: /nowhere: no program: want the path"):
        reprise.serve()
    monkeypatch.delenv("REPRISE")
    executable(tmp_path / "venv" / "reprise", "#!/usr/bin/python\n")  # the script of this package
    monkeypatch.setenv("PATH", str(tmp_path / "venv"))
    with pytest.raises(reprise.NotFound, match="run pip install ./python in a clone"):
        reprise.serve()
    found = executable(tmp_path / "bin" / "reprise", "\x7fELF")
    monkeypatch.setenv("PATH", f"{tmp_path / 'venv'}:{tmp_path / 'bin'}")
    assert _program.find() == found
    within = executable(tmp_path / "within" / "reprise", "\x7fELF")
    monkeypatch.setattr(_program, "WITHIN", pathlib.Path(within))
    assert _program.find() == within


def test_python_m_reprise_is_the_program(binary: pathlib.Path) -> None:
    def run(*command: str) -> tuple[int, str, str]:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=120)
        return ran.returncode, ran.stdout, ran.stderr

    for arguments in ["serve", "--help"], ["serve", "--nonsense"], []:
        assert run(sys.executable, "-m", "reprise", *arguments) == run(str(binary), *arguments)
