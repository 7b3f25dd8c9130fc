"""Tables in parts, over several services: which way groups go, what draws weigh, and what outages cost."""

from __future__ import annotations

import asyncio
import json
import math
import random
import signal
import socket
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow.flight as flight
import pytest
from conftest import ROOT, Fake, Server, rollouts

import reprise
from reprise import aio, parts
from reprise.parts import plan
from reprise.parts.plan import Totals, divide

PARTS = 3

pytestmark = pytest.mark.filterwarnings("ignore::reprise.RepeatWarning")


@pytest.fixture(scope="module")
def servers(binary: Any) -> Iterator[list[Server]]:
    running = [Server() for _ in range(PARTS)]
    yield running
    for each in running:
        each.stop()


@pytest.fixture
def connected(servers: list[Server]) -> Iterator[parts.Client]:
    with reprise.connect([each.address for each in servers], timeout=30) as client:
        yield client


@pytest.fixture
def create(connected: parts.Client, request: pytest.FixtureRequest) -> Iterator[Callable[..., parts.Table]]:
    made: list[str] = []

    def create(**options: Any) -> parts.Table:
        made.append(f"{request.node.name[:60].replace('[', '-').replace(']', '')}-{len(made)}")
        return connected.create(made[-1], **options)

    yield create
    for name in made:
        connected.drop(name)


@pytest.fixture
def mortal(binary: Any, tmp_path: Any) -> Iterator[Callable[..., Server]]:
    """Services with journals that a test may kill and start again, at the same address."""
    running: dict[int, Server] = {}

    def start(number: int) -> Server:
        before = running.get(number)
        listen = before.address.partition("://")[2] if before is not None else "127.0.0.1:0"
        running[number] = Server("--data", str(tmp_path / str(number)), "--sync", "off", listen=listen)
        return running[number]

    yield start
    for each in running.values():
        each.stop()


def part_of(ids: Any) -> Any:
    return (np.asarray(ids, np.uint64) >> np.uint64(48)).astype(int)


def groups(number: int, *, size: int = 2, seed: int = 0, version: int = 0) -> dict[str, list[Any]]:
    columns = rollouts([4] * number * size, seed=seed, version=version)
    return columns | {"prompt_id": [f"p{seed}-{i // size}" for i in range(number * size)]}


# Which way groups go.


def test_keys_order_the_parts_as_in_go() -> None:
    routes = json.loads((ROOT / "client/testdata/routes.json").read_text())
    assert len(routes) > 20 and max(len(route["order"]) for route in routes) == 256
    for route in routes:
        key = plan.key(route["prompt"], route["batch_id"], route["group"])
        assert plan.order(key, len(route["order"])) == route["order"], route


def test_a_group_goes_whole_to_the_part_that_its_key_prefers(create: Callable[..., parts.Table]) -> None:
    table = create(capacity=600, group_size=2)
    columns = groups(40)
    ids = table.insert(columns, batch_id="b")
    ways = [plan.order(plan.key(f"p0-{i}", "b", i), PARTS)[0] for i in range(40)]
    assert part_of(ids).tolist() == np.repeat(ways, 2).tolist() and len(set(ways)) == PARTS
    held = table.export(columns=["id", "prompt_id", "reward"]).to_pydict()
    assert dict(zip(held["id"], zip(held["prompt_id"], held["reward"]))) == dict(
        zip(ids.tolist(), zip(columns["prompt_id"], columns["reward"]))
    )
    assert table.insert(columns, batch_id="b").tolist() == ids.tolist() and len(table) == 80
    # Groups by number need not be neighbours, and a row without one is a group of its own.
    free = create(capacity=600)
    columns = {**rollouts([4] * 6), "group": [7, None, 7, 9, 9, None], "prompt_id": list("abaccd")}
    ids = free.insert(columns, batch_id="c")
    ways = [plan.order(plan.key(prompt, "c", i), PARTS)[0] for i, prompt in enumerate("abcd")]
    assert part_of(ids).tolist() == [ways[at] for at in (0, 1, 0, 2, 2, 3)]


def test_steps_come_back_under_the_ids_of_their_rows(create: Callable[..., parts.Table]) -> None:
    table = create(capacity=600, unit="step")
    turns = [[dict(start=2, end=3, reward=1.0, done=False), dict(start=3, end=4, reward=0.0, done=True)], None] * 8
    columns = {**rollouts([4] * 16), "turns": turns}
    ids = table.insert(columns, batch_id="s")
    assert len(ids) == 24 == len(table)
    row = np.repeat(np.arange(16), [2, 1] * 8)
    held = dict(zip(*table.export(columns=["id", "prompt_id"]).to_pydict().values()))
    assert [held[id] for id in ids.tolist()] == [columns["prompt_id"][at] for at in row]


