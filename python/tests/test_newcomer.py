"""What a newcomer does first, and what the package says to it."""

from __future__ import annotations

import pathlib
import threading
import warnings
from collections.abc import Callable

import numpy as np
import pytest
from conftest import Server, rollouts

import reprise
import reprise.connection

Create = Callable[..., reprise.Table]


def test_rollouts_too_stale_to_enter_are_reported_once_by_count(table: Create) -> None:
    t = table(max_staleness=2)
    t.advance(9)
    with pytest.warns(reprise.StaleWarning, match="3 of 4 rollouts are older than max_staleness 2 .* rewind") as caught:
        t.insert({**rollouts([4] * 4), "versions": None, "version": [0, 0, 0, 9]})
    assert caught[0].message.count == 3 and caught[0].message.table == t.name
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        t.insert(rollouts([4] * 4))
    assert len(t) == 1 and t.stats().evicted["staleness"] == 7


@pytest.fixture
def gone(binary: pathlib.Path) -> str:
    """The address of a service that was there."""
    running = Server()
    running.stop()
    return running.address


def test_a_timeout_bounds_calls_to_a_service_that_is_gone(gone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (reprise.connection, reprise.stream, reprise.table):
        monkeypatch.setattr(module, "GRACE", 3600.0, raising=False)  # seconds that an answer may take would not end
    failures: list[BaseException] = []

    def call(it: Callable[[reprise.Table], object]) -> None:
        with reprise.connect(gone) as client:
            try:
                it(client.table("t"))
            except BaseException as error:
                failures.append(error)

    calls: list[Callable[[reprise.Table], object]] = [
        lambda t: t.insert(rollouts([3]), timeout=0.2),
        lambda t: t.sample(1, timeout=0.2),
        lambda t: t.lease(1, timeout=0.2),
        lambda t: next(t.stream(1, timeout=0.2)),
        lambda t: t.export(timeout=0.2),
    ]
    threads = [threading.Thread(target=call, args=(it,), daemon=True) for it in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
    assert [type(error) for error in failures] == [reprise.Unavailable] * len(calls)


def test_the_tables_group_size_holds_for_every_insertion(table: Create) -> None:
    t = table(sampler="fifo", capacity=100, group_size=2)
    t.insert(rollouts([4] * 6))
    batch = t.sample(6)
    assert np.unique(batch.groups, return_counts=True)[1].tolist() == [2, 2, 2]
    assert batch.group_means.tolist() == [0.5] * 6
    with pytest.raises(reprise.Invalid, match="group_size: 2: 3 rollouts came without a column group"):
        t.insert(rollouts([4] * 3))
    t.insert({**rollouts([4] * 4), "prompt_id": ["a", "b", "a", "b"], "group": [0, 1, 0, 1]})
    assert t.sample(4).prompt_ids == ["a", "a", "b", "b"]


def test_log_probs_of_whole_sequences_are_masked(table: Create) -> None:
    t = table(sampler="fifo", capacity=100)
    common = {"tokens": [[5, 6, 7], [5, 6, 8]], "prompt_lengths": 1, "reward": [1, 0], "group": [0, 0]}
    t.insert(**common, logprobs=[[np.nan, -0.5, -0.25], [-7, -0.5, -1]], versions=[[3, 0, 0], [0, 0, 0]])
    batch = t.sample(2)
    assert batch.flat("logprobs").tolist() == [0, -0.5, -0.25, 0, -0.5, -1]
    assert batch.flat("versions").tolist() == [-1, 0, 0, -1, 0, 0]
    with pytest.raises(reprise.Invalid, match=r"logprobs\[0\].*where mask is 0"):
        t.insert({**common, "prompt_lengths": 2}, logprobs=[[-1, -1, 0], [-1, -1, 0]], version=0)


def test_numbers_in_meta_become_text(table: Create) -> None:
    t = table(sampler="fifo", capacity=100)
    t.insert({**rollouts([3, 3]), "meta": [{"a": 1, 2: np.float32(0.5), "ok": True}, {}]})
    t.insert(rollouts([3, 3]), meta={"run": 7})
    rows = t.sample(4).record_batch.column("meta").to_pylist()
    assert rows == [[("2", "0.5"), ("a", "1"), ("ok", "True")], None, [("run", "7")], [("run", "7")]]
    with pytest.raises(reprise.Invalid, match=r"meta: a: \[1\]: want a str or a number.*json.dumps"):
        t.insert(rollouts([3]), meta={"a": [1]})


def test_a_starved_draw_says_how_many_rollouts_left_and_why(table: Create) -> None:
    t = table(max_staleness=2)
    t.insert(rollouts([4, 4]))
    t.advance(3)
    with pytest.raises(
        reprise.Starved,
        match="where 0 can be drawn .2 left because they were older than max_staleness 2 at version 3: insert rollouts "
        "of newer weights, or raise max_staleness",
    ):
        t.sample(2, timeout=0)
    with pytest.raises(reprise.Starved, match="2 left because"), t.stream(2, timeout=0.05) as batches:
        next(batches)
    t = table(max_uses=1, sampler="uniform", min_size=2)
    t.insert(rollouts([4, 4]))
    t.sample(2)
    with pytest.raises(reprise.Starved, match="2 left after max_uses 1: insert new rollouts, or raise max_uses"):
        t.sample(2, timeout=0)


@pytest.mark.parametrize("sampler", ["uniform", "prioritized"])
def test_more_draws_than_rollouts_warn_once_that_they_repeat(table: Create, sampler: str) -> None:
    t = table(sampler=sampler)
    t.insert(rollouts([4] * 8))
    with pytest.warns(reprise.RepeatWarning, match="a batch of 1000 holds 8 distinct rollouts") as caught:
        assert len(t.sample(1000)) == 1000
    assert caught[0].filename == __file__ and (caught[0].message.rows, caught[0].message.different) == (1000, 8)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        t.sample(1000)
    other = table(sampler=sampler)
    other.insert(rollouts([4] * 8))
    with pytest.warns(reprise.RepeatWarning), other.stream(9) as batches:
        next(batches)


def test_samplers_without_replacement_do_not_repeat(table: Create) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        t = table(sampler="fifo", capacity=10)
        t.insert(rollouts([4] * 8))
        assert len(set(t.sample(8).ids.tolist())) == 8  # none is left, which is not more than asked for
        t = table(sampler="distinct")
        t.insert(rollouts([4] * 8))
        with pytest.raises(reprise.Starved):
            t.sample(9, timeout=0)


@pytest.mark.parametrize("shape", ["padded", "packed"])
def test_the_shapes_read_as_a_dict_under_one_name_each(table: Create, shape: str) -> None:
    t = table(sampler="fifo", max_size=100, columns={"x_score": "float32"})
    t.insert(
        input_ids=[[5, 6, 7]] * 2, loss_mask=[[0, 1, 1]] * 2, rewards=[1, 0], logprobs=[[0, -1, -2]] * 2, version=0
    )
    shaped = getattr(t.sample(2), shape)()
    assert shaped["tokens"] is shaped.tokens is shaped.input_ids is shaped["input_ids"]
    assert shaped["mask"] is shaped["loss_mask"] is shaped.mask and shaped["reward"] is shaped.reward is shaped.rewards
    assert dict(shaped) == {**shaped} and list(shaped) == list(shaped.keys()) == [name for name, _ in shaped.items()]
    assert {"tokens", "loss_mask", "rewards"} <= set(shaped) and not {"input_ids", "mask", "values"} & set(shaped)
    assert "input_ids" in shaped and "values" not in shaped and shaped.get("values") is None
    with pytest.raises(KeyError, match="^colour: not an array of this batch: want one of ids, .*tokens"):
        shaped["colour"]
    with pytest.raises(reprise.Invalid, match="^rewards: another name for reward, which was given too"):
        t.insert(rollouts([3]), rewards=[1.0])
    assert t.info().definition["capacity"] == 100
