"""Compare Reprise's prioritized table with its peers: check all of them, then time them in turn (README.md)."""

import argparse
import datetime
import importlib.metadata
import json
import os
import pathlib
import platform
import statistics
import sys

import numpy as np

from buffers import Cpprb, LevelRefresh, PlainRefresh, Trainer, VectorRefresh
from check import Wrong, check, sequence as small
from ours import Ours
from sequence import AGE_DECAY, BATCH, EXPONENT, FILL_VERSIONS, Sequence

PEERS = [Cpprb, VectorRefresh, LevelRefresh, PlainRefresh]
PARTS = ["sample", "update", "advance"]
# Times ours that a peer is to take at least.
GOALS = {Cpprb.name: 2, VectorRefresh.name: 20, LevelRefresh.name: 1000, PlainRefresh.name: 1000}


def options():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ours", metavar="PROGRAM", help="the program built from ours/; without it, peers only")
    parser.add_argument("--json", metavar="FILE", type=pathlib.Path, help="write the figures there too")
    parser.add_argument("--entries", metavar="N", type=int, nargs="+", default=[50_000, 1_000_000])
    parser.add_argument("--rounds", metavar="N", type=int, default=7)
    parser.add_argument("--seconds", metavar="S", type=float, default=0.6, help="of one measurement, at least one cycle")
    return parser.parse_args()


def tables(program, sequence):
    """Yield every table of the comparison, filled. Reprise's comes first."""
    if program:
        yield Ours(program, sequence)
    for peer in PEERS:
        yield Trainer(peer(sequence))


def check_all(program):
    sequence = small()
    found = {}
    for table in tables(program, sequence):
        found[table.name] = f = check(table, sequence)
        table.close()
        print(f"  {table.name:20} chi-square {f['chi_square']:6.0f}, at most {f['limit']:.0f} is chance; "
              f"{f['wrong_exponent']:.0f} for a wrong exponent")
    return found


def measure(program, n, rounds, seconds):
    """Return us per cycle of every table, {name: {part: [rounds]}}, the cycles of a measurement, and Go's version."""
    ready = list(tables(program, Sequence(n)))
    cycles = {table.name: calibrate(table, seconds) for table in ready}
    times = {table.name: {part: [] for part in [*PARTS, "processor", "cycle"]} for table in ready}
    for _ in range(rounds):
        for table in ready:
            spent = [s / cycles[table.name] * 1e6 for s in table.run(cycles[table.name])]
            for part, us in zip(times[table.name], [*spent, sum(spent[: len(PARTS)])]):
                times[table.name][part].append(us)
    for table in ready:
        table.close()
    return times, cycles, getattr(ready[0], "go", None)


def calibrate(table, seconds):
    """Warm the table up; return how many of its cycles fill a measurement."""
    cycles = 1
    while (spent := sum(table.run(cycles)[: len(PARTS)])) < seconds / 10:
        cycles *= 2
    return max(1, round(cycles * seconds / spent))


def summary(times, cycles):
    """Return a row per table: medians over rounds, also of the ratios to ours, which are taken within rounds."""
    ours = times.get(Ours.name)
    rows = []
    for name, parts in times.items():
        row = {"table": name, "cycles_per_round": cycles[name]}
        row |= {f"{part}_us": statistics.median(us) for part, us in parts.items()}
        row["least_us"] = min(parts["cycle"])
        if ours:
            row["ratio"] = median_ratio(parts["cycle"], ours["cycle"])
            row["processor_ratio"] = median_ratio(parts["processor"], ours["processor"])
            row["least_ratio"] = row["least_us"] / min(ours["cycle"])
        rows.append(row)
    return rows


def median_ratio(times, ours):
    return statistics.median(a / b for a, b in zip(times, ours))


def show(n, rows):
    times = ["cycle", *PARTS, "least", "processor"]
    ratios = ["ratio", "least_ratio", "processor_ratio"]
    print(f"\n{n:,} entries, us per cycle                                            times reprise, by")
    print(f"  {'':18}" + "".join(f"{x:>12}" for x in times) + "".join(f"{x:>11}" for x in ["cycle", "least", "processor"]))
    for row in rows:
        print(f"  {row['table']:18}" + "".join(f"{row[x + '_us']:12,.1f}" for x in times)
              + "".join(f"{row[x]:11,.1f}" for x in ratios if x in row))


def goals(n, rows):
    """Print and return whether each goal is met at n entries: by the clock, and by processor time where it is known."""
    found = []
    for row in rows:
        if row["table"] in GOALS and "ratio" in row:
            goal, ratio = GOALS[row["table"]], row["ratio"]
            if row["processor_ratio"] < ratio:
                ratio = row["processor_ratio"]
            found.append({"table": row["table"], "entries": n, "goal": goal, "ratio": ratio, "met": ratio >= goal})
            print(f"  goal {'met' if ratio >= goal else 'missed'}: {row['table']} takes {ratio:,.2f} times as long as "
                  f"reprise at {n:,} entries, by the lesser of clock and processor; the goal is {goal:,}")
    return found


def machine():
    try:
        cpu = next(x.split(":")[1].strip() for x in open("/proc/cpuinfo") if x.startswith("model name"))
    except (OSError, StopIteration):
        cpu = platform.processor() or platform.machine()
    return {
        "date": datetime.date.today().isoformat(), "cpu": cpu, "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1), "python": platform.python_version(), "numpy": np.__version__,
        "cpprb": importlib.metadata.version("cpprb"),
    }


def main():
    o = options()
    report = {"machine": machine(), "checks": {}, "sizes": {}, "goals": []}
    print(", ".join(f"{key}: {value}" for key, value in report["machine"].items()))
    print("\nEvery table draws and weighs as defined:")
    try:
        report["checks"] = check_all(o.ours)
    except Wrong as wrong:
        raise SystemExit(f"WRONG {wrong}")
    print(f"\nA cycle: sample {BATCH} with importance weights, update their {BATCH} priorities, advance one version. "
          f"alpha {EXPONENT}, tau {AGE_DECAY:g}, made over {FILL_VERSIONS} versions.")
    print("Medians over rounds in which the tables take turns; least: the best round; processor: its time, all threads.")
    print("No tensors are moved: reprise hands out pointers to rollouts, cpprb copies its one field, the refreshes give "
          "positions. cpprb has no age decay.")
    for n in o.entries:
        times, cycles, go = measure(o.ours, n, o.rounds, o.seconds)
        report["machine"]["go"] = go
        rows = summary(times, cycles)
        show(n, rows)
        report["sizes"][n] = {"rows": rows, "rounds": times}
        report["goals"] += goals(n, rows)
        sys.stdout.flush()
    if o.json:
        o.json.parent.mkdir(parents=True, exist_ok=True)
        o.json.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