def test_the_definition_is_the_tables(connected: parts.Client, create: Callable[..., parts.Table]) -> None:
    options = dict(
        capacity=60, group_size=2, sampler="fifo", min_size=12, seed=5, gate=reprise.Gate(24, 1),
        limiter=reprise.Limiter(samples_per_insert=1, error_buffer=60),
    )  # fmt: skip
    table = create(**options)
    definition = table.info().definition
    assert [definition[name] for name in ("capacity", "min_size", "seed", "group_size")] == [60, 12, 5, 2]
    assert definition["gate"]["rollouts_per_update"] == 24 and definition["limiter"]["error_buffer"] == 60
    assert connected.create(table.name, **options).info().definition == definition
    with pytest.raises(reprise.Exists):
        connected.create(table.name, **{**options, "capacity": 90})
    assert table.name in [info.name for info in connected.list()]
    seeds = [part.table.info().definition["seed"] for part in table.parts]
    assert seeds == [5, 6, 7] and {part.table.info().definition["capacity"] for part in table.parts} == {20}


@pytest.mark.parametrize("addresses", [[], ["grpc://a:1", "grpc://a:1"], ["grpc://127.0.0.1:1"] * 257])
def test_bad_lists_of_addresses_are_refused(addresses: list[str]) -> None:
    with pytest.raises(reprise.Invalid, match="address"):
        reprise.connect(addresses)


def test_what_cannot_be_divided_is_refused_with_the_reason(create: Callable[..., parts.Table]) -> None:
    table = create(capacity=60, sampler="unseen")
    table.insert(groups(6), group_size=2)
    with pytest.raises(reprise.Invalid, match="fresh: 2: want 0 from several parts with sampler unseen: nobody knows"):
        table.sample(4, fresh=2, scope="global")
    with pytest.raises(reprise.Invalid, match="request_id"):
        table.sample(4, request_id="r", scope="global")
    with pytest.raises(reprise.Invalid, match="scope: 'all': want own or global"):
        table.sample(4, scope="all")  # type: ignore[arg-type]
    with pytest.raises(reprise.Starved, match="3 parts hold 12 to be drawn"):
        table.sample(13, scope="global", timeout=0)


# What draws weigh.


@pytest.mark.parametrize("norm", ["batch", "table"])
@pytest.mark.parametrize("draws", ["stratified", "independent"])
def test_weighted_draws_have_the_probabilities_and_weights_of_one_table(
    create: Callable[..., parts.Table], norm: str, draws: str
) -> None:
    alpha, tau, beta, epsilon = 0.7, 3.0, 0.5, 1e-3
    table = create(
        capacity=600, sampler="prioritized", priority_base="reward", priority_epsilon=epsilon, age_decay=tau,
        priority_exponent=alpha, importance_beta=beta, importance_norm=norm, draws=draws, seed=3,
    )  # fmt: skip
    weight: dict[int, float] = {}  # by id, at version 4
    for version in range(5):
        columns = rollouts([4] * 16, seed=version, version=version)
        columns["reward"] = np.random.default_rng(version).gamma(0.5, 2.0, 16).tolist()
        table.advance(version)
        ids = table.insert(columns)
        for id, reward in zip(ids.tolist(), np.float32(columns["reward"]).tolist()):
            weight[id] = ((reward + epsilon) * math.exp(-(4 - version) / tau)) ** alpha
    total = sum(weight.values())
    raw = {id: (len(weight) * each / total) ** -beta for id, each in weight.items()}
    for size in (1, 7, 64):
        batch = table.sample(size, scope="global")
        ids = batch.ids.tolist()
        np.testing.assert_allclose(batch.probabilities, [weight[id] / total for id in ids], rtol=1e-9)
        largest = max(raw.values()) if norm == "table" else max(raw[id] for id in ids)
        np.testing.assert_allclose(batch.info.log_weight_scale, math.log(largest), rtol=0, atol=1e-9)
        # The column is float32: within half a unit of its last place of the exact number, to 1e-9 of it.
        exact = np.array([raw[id] / largest for id in ids])
        half = np.spacing(exact.astype(np.float32)).astype(float) / 2
        assert (abs(batch.weights.astype(float) - exact) <= half + 1e-9 * exact).all()


def test_the_first_of_a_batch_are_fresh_in_each_part_and_weigh_1(create: Callable[..., parts.Table]) -> None:
    table = create(capacity=600, sampler="prioritized", priority_base="reward", importance_beta=1.0)
    columns = rollouts([4] * 40) | {"reward": np.linspace(0.1, 4, 40).tolist()}
    reward = dict(zip(table.insert(columns).tolist(), np.float32(columns["reward"]).tolist()))
    batch = table.sample(20, fresh=8, scope="global")
    fresh = batch.column("fresh")
    assert fresh.sum() == 8 and len(set(batch.ids[fresh].tolist())) == 8
    assert (batch.weights[fresh] == 1).all() and (batch.probabilities[fresh] == 1).all()
    raw = np.array([(reward[id] + 1e-6) ** -0.6 for id in batch.ids[~fresh].tolist()])
    np.testing.assert_allclose(batch.weights[~fresh], raw / raw.max(), rtol=2e-7)
    assert table.sample(32, fresh=32, scope="global").column("fresh").all()
    with pytest.raises(reprise.Starved, match="sampling 1 fresh: 3 parts hold 0 never handed out"):
        table.sample(1, fresh=1, scope="global", timeout=0)


