"""The client and the service itself: `reprise serve`."""

from __future__ import annotations

import concurrent.futures
import math
import os
import pathlib
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from conftest import Server, rollouts

import reprise

Create = Callable[..., reprise.Table]

LENGTHS = [5, 9, 3, 7]


def until_returned(t: reprise.Table) -> None:
    """Wait until the service has noticed that a stream ended, and taken back what was on lease."""
    end = time.monotonic() + 20
    while t.stats().on_lease:
        assert time.monotonic() < end, "batches stay on lease"


def test_what_is_inserted_comes_back_bit_for_bit(table: Create) -> None:
    t = table(columns={"x_score": "float32", "x_ids": "list<int64>"})
    given = {
        **rollouts(LENGTHS),
        "temperature": [0.5, 0.75, 1.0, 1.25],
        "top_p": [0.5, 1.0, 0.25, 1.0],
        "truncated": [True, False, False, True],
        "text": ["a", "", "ü", "\x00"],
        "meta": [{"k": "v"}, {}, {"a": "b", "c": "d"}, {}],
        "images": [[b"\x00\xff"], [], [b"", b"x"], []],
        "values": [np.arange(n, dtype=np.float32) / 3 for n in LENGTHS],
        "ref_logprobs": [None, np.zeros(9, np.float32), None, None],
        "routed_experts": [np.arange(10) * 6553, None, np.arange(9), None],
        "turns": [[], [{"start": 2, "end": 9, "reward": 0.5, "done": True}], [], []],
        "x_score": [1.5, 2.5, 3.5, 4.5],
        "x_ids": [[1], [], [2, 3], [2**60]],
    }
    tokens = given["tokens"]
    given["sampling_mask"] = [
        [[], [], *(sorted({token, 1, 60_000}) for token in tokens[0][2:])],
        None,
        [[]] * 3,
        [[], [], [tokens[3][2]], *[[]] * 4],
    ]
    ids = t.insert(given, group_size=2)
    assert ids.dtype == np.uint64 and len(ids) == len(t) == 4
    for got in (t.sample(4, columns="all").record_batch, t.export().combine_chunks().to_batches()[0]):
        row_of = {number: i for i, number in enumerate(ids.tolist())}
        assert sorted(got["id"].to_pylist()) == sorted(row_of)
        for row in got.to_pylist():
            i = row_of[row["id"]]
            for name, values in given.items():
                want = values[i].tolist() if isinstance(values[i], np.ndarray) else values[i]
                have = dict(row[name] or {}) if name == "meta" else row[name]
                assert have == want or have is None and not want, f"{name}: {have!r} is not {want!r}"
            assert row["group_mean"] == 0.5 and row["group_std"] == 0.5
            assert row["advantage"] == pytest.approx(1 if given["reward"][i] else -1, abs=1e-3)
        groups = [next(r["group"] for r in got.to_pylist() if r["id"] == n) for n in ids.tolist()]
        assert groups[0] == groups[1] != groups[2] == groups[3]


def test_padded_arrays_go_in_and_come_out(table: Create) -> None:
    rng = np.random.default_rng(3)
    lengths, width = np.array([6, 9, 4]), 9
    tokens = rng.integers(0, 1000, (3, width))
    keep = np.arange(width) < lengths[:, None]
    logprobs = np.where(np.arange(width) >= 2, -rng.random((3, width)), 0).astype(np.float32)
    t = table()
    t.advance(2)
    ids = t.insert(tokens=tokens, lengths=lengths, logprobs=logprobs, prompt_lengths=2, version=2, reward=[0, 1, 0.5])
    padded = t.sample(3).padded(pad_id=-7)
    order = np.argsort(np.argsort(padded.ids))
    assert sorted(padded.ids.tolist()) == sorted(ids.tolist())
    assert (padded.tokens == np.where(keep, tokens, -7)[order]).all()
    assert (padded.loss_mask == (keep & (np.arange(width) >= 2))[order]).all()
    assert (padded.logprobs == np.where(keep, logprobs, 0)[order]).all()
    assert (padded.versions == np.where(padded.loss_mask, 2, -1)).all()
    assert padded.rewards.tolist() == np.array([0, 1, 0.5])[order].tolist()


def test_a_repeated_batch_id_inserts_once(table: Create) -> None:
    t = table()
    first = t.insert(rollouts(LENGTHS), batch_id="one")
    assert t.insert(rollouts(LENGTHS), batch_id="one").tolist() == first.tolist()
    assert t.info().present == 4
    assert len(t.insert(rollouts(LENGTHS))) == 4 and len(t) == 8


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"reward": [1.0, math.nan]}, "reward"),
        ({"logprobs": [[0, 0, 0.5], [0, 0, -0.5]]}, "logprobs"),
        ({"tokens": [[1, 2, 70_000], [1, 2, 3]]}, "tokens"),
        ({"mask": [[0, 0, 0], [0, 0, 1]]}, "mask"),
        ({"prompt_id": None, "logprobs": None}, "logprobs"),
        ({"sampling_mask": [[[]] * 3, [[1], [], []]]}, r"sampling_mask\[0\]"),
        ({"sampling_mask": [None, [[], [], [60_000]]]}, r"sampling_mask\[2\]\[0\]"),
        ({"routed_experts": pa.array([None, [1, 2]], pa.list_(pa.uint16()))}, "routed_experts"),
    ],
)
def test_bad_rollouts_are_refused_by_name_and_nothing_is_kept(table: Create, change: dict, message: str) -> None:
    t = table(vocab=60_000)
    with pytest.raises(reprise.Invalid, match=message):
        t.insert({**rollouts([3, 3]), **change})
    assert len(t) == 0


