"""Compare Reprise with what else keeps rollouts between generators and trainers: speed, memory, what a kill -9 loses.

README.md says how. Ray listens on every address of the machine, so it runs in a network namespace with loopback alone.
"""

import argparse
import datetime
import json
import os
import pathlib
import platform
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from figures import BASE, Row, Turn, goals, quantile, rows
from process import ENVIRONMENT, Failed, Process, Skipped, busy_seconds, memory_bytes, processor_seconds
from rollouts import BATCH, BYTES_PER_TOKEN, GROUP, POOL

Settings = dict[str, Any]
INSERTS = {"insert 8": GROUP, "insert 64": BATCH}
OPERATIONS = (*INSERTS, "sample", "both")
QUIET = 0.2  # cores that other programs may keep busy


@dataclass(frozen=True)
class Contender:
    """A peer in one configuration."""

    name: str
    peer: str  # of adapters
    server: str | None  # of adapters; None: producer and consumer are threads of one process
    settings: Settings = field(default_factory=dict)
    operations: tuple[str, ...] = OPERATIONS


def aof(sync: str) -> Settings:
    return {"config": ["--save", "", "--appendonly", "yes", "--appendfsync", sync]}


CONTENDERS = [
    Contender(BASE, "reprise", "reprise"),
    Contender(f"{BASE}, stream", "reprise", "reprise", {"stream": True}, ("sample", "both")),
    Contender(f"{BASE}, sync interval", "reprise", "reprise", {"sync": "interval"}, tuple(INSERTS)),
    Contender(f"{BASE}, sync always", "reprise", "reprise", {"sync": "always"}, tuple(INSERTS)),
    Contender("transferqueue", "transferqueue", "ray"),
    Contender("reverb", "reverb", "reverb"),
    Contender("redis", "redis", "redis"),
    Contender("redis, appendfsync always", "redis", "redis", aof("always"), tuple(INSERTS)),
    Contender("ray actor", "ray", "ray"),
    Contender("torchrl on ray", "torchrl", "ray"),
    Contender("torchrl in process", "torchrl", None),
]
CRASHES = [
    Contender(f"{BASE}, in memory", "reprise", "reprise"),
    Contender(f"{BASE}, sync always", "reprise", "reprise", {"sync": "always"}),
    Contender(f"{BASE}, sync interval", "reprise", "reprise", {"sync": "interval"}),
    Contender(f"{BASE}, sync off", "reprise", "reprise", {"sync": "off"}),
    Contender("redis, as it comes", "redis", "redis", {"config": []}),
    Contender("redis, appendfsync everysec", "redis", "redis", aof("everysec")),
    Contender("redis, appendfsync always", "redis", "redis", aof("always")),
    Contender("reverb", "reverb", "reverb"),
    Contender("reverb, saved halfway", "reverb", "reverb", {"save": True}),
    Contender("transferqueue", "transferqueue", "ray"),
    Contender("ray actor", "ray", "ray"),
]


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", metavar="NAME", nargs="+", default=[""],
                        help="contenders whose names begin so, and reprise")  # fmt: skip
    parser.add_argument("--parts", nargs="+", choices=["speed", "crash"], default=["speed", "crash"])
    parser.add_argument("--lengths", metavar="L", type=int, nargs="+", default=[512, 4096], help="tokens of a rollout")
    parser.add_argument("--rounds", metavar="N", type=int, default=6, help="that count; one more comes first")
    parser.add_argument("--seconds", metavar="S", type=float, default=0.3, help="of a measurement")
    parser.add_argument("--quick", action="store_true", help="two rounds of 0.1 s, short waits: to see that all works")
    parser.add_argument("--json", metavar="FILE", type=pathlib.Path, help="write the figures there too")
    parser.add_argument("--dir", metavar="DIR", type=pathlib.Path, default="runs", help="on the disk to measure")
    parser.add_argument("--reverb-python", metavar="FILE", default=".venv-reverb/bin/python", help="that has dm-reverb")
    parser.add_argument("--before", metavar="FILE", type=os.path.abspath,
                        help="an older build of reprise, to insert into in turn with this one")  # fmt: skip
    given = parser.parse_args()
    if given.before:
        for sync in ("interval", "always"):
            settings = {"sync": sync, "program": given.before}
            CONTENDERS.append(Contender(f"{BASE} before, {sync}", "reprise", "reprise", settings, tuple(INSERTS)))
    if given.quick:
        given.rounds, given.seconds = 2, 0.1
    given.wait = 0.2 if given.quick else 2
    given.only = tuple(given.only)
    for name in given.only:
        if not any(c.name.startswith(name) for c in CONTENDERS + CRASHES):
            parser.error(f"--only: {name}: want the beginnings of {', '.join(c.name for c in CONTENDERS)}")
    if not sys.platform.startswith("linux"):
        parser.error("it reads processor time and memory of processes from /proc: run it on Linux")
    return given