@pytest.mark.parametrize("sampler", ["distinct", "unseen", "least_used", "epoch"])
def test_draws_without_replacement_repeat_nothing_and_say_their_probability(
    create: Callable[..., parts.Table], sampler: str
) -> None:
    table = create(capacity=600, sampler=sampler)
    ids = set(table.insert(rollouts([4] * 30)).tolist())
    first, second = (table.sample(20, scope="global") for _ in range(2))
    assert len(set(first.ids.tolist())) == len(set(second.ids.tolist())) == 20
    np.testing.assert_allclose(sorted(first.probabilities), [1 / (30 - i) for i in range(20)], rtol=1e-9)
    if sampler != "distinct":  # the ten that are left come before any comes again
        assert set(first.ids.tolist()) | set(second.ids.tolist()) == ids
        chances = [1 / (10 - i) for i in range(10)] + [1 / (20 - i) for i in range(10)]
        np.testing.assert_allclose(sorted(second.probabilities), sorted(chances), rtol=1e-9)


def test_draws_by_prompt_are_refused(create: Callable[..., parts.Table]) -> None:
    with pytest.raises(reprise.Invalid, match="want a table of one service"):
        create(prompt_index=True).sample_prompts(["a"])


def test_groups_are_drawn_whole(create: Callable[..., parts.Table]) -> None:
    table = create(capacity=600, sampler="prioritized", priority_base="recency", unit="group", group_size=4)
    table.insert(groups(12, size=4))
    batch = table.sample(24, scope="global")
    assert (batch.groups.reshape(6, 4) == batch.groups.reshape(6, 4)[:, :1]).all()
    np.testing.assert_allclose(batch.probabilities, 1 / 12, rtol=1e-9)
    with pytest.raises(reprise.Invalid, match="want whole groups of group_size 4"):
        table.sample(6, scope="global")


def critical(freedom: int) -> float:
    """Chi-square that one in ten million exceeds (Wilson and Hilferty 1931)."""
    return freedom * (1 - 2 / (9 * freedom) + 5.2 * math.sqrt(2 / (9 * freedom))) ** 3


def chi_square(counts: Counter[int], law: dict[int, float], n: int) -> float:
    return sum((counts[id] - n * p) ** 2 / (n * p) for id, p in law.items())


def test_draws_from_all_parts_have_the_law_of_one_table(create: Callable[..., parts.Table]) -> None:
    # In 30,000 draws, the law that takes each part equally often has a chi-square far above the critical one: a
    # divider that ignores the parts' mass fails with a probability beyond 1 - 1e-6.
    table = create(capacity=600, sampler="prioritized", priority_base="reward", draws="independent", seed=11)
    columns = rollouts([4] * 24) | {"reward": np.geomspace(0.2, 5, 24).tolist()}
    ids = table.insert(columns, batch_id="law-2").tolist()  # which part a group goes to depends on it
    weights = {id: (reward + 1e-6) ** 0.6 for id, reward in zip(ids, np.float32(columns["reward"]).tolist())}
    law = {id: weight / sum(weights.values()) for id, weight in weights.items()}
    n, counts = 0, Counter[int]()
    with table.stream(1000, scope="global", columns=["id"]) as batches:
        while n < 30_000:
            counts.update(next(batches).ids.tolist())
            n += 1000
    assert chi_square(counts, law, n) < critical(23)
    of_part = Counter[int]()
    for id, p in law.items():
        of_part[id >> 48] += p
    wrong = {id: p / of_part[id >> 48] / len(of_part) for id, p in law.items()}
    noncentral = n * sum((law[id] - wrong[id]) ** 2 / wrong[id] for id in law)
    assert noncentral > 4 * critical(23) and chi_square(counts, wrong, n) > critical(23)


@pytest.mark.parametrize("sampler", ["uniform", "distinct", "unseen", "least_used", "epoch", "fifo"])
def test_parts_get_draws_by_what_they_hold(sampler: str) -> None:
    # Of 10 draws from 5, 15 and 40 units: means within 6 standard errors of 4,000 plans. An error of 3% in the
    # share of the smallest part is found with a probability above 0.99.
    held, n, times = np.array([5, 15, 40]), 10, 4000
    random = np.random.default_rng(1)
    totals = [Totals(units=int(u), unused=int(u), epoch_left=int(u)) for u in held]
    counts = np.array([divide(random, {"sampler": sampler}, totals, n).drawn for _ in range(times)])
    p = held / held.sum()
    variance = n * p * (1 - p) * (1 if sampler == "uniform" else (60 - n) / 59)
    assert (counts.sum(1) == n).all() and (sampler == "uniform" or (counts <= held).all())
    assert (abs(counts.mean(0) - n * p) < 6 * np.sqrt(variance / times)).all()
    assert (abs(counts.var(0) / variance - 1) < 6 * math.sqrt(2.5 / times)).all()


def test_stratified_draws_fall_on_parts_by_segments_of_the_mass() -> None:
    random = np.random.default_rng(2)
    definition = {"sampler": "prioritized", "draws": "stratified"}
    totals = [Totals(units=9, log_mass=700.0), Totals(), Totals(units=1, log_mass=700.0 + math.log(3))]
    counts = np.array([divide(random, definition, totals, 10).drawn for _ in range(2000)])
    assert {tuple(row) for row in counts.tolist()} == {(2, 0, 8), (3, 0, 7)}
    assert abs(counts[:, 0].mean() - 2.5) < 6 * 0.5 / math.sqrt(2000)


