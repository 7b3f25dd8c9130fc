"""What a newcomer does first, and what the package says to it."""

from __future__ import annotations

import doctest
import inspect
import math
import pathlib
import re
import socket
import threading
import warnings
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from conftest import Server, rollouts

import reprise
import reprise.connection
import reprise.stream

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
def gone() -> Iterator[str]:
    """An address where nothing listens: a socket has its port, so that no other program takes it meanwhile."""
    with socket.socket() as kept:
        kept.bind(("127.0.0.1", 0))
        yield f"grpc://127.0.0.1:{kept.getsockname()[1]}"


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


def test_a_call_to_nothing_names_the_address_and_the_remedy(gone: str, tmp_path: pathlib.Path) -> None:
    unix = f"grpc+unix://{tmp_path / 'none'}"
    for address in (gone, unix):
        remedy = re.escape(f"no service at {address} (connection refused): start reprise serve or reprise.serve()")
        with reprise.connect(address, timeout=2) as client:
            calls: list[Callable[[], object]] = [
                client.list, lambda: client.create("t"), lambda: client.table("t").sample(1, timeout=0),
                lambda: next(client.table("t").stream(1, timeout=2)),
            ]  # fmt: skip
            for call in calls:
                with pytest.raises(reprise.Unavailable, match=f"^{remedy}$") as caught:
                    call()
                assert not caught.value.sent or call is calls[-1]