class Bench:
    """Starts processes, and remembers which contenders were skipped and which failed."""

    def __init__(self, given: argparse.Namespace, folder: str) -> None:
        self.given, self.folder = given, pathlib.Path(folder).resolve()
        self.versions: dict[str, str] = {}
        self.skipped: dict[str, str] = {}
        self.failed: dict[str, str] = {}
        if not alone():
            why = "Ray needs a network namespace, which unshare and ip cannot make here"
            self.skipped = {c.name: why for c in self.chosen(CONTENDERS + CRASHES) if c.server == "ray"}

    def chosen(self, contenders: list[Contender]) -> list[Contender]:
        wanted = [c for c in contenders if c.name.startswith(self.given.only) or c.name == BASE]
        return [c for c in wanted if c.name not in self.skipped and c.name not in self.failed]

    @contextmanager
    def guard(self, contender: Contender, doing: str) -> Iterator[None]:
        """Go on with the next contender if this one cannot."""
        try:
            yield
        except Skipped as why:
            self.skipped[contender.name] = str(why)
        except (Failed, BrokenPipeError) as error:
            self.failed.setdefault(contender.name, f"{doing}: {error}")

    def start(self, role: str, peer: str, settings: Settings) -> Process:
        python = self.given.reverb_python if peer == "reverb" else sys.executable
        process = Process(python, role, peer, settings, self.folder / f"{peer}.log")
        self.versions |= process.ready["versions"]
        return process

    def server(self, contender: Contender, settings: Settings, stack: ExitStack) -> Process | None:
        if contender.server is None:
            return None
        folder = tempfile.mkdtemp(dir=self.folder)
        process = self.start("serve", contender.server, {"folder": folder, **settings, **contender.settings})
        stack.callback(process.end)
        return process

    def client(self, contender: Contender, settings: Settings, server: Process | None, stack: ExitStack) -> Process:
        found = server.ready["settings"] if server else {}
        process = self.start("client", contender.peer, {**settings, **contender.settings, **found})
        stack.callback(process.end)
        return process


class Player:
    """A contender with its processes, which takes its turn in every round."""

    def __init__(self, contender: Contender, server: Process | None, producer: Process, consumer: Process) -> None:
        self.contender, self.server, self.producer, self.consumer = contender, server, producer, consumer
        self.turns: dict[str, dict[int, Turn]] = {}

    def fill(self, capacity: int, wait: float) -> float:
        """Fill an empty table. Return the bytes that server and producer grew by for each rollout after the first."""
        used = []
        for count in (POOL, capacity - POOL):
            self.producer.ask("fill", count=count, size=BATCH)
            time.sleep(wait)  # for garbage collectors
            used.append(memory_bytes(self.tree()))
        self.producer.ask("fill", count=POOL, size=GROUP)
        return (used[1] - used[0]) / (capacity - POOL)

    def tree(self) -> list[int]:
        """Return the contender's processes, as they are at the start of a round."""
        self.pids = {process: process.tree() for process in (self.server, self.producer, self.consumer) if process}
        return [pid for tree in self.pids.values() for pid in tree]

    def play(self, operation: str, number: int, seconds: float) -> None:
        """Measure an operation in a round. Draws before and after are checked."""
        samples = operation not in INSERTS
        if samples:
            self.consumer.ask("check", count=4)  # streams open here
        if operation == "both":
            if self.server is None:
                found = self.producer.ask("both", seconds=seconds, size=GROUP)
            else:
                self.producer.send("insert", seconds=seconds, size=GROUP)
                self.consumer.send("sample", seconds=seconds)
                found = {"insert": self.producer.receive(), "sample": self.consumer.receive()}
            self.note("both: insert", number, found["insert"], GROUP)
            self.note("both: sample", number, found["sample"], BATCH)
        else:
            size, worker = (BATCH, self.consumer) if samples else (INSERTS[operation], self.producer)
            pids = self.pids[worker] + (self.pids[self.server] if self.server else [])
            self.note(operation, number, worker.ask(operation.split()[0], seconds=seconds, size=size, pids=pids), size)
        if samples:
            self.consumer.ask("check", count=1)
            self.consumer.ask("rest")

    def note(self, operation: str, number: int, answer: dict[str, Any], size: int) -> None:
        rollouts = len(answer["latencies"]) * size
        turn = Turn(rollouts / answer["seconds"], answer["latencies"], 1e6 * answer["cpu"] / rollouts)
        if number > 0:  # the first round warms up
            self.turns.setdefault(operation, {})[number] = turn