@pytest.mark.parametrize(
    "keys", [{"positive_share": 0.5}, {"sources": [{"name": "a", "share": "0.5"}]}, {"draw_advantage": "regroup"}]
)
def test_draws_that_need_to_know_all_parts_are_refused(keys: dict[str, Any]) -> None:
    random, totals = np.random.default_rng(1), [Totals(units=4), Totals(units=4)]
    with pytest.raises(reprise.Invalid, match=f"{next(iter(keys))}: .*: want none for draws over several parts"):
        divide(random, {"sampler": "distinct", **keys}, totals, 2)
    plain: dict[str, Any] = {"positive_share": 0, "draw_advantage": "stored"}
    assert sum(divide(random, {"sampler": "distinct", **plain}, totals, 2).drawn) == 2


def test_a_part_that_ended_its_epoch_waits_for_the_others() -> None:
    random = np.random.default_rng(3)
    late = [Totals(units=10, epoch_left=0), Totals(units=10, epoch_left=3)]
    plan = divide(random, {"sampler": "epoch"}, late, 3)
    assert plan.drawn.tolist() == [0, 3]
    early = [Totals(units=10, epoch_left=0), Totals(units=10, epoch_left=9)]  # the second has begun another
    drawn = sum(divide(random, {"sampler": "epoch"}, early, 4).drawn for _ in range(100))
    assert 150 < drawn[0] < 270


# Leases, streams, trainers.


@pytest.mark.parametrize("scope", ["own", "global"])
def test_every_draw_is_settled_in_the_part_that_made_it(create: Callable[..., parts.Table], scope: Any) -> None:
    table = create(capacity=600, group_size=2)
    table.insert(groups(60))
    table.sample(8, scope=scope)
    kept, released = table.lease(12, scope=scope), table.lease(12, scope=scope)
    assert table.stats().on_lease == 24
    table.acknowledge(kept)
    table.release(released.info.batch)  # its number will do
    with pytest.raises(reprise.NoLease):
        table.acknowledge(kept)
    with table.stream(6, scope=scope, prefetch=2) as batches:
        for _ in range(5):
            batch = next(batches)
            assert len(batch) == 6 and (scope == "own") == (len(batch.info.batches) == 1)
    with pytest.raises(ZeroDivisionError), table.stream(6, scope=scope) as batches:
        next(batches)
        next(batches)
        raise ZeroDivisionError
    deadline = time.monotonic() + 10
    while table.stats().on_lease and time.monotonic() < deadline:  # the services notice the streams' end
        pass
    stats = table.stats()
    assert (stats.acknowledged, stats.on_lease) == (8 + 12 + 30 + 6, 0)
    assert stats.drawn == stats.acknowledged + stats.returned and batches.lapsed == 0


def test_trainers_draw_from_parts_of_their_own(servers: list[Server], create: Callable[..., parts.Table]) -> None:
    table = create(capacity=600)
    table.insert(rollouts([4] * 60))
    addresses = ",".join(each.address for each in servers)
    for trainers, owned in ((2, [{0, 2}, {1}]), (3, [{0}, {1}, {2}]), (5, [{0}, {1}, {2}, {0}, {1}])):
        for trainer, parts in enumerate(owned):
            with reprise.connect(addresses, timeout=30, trainer=trainer, trainers=trainers) as client:
                with client.table(table.name).stream(2, columns=["id"]) as batches:
                    seen = [set(part_of(next(batches).ids)) for _ in range(4)]
                assert all(len(each) == 1 for each in seen) and set.union(*seen) == parts, (trainer, trainers)


def test_feedback_reaches_the_parts_of_its_rollouts(create: Callable[..., parts.Table]) -> None:
    table = create(capacity=600, sampler="prioritized", priority_exponent=1.0, importance_beta=0)
    ids = table.insert(rollouts([4] * 30))
    assert table.update(ids, np.arange(30), version=2).version == 2
    assert {part.table.info().version for part in table.parts} == {2}
    batch = table.sample(64, scope="global")
    value = dict(zip(ids.tolist(), range(30)))
    expected = [(value[id] + 1e-6) / (435 + 30e-6) for id in batch.ids.tolist()]
    np.testing.assert_allclose(batch.probabilities, expected, rtol=1e-9)
    table.report(batch.ids, batch.staleness, advantage=np.ones(64), tokens=np.ones(64), version=3)
    assert table.advance(4).version == 4
    with pytest.warns(UserWarning, match="rewind"):
        table.advance(1)
    assert table.rewind(1).version == 1 and len(table) == 30
    assert sum(age.units for age in table.stats().ages) == 30


def test_checkpoints_are_of_all_parts(servers: list[Server], mortal: Callable[..., Server]) -> None:
    addresses = [mortal(i).address for i in range(2)]
    with reprise.connect(addresses, timeout=30) as client:
        table = client.create("t", capacity=100)
        ids = table.insert(rollouts([4] * 20))
        assert table.checkpoint("a").present == 20
        table.insert(rollouts([4] * 20, seed=1))
        assert [saved.name for saved in table.checkpoints()] == ["a"]
        assert table.restore("a").present == 20
        assert sorted(table.export(columns=["id"])["id"].to_pylist()) == sorted(ids.tolist())
        table.delete_checkpoint("a")
        assert table.checkpoints() == []


