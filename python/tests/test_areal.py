"""reprise.areal behind AReaL's own engine, executor, workflow and trainer's code: only SGLang's server is scripted."""

from __future__ import annotations

import copy
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import Server

import reprise

pytest.importorskip("areal", reason="the package areal is not installed: make test-frameworks installs it from PyPI")
torch = pytest.importorskip("torch")

import torch.distributed as dist
from areal.api.cli_args import (
    GenerationHyperparameters,
    InferenceEngineConfig,
    NormConfig,
    PPOActorConfig,
    PPOConfig,
    TrainDatasetConfig,
)
from areal.engine.sglang_remote import RemoteSGLangEngine
from areal.infra.controller.train_controller import TrainController, _dispatch_tensors
from areal.infra.dist_rollout import DistRolloutCoordinator
from areal.infra.rpc import rtensor
from areal.infra.rpc.rtensor import RTensor
from areal.infra.rpc.serialization import deserialize_value, serialize_value
from areal.trainer.ppo.actor import PPOActor
from areal.utils import stats_tracker
from areal.utils.data import concat_padded_tensors
from areal.workflow.rlvr import RLVRWorkflow

from reprise import areal

GROUP, PROMPTS = 2, 4


@pytest.fixture
def config(tmp_path: Path, request: pytest.FixtureRequest) -> PPOConfig:
    """AReaL's configuration of a run with PROMPTS prompts a step and GROUP samples of each."""
    made = PPOConfig(
        experiment_name="tests",
        trial_name=request.node.name[:60],
        rollout=InferenceEngineConfig(backend="sglang:d1", consumer_batch_size=PROMPTS, max_head_offpolicyness=1),
        actor=PPOActorConfig(
            backend="fsdp:d1", use_decoupled_loss=True, kl_ctl=0, reward_norm=NormConfig("group", group_size=GROUP)
        ),
        gconfig=GenerationHyperparameters(n_samples=GROUP, max_new_tokens=8, temperature=0.5),
        train_dataset=TrainDatasetConfig(batch_size=PROMPTS),
    )
    made.cluster.fileroot = str(tmp_path)
    return made


@pytest.fixture
def engines(sglang: Any, config: PPOConfig) -> Iterator[Any]:
    """Makes AReaL's engines, connected to the server."""
    made = []

    def make() -> RemoteSGLangEngine:
        made.append(RemoteSGLangEngine(config.rollout))
        made[-1].initialize(addr=f"127.0.0.1:{sglang.server_port}", train_data_parallel_size=1)
        return made[-1]

    yield make
    for each in made:
        each.destroy()
    stats_tracker.export_all()


@pytest.fixture
def engine(engines: Any) -> Any:
    return engines()


@pytest.fixture
def replay(engine: Any, config: PPOConfig, server: Server, client: reprise.Client) -> Iterator[Callable[..., Any]]:
    """Makes a Replay of the engine, and drops its table after the test."""
    made = []

    def make(**options: Any) -> areal.Replay:
        made.append(areal.Replay(engine, config, address=server.address, **options))
        return made[-1]

    yield make
    for name in {each.table.name for each in made}:
        client.drop(name)


class Tokenizer:
    pad_token_id, eos_token_id = 0, 1
    decode = staticmethod(str)


@pytest.fixture
def workflow(config: PPOConfig) -> RLVRWorkflow:
    made = RLVRWorkflow(
        lambda *arguments, **options: 0.0, config.gconfig, Tokenizer(),
        get_input_ids_fn=lambda messages, tokenizer, thinking: list(messages),
    )  # fmt: skip

    async def reward(prompt: str, completion: str, ids: list[int], tokens: list[int], **data: Any) -> float:
        return float(tokens[-1] % 2)

    made.async_reward_fn = reward  # in this process
    return made


class Prompts(list):
    """A data loader whose prompts have 2 to 4 tokens."""

    batch_size = PROMPTS

    def __init__(self) -> None:
        super().__init__([[{"messages": [7] * (2 + at % 3)} for at in range(PROMPTS)]])


def step(engine: Any, workflow: Any) -> list[dict[str, Any]]:
    """What AReaL's trainer calls in each step."""
    return engine.prepare_batch(Prompts(), workflow=workflow, group_size=GROUP)