def test_each_refusal_is_an_exception_of_its_own(client: reprise.Client, table: Create) -> None:
    t = table(capacity=4, sampler="fifo", group_size=2)
    with pytest.raises(reprise.Ahead):
        t.insert(rollouts([3, 3], version=9), group_size=2)
    with pytest.raises(reprise.Starved):
        t.sample(2, timeout=0.05)
    with pytest.raises(reprise.Invalid):
        t.insert(rollouts([3]))
    t.insert(rollouts(LENGTHS), group_size=2)
    with pytest.raises(reprise.Full):
        t.insert(rollouts([3, 3]), group_size=2, timeout=0.05)
    with pytest.raises(reprise.Exists):
        client.create(t.name, capacity=5)
    with pytest.raises(reprise.NoLease):
        t.acknowledge(12345)
    missing = client.table("nowhere")
    for call in (
        missing.info,
        missing.stats,
        lambda: missing.sample(1),
        lambda: missing.insert(rollouts([3])),
        missing.schema,
    ):
        with pytest.raises(reprise.NotFound):
            call()
    with pytest.raises(reprise.NotFound), missing.stream(1) as stream:
        next(stream)
    with pytest.raises(reprise.Invalid, match="capacity"):
        client.create("wrong", capacity=-1)
    with pytest.raises(reprise.Invalid, match="colour"):
        client.create("wrong", colour="red")


def test_a_sample_counts_as_used_and_columns_can_be_chosen(table: Create) -> None:
    t = table()
    t.insert(rollouts(LENGTHS))
    t.sample(3)
    batch = t.sample(4, columns=["id", "uses", "tokens"])
    assert batch.record_batch.schema.names == ["id", "uses", "tokens"]
    assert sorted(batch.uses.tolist()) == [0, 1, 1, 1]
    stats = t.stats()
    assert (stats.drawn, stats.acknowledged, stats.returned, stats.on_lease) == (7, 7, 0, 0)


def test_rollouts_without_log_probs_enter_tables_that_take_them(table: Create) -> None:
    expert = reprise.rollout("a", [1, 2], [3, 4], logprobs=None, version=0, reward=1.0)
    with pytest.raises(reprise.Invalid, match=r"logprobs\[2\] is NaN: .* unknown_logprobs"):
        table().insert([expert])
    t = table(unknown_logprobs=True)
    t.insert([expert, reprise.rollout("a", [1, 2], [3, 5], logprobs=[-1.0, -2.0], version=0, reward=0.0)])
    batch = t.sample(2)
    of = dict(zip(batch.ids.tolist(), batch.ragged("logprobs")))
    np.testing.assert_array_equal(of[1], [0, 0, np.nan, np.nan])
    np.testing.assert_array_equal(of[2], [0, 0, -1, -2])
    known = t.sample(1, columns=["id"]).ids  # the service goes on
    assert known.tolist() in ([1], [2])


def test_prompts_get_their_rollouts_filtered_and_in_order(table: Create) -> None:
    t = table(capacity=64, prompt_index=True, min_size=32)
    for prompt in ("a", "b"):
        t.insert({**rollouts(LENGTHS), "reward": [0.0, 1.0, 0.5, 1.0], "prompt_id": [prompt] * 4}, group_size=4)
    batch = t.sample_prompts(["b", "nobody's", "a"], 2, where="reward > 0.5 && age < 4", order="length")
    assert batch.info.prompt_counts == (2, 0, 2)
    assert batch.prompt_ids == ["b", "b", "a", "a"]
    assert batch.ids.tolist() == [6, 8, 2, 4] and batch.rewards.tolist() == [1.0] * 4  # the longer first
    assert batch.weights.tolist() == batch.probabilities.tolist() == [1.0] * 4
    some = t.sample_prompts(["a"], 9, columns=["id"])
    assert sorted(some.ids.tolist()) == [1, 2, 3, 4]
    none = t.sample_prompts(["nobody's"])
    assert len(none) == 0 and none.info.prompt_counts == (0,) and none.padded().tokens.shape == (0, 0)
    assert t.stats().acknowledged == 8 and t.stats().on_lease == 0
    again = [t.sample_prompts(["a", "b"], request_id="once") for _ in range(2)]
    assert again[0].ids.tolist() == again[1].ids.tolist() and again[1].info.repeated