def test_the_gate_is_shared_by_the_parts(create: Callable[..., parts.Table]) -> None:
    table = create(capacity=600, group_size=2, gate=reprise.Gate(rollouts_per_update=24, max_staleness=0))
    grants = []
    while grant := table.start(3):
        grants.append(grant)
    assert sum(grant.groups for grant in grants) == 12 and {grant.number >> 48 for grant in grants} == {0, 1, 2}
    for at, grant in enumerate(grants[:-1]):
        ids = table.insert(groups(grant.groups, seed=at), grant=grant)
        assert set(part_of(ids)) == {grant.number >> 48}
    table.abandon(grants[-1])
    assert table.stats().gate.started == len(table)
    assert table.start(99).groups > 0


def test_prompts_are_replayed_by_the_part_that_they_were_reported_to(create: Callable[..., parts.Table]) -> None:
    table = create(capacity=600, prompts=reprise.Prompts(fraction=0.5, cooldown=0, max_reuse=1))
    table.prompts_report([reprise.PromptResult(f"p{i}", correct=1, total=2, ref=i) for i in range(20)])
    got = [prompt for _ in range(4) for prompt in table.prompts_next(8)]
    assert sorted(prompt.ref for prompt in got) == sorted(set(prompt.ref for prompt in got)) and len(got) == 16


def test_prompts_are_registered_and_come_by_their_difficulty(create: Callable[..., parts.Table]) -> None:
    table = create(capacity=600, prompts=reprise.Prompts(fraction=1, keep="tries == 0", score="-difficulty"))
    table.prompts_report([reprise.PromptResult(f"p{i}", 0, 0, ref=i, difficulty=i) for i in range(20)])
    assert max(prompt.ref for prompt in table.prompts_next(8)) < 16  # each part gives its easiest
    with pytest.raises(reprise.errors.Invalid, match="total is 0"):
        table.prompts_report([reprise.PromptResult("new", 0, 0)])


@pytest.mark.parametrize("sampler", ["fifo", "lifo"])
def test_a_queue_in_parts_gives_each_rollout_once(create: Callable[..., parts.Table], sampler: str) -> None:
    table = create(capacity=120, sampler=sampler, group_size=2)
    ids = table.insert(groups(30)).tolist()
    seen: list[int] = []
    with table.stream(8, prefetch=1) as batches, pytest.raises(reprise.Starved):
        for _ in range(3):
            seen += next(batches).ids.tolist()
        seen += table.sample(8).ids.tolist() + table.sample(8, scope="global", fresh=8).ids.tolist()
        with table.stream(20, timeout=0.1) as more:
            seen += next(more).ids.tolist() if len(seen) == 40 else []
    seen += table.sample(60 - len(seen)).ids.tolist() if len(seen) < 60 else []
    assert sorted(seen) == sorted(ids)
    assert table.stats().evicted["consumed"] == 60


def test_coroutines_reach_all_parts(servers: list[Server]) -> None:
    async def main() -> None:
        async with aio.connect([each.address for each in servers], timeout=30) as client:
            table = await client.create("aio-parts", capacity=60)
            ids = await table.insert(rollouts([4] * 30))
            assert len(set(part_of(ids))) == PARTS
            async with table.stream(20, scope="global") as batches:
                batch = await anext(batches)
                assert len(batch.info.batches) == PARTS
            assert (await table.sample(4, scope="global")).info.rows == 4
            assert (await table.stats()).acknowledged == 24
            await client.drop("aio-parts")

    asyncio.run(main())


# Outages.


def test_rollouts_of_all_parts_are_listed_in_one_order(create: Callable[..., parts.Table]) -> None:
    table = create(capacity=600, history=100)
    rewards = [i % 5 / 4 for i in range(30)]
    columns = {**rollouts([4] * 30), "prompt_id": [f"p{i % 6}" for i in range(30)], "reward": rewards}
    known = dict(zip(table.insert(columns).tolist(), rewards))
    assert len({plan.cut(id)[0] for id in known}) == PARTS
    newest = sorted(known, key=lambda id: (-plan.cut(id)[1], plan.cut(id)[0]))
    assert [row["id"] for row in table.rollouts()] == newest
    best = sorted(newest, key=lambda id: -known[id])  # stable: ties as above
    for skip in range(0, 30, 7):
        assert [row["id"] for row in table.rollouts(order="reward", skip=skip, limit=7)] == best[skip : skip + 7]
    assert {row["id"] for row in table.rollouts(where="reward > 0.6")} == {id for id in known if known[id] > 0.6}
    with pytest.raises(reprise.Invalid, match="skip: 995 with limit 6: want 1000 together"):
        table.rollouts(skip=995, limit=6)
    with pytest.raises(reprise.Invalid, match="use reward"):
        table.rollouts(where="rewrd > 0")
    batch = table.sample(4, scope="global")
    id = int(batch.ids[0])
    shown = table.rollout(id)
    group = {row["id"] for row in shown["group_rollouts"]}
    assert shown["id"] == id in group and shown["life"]["id"] == id
    assert {row["prompt_id"] for row in shown["prompt_rollouts"]["rollouts"]} <= {shown["prompt_id"]}
    others = {row["id"] for row in table.rollouts(prompt=shown["prompt_id"])} - group
    assert {row["id"] for row in shown["prompt_rollouts"]["rollouts"]} == others
    assert shown["prompt_rollouts"]["matched"] == len(others)
    drawn = [event["draw"]["batch"] for event in shown["life"]["events"] if event["event"] == "drawn"]
    assert len(drawn) == 1 and plan.cut(drawn[0])[0] == plan.cut(id)[0]
    for gone in (plan.join(1, 999), plan.join(77, 1)):
        with pytest.raises(reprise.NotFound):
            table.rollout(gone)
    assert len(table.rollouts()) == 30 and not table.down