def speed(bench: Bench, length: int) -> tuple[dict[str, dict[str, Row]], dict[str, float], list[float]]:
    """Measure contenders in rounds: rows by operation, bytes of a stored rollout, and cores that others kept busy."""
    capacity = POOL * (2 if bench.given.quick else 32 if length <= 1024 else 8)
    settings = {"length": length, "capacity": capacity}
    servers: dict[str, Process | None] = {}  # by adapter and configuration
    players: list[Player] = []
    memory, others = {}, []
    with ExitStack() as stack:
        for contender in bench.chosen(CONTENDERS):
            with bench.guard(contender, "start"):
                key = f"{contender.server} {[contender.settings.get(name) for name in ('sync', 'config', 'program')]}"
                first = key not in servers or contender.server == "ray"
                if key not in servers:
                    servers[key] = bench.server(contender, settings, stack)
                server = servers[key]
                producer = consumer = bench.client(contender, settings, server, stack)
                if server:
                    consumer = bench.client(contender, settings, server, stack)
                player = Player(contender, server, producer, consumer)
                grown = player.fill(capacity, bench.given.wait)
                if first:  # the table was empty
                    memory[contender.name] = grown
                players.append(player)
        order = list(players)
        for number in range(bench.given.rounds + 1):
            print(f"{length:,} tokens, round {number} of {bench.given.rounds}", file=sys.stderr, flush=True)
            players = [player for player in players[1:] + players[:1] if player.contender.name not in bench.failed]
            everything = {pid for player in players for pid in player.tree()}
            for player in players if number % 2 else players[::-1]:
                for operation in player.contender.operations:
                    busy, ours, start = busy_seconds(), processor_seconds(everything), time.perf_counter()
                    with bench.guard(player.contender, operation):
                        player.play(operation, number, bench.given.seconds)
                    foreign = busy_seconds() - busy - (processor_seconds(everything) - ours)
                    others.append(max(0.0, foreign / (time.perf_counter() - start)))
    operations = [*INSERTS, "sample", "both: insert", "both: sample"]
    turns = {o: {player.contender.name: player.turns[o] for player in order if o in player.turns} for o in operations}
    return {o: rows(found, length * BYTES_PER_TOKEN) for o, found in turns.items()}, memory, others


def crash(bench: Bench) -> Iterator[tuple[str, dict[str, float]]]:
    """Kill servers while a producer inserts, start them again, and count."""
    for contender in bench.chosen(CRASHES):
        with bench.guard(contender, "kill -9"), ExitStack() as stack:
            settings = {"length": 512, "capacity": 1 << 18, "folder": tempfile.mkdtemp(dir=bench.folder)}
            server = bench.server(contender, settings, stack)
            producer = bench.client(contender, settings, server, stack)
            producer.ask("produce", size=GROUP)
            time.sleep(bench.given.wait)
            if "save" in contender.settings:
                producer.ask("save")
            time.sleep(bench.given.wait)
            assert server
            server.kill()
            time.sleep(0.2)  # answers on their way arrive
            acknowledged = producer.ask("acknowledged")["acknowledged"]
            producer.kill()
            again = bench.server(contender, settings, stack)
            assert again
            there = bench.client(contender, settings, again, stack).ask("count")["count"]
            lost = max(0, acknowledged - there)  # an insertion in flight may be there too
            seconds = again.ready["seconds"]
            yield contender.name, {"acknowledged": acknowledged, "there": there, "lost": lost, "seconds": seconds}


def alone() -> bool:
    return [name for _, name in socket.if_nameindex()] == ["lo"]


def go_alone() -> None:
    """Start this program again where there is loopback alone, if that is possible."""
    enter = ["unshare", "-rn", "sh", "-c", 'ip link set lo up && exec "$@"', "sh"]
    with suppress(FileNotFoundError):
        if subprocess.run([*enter, "true"], stderr=subprocess.DEVNULL).returncode == 0:
            os.execvp("unshare", [*enter, sys.executable, *sys.argv])