def test_rollouts_are_found_and_shown(table: Create) -> None:
    t = table(capacity=64)
    t.insert({**rollouts(LENGTHS), "reward": [0.0, 1.0, 0.5, 1.0], "prompt_id": ["Sums/1"] * 4}, group_size=4)
    found = t.rollouts(where="reward > 0", order="reward", text="sums")
    assert [row["id"] for row in found] == [4, 2, 3] and [row["uses"] for row in found] == [0, 0, 0]
    assert [row["id"] for row in t.rollouts(skip=1, limit=2)] == [3, 2]
    assert t.rollouts(prompt="nobody's") == []
    shown = t.rollout(2)
    assert shown["reward"] == 1.0 and len(shown["logprobs"]) == len(shown["token_ids"]) == LENGTHS[1]
    assert [row["id"] for row in shown["group_rollouts"]] == [1, 2, 3, 4]
    assert shown["base"] is None  # of sampler prioritized alone
    with pytest.raises(reprise.Invalid, match="use reward"):
        t.rollouts(where="rewrd > 0")
    with pytest.raises(reprise.Invalid, match="limit is 2000"):
        t.rollouts(limit=2000)
    with pytest.raises(reprise.NotFound, match="rollout 99"):
        t.rollout(99)
    assert t.stats().drawn == 0


def test_a_life_is_told_also_once_the_rollout_has_left(table: Create) -> None:
    t = table(capacity=4, history=8, sampler="prioritized", min_size=1)
    t.insert(rollouts(LENGTHS))
    t.sample(4)
    t.update([1, 2, 3, 4], [2.0] * 4)
    events = t.rollout(2)["life"]["events"]
    assert events[0]["event"] == "inserted" and events[-1]["priority"] == pytest.approx(2.0)
    draws = [e["draw"] for e in events if e["event"] == "drawn"]
    assert all(d["probability"] > 0 and d["staleness"] == 0 for d in draws)
    t.insert(rollouts(LENGTHS))
    gone = t.rollout(2)
    assert gone["left"] and gone["life"]["events"][-1]["cause"] == "capacity"
    with pytest.raises(reprise.NotFound, match="a table with history"):
        t.rollout(99)


def test_priorities_are_an_expression(table: Create) -> None:
    t = table(capacity=16, sampler="prioritized", priority="reward * meta.gain / (1 + uses)", priority_exponent=1.0)
    meta = [{"gain": "3"}, {"gain": "1"}, {}, {"gain": "-2"}]
    t.insert({**rollouts(LENGTHS), "reward": [1.0] * 4, "meta": meta, "prompt_id": ["a"] * 4}, group_size=4)
    batch = t.sample(4)
    chances = dict(zip(batch.ids.tolist(), batch.column("probability")))
    assert chances[1] == pytest.approx(0.75, abs=1e-5) and chances[2] == pytest.approx(0.25, abs=1e-5)
    assert t.info().definition["priority_base"] == "expression"
    for priority, message in (("rewrad", "there is no column rewrad: use reward"), ("reward > 0", "want a number")):
        with pytest.raises(reprise.Invalid, match=f"priority: {priority}.*{message}"):
            table(sampler="prioritized", priority=priority)


def test_a_table_in_an_order_draws_the_first_that_do_not_rest(table: Create) -> None:
    t = table(capacity=16, sampler="ordered", order="reward - 2 * uses", cooldown=1)
    t.insert({**rollouts(LENGTHS), "reward": [0.0, 3.0, 1.0, 2.0], "prompt_id": ["a"] * 4}, group_size=4)
    assert t.sample(2).ids.tolist() == [2, 4]
    with pytest.raises(reprise.Starved, match="where 2 can be drawn .others rest for a cooldown of 1 versions"):
        t.sample(3, timeout=0)
    t.advance(1)
    assert t.sample(3).ids.tolist() == [2, 3, 1]  # scores 1, 1, 0, 0, and the oldest among equals
    with pytest.raises(reprise.Invalid, match="order: rewrad: want a number"):
        table(sampler="ordered", order="rewrad")


def test_what_scores_least_leaves_first_and_some_of_a_group_enter(table: Create) -> None:
    t = table(capacity=4, retention="scored", score="reward", select=3, sampler="ordered", order="reward")
    for _ in range(2):
        t.insert({**rollouts(LENGTHS), "reward": [0.0, 3.0, 1.0, 2.0], "prompt_id": ["a"] * 4}, group_size=4)
    assert t.sample(4).ids.tolist() == [2, 6, 3, 7]  # of 0, 3 and 1 of each group
    assert t.stats().evicted == {"selection": 2, "capacity": 2}
    with pytest.raises(reprise.Invalid, match="score: rewrad: want a number"):
        table(retention="scored", score="rewrad")


def test_a_batch_is_composed_of_named_sources(table: Create) -> None:
    right = reprise.Source("right", share=0.5, where="reward == 1", per_prompt=1)
    young = {"name": "young", "share": "max(0.25 - version / 8, 0)", "where": "age < 1"}
    t = table(capacity=64, sources=[right, young])
    for prompt in ("a", "b"):
        t.insert({**rollouts(LENGTHS), "reward": [0.0, 1.0, 0.5, 1.0], "prompt_id": [prompt] * 4}, group_size=4)
    batch = t.sample(4)
    assert batch.info.source_counts == (2, 1)
    assert sorted(batch.prompt_ids[:2]) == ["a", "b"] and batch.rewards[:2].tolist() == [1.0, 1.0]
    t.advance(1)
    assert t.sample(4).info.source_counts == (2, 0)
    assert t.info().definition["sources"][0] == {**right.asdict(), "share": "0.5", "pool": "table"}