@pytest.mark.parametrize("before", [0, 9])
def test_a_part_that_comes_back_has_its_rollouts_and_gets_the_version(
    mortal: Callable[..., Server], before: int
) -> None:
    services = [mortal(i) for i in range(PARTS)]
    with reprise.connect([each.address for each in services], timeout=20) as client:
        table = client.create("t", capacity=600, group_size=2)
        ids = table.insert(groups(30)).tolist()
        table.advance(before)
        services[1].stop(signal.SIGKILL)
        left = {id for id in ids if part_of(id) != 1}
        with pytest.warns(reprise.PartWarning, match="1 of its 3 parts are away: draws and new groups"):
            table.advance(5) if before < 5 else table.rewind(5)
        assert table.stats().down == (services[1].address,) and len(table) == len(left)
        assert set(table.sample(len(left), scope="global").ids.tolist()) == left
        new = table.insert(groups(20, seed=1, version=5)).tolist()
        assert set(part_of(new)) == {0, 2}
        with pytest.raises(reprise.Unavailable, match="want all parts up"):
            table.checkpoint("c")
        mortal(1)
        with pytest.warns(reprise.PartWarning, match="all of its 3 parts are back"):
            deadline = time.monotonic() + 20
            while table.down and time.monotonic() < deadline:
                table.info()
        assert table.parts[1].table.info().version == 5
        assert set(table.export(columns=["id"])["id"].to_pylist()) == {*ids, *new}
        assert 1 in part_of(table.insert(groups(30, seed=2, version=5)))


def test_the_next_call_after_a_part_is_back_reaches_it(mortal: Callable[..., Server]) -> None:
    services = [mortal(i) for i in range(PARTS)]
    with reprise.connect([each.address for each in services], timeout=20) as client:
        table = client.create("t", capacity=600, group_size=2)
        table.insert(groups(30))
        for call in (lambda: table.checkpoint("c"), lambda: table.restore("c")):
            services[1].stop(signal.SIGKILL)
            with pytest.warns(reprise.PartWarning, match="1 of its 3 parts are away"):
                while not table.down:
                    table.info()
            services[1] = mortal(1)
            with pytest.warns(reprise.PartWarning, match="all of its 3 parts are back"):
                assert call().present == 60


@pytest.mark.parametrize("scope", ["own", "global"])
def test_a_stream_goes_on_when_a_part_is_lost_for_good(mortal: Callable[..., Server], scope: Any) -> None:
    services = [mortal(i) for i in range(2)]
    with reprise.connect([each.address for each in services], timeout=20, trainer=1, trainers=2) as client:
        table = client.create("t", capacity=600, group_size=2)
        ids = table.insert(groups(40)).tolist()
        with table.stream(4, scope=scope, prefetch=1) as batches:
            assert 1 in part_of(np.concatenate([next(batches).ids for _ in range(4)]))
            with pytest.warns(reprise.PartWarning):
                services[1].stop(signal.SIGKILL)
                after = [next(batches).ids for _ in range(8)]
            assert set(part_of(after[-1])) == {0} and set(np.concatenate(after).tolist()) <= set(ids)
        assert table.sample(4, scope=scope).info.rows == 4
        table.update(np.array(ids, np.uint64), np.ones(len(ids))) if scope == "own" else table.advance(1)
        stats = table.stats()
        assert stats.on_lease == 0 and stats.drawn == stats.acknowledged + stats.returned


def test_a_table_is_created_anew_where_its_service_lost_it(servers: list[Server], binary: Any) -> None:
    first = Server()
    with reprise.connect([servers[0].address, first.address], timeout=20) as client:
        table = client.create("anew", capacity=60)
        table.insert(rollouts([4] * 20))
        first.stop(signal.SIGKILL)
        second = Server(listen=first.address.partition("://")[2])  # in memory: it knows nothing
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", reprise.PartWarning)
                deadline = time.monotonic() + 20
                while 1 not in part_of(table.insert(rollouts([4] * 20))) and time.monotonic() < deadline:
                    pass
            assert second.process.poll() is None and table.down == ()
            client.drop("anew")
        finally:
            second.stop()


INSERTION = 1000  # bytes that an insertion of a test has at least, and no other request