def rows(trajectories: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """The rollouts of trajectories, without padding."""
    found = []
    for each in trajectories:
        for row, length in enumerate(each["attention_mask"].sum(1).tolist()):
            kept = [each[name][row, :length].tolist() for name in ("input_ids", "loss_mask", "logprobs", "versions")]
            found.append((each["rewards"][row].item(), *map(tuple, kept)))
    return found


def test_areal_gets_groups_of_earlier_steps_beside_the_new_ones(
    engine: Any, sglang: Any, workflow: Any, replay: Any
) -> None:
    table = replay().table
    first = step(engine, workflow)
    assert len(first) == PROMPTS and len(table) == PROMPTS * GROUP
    assert stats_tracker.export()["replay/replayed_rows"] == 0
    engine.set_version(1)
    second = step(engine, workflow)
    assert len(second) == 2 * PROMPTS
    fresh, replayed = second[:PROMPTS], second[PROMPTS:]
    assert sorted(rows(replayed)) == sorted(rows(first)) and not set(rows(fresh)) & set(rows(first))
    for each in replayed:
        assert {name: value.dtype for name, value in each.items()} == {
            name: value.dtype for name, value in first[0].items()
        }
        assert each["input_ids"].shape == (GROUP, int(each["attention_mask"].sum(1).max()))
    logged = stats_tracker.export()
    assert (logged["replay/fresh_rows"], logged["replay/replayed_rows"]) == (8, 8)
    assert logged["replay/staleness/mean"] == logged["replay/staleness/max"] == 1
    exported = table.export(columns=["temperature", "versions"]).to_pydict()
    assert set(exported["temperature"]) == {0.5} and table.info().version == 1


def test_areals_trainer_learns_from_the_batch(engine: Any, workflow: Any, config: PPOConfig, replay: Any) -> None:
    replay()
    step(engine, workflow)
    engine.set_version(1)
    batch = step(engine, workflow)
    for each in batch:
        each["prox_logp"] = torch.zeros_like(each["logprobs"])  # as AReaL's trainer sets it
    rewards = [each["rewards"].clone() for each in batch]
    learned = PPOActor(config.actor, types.SimpleNamespace()).compute_advantages(batch)
    assert len(learned) == 2 * PROMPTS
    for each, reward in zip(learned, rewards):
        centred = (reward - reward.mean()).sign()
        at = (each["loss_mask"].cumsum(1) == 1).int().argmax(1)
        assert each["advantages"][range(GROUP), at].sign().tolist() == centred.tolist()  # of its own group


def test_areals_trainer_process_takes_the_batch(engine: Any, workflow: Any, replay: Any) -> None:
    replay()
    step(engine, workflow)
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        group = dist.group.WORLD
        trainer = types.SimpleNamespace(
            config=None, data_parallel_group=group, cpu_group=group, context_and_model_parallel_group=group,
            is_data_parallel_head=lambda: True, current_data_parallel_head=lambda: 0,
        )  # fmt: skip
        batch = DistRolloutCoordinator(engine, trainer).prepare_batch(Prompts(), workflow=workflow, group_size=GROUP)
    finally:
        dist.destroy_process_group()
    assert len(batch) == 2 * PROMPTS and len(concat_padded_tensors(batch)["rewards"]) == 2 * PROMPTS * GROUP


def test_areals_controller_sends_references_on_and_drawn_groups_along(
    engine: Any, workflow: Any, replay: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A controller's trajectories are references to tensors of its workers."""
    monkeypatch.setattr(rtensor, "_backend", types.SimpleNamespace(
        store=lambda tensor: stored.append(tensor) or len(stored) - 1,
        fetch=lambda shards: [stored[shard.shard_id] for shard in shards],
    ))  # fmt: skip
    stored: list[Any] = []
    generate = engine.prepare_batch
    local: list[Any] = []

    def remote(*arguments: Any, **options: Any) -> Any:
        local.append(generate(*arguments, **options))
        return RTensor.remotize(local[-1], "worker")

    engine.prepare_batch = remote
    replay()
    controller = TrainController.__new__(TrainController)
    controller.rollout = engine
    controller.prepare_batch(Prompts(), workflow=workflow, workflow_kwargs=None, group_size=GROUP)
    batch = controller.prepare_batch(Prompts(), workflow=workflow, workflow_kwargs=None, group_size=GROUP)
    fresh, replayed = batch[:PROMPTS], batch[PROMPTS:]
    assert all(isinstance(value, RTensor) and value.data.is_meta for each in fresh for value in each.values())
    assert len(replayed) == PROMPTS
    splits, _ = _dispatch_tensors(batch, 2)
    received = [each for split in splits for each in RTensor.localize(deserialize_value(serialize_value(split)))]
    assert sorted(rows(received)) == sorted(rows(local[0]) + rows(local[1]))


def test_a_recovered_areal_drops_what_newer_weights_generated(
    engines: Any, engine: Any, workflow: Any, config: PPOConfig, server: Server, replay: Any
) -> None:
    table = replay(replayed=0, capacity=100).table
    for version in range(3):
        engine.set_version(version)
        step(engine, workflow)
    assert table.info().present == 3 * PROMPTS * GROUP
    again = engines()
    again.set_version(1)  # as AReaL's recovery sets it
    areal.Replay(again, config, replayed=0, capacity=100, address=server.address)
    step(again, workflow)
    versions = {version for row in table.export()["versions"].to_pylist() for version in row}
    assert table.info().version == 1 and versions == {-1, 0, 1}


def test_groups_of_another_size_are_trained_on_and_not_kept(engine: Any, workflow: Any, replay: Any) -> None:
    table = replay().table
    generate = workflow.arun_episode
    calls: list[int] = []

    async def sometimes(inner: Any, data: Any) -> Any:
        calls.append(1)
        return None if len(calls) == 1 else await generate(inner, data)

    workflow.arun_episode = sometimes
    batch = step(engine, workflow)
    assert sorted(len(each["rewards"]) for each in batch) == [1, 2, 2, 2]
    assert len(table) == 6 and stats_tracker.export()["replay/fresh_rows_skipped"] == 1


def test_what_would_be_wrong_in_areal_is_refused(
    engine: Any, workflow: Any, config: PPOConfig, replay: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for options, message in (
        ({"replayed": 0.5}, "replayed: 0.5: want groups drawn for each new one"),
        ({"capacity": 7}, "capacity: 7: want at least 8, the rollouts that a step draws"),
        ({"unit": "rollout"}, "unit: rollout: want group"),
        ({"sampler": "fifo"}, "sampler: fifo: want one that draws again"),
        ({"sampler": "prioritized"}, "importance_beta: None: AReaL's loss has no place"),
        ({"target_ess": 0.5}, "target_ess: 0.5: needs reports of each update, which AReaL does not give"),
        ({"max_stalenes": 3}, "max_stalenes: unknown key: want max_staleness"),
    ):
        with pytest.raises(reprise.Invalid, match=message):
            replay(**options)
    on_policy = copy.deepcopy(config)
    on_policy.actor.use_decoupled_loss, on_policy.actor.recompute_logprob = False, True
    with pytest.raises(reprise.Invalid, match="actor.recompute_logprob: true without actor.use_decoupled_loss"):
        areal.Replay(engine, on_policy)
    with monkeypatch.context() as patch:
        patch.setattr(dist, "is_initialized", lambda: True)
        patch.setattr(dist, "get_world_size", lambda: 2)
        with pytest.raises(reprise.Invalid, match="engine: of one of 2 trainer processes"):
            areal.Replay(engine, config)
    replay(sampler="prioritized", importance_beta=0)
    with pytest.raises(reprise.Invalid, match="engine: has a Replay already"):
        replay()


@pytest.mark.parametrize(("name", "message"), [
    ("multi_modal_input", "multi_modal_input: images are not carried: want prompts of text only"),
    ("begin_of_trajectory", "begin_of_trajectory: the table does not carry it: want trajectories of input_ids"),
    ("versions", "versions: missing: want trajectories of"),
])  # fmt: skip
def test_trajectories_that_the_table_does_not_carry_are_refused(
    engine: Any, workflow: Any, replay: Any, name: str, message: str
) -> None:
    generate = workflow.arun_episode

    async def other(inner: Any, data: Any) -> Any:
        made = await generate(inner, data)
        return {**made, name: made["rewards"]} if name != "versions" else {k: v for k, v in made.items() if k != name}

    workflow.arun_episode = other
    table = replay().table
    with pytest.raises(reprise.Invalid, match=message):
        step(engine, workflow)
    assert len(table) == 0


def test_without_an_address_areals_process_serves(
    engine: Any, workflow: Any, config: PPOConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, binary: Path
) -> None:
    monkeypatch.delenv("REPRISE_ADDRESS", raising=False)
    monkeypatch.setenv("REPRISE", str(binary))
    table = areal.Replay(engine, config).table
    assert table.name == f"areal-tests-{config.trial_name}"
    step(engine, workflow)
    assert len(table) == PROMPTS * GROUP and (tmp_path / "replay" / "tests" / config.trial_name).is_dir()
    for service in list(reprise.service._running):
        if service.address == table._connection.address:
            service.close()