def test_old_rollouts_of_a_prompt_take_places_among_its_fresh_ones(table: Create) -> None:
    fresh = reprise.Source("fresh", pool="fresh", share=1, wait=True)
    right = reprise.Source("right", pool="prompts", where="reward == 1", order="length", per_prompt=1,
                           fresh_where="group_mean == 0", replace=True)  # fmt: skip
    t = table(capacity=64, sources=[fresh, right], draw_advantage="split", advantage="no_std")
    for rewards in ([0.0, 1.0, 0.0, 1.0], [0.0] * 4):
        t.insert({**rollouts(LENGTHS), "reward": rewards, "prompt_id": ["a"] * 4}, group_size=4)
    assert t.sample(4).info.source_counts == (4, 0)
    batch = t.sample(4)
    assert batch.ids.tolist() == [6, 7, 8, 2] and batch.info.source_counts == (3, 1)  # the longer of 2 and 4
    assert batch.column("advantage").tolist() == [0.0] * 4  # apart
    with pytest.raises(reprise.Starved, match="source fresh"):
        t.sample(4, timeout=0)


@pytest.mark.parametrize("method", reprise.METHODS)
def test_a_method_is_the_keys_that_are_not_given(table: Create, method: str) -> None:
    keys = reprise.METHODS[method].keys
    more = {"group_size": 4} if keys.get("unit") == "group" else {}
    made = table(method=method, capacity=keys.get("capacity", 960) * 2, **more).info().definition
    assert made["capacity"] == keys.get("capacity", 960) * 2
    for name in keys.keys() - {"capacity", "sources", "prompts"}:
        assert made[name] == keys[name]
    for name in keys.keys() & {"sources", "prompts"}:
        assert made[name]


def test_a_method_that_no_table_makes_is_refused(table: Create) -> None:
    with pytest.raises(reprise.Invalid, match="method: 'tis': want one of advantage-replay, .*are losses"):
        table(method="tis")


@pytest.mark.parametrize(
    ("sources", "message"),
    [
        ([{"name": "a", "share": 1.5}], r"sources\[0\].share: 1.5: want 0 to 1"),
        ([{"name": "a", "share": "reward"}], "there is no column reward: use version"),
        ([{"name": "a", "share": 0.5, "where": "rewrad > 0"}], "there is no column rewrad: use reward"),
        ([{"name": "a", "shares": 0.5}], r"sources\[0\].shares: unknown key: want sources"),
        (3, "sources: 3: want a list of mappings with name, pool, share"),
    ],
)
def test_sources_that_cannot_work_are_refused(table: Create, sources: Any, message: str) -> None:
    with pytest.raises(reprise.Invalid, match=message):
        table(sources=sources)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"where": "rewrad > 0"}, "there is no column rewrad: use reward"),
        ({"where": "reward"}, "reward is a number, and the expression must be true or false"),
        ({"order": "reward > 0"}, "must be a number"),
        ({"where": "all(1..1000000, # > 0)"}, "there is no function all"),
        ({"prompts": ["a", "a"]}, "named twice"),
        ({"prompts": "a"}, "want a list of prompt ids"),
        ({"prompts": []}, "want a list of prompt ids"),
        ({"per_prompt": 0}, "per_prompt: 0"),
        ({"per_prompt": -1}, "per_prompt: -1"),
    ],
)
def test_a_bad_draw_by_prompt_is_refused(table: Create, change: dict[str, Any], message: str) -> None:
    t = table(prompt_index=True)
    with pytest.raises(reprise.Invalid, match=re.escape(message)):
        t.sample_prompts(**{"prompts": ["a"], **change})


def test_a_table_without_an_index_says_which_option_to_set(table: Create) -> None:
    with pytest.raises(reprise.Invalid, match="set the option prompt_index"):
        table().sample_prompts(["a"])


def test_a_repeated_request_gets_the_same_batch(table: Create) -> None:
    t = table(sampler="uniform")
    t.insert(rollouts([4] * 64))
    first, again = (t.sample(8, request_id="r") for _ in range(2))
    assert first.ids.tolist() == again.ids.tolist() and t.stats().acknowledged == 8
    assert again.info.repeated and not first.info.repeated


DIES = """
import os, sys, reprise, reprise.table
receive = reprise.table._answer
reprise.table._answer = lambda reader: (receive(reader), os._exit(7))  # before it acknowledges
reprise.connect(sys.argv[1]).table(sys.argv[2]).sample(4, request_id=sys.argv[3])
"""