def machine() -> str:
    with open("/proc/cpuinfo") as file:
        cpu = next((line.split(":")[1].strip() for line in file if line.startswith("model name")), platform.machine())
    commit = subprocess.getoutput("git describe --always --dirty")
    return (f"{datetime.date.today()}, {cpu}, {os.cpu_count()} cores, kernel {platform.release()}, "
            f"Python {platform.python_version()}, reprise {commit}")  # fmt: skip


COLUMNS = {  # title: width, digits, key
    "rollouts/s": (12, 0, "rate"), "GB/s": (7, 3, "gb_per_s"), "p50 ms": (8, 2, "p50_ms"), "p99 ms": (8, 2, "p99_ms"),
    "CPU us": (8, 0, "cpu_us"), "x reprise": (11, 2, "x_rate"), "from": (7, 2, "low"), "to": (7, 2, "high"),
    "x CPU": (7, 2, "x_cpu"), "bytes each": (12, 0, "bytes"), "x payload": (11, 2, "ratio"),
    "acknowledged": (14, 0, "acknowledged"), "there after": (13, 0, "there"), "lost": (10, 0, "lost"),
    "up again in s": (15, 2, "seconds"),
}  # fmt: skip


def show(title: str, found: dict[str, Row]) -> None:
    """Print a table, with the columns that any of its rows has."""
    columns = {head: rest for head, rest in COLUMNS.items() if any(rest[2] in row for row in found.values())}
    print(f"\n{title:26}" + "".join(f"{head:>{width}}" for head, (width, _, _) in columns.items()))
    for name, row in found.items():
        cells = [f"{row[key]:,.{digits}f}" if key in row else "" for _, digits, key in columns.values()]
        print(f"{name:26}" + "".join(f"{cell:>{width}}" for cell, (width, _, _) in zip(cells, columns.values())))


def main() -> int:
    given = options()
    if not alone():
        go_alone()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # every process ends
    start = time.monotonic()
    report: dict[str, Any] = {"machine": machine(), "rounds": given.rounds, "seconds": given.seconds, "goals": []}
    print(report["machine"], flush=True)
    given.dir.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="peers-", dir=given.dir, ignore_cleanup_errors=True) as folder, \
            tempfile.TemporaryDirectory(prefix="peers-", ignore_cleanup_errors=True) as sockets:  # fmt: skip
        ENVIRONMENT["TMPDIR"] = sockets  # whose paths must be short
        bench = Bench(given, folder)
        for length in given.lengths if "speed" in given.parts else []:
            operations, memory, others = speed(bench, length)
            payload = length * BYTES_PER_TOKEN
            stored = {name: {"bytes": each, "ratio": each / payload} for name, each in memory.items()}
            busy = quantile(others, 0.5), quantile(others, 0.9)
            quiet = "" if busy[1] <= QUIET else ": NOT QUIET"
            print(f"\n{length:,} tokens; others kept {busy[0]:.2f} cores busy, in 1 turn of 10 {busy[1]:.2f}{quiet}")
            for title, found in {**operations, "memory": stored}.items():
                show(title, found)
            report[f"{length} tokens"] = {"others": busy, "memory": stored, **operations}
            servers = [c.name for c in CONTENDERS if c.server]
            judged = goals(operations, stored.get(BASE, {}).get("ratio"), servers)
            report["goals"] += [(met, f"{length:,} tokens: {text}") for met, text in judged]
        if "crash" in given.parts:
            report["crash"] = dict(crash(bench))
            show("kill -9", report["crash"])
    report |= {"versions": bench.versions, "skipped": bench.skipped, "failed": bench.failed}
    print("\n" + ", ".join(f"{package} {version}" for package, version in sorted(bench.versions.items())))
    lines = [f"goal {'met' if met else 'MISSED'}: {text}" for met, text in report["goals"]]
    lines += [f"SKIPPED {name}: {why}" for name, why in bench.skipped.items()]
    lines += [f"FAILED {name}: {why}" for name, why in bench.failed.items()]
    print("\n".join([*lines, f"{(time.monotonic() - start) / 60:.1f} minutes"]))
    if given.json:
        given.json.parent.mkdir(parents=True, exist_ok=True)
        given.json.write_text(json.dumps(report, indent=1) + "\n")
    return 1 if bench.failed else 0


if __name__ == "__main__":
    sys.exit(main())