def test_a_dashboard_is_told_apart_from_its_service(binary: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPRISE", str(binary))
    with reprise.serve(http="127.0.0.1:0") as service:
        address = service.dashboard.rstrip("/").replace("http://", "grpc://")
        with reprise.connect(address, timeout=5) as client, pytest.raises(reprise.Unavailable) as caught:
            client.list()
    assert str(caught.value).startswith(f"an HTTP server answers at {address}, not gRPC: want the address of the service")


def test_clients_services_and_batches_say_what_they_are(
    table: Create, server: Server, binary: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REPRISE", str(binary))
    with reprise.connect(server.address) as client:
        assert repr(client) == f"<reprise.Client at {server.address}>"
    with reprise.serve(tmp_path / "data") as service:
        assert repr(service) == (
            f"<reprise.Service at {service.address}, process {service.pid}, tables in {tmp_path / 'data'}>"
        )
    t = table(sampler="fifo", capacity=100)
    t.insert(rollouts([3, 3]))
    batch = t.sample(2)
    assert repr(batch) == f"<reprise.Batch {batch.info.batch}: 2 rollouts, version 0>"


def test_one_reward_for_all_rows_is_that_of_each(table: Create) -> None:
    t = table(sampler="fifo", capacity=100)
    t.insert({**rollouts([3, 3]), "reward": 0.5})
    assert t.sample(2).rewards.tolist() == [0.5, 0.5]


def test_another_definition_is_refused_by_the_keys_that_were_given(table: Create, client: reprise.Client) -> None:
    t = table(capacity=64)
    with pytest.raises(reprise.Exists, match='another definition: sampler is "fifo", the table\'s is "distinct": use'):
        client.create(t.name, sampler="fifo", capacity=64)


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
    with pytest.warns(reprise.RepeatWarning, match="a batch of 1000 holds 8 different rollouts of the table's 8") as caught:
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


LEAKS = re.compile(
    r"__init__|list_\w+|ticket|app_metadata|\bbody\b|DoGet|DoPut|DoExchange|[Ff]light|gRPC|descriptor|JSON|of 64 bits"
)


def wrong_calls(client: reprise.Client, t: reprise.Table) -> list[Callable[[], object]]:
    rows = rollouts([4])
    batch = t.sample(1)
    nowhere = client.table("nowhere")
    row = {"logprobs": [-1], "version": 0, "reward": 1}
    changes: list[dict[str, object]] = [
        {"mask": None}, {"mask": 1}, {"mask": "x"}, {"tokens": None}, {"tokens": 5}, {"tokens": [1, 2]},
        {"tokens": [[1, 2, 3, None]]}, {"reward": None}, {"reward": "x"}, {"reward": [[1], [2, 3]]}, {"versions": None},
        {"logprobs": None}, {"meta": 5}, {"meta": [5]}, {"text": 5}, {"text": [5]}, {"images": [5]}, {"turns": [5]},
        {"group": ["a"]}, {"x_s": ["a"]}, {"x_s": object()}, {"x_t": [1]}, {"sampling_mask": 5}, {"routed_experts": 5},
        {"colour": 1}, {"grant": "x"}, {"batch_id": 5}, {"timeout": "x"}, {"group_size": "x"}, {"group_size": -1},
    ]  # fmt: skip
    definitions: list[dict[str, object]] = [
        {"colour": 1}, {"capacity": "many"}, {"capacity": 1.5}, {"capacity": math.nan}, {"sampler": "x"},
        {"sampler": 3}, {"gate": 5}, {"gate": reprise.Gate(4, "x")}, {"limiter": 5}, {"prompts": True},
        {"columns": ["x_s"]}, {"columns": {"x_s": np.float32}}, {"definition": {"capacity": 4}}, {"seed": -1},
        {"max_size": 1, "capacity": 1},
    ]  # fmt: skip
    return [
        *(lambda change=change: t.insert(**{**rows, **change}) for change in changes),
        *(lambda keys=keys: client.create("wrong", **keys) for keys in definitions),
        lambda: reprise.connect(7447), lambda: reprise.connect("127.0.0.1:7447"),
        lambda: reprise.connect(client.address, timeout=None), lambda: reprise.connect(client.address, ca=5),
        lambda: client.create(5), lambda: client.drop(None), lambda: client.drop("nowhere"), lambda: client.table(""),
        nowhere.info, nowhere.export, nowhere.schema, lambda: nowhere.sample(1), lambda: nowhere.insert(rows),
        lambda: t.insert(5), lambda: t.insert([5]), lambda: t.insert(reprise.rollout("p", [1], [2], **row)),
        lambda: t.sample("x"), lambda: t.sample(None), lambda: t.sample(1.5), lambda: t.sample(True),
        lambda: t.sample(1, fresh="x"), lambda: t.sample(1, shard=9), lambda: t.sample(1, columns=["nope"]),
        lambda: t.sample(1, columns=5), lambda: t.sample(1, columns=[5]), lambda: t.sample(1, request_id=5),
        lambda: t.sample(1, timeout="x"), lambda: t.acknowledge("x"), lambda: t.acknowledge(-5), lambda: t.release(99),
        lambda: t.stream(1, prefetch="x"), lambda: t.stream(1, prefetch_slack="x"), lambda: t.update("x", [1]),
        lambda: t.report([1], ["x"]), lambda: t.advance("x"), lambda: t.advance(None), lambda: t.advance(10**20),
        lambda: t.rewind(99), lambda: t.start("x"), lambda: t.start(1, timeout="x"), lambda: t.abandon("x", 1),
        lambda: t.prompts_next("x"), lambda: t.prompts_report([5]), lambda: t.prompts_report(5),
        lambda: t.checkpoint(5), lambda: t.restore("nope"), lambda: t.delete_checkpoint(5), lambda: t.export(rows="x"),
        lambda: batch.column("nope"), lambda: batch.flat("reward"), lambda: batch.padded(side="up"),
        lambda: batch.padded(length="x"), lambda: batch.padded(multiple_of="x"), lambda: batch.packed(multiple_of=1.5),
        lambda: reprise.rollout("p", "x", [2], **row), lambda: reprise.rollout("p", [1], 2, **row),
        lambda: reprise.rollout("p", [1], [2], sampling_mask=5, **row),
    ]  # fmt: skip


def test_every_wrong_call_is_an_error_in_terms_of_python(client: reprise.Client, table: Create) -> None:
    t = table(columns={"x_s": "float32"})
    t.insert(rollouts([4]))
    for number, call in enumerate(wrong_calls(client, t)):
        with pytest.raises(reprise.Error) as caught:
            print(number, call())
        assert not LEAKS.search(str(caught.value)), str(caught.value)
        assert ": " in str(caught.value)


def test_a_long_wait_says_what_it_waits_for(
    table: Create, gone: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(reprise.stream.Prefetcher, "WATCH", 0.05)
    monkeypatch.setattr(reprise.stream.Prefetcher, "NOTICE", 0.1)
    t = table(max_staleness=2)
    t.insert(rollouts([4, 4]))
    t.advance(3)
    with pytest.raises(reprise.Starved), t.stream(2, timeout=3) as batches:
        next(batches)
    (said,) = [record.message for record in caplog.records]
    assert f"table {t.name}: waiting for a batch of 2 rollouts" in said
    assert "it holds 0, and others left: 2 by staleness" in said
    caplog.clear()
    with reprise.connect(gone, timeout=0.2) as client, pytest.raises(reprise.Unavailable):
        client.table("t").info()
    (said,) = [record.message for record in caplog.records]
    assert said.startswith(f"{gone} is away, trying again for ")


def public() -> Iterator[tuple[str, object]]:
    for name in reprise.__all__:
        thing = getattr(reprise, name)
        yield name, thing
        if inspect.isclass(thing):
            for member, value in inspect.getmembers(thing):
                ours = getattr(inspect.unwrap(getattr(value, "fget", value)), "__module__", "") or ""
                if not member.startswith("_") and (ours.startswith("reprise") or isinstance(value, property)):
                    yield f"{name}.{member}", value


def test_every_public_name_has_a_docstring() -> None:
    names = dict(public())
    assert {"Table.insert", "Padded.keys", "Batch.ids"} <= set(names)
    without = [name for name, thing in names.items() if not (inspect.getdoc(thing) or "").strip()]
    generated = [  # by dataclass, from the signature
        name for name, thing in names.items() if inspect.isclass(thing) and (thing.__doc__ or "").startswith(f"{name}(")
    ]
    assert not without and not generated


def test_the_example_of_help_runs(binary: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPRISE", str(binary))
    example = doctest.DocTestParser().get_examples(reprise.__doc__ or "")
    source = "".join(part.source for part in example)
    names: dict[str, object] = {}
    exec(source, names)
    assert names["stats"].acknowledged == 4