def test_attack_a_caller_of_sample_that_dies_loses_nothing(server: Server, table: Create) -> None:
    t = table(sampler="fifo", capacity=100)
    ids = t.insert(rollouts(LENGTHS)).tolist()
    for request in ("of the dead", "r"):
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        program = [sys.executable, "-c", DIES, server.address, t.name, request]
        died = subprocess.run(program, env=environment, timeout=120)
        assert died.returncode == 7
    batch = t.sample(4, request_id="r", timeout=20)
    assert sorted(batch.ids.tolist()) == ids and batch.redelivered.all()
    t.insert(rollouts(LENGTHS))
    assert not t.sample(4).redelivered.any()


def test_attack_a_request_repeated_after_a_crash_gets_no_other_rollouts(
    binary: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    arguments = ("--data", str(tmp_path), "--sync", "always")
    running = Server(*arguments)
    try:
        with reprise.connect(running.address, timeout=60) as client:
            t = client.create("queue", sampler="fifo", capacity=100)
            t.insert(rollouts(LENGTHS * 2))
            assert t.sample(4, request_id="r").ids.tolist() == [1, 2, 3, 4]
            running.stop(signal.SIGKILL)
            running = Server(*arguments, listen=running.address.removeprefix("grpc://"))
            with pytest.raises(reprise.NoLease, match="4 rollouts .of ids 1 to 4."):
                t.sample(4, request_id="r")
            assert sorted(t.sample(4).ids.tolist()) == [5, 6, 7, 8]
    finally:
        running.stop()


@pytest.mark.parametrize("prefetch", [0, 1, 3])
def test_a_stream_acknowledges_what_was_used_and_gives_back_the_rest(table: Create, prefetch: int) -> None:
    t = table(sampler="fifo", capacity=100)
    ids = t.insert(rollouts([4] * 20)).tolist()
    seen: list[int] = []
    with t.stream(2, prefetch=prefetch) as stream:
        for _ in range(4):
            seen += next(stream).ids.tolist()
    assert seen == ids[:8]
    until_returned(t)
    with pytest.raises(RuntimeError), t.stream(2, prefetch=prefetch) as stream:
        assert next(stream).ids.tolist() == ids[8:10]
        raise RuntimeError
    until_returned(t)
    with t.stream(12, prefetch=prefetch, timeout=20) as stream:
        assert sorted(next(stream).ids.tolist()) == ids[8:]
    assert t.stats().acknowledged == 20 and len(t) == 0


def test_a_stream_that_starves_goes_on_when_rollouts_come(table: Create) -> None:
    t = table(sampler="fifo")
    with t.stream(2, prefetch=1, timeout=0.1) as stream:
        with pytest.raises(reprise.Starved):
            next(stream)
        ids = t.insert(rollouts([4, 4]))
        while True:
            try:
                batch = next(stream)
                break
            except reprise.Starved:
                pass
        assert batch.ids.tolist() == ids.tolist()


def test_a_sample_waits_for_rollouts(table: Create) -> None:
    t = table(min_size=2)
    drawn: list[reprise.Batch] = []
    waiting = threading.Thread(target=lambda: drawn.append(t.sample(2, timeout=20)))
    waiting.start()
    ids = t.insert(rollouts([4, 4]))
    waiting.join(timeout=30)
    assert sorted(drawn[0].ids.tolist()) == sorted(ids.tolist())


def test_priorities_decide_what_is_drawn(table: Create) -> None:
    t = table(sampler="prioritized", age_decay=math.inf)
    ids = t.insert(rollouts([4] * 32))
    t.update(ids, np.where(ids == ids[7], 1e6, 0))
    assert (t.sample(64).ids == ids[7]).mean() > 0.9


def test_updates_of_rollouts_that_have_left_are_ignored_and_counted(table: Create) -> None:
    t = table(sampler="prioritized", capacity=2)
    gone = t.insert(rollouts([4, 4]))
    there = t.insert(rollouts([4, 4]))
    t.update(np.concatenate([gone, there]), np.ones(4))
    assert t.stats().updates_ignored == 2
    with pytest.raises(reprise.Invalid, match="999999"):
        t.update([999_999], [1.0])


def test_reports_become_the_ess_by_age(table: Create) -> None:
    t = table(sampler="prioritized", priority_base="td_error", entry="max")
    t.insert(rollouts([4] * 8))
    batch = t.sample(8)
    ones = np.ones(8)
    t.report(batch.ids, batch.staleness, td_error=ones, tokens=2 * ones, ratio_sum=2 * ones, ratio_squares=4 * ones)
    stats = t.stats()
    assert stats.ess_by_age and stats.ess_by_age[0].ess == pytest.approx(0.5)
    assert stats.ages[0].units == 8 and stats.age_decay == 500


def test_ranks_find_the_largest_weight_of_all(table: Create) -> None:
    t = table(sampler="prioritized", priority_base="reward", priority_exponent=1.0, importance_beta=1.0, shards=2)
    for reward in (3, 2, 1, 2):  # one shard gets 3 and 1, the other 2 and 2
        t.insert(rollouts([4]) | {"reward": [reward]})
    batches = [t.sample(8, shard=shard) for shard in range(2)]
    largest = max(batch.info.log_weight_scale for batch in batches)
    for batch in batches:
        weights = batch.weights * math.exp(batch.info.log_weight_scale - largest)
        assert weights == pytest.approx(1 / batch.rewards, rel=1e-5)


def test_versions_go_up_and_back(table: Create) -> None:
    t = table()
    t.insert(rollouts([4, 4]))
    assert t.advance(5).version == 5
    t.insert(rollouts([4], version=5))
    assert set(t.sample(3).staleness.tolist()) == {0, 5}
    info = t.rewind(3)
    assert (info.version, info.present) == (3, 2)
    assert t.stats().evicted["rewind"] == 1
    with pytest.warns(UserWarning, match="the table stays at version 3.*rewind"):
        assert t.advance(2).version == 3, "a late advance changes nothing"


def test_a_second_run_on_a_used_table_is_told_so(table: Create) -> None:
    t = table(max_staleness=8)
    t.advance(500)
    with pytest.warns(UserWarning, match="2 of 2 rollouts are older than max_staleness 8 .*rewind"):
        assert len(t.insert(rollouts([4, 4], version=0))) == 2
    assert len(t) == 0
    t.rewind(0)
    t.insert(rollouts([4, 4], version=0))
    assert len(t) == 2


def test_the_gate_grants_as_many_groups_as_may_be_started(table: Create) -> None:
    t = table(group_size=2, gate=reprise.Gate(rollouts_per_update=4, max_staleness=0))
    grant = t.start(8)
    assert grant and grant.groups == 2 and grant.expires_seconds > 0
    assert not t.start(1)
    t.insert(rollouts([4, 4]), group_size=2, grant=grant)
    t.abandon(grant, 1)
    again = t.start(8)
    assert again.groups == 1
    t.abandon(again)
    gate = t.stats().gate
    assert gate and (gate.allowed, gate.started, gate.outstanding) == (4, 2, 0)
    t.advance(1)
    assert t.start(8, timeout=5).groups == 3


def test_a_generator_waits_until_a_group_may_be_started(table: Create) -> None:
    t = table(group_size=2, gate=reprise.Gate(rollouts_per_update=2, max_staleness=0))
    t.start(1)
    granted: list[reprise.Grant] = []
    waiting = threading.Thread(target=lambda: granted.append(t.start(1, timeout=20)))
    waiting.start()
    t.advance(1)
    waiting.join(timeout=30)
    assert granted[0].groups == 1
    began = time.monotonic()
    assert not t.start(1, timeout=0.3)
    assert time.monotonic() - began >= 0.3


def test_the_limiter_holds_samples_back(table: Create) -> None:
    t = table(min_size=2, limiter=reprise.Limiter(samples_per_insert=1, error_buffer=4))
    t.insert(rollouts([4] * 4))
    t.sample(4)
    with pytest.raises(reprise.Starved):
        for _ in range(4):
            t.sample(4, timeout=0.05)
    limiter = t.stats().limiter
    assert limiter and limiter.samples_per_insert == 1 and limiter.held_samples >= 1


def test_prompts_worth_asking_again_come_back(table: Create) -> None:
    t = table(prompts=reprise.Prompts())
    t.prompts_report(reprise.PromptResult(f"p{i}", correct=i % 5, total=4, ref=i) for i in range(20))
    t.advance(50)
    prompts = t.prompts_next(64)
    assert prompts and all(p.id == f"p{p.ref}" and p.ref % 5 not in (0, 4) for p in prompts)


def test_a_checkpoint_brings_everything_back(table: Create) -> None:
    t = table()
    ids = t.insert(rollouts(LENGTHS))
    t.checkpoint("before")
    t.insert(rollouts(LENGTHS, seed=1))
    t.advance(4)
    info = t.restore("before")
    assert (info.present, info.version) == (4, 0)
    assert t.export(columns=["id"])["id"].to_pylist() == ids.tolist()
    with pytest.raises(reprise.NotFound):
        t.restore("never")
    (saved,) = t.checkpoints()
    assert saved.name == "before" and saved.file_bytes > 0 and saved.saved.tzinfo is not None
    t.delete_checkpoint("before")
    assert t.checkpoints() == []
    with pytest.raises(reprise.NotFound, match="want one of its checkpoints"):
        t.delete_checkpoint("before")


def test_export_draws_nothing_and_becomes_a_data_frame(table: Create) -> None:
    t = table()
    ids = t.insert(rollouts([4] * 30))
    exported = t.export(rows=7)
    assert exported["id"].to_pylist() == ids.tolist() and t.stats().drawn == 0
    assert t.export(where="reward == 1 && uses == 0")["id"].to_pylist() == ids[1::2].tolist()
    pandas = pytest.importorskip("pandas")
    frame = exported.to_pandas()
    assert isinstance(frame, pandas.DataFrame) and len(frame) == 30
    assert table().export().num_rows == 0


def test_tables_are_listed_with_what_they_hold(client: reprise.Client, table: Create) -> None:
    t = table(capacity=77)
    t.insert(rollouts(LENGTHS))
    listed = {info.name: info for info in client.list()}[t.name]
    assert (listed.present, listed.version, listed.definition["capacity"]) == (4, 0, 77)
    assert listed.bytes > 0
    schema = t.schema()
    assert schema.metadata[b"reprise.schema"] == b"1" and schema.field("tokens").type.value_type == pa.int32()


def test_threads_share_a_client(table: Create) -> None:
    t = table(capacity=1000)
    found: list[np.ndarray] = []

    def insert(seed: int) -> None:
        for i in range(10):
            found.append(t.insert(rollouts([4, 6], seed=100 * seed + i)))

    threads = [threading.Thread(target=insert, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert len(set(np.concatenate(found).tolist())) == len(t) == 160


def test_rollouts_and_streams_outlive_a_restart_of_the_service(binary: pathlib.Path, tmp_path: pathlib.Path) -> None:
    arguments = ("--data", str(tmp_path), "--sync", "always")
    running = Server(*arguments)
    try:
        with reprise.connect(running.address, timeout=60) as client:
            t = client.create("kept")
            ids = t.insert(rollouts(LENGTHS), batch_id="one")
            with t.stream(4, prefetch=1) as stream:
                assert sorted(next(stream).ids.tolist()) == ids.tolist()
                running.stop(signal.SIGKILL)
                running = Server(*arguments, listen=running.address.removeprefix("grpc://"))
                assert t.insert(rollouts(LENGTHS), batch_id="one").tolist() == ids.tolist()
                assert sorted(next(stream).ids.tolist()) == ids.tolist()
            assert len(t) == 4
    finally:
        running.stop()


def test_insertions_on_an_open_stream_enter_once_whatever_becomes_of_the_service(
    binary: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    arguments = ("--data", str(tmp_path), "--sync", "always")
    running = Server(*arguments)
    stop = threading.Event()
    found: list[int] = []

    def insert() -> None:
        while not stop.is_set():
            found.extend(t.insert(rollouts([4, 6]), group_size=2).tolist())

    try:
        with reprise.connect(running.address, timeout=60) as client:
            t = client.create("kept")
            for how in (signal.SIGKILL, signal.SIGTERM):
                stop.clear()
                inserting = threading.Thread(target=insert)
                inserting.start()
                before = len(found)
                while len(found) < before + 40:
                    assert inserting.is_alive()
                running.stop(how)
                running = Server(*arguments, listen=running.address.removeprefix("grpc://"))
                stop.set()
                inserting.join(60)
                assert sorted(t.export(columns=["id"])["id"].to_pylist()) == found == sorted(set(found))
            t.insert(rollouts([4]))
            began = time.monotonic()
            running.stop()  # an idle stream does not hold it up
            assert not any("cut off" in line for line in running.output)
            assert time.monotonic() - began < 20  # of --stop-timeout 30
    finally:
        stop.set()
        running.stop()


def test_a_batch_has_what_trainers_use_unless_other_columns_are_asked_for(table: Create) -> None:
    t = table(columns={"x_score": "float32"})
    t.insert(rollouts(LENGTHS), group_size=2, x_score=[1.0, 2.0, 3.0, 4.0], text=["a"] * 4)
    everything = set(t.schema().names)
    left_out = {"temperature", "top_p", "truncated", "turns", "images", "text", "x_score"}
    assert left_out < everything
    with t.stream(4) as stream:
        leased = t.lease(4)
        for batch in (t.sample(4), next(stream), leased):
            assert batch.record_batch.schema.names == list(reprise.DEFAULT_COLUMNS)
            assert set(reprise.DEFAULT_COLUMNS) == everything - left_out
        t.release(leased)
    all_of_them = t.sample(4, columns="all")
    assert set(all_of_them.record_batch.schema.names) == everything
    default, every = t.sample(4, request_id="r"), t.sample(4, request_id="r", columns="all")
    for shape in ("padded", "packed"):
        ours, theirs = getattr(default, shape)().asdict(), getattr(every, shape)().asdict()
        assert ours.keys() == theirs.keys()
        assert all((ours[name] == theirs[name]).all() for name in ours if name != "max_seqlen")
    with pytest.raises(reprise.NotFound, match=r'x_score: not among .*columns=\[...\], or for all with columns="all"'):
        default.column("x_score")
    with t.stream(4, columns=["id", "x_score"]) as stream:
        assert next(stream).record_batch.schema.names == ["id", "x_score"]


def test_feedback_advances_the_table_in_one_call(table: Create) -> None:
    t = table(sampler="prioritized", priority_base="td_error", priority_epsilon=1e-9, entry="max")
    ids = t.insert(rollouts(LENGTHS))
    assert t.update(ids, [0.0, 0.0, 0.0, 1.0], version=3).version == 3
    assert set(t.sample(4).ids.tolist()) == {ids[3]}
    assert t.report(ids, [3] * 4, td_error=[1.0, 0.0, 0.0, 0.0], version=4).version == len(t) == 4
    assert set(t.sample(4).ids.tolist()) == {ids[0]}
    with pytest.warns(UserWarning, match="version: 2: the table stays at version 4"):
        t.update(ids, [1.0] * 4, version=2)
    with pytest.raises(reprise.Invalid, match="version is -1"):
        t.update(ids, [1.0] * 4, version=-1)


def test_an_open_stream_does_not_outlive_its_table(table: Create, client: reprise.Client) -> None:
    t = table(capacity=16)
    t.insert(rollouts(LENGTHS))
    client.drop(t.name)
    with pytest.raises(reprise.NotFound):
        t.insert(rollouts(LENGTHS))
    t = client.create(t.name, capacity=16)
    assert len(t.insert(rollouts(LENGTHS))) == 4
    client.drop(t.name)
    t = client.create(t.name, capacity=32)
    assert len(t.insert(rollouts(LENGTHS))) == len(t) == 4


FORKS = """
import os, sys, reprise
sys.path.append(sys.argv[3])
from conftest import rollouts
client = reprise.connect(sys.argv[1])
t = client.table(sys.argv[2])
t.insert(rollouts([3]))
child = os.fork()
if child == 0:
    try:
        t.insert(rollouts([3]))
        raise SystemExit("the parent's stream was used")
    except reprise.Invalid as error:
        assert "connect in each process" in str(error)
    client.close()
    client._connection._puts = t = None
    os._exit(0)  # as multiprocessing does: Arrow's threads are the parent's
assert os.waitpid(child, 0)[1] == 0
t.insert(rollouts([3]))
assert len(client._connection._puts._idle) == 1 and client._connection._puts._idle[0]._used
"""


def test_a_forked_process_leaves_the_open_streams_alone(server: Server, table: Create) -> None:
    t = table(capacity=16)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    program = [sys.executable, "-c", FORKS, server.address, t.name, str(pathlib.Path(__file__).parent)]
    subprocess.run(program, env=environment, timeout=120, check=True)
    assert len(t) == 2


def test_a_unix_socket_serves_as_well(binary: pathlib.Path, tmp_path: pathlib.Path) -> None:
    running = Server("--unix", str(tmp_path / "s"))
    try:
        with reprise.connect(f"grpc+unix://{tmp_path}/s") as client:
            t = client.create("t")
            assert len(t.insert(rollouts(LENGTHS))) == 4
    finally:
        running.stop()


def test_a_lease_is_used_once_acknowledged_and_goes_back_when_released(table: Create) -> None:
    t = table(sampler="fifo", capacity=100)
    ids = t.insert(rollouts([4] * 6)).tolist()
    first, second = t.lease(2), t.lease(2)
    assert [*first.ids.tolist(), *second.ids.tolist()] == ids[:4]
    t.release(first)
    t.acknowledge(second)
    stats = t.stats()
    assert (stats.acknowledged, stats.returned, stats.on_lease, len(t)) == (2, 2, 0, 4)
    with pytest.raises(reprise.NoLease):
        t.acknowledge(second)
    with pytest.raises(reprise.Starved):
        t.lease(50, timeout=0.05)
    left = t.lease(4)
    assert sorted(left.ids.tolist()) == sorted([*ids[:2], *ids[4:]])
    t.acknowledge(left.info.batch)
    assert len(t) == 0


def test_a_draw_that_does_not_wait_for_rollouts_outlasts_a_restart(tmp_path: pathlib.Path) -> None:
    running = Server("--data", str(tmp_path))
    try:
        with reprise.connect(running.address) as client, concurrent.futures.ThreadPoolExecutor() as pool:
            t = client.create("t", capacity=16)
            t.insert(rollouts(LENGTHS))
            running.stop(signal.SIGKILL)
            drawn = pool.submit(t.sample, 2, timeout=0)
            running = Server("--data", str(tmp_path), listen=running.address.removeprefix("grpc://"))
            assert len(drawn.result(timeout=120)) == 2
    finally:
        running.stop()


def test_rewards_come_late(table: Callable[..., Table]) -> None:
    t = table(pending_rewards=60)
    rows = [reprise.rollout("p", [1], [2, 3], logprobs=[-0.1, -0.2], version=0, reward=None) for _ in range(2)]
    ids = t.insert(rows, group_size=2)
    with pytest.raises(reprise.Starved):
        t.sample(1)
    assert t.reward(ids[:1], [1.0], by="judge-3", request_id="a") == reprise.Rewarded(1, 0, 0)
    assert t.reward(ids[:1], [1.0], by="judge-3", request_id="a") == reprise.Rewarded(1, 0, 0)
    assert t.reward(ids[1:], np.array([0.25])) == reprise.Rewarded(1, 0, 2)
    assert sorted(t.sample(2).padded().rewards.tolist()) == [0.25, 1.0]
    shown = t.rollout(int(ids[0]))
    assert [call["by"] for call in shown["labels"]] == ["judge-3"] and not shown["waiting"]
    with pytest.raises(reprise.Invalid, match="use a new id for each call"):
        t.reward(ids[:1], [0.5], by="judge-3", request_id="a")
    with pytest.raises(reprise.Invalid, match="rewards: 1 of them: want 2"):
        t.reward(ids, [1.0])
    with pytest.raises(reprise.Invalid, match="pending_rewards"):
        table().insert(rows, group_size=2)