class Wire:
    """A wire to a service, of TCP: a test can keep back its answers from the next insertion on, and cut it. A connection
    that lost an answer gets no other, as HTTP/2 has no answers with gaps."""

    def __init__(self, address: str) -> None:
        host, _, port = address.partition("://")[2].rpartition(":")
        self._to = (host, int(port))
        self.armed, self.mute = threading.Event(), threading.Event()
        self._sockets: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"grpc://127.0.0.1:{self._listener.getsockname()[1]}"
        self.refuses = threading.Event()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                near = self._listener.accept()[0]
            except OSError:
                return
            if self.refuses.is_set():
                near.close()
                continue
            far = socket.create_connection(self._to)
            self._sockets += [near, far]
            threading.Thread(target=self._pump, args=(near, far, False), daemon=True).start()
            threading.Thread(target=self._pump, args=(far, near, True), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, answers: bool) -> None:
        lost = False
        try:
            while data := source.recv(1 << 16):
                if not answers and self.armed.is_set() and len(data) > INSERTION:
                    self.mute.set()
                lost = lost or (answers and self.mute.is_set())
                if not lost:
                    sink.sendall(data)
        except OSError:
            pass
        finally:
            sink.close()

    def cut(self) -> None:
        self.armed.clear()
        for each in self._sockets:
            try:
                each.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        self._sockets.clear()

    def close(self) -> None:
        self._listener.close()
        self.cut()


def interrupted(
    servers: list[Server], name: str, after: Callable[[Wire], None], timeout: float
) -> tuple[list[int], list[int], list[int]]:
    """Insert 20 groups in two parts, with the answer of the second kept back until they have entered. Return the ids
    that the first and a second call returned, empty if it failed, and those that the services hold."""
    wire = Wire(servers[1].address)
    calls: list[list[int]] = []
    with reprise.connect([servers[0].address, wire.address], timeout=timeout) as client:
        table = client.create(name, capacity=200, group_size=2)
        table.insert(groups(10, seed=9), batch_id="first")
        direct = reprise.connect(servers[1].address).table(name)
        before, columns = len(direct), groups(20)
        wire.armed.set()

        def insert() -> None:
            try:
                calls.append(table.insert(columns, batch_id="second").tolist())
            except reprise.Unavailable as error:
                assert "of the rows, " in str(error) and "repeat the insertion with batch_id='second'" in str(error)
                calls.append([])

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", reprise.PartWarning)
            calling = threading.Thread(target=insert)
            calling.start()
            deadline = time.monotonic() + 20
            while len(direct) == before and time.monotonic() < deadline:
                pass
            after(wire)
            calling.join()
            wire.mute.clear()
            if wire.refuses.is_set():  # however long the part is away, nothing goes to the other in its place
                with pytest.raises(reprise.Unavailable, match="repeat the insertion with batch_id='second'"):
                    table.insert(columns, batch_id="second", timeout=2)
            wire.refuses.clear()
            deadline = time.monotonic() + 20
            while table.down and time.monotonic() < deadline:
                table.info()
            calls.append(table.insert(columns, batch_id="second").tolist())
        held = table.export(columns=["id", "prompt_id"]).to_pydict()
        client.drop(name)
    wire.close()
    assert len(held["id"]) == 60 and max(Counter(held["prompt_id"]).values()) == 2, "a group entered twice"
    return calls[0], calls[1], held["id"]


def test_a_group_in_doubt_stays_with_its_part_until_that_answers(servers: list[Server]) -> None:
    def cut(wire: Wire) -> None:
        wire.mute.clear()
        wire.cut()

    first, second, held = interrupted(servers, "in-doubt", cut, 30)
    assert first == second and set(first) < set(held) and set(part_of(first)) == {0, 1}


def test_an_insertion_in_doubt_for_too_long_fails_and_its_repetition_completes_it(servers: list[Server]) -> None:
    def refuse(wire: Wire) -> None:
        wire.refuses.set()
        wire.cut()

    first, second, held = interrupted(servers, "too-long", refuse, 4)
    assert first == [] and set(second) < set(held) and set(part_of(second)) == {0, 1}


def test_a_connection_whose_other_end_is_gone_is_noticed_soon(servers: list[Server]) -> None:
    wire = Wire(servers[1].address)  # a machine that is gone refuses nothing, and its connections stay open
    with reprise.connect(wire.address, timeout=60) as client:
        table = client.create("silent", capacity=200, group_size=2)
        wire.mute.set()
        threading.Timer(1, wire.mute.clear).start()  # connections made from then on are answered
        began = time.monotonic()
        assert len(table.insert(groups(20), batch_id="once")) == 40 and len(table) == 40
        assert time.monotonic() - began < 30
        client.drop("silent")
    wire.close()


def test_parts_of_a_cluster_are_followed_to_their_owners(fake: Fake, servers: list[Server]) -> None:
    # The entry is scripted, the parts are real: what moves is where the entry says that a part is.
    places = {f"lab.{i}": "" for i in range(2)}
    fake.answer = lambda name, body: {
        "parts": [{"part": i, "table": each, "address": at} for i, (each, at) in enumerate(places.items())],
        "cluster": True,
    }
    with reprise.connect(servers[0].address) as one, reprise.connect(servers[1].address) as two:
        for i in range(2):
            places[f"lab.{i}"] = servers[0].address
            one.create(f"lab.{i}", capacity=100, group_size=2, seed=i)
        with reprise.connect([fake.address], timeout=20) as client, warnings.catch_warnings():
            warnings.simplefilter("ignore", reprise.PartWarning)
            table = client.table("lab")
            ids = table.insert(groups(20))
            assert len(set(part_of(ids))) == 2 and table.sample(40, scope="global").info.rows == 40
            one.drop("lab.1")  # now its owner is the other
            two.create("lab.1", capacity=100, group_size=2, seed=1)
            places["lab.1"] = servers[1].address
            more = table.insert(groups(20, seed=1))
            assert len(set(part_of(more))) == 2
            assert len(two.table("lab.1")) == (part_of(more) == 1).sum()
            assert len(one.table("lab.0")) == (part_of(np.concatenate([ids, more])) == 0).sum()
        one.drop("lab.0")
        two.drop("lab.1")


