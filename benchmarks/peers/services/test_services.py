"""Tests of what needs no peer but Reprise: statistics, goals, the comparison of draws, and a run. make test-python."""

import json
import pathlib
import subprocess
import sys

import numpy as np
import pytest
from figures import BASE, Turn, goals, quantile, rows
from rollouts import BATCH, Wrong, check, collate, pool

HERE = pathlib.Path(__file__).resolve().parent


def test_ratios_are_those_of_a_round() -> None:
    speeds = [100.0, 10.0, 1.0, 40.0]  # of the machine
    turns = {
        BASE: {n: Turn(2 * speed, [0.5 / speed], cpu_us=4) for n, speed in enumerate(speeds[:3])},
        "peer": {n: Turn(speed, [1 / speed, 3 / speed], cpu_us=12) for n, speed in enumerate(speeds) if n > 0},
    }
    found = rows(turns, payload=10**9)
    peer = found["peer"]
    assert (peer["x_rate"], peer["low"], peer["high"], peer["x_cpu"]) == (0.5, 0.5, 0.5, 3)
    assert (peer["rate"], peer["gb_per_s"], peer["cpu_us"]) == (10, 10, 12)  # of its own rounds
    assert peer["p50_ms"] == pytest.approx(1e3 * quantile([0.1, 0.3, 1, 3, 0.025, 0.075], 0.5))
    assert "x_rate" not in rows({"peer": turns["peer"]}, 1)["peer"]
    assert "cpu_us" not in rows({BASE: {1: Turn(1, [1])}}, 1)[BASE]


def test_quantiles_are_numpys() -> None:
    values = list(np.random.default_rng(1).random(101))
    for q in (0, 0.25, 0.5, 0.99, 1):
        for n in (1, 2, 3, 100, 101):
            assert quantile(values[:n], q) == pytest.approx(np.quantile(values[:n], q))


def test_a_goal_is_judged_where_it_can_be() -> None:
    good = {"rate": 9.0, "p50_ms": 1.0, "p99_ms": 2.0, "cpu_us": 29.0, "x_rate": 1.0}
    bad = {"rate": 8.0, "p50_ms": 2.0, "p99_ms": 1.0, "cpu_us": 31.0, "x_rate": 0.9}
    operations = {
        "insert 64": {BASE: good, "redis": bad},
        "sample": {BASE: bad, f"{BASE}, stream": good, "redis": {**bad, "p99_ms": 3.0}, "in process": {"rate": 99.0}},
        "both: sample": {BASE: good},
    }
    judged = {text.split(":")[0]: met for met, text in goals(operations, 1.4, [BASE, f"{BASE}, stream", "redis"])}
    assert judged == {
        "memory is 1.40 times the payload": False,
        "inserting 64 takes 29 us of CPU a rollout": True,
        "inserting 64 into reprise is 1.11 times as fast as into redis": True,
        "sample": True,
    }
    operations["sample"]["redis"] = {**bad, "p99_ms": 0.5}
    assert [met for met, text in goals(operations, None, [BASE, "redis"]) if text.startswith("sample")] == [False]


def test_a_draw_that_differs_in_a_bit_is_found() -> None:
    inserted = pool(16)
    drawn = [inserted[i] for i in np.random.default_rng(1).integers(0, len(inserted), BATCH)]
    check(collate(drawn), inserted)
    for name in ("tokens", "mask", "logprobs", "reward"):
        batch = collate(drawn)
        batch[name].view(np.uint8).reshape(-1)[-1] ^= 1
        with pytest.raises(Wrong, match=name):
            check(batch, inserted)
    for rows_drawn in (drawn[1:], [{**drawn[0], "tokens": drawn[0]["tokens"] - 513}, *drawn[1:]]):
        with pytest.raises(Wrong, match="were drawn"):
            check(collate(rows_drawn), inserted)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="it reads /proc")
def test_a_run_measures_and_kills_reprise_and_names_what_is_missing(tmp_path: pathlib.Path) -> None:
    report = tmp_path / "report.json"
    command = [sys.executable, str(HERE / "run.py"), "--quick", "--only", "reprise, sync always", "reverb"]
    command += ["--lengths", "64", "--dir", str(tmp_path), "--json", str(report), "--reverb-python", "nowhere"]
    ran = subprocess.run(command, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    found = json.loads(report.read_text())
    assert list(found["64 tokens"]["insert 64"]) == [BASE, f"{BASE}, sync always"]
    assert found["64 tokens"]["memory"][BASE]["ratio"] > 1
    assert found["64 tokens"]["sample"][BASE]["cpu_us"] > 0
    killed = found["crash"]["reprise, sync always"]
    assert killed["lost"] == 0 and killed["there"] >= killed["acknowledged"] > 0
    assert found["skipped"] == {name: "there is no nowhere" for name in ("reverb", "reverb, saved halfway")}
    assert not list(tmp_path.glob("peers-*")), "its folder is left"
