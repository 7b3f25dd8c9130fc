"""Figures of rounds in which contenders take turns, and what the project promises of them."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

BASE = "reprise"  # what ratios are to
GOAL_CPU_US = 30  # of a rollout inserted in groups of 64
GOAL_MEMORY = 1.3  # times the payload


class Turn(NamedTuple):
    """A measurement of one contender in one round."""

    rate: float  # rollouts a second
    latencies: Sequence[float]  # of calls, in seconds
    cpu_us: float = 0  # of server and client for each rollout; 0: not measured


Row = dict[str, float]
"""Medians over rounds: rate, gb_per_s, cpu_us; of all calls p50_ms, p99_ms; and of the ratios to BASE in the same round
x_rate with its quartiles low and high, and x_cpu. What was not measured is not there."""


def rows(turns: Mapping[str, Mapping[int, Turn]], payload: int) -> dict[str, Row]:
    """Return the row of each contender in one operation, from its turns by round. A rollout has payload bytes."""
    base = turns.get(BASE, {})
    found = {}
    for name, rounds in turns.items():
        pairs = [(turn, base[number]) for number, turn in rounds.items() if number in base]
        latencies = [1e3 * seconds for turn in rounds.values() for seconds in turn.latencies]
        rates, ratios = [turn.rate for turn in rounds.values()], [turn.rate / other.rate for turn, other in pairs]
        columns = {
            "rate": (rates, 0.5), "gb_per_s": ([rate * payload / 1e9 for rate in rates], 0.5),
            "p50_ms": (latencies, 0.5), "p99_ms": (latencies, 0.99),
            "cpu_us": ([turn.cpu_us for turn in rounds.values() if turn.cpu_us], 0.5),
            "x_rate": (ratios, 0.5), "low": (ratios, 0.25), "high": (ratios, 0.75),
            "x_cpu": ([turn.cpu_us / other.cpu_us for turn, other in pairs if turn.cpu_us and other.cpu_us], 0.5),
        }  # fmt: skip
        found[name] = {column: quantile(values, q) for column, (values, q) in columns.items() if values}
    return found


def quantile(values: Sequence[float], q: float) -> float:
    """Return a quantile; between two values, in proportion."""
    ordered = sorted(values)
    below, part = divmod(q * (len(ordered) - 1), 1)
    low, high = ordered[int(below)], ordered[min(int(below) + 1, len(ordered) - 1)]
    return low + part * (high - low)


def goals(
    operations: Mapping[str, Mapping[str, Row]], memory: float | None, servers: Collection[str]
) -> Iterator[tuple[bool, str]]:
    """Yield whether each goal that can be judged is met, and its figures. Memory is in payloads of a rollout; servers
    are the contenders that have one."""
    if memory is not None:
        yield memory <= GOAL_MEMORY, f"memory is {memory:.2f} times the payload: want at most {GOAL_MEMORY}"
    inserted = operations.get("insert 64", {})
    if us := inserted.get(BASE, {}).get("cpu_us"):
        yield us <= GOAL_CPU_US, f"inserting 64 takes {us:.0f} us of CPU a rollout: want at most {GOAL_CPU_US}"
    for ours, redis in ((BASE, "redis"), (f"{BASE}, sync always", "redis, appendfsync always")):
        if ours in inserted and "x_rate" in inserted.get(redis, {}):
            times = inserted[ours]["x_rate"] / inserted[redis]["x_rate"]
            yield times >= 1, f"inserting 64 into {ours} is {times:.2f} times as fast as into {redis}: want at least 1"
    columns: dict[str, Callable[..., str]] = {"rate": max, "p50_ms": min, "p99_ms": min, "cpu_us": min}
    for operation in ("sample", "both: sample"):
        running = {name: row for name, row in operations.get(operation, {}).items() if name in servers}
        if any(not name.startswith(BASE) for name in running):
            known = {column: [name for name, row in running.items() if column in row] for column in columns}
            first = {c: columns[c](names, key=lambda name: running[name][c]) for c, names in known.items() if names}
            text = ", ".join(f"{name} in {column}" for column, name in first.items())
            yield all(name.startswith(BASE) for name in first.values()), f"{operation}: first of the servers: {text}"