def test_a_table_that_no_node_of_a_cluster_made_is_not_created(fake: Fake) -> None:
    def answer(name: str, body: dict[str, Any]) -> Any:
        if name == "create_table":
            raise flight.FlightUnavailableError("interrupted: too few nodes of the cluster answer")
        return {"parts": [], "cluster": True}

    fake.answer = answer
    with reprise.connect([fake.address], timeout=1) as client, pytest.raises(reprise.Unavailable, match="too few nodes"):
        client.create("lab", capacity=100)


@pytest.mark.parametrize("seed", [1, 2])
def test_books_are_exact_whatever_happens(mortal: Callable[..., Server], seed: int) -> None:
    chance = random.Random(seed)
    services = [mortal(i) for i in range(PARTS)]
    alive = set(range(PARTS))
    inserted: dict[int, tuple[str, float]] = {}  # prompt and reward by id
    insertions: dict[str, tuple[dict[str, list[Any]], list[int]]] = {}
    uses = Counter[int]()
    version = 0
    with reprise.connect([each.address for each in services], timeout=20) as client, warnings.catch_warnings():
        warnings.simplefilter("ignore", reprise.PartWarning)
        table = client.create("t", capacity=6000, group_size=2, sampler="uniform", seed=seed)

        def check(batch: reprise.Batch) -> None:
            where = set(part_of(batch.ids))
            for id, prompt, reward in zip(batch.ids.tolist(), batch.prompt_ids, batch.rewards.tolist()):
                assert inserted[id] == (prompt, reward)
            assert (batch.staleness >= 0).all() and where <= set(range(PARTS))

        def revive() -> None:
            for number in set(range(PARTS)) - alive:
                services[number] = mortal(number)
                alive.add(number)
            deadline = time.monotonic() + 20
            while (table.info(), table.down)[1] and time.monotonic() < deadline:
                pass
            assert not table.down

        for step in range(60):
            kind = chance.choice(["insert", "insert", "repeat", "sample", "lease", "advance", "outage"])
            if kind == "insert":
                columns, name = groups(chance.randint(1, 6), seed=step, version=version), f"batch {step}"
                try:
                    ids = table.insert(columns, batch_id=name, timeout=3).tolist()
                except reprise.Unavailable:  # a service was killed meanwhile: whether all of it entered is unknown
                    revive()
                    ids = table.insert(columns, batch_id=name).tolist()
                assert len(set(ids) | set(inserted)) == len(ids) + len(inserted), "an id came twice"
                inserted |= zip(ids, zip(columns["prompt_id"], columns["reward"]))
                insertions[name] = columns, ids
            elif kind == "repeat" and insertions and len(alive) == PARTS and not table.down:
                name = chance.choice(sorted(insertions))
                assert table.insert(insertions[name][0], batch_id=name).tolist() == insertions[name][1]
            elif kind in ("sample", "lease") and len(inserted) > 40:
                scope: Any = chance.choice(["own", "global"])
                size = 2 * chance.randint(1, 8)
                if kind == "sample":
                    batch = table.sample(size, scope=scope)
                    uses.update(batch.ids.tolist())
                else:
                    batch = table.lease(size, scope=scope)
                    if chance.random() < 0.5:
                        table.acknowledge(batch)
                        uses.update(batch.ids.tolist())
                    else:
                        table.release(batch)
                check(batch)
            elif kind == "advance":
                version += 1
                table.advance(version)
            elif kind == "outage":
                if len(alive) == PARTS:
                    number = chance.randrange(PARTS)
                    services[number].stop(signal.SIGKILL)
                    alive.discard(number)
                else:
                    revive()
        revive()
        held = table.export(columns=["id", "prompt_id", "reward"]).to_pydict()
        assert dict(zip(held["id"], zip(held["prompt_id"], held["reward"]))) == inserted, f"seed {seed}"
        assert {part.table.info().version for part in table.parts} == {version}
        stats = table.stats()
        assert stats.present == len(inserted) and stats.on_lease == 0
        assert stats.drawn == stats.acknowledged + stats.returned
        assert stats.acknowledged <= sum(uses.values())
        for part in table.parts:
            assert part.table.info().present == sum(part_of(id) == part.number for id in inserted)


def test_rewards_go_to_the_parts_of_their_rollouts(create: Callable[..., parts.Table]) -> None:
    table = create(capacity=600, group_size=2, pending_rewards=60)
    ids = table.insert(groups(12) | {"reward": [float("nan")] * 24}).tolist()
    assert len({plan.cut(id)[0] for id in ids}) > 1
    done = table.reward(ids, [float(i % 2) for i in range(len(ids))], by="judge", request_id="all")
    assert done == table.reward(ids, [float(i % 2) for i in range(len(ids))], by="judge", request_id="all")
    assert (done.rewarded, done.entered) == (len(ids), len(ids))
    with pytest.raises(reprise.Invalid, match="it is of part 99"):
        table.reward([plan.join(99, 1)], [1.0])
