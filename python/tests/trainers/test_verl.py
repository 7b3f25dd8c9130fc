"""`reprise.verl` in verl itself: its trainer's own methods, a real TransferQueue on Ray, and a service.

Ray listens on every address of the machine, so these tests run only where there is no network but loopback, as
`make test-verl` runs them. They need verl, and skip without it.
"""

from __future__ import annotations

import asyncio
import os
import pathlib
import re
import signal
import socket
import sys
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from conftest import Server

import reprise

pytest.importorskip("verl", reason="verl is not installed: make test-verl")
if [name for _, name in socket.if_nameindex()] != ["lo"]:
    pytest.skip("Ray listens on every address: make test-verl runs in a network namespace", allow_module_level=True)

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
os.environ["PYTHONPATH"] = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])  # of Ray's processes
os.environ["HF_HUB_OFFLINE"] = "1"

import verl_on_cpu  # noqa: E402  # before what asks for the platform
import ray  # noqa: E402
import torch  # noqa: E402
import transfer_queue as tq  # noqa: E402
import verl  # noqa: E402
from hydra import compose, initialize_config_dir  # noqa: E402
from tensordict import TensorDict  # noqa: E402
from tokenizers import Tokenizer as RawTokenizer  # noqa: E402
from tokenizers.models import WordLevel  # noqa: E402
from transfer_queue import KVBatchMeta  # noqa: E402
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM  # noqa: E402
from verl.experimental.agent_loop.agent_loop import AgentLoopMetrics, AgentLoopOutput  # noqa: E402
from verl.single_controller.ray import RayClassWithInitArgs, RayResourcePool, RayWorkerGroup  # noqa: E402
from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopWorkerTQ  # noqa: E402
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer, ReplayBufferAsync  # noqa: E402
from verl.trainer.ppo.v1.trainer_base import TRAINER_REGISTRY  # noqa: E402
from verl.workers.utils.losses import ppo_loss  # noqa: E402
from verl.workers.utils.padding import response_from_nested  # noqa: E402

N = 4  # rollouts in a group
ON = [
    "trainer.v1.sampler.custom_sampler.path=pkg://reprise.verl",
    "trainer.v1.sampler.custom_sampler.name=RepriseReplayBuffer",
    "actor_rollout_ref.rollout.calculate_log_probs=true",
    "algorithm.rollout_correction.bypass_mode=true",
]
"""What docs/verl.md tells users to set."""


@pytest.fixture(scope="session", autouse=True)
def queue() -> Iterator[None]:
    ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False)
    tq.init()
    yield
    tq.close()
    ray.shutdown()


class Engine(AgentLoopWorkerTQ.__ray_metadata__.modified_class):  # type: ignore[misc]
    """verl's agent loop worker without a language model: it puts given responses into TransferQueue as verl does."""

    processor = None

    def __init__(self) -> None:
        self.rng = np.random.default_rng(7)

    async def _compute_score(self, outputs: list[AgentLoopOutput], kwargs: dict[str, Any]) -> None:
        pass

    async def _compute_teacher_logprobs(self, output: AgentLoopOutput, **_: Any) -> None:
        pass

    def generate(self, step: int, prompts: int, rewards: Any = None, logprobs: bool = True, n: int = N) -> list[str]:
        """Put finished groups for a step into TransferQueue, and return their uids. A token takes a quarter second."""
        uids = [str(uuid.uuid4()) for _ in range(prompts)]
        for prompt, uid in enumerate(uids):
            for session in range(n):
                length = int(self.rng.integers(2, 9))
                mask = [1, 0, *[1] * (length - 2)]  # the second token is a tool's
                output = AgentLoopOutput(
                    prompt_ids=self.rng.integers(3, 50, 2 + prompt % 3).tolist(),
                    response_ids=self.rng.integers(3, 50, length).tolist(),
                    response_mask=mask,
                    response_logprobs=(-self.rng.random(length) * np.array(mask)).tolist() if logprobs else None,
                    reward_score=float(session % 2 if rewards is None else rewards[prompt][session]),
                    num_turns=2,
                    metrics=AgentLoopMetrics(generate_sequences=length / 4),
                    extra_fields={"min_global_steps": step - 1, "max_global_steps": step - 1},
                )
                kwargs = {
                    "uid": uid, "session_id": session, "global_steps": step, "data_source": "words",
                    "reward_model": {"ground_truth": str(prompt)}, "raw_prompt": [{"role": "user", "content": "?"}],
                    "dummy_tensor": torch.tensor([0], dtype=torch.uint8),
                }  # fmt: skip
                asyncio.run(self._agent_loop_postprocess(output, False, **kwargs))
        tags = [{"is_prompt": True, "status": "finished", "global_steps": step} for _ in uids]
        tq.kv_batch_put(keys=uids, partition_id="train", tags=tags)
        return uids


class Workers:
    """Where the trainer asks how many data-parallel ranks there are."""

    _dispatch_info = {"actor": [0]}


class Tokenizer:
    eos_token_id = 1


def configuration(*overrides: str) -> Any:
    """verl's own configuration, with replay."""
    folder = pathlib.Path(verl.__file__).parent / "trainer" / "config"
    common = [*ON, f"actor_rollout_ref.rollout.n={N}", "algorithm.adv_estimator=grpo", "trainer.project_name=tests"]
    with initialize_config_dir(str(folder), version_base=None):
        return compose("ppo_trainer", [*common, *overrides])


@pytest.fixture
def trainer(server: Server, client: reprise.Client, request: pytest.FixtureRequest) -> Iterator[Callable[..., Any]]:
    """Makes verl's trainers with its own configuration and no workers. Tables and keys go after the test."""
    name = re.sub(r"\W+", "-", request.node.name)[:60]

    def make(*overrides: str, mode: str = "sync", prompts: int = 2, **options: Any) -> Any:
        options = {"address": server.address, **options}
        config = configuration(
            f"trainer.v1.trainer_mode={mode}", f"data.train_batch_size={prompts}",
            f"actor_rollout_ref.actor.ppo_mini_batch_size={prompts}", f"trainer.experiment_name={name}",
            *(f"+trainer.v1.sampler.sampler_kwargs.{key}={value}" for key, value in options.items()), *overrides,
        )  # fmt: skip
        made = TRAINER_REGISTRY[mode].__new__(TRAINER_REGISTRY[mode])
        made.config, made.trainer_mode, made.global_steps = config, mode, 0
        made.use_critic, made.actor_rollout_wg, made.tokenizer = False, Workers(), Tokenizer()
        made.replay_buffer = made._build_replay_buffer()
        made.replay_buffer.poll_interval = 0.05
        return made

    yield make
    empty()
    for info in client.list():
        client.drop(info.name)


def sample(trainer: Any, step: int, prompts: int = 2) -> tuple[KVBatchMeta, dict[str, Any]]:
    trainer.global_steps = step
    meta, metrics = trainer.replay_buffer.sample(global_steps=step, partition_id="train", batch_size=prompts)
    return meta, metrics


def fields(meta: KVBatchMeta, *names: str) -> Any:
    return tq.kv_batch_get(keys=meta.keys, partition_id=meta.partition_id, select_fields=list(names) or None)


def empty() -> None:
    """Take everything out of TransferQueue."""
    for partition, keys in (tq.kv_list() or {}).items():
        if keys:
            tq.kv_clear(keys=list(keys), partition_id=partition)


def clear(meta: KVBatchMeta) -> None:
    """What verl's trainer does after each step."""
    tq.kv_clear(keys=meta.keys, partition_id=meta.partition_id)


def test_groups_of_earlier_steps_stand_beside_new_ones_as_they_were_generated(trainer: Callable[..., Any]) -> None:
    made, engine = trainer(), Engine()
    engine.generate(1, 2)
    first, metrics = sample(made, 1)
    assert len(first.keys) == 2 * N and metrics["replay/replayed_rows"] == 0
    names = [
        "prompts", "responses", "input_ids", "position_ids", "response_mask", "loss_mask", "rollout_log_probs",
        "rm_scores",
    ]  # fmt: skip
    was = {tuple(row["input_ids"].tolist()): row for row in map(dict, fields(first))}
    clear(first)
    engine.generate(2, 2)
    second, metrics = sample(made, 2)
    assert len(second.keys) == 4 * N == metrics["replay/replayed_rows"] + metrics["replay/fresh_rows"]
    assert metrics["replay/staleness/mean"] == 1 and metrics["replay/present"] == 2 * N
    data = fields(second)
    for key, tag, row in zip(second.keys, second.tags, map(dict, data)):
        if not key.startswith("replay-"):
            continue
        old = was[tuple(row["input_ids"].tolist())]
        for name in names:
            assert torch.equal(row[name], old[name]), name
        for name in ("data_source", "raw_prompt", "reward_model", "num_turns", "multi_modal_inputs"):
            assert row[name] == old[name], name
        assert row["uid"] == key.rsplit("_", 2)[0]
        assert (tag["min_global_steps"], tag["max_global_steps"], tag["global_steps"]) == (0, 0, 2)
        assert tag["seq_len"] == len(row["input_ids"]) == tag["prompt_len"] + tag["response_len"]


def test_after_20_steps_a_line_says_what_would_pay_here(
    trainer: Callable[..., Any], binary: pathlib.Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("REPRISE", str(binary))
    made, engine = trainer(), Engine()
    with caplog.at_level("WARNING", "reprise"):
        for step in range(1, 22):
            engine.generate(step, 2, rewards=[[1, 1, 1, 1], [0, 1, 0, 1]])
            clear(sample(made, step)[0])
    said = [record.getMessage() for record in caplog.records if record.getMessage().startswith("advice ")]
    assert len(said) == 1 and said[0].startswith(f"advice after 20 batches of {2 * N} rollouts: ")
    assert "Measured: generating a rollout takes " in said[0] and "50% of 40 groups without a signal" in said[0]
    assert made.replay_buffer.meter.advice().figures["right"] == 0.75
    with pytest.raises(reprise.Invalid, match="advice: 'no': want true or false"):
        trainer(advice="'no'")


def test_verl_computes_the_advantages_of_whole_groups_and_its_metrics(trainer: Callable[..., Any]) -> None:
    made, engine = trainer(), Engine()
    for step in (1, 2):
        engine.generate(step, 2, rewards=[[step, 0, 0, 0], [0, step, step, step]])
        meta, metrics = sample(made, step)
        metrics = {key: value for key, value in metrics.items() if key.startswith("replay/")}
        meta = made._balance_batch(meta, metrics)
        meta = made._compute_old_log_prob(meta, metrics)
        meta = made._compute_advantage(meta, metrics)
        data = fields(meta, "uid", "rm_scores", "advantages", "old_log_probs", "rollout_log_probs")
        rows = list(map(dict, data))
        assert len(rows) == 2 * step * N
        for uid in {row["uid"] for row in rows}:
            group = [row for row in rows if row["uid"] == uid]
            rewards = np.array([float(row["rm_scores"].sum()) for row in group])
            assert len(group) == N
            for row, reward in zip(group, rewards):
                want = (reward - rewards.mean()) / (rewards.std(ddof=1) + 1e-6)
                assert float(row["advantages"][0]) == pytest.approx(want, abs=1e-5)
                assert torch.equal(row["old_log_probs"], row["rollout_log_probs"])
        made._get_n_gpus_for_throughput = lambda: 1
        made._rollout_moe_lb_metrics_accumulator = None
        made._compute_metrics(meta, metrics, {"step": 1.0, "gen": 1.0}, global_steps=step, epoch=0)
        assert metrics["training/off_policy/trajectory_staleness/max"] == step - 1
        clear(meta)


def test_importance_weights_multiply_the_loss_also_where_verl_pads_the_batch(trainer: Callable[..., Any]) -> None:
    made, engine = trainer("actor_rollout_ref.actor.ppo_mini_batch_size=3", prompts=3, importance_beta=1), Engine()
    for step in (1, 2):
        engine.generate(step, 3, rewards=[[9, 0, 0, 0], [1, 0, 0, 0], [0.1, 0, 0, 0]])
        if step == 2:  # a session failed: a row is missing, and verl pads the batch
            lost = next(key for key in tq.kv_list("train")["train"] if key.endswith("_3_0"))
            tq.kv_clear(keys=[lost], partition_id="train")
        meta, metrics = sample(made, step, prompts=3)
        if step == 1:
            clear(meta)
    assert metrics["replay/fresh_rows_skipped"] == N - 1
    fresh = [key for key in meta.keys if not key.startswith("replay-")]
    meta = made._balance_batch(meta, {})
    assert any(tag.get("is_padding") for tag in meta.tags) and len(meta.keys) % (3 * N) == 0
    meta = made._compute_advantage(made._compute_old_log_prob(meta, {}), {})
    data = fields(meta)
    weights = {key: float(row["rollout_is_weights"]) for key, row in zip(meta.keys, map(dict, data))}
    assert all(weights[key] == 1 for key in fresh)
    drawn = [weight for key, weight in weights.items() if key.startswith("replay-")]
    assert 0 < min(drawn) < max(drawn) <= 1 and metrics["replay/weight/mean"] == pytest.approx(np.mean(drawn))

    from verl.utils.config import omega_conf_to_dataclass

    config = made.config.actor_rollout_ref.actor
    config.ppo_micro_batch_size_per_gpu = 1
    actor = omega_conf_to_dataclass(config)
    whole = torch.cat([torch.zeros_like(data["input_ids"].values())]).float()
    losses = []
    for weighted in (True, False):
        each = data if weighted else data.exclude("rollout_is_weights")
        each = each.clone()
        from verl.utils import tensordict_utils as tu

        tu.assign_non_tensor(each, dp_size=1, batch_num_tokens=None, global_batch_size=None)
        log_probs = torch.nested.nested_tensor_from_jagged(whole, data["input_ids"].offsets())
        losses.append(float(ppo_loss(actor, {"log_probs": log_probs}, each)[0]))
    assert losses[0] != losses[1]


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("algorithm.rollout_correction.bypass_mode=false", "algorithm.rollout_correction.bypass_mode: false"),
        ("actor_rollout_ref.rollout.calculate_log_probs=false", "want true: replay needs the log-probs"),
        ("algorithm.filter_groups.enable=true", "algorithm.filter_groups.enable: true"),
        ("trainer.v1.sampler.sync_refill_failed_groups=true", "sync_refill_failed_groups: true: want false"),
        ("+trainer.v1.sampler.sampler_kwargs.replayed=-1", "replayed: -1"),
        ("+trainer.v1.sampler.sampler_kwargs.unit=rollout", "unit: rollout: want group"),
        ("+trainer.v1.sampler.sampler_kwargs.sampler=fifo", "sampler: fifo"),
        ("+trainer.v1.sampler.sampler_kwargs.target_ess=0.5", "target_ess: 0.5"),
        ("+trainer.v1.sampler.sampler_kwargs.capacty=64", "capacty"),
    ],
)
def test_configurations_that_make_replay_wrong_are_refused_by_name(
    trainer: Callable[..., Any], override: str, says: str
) -> None:
    with pytest.raises(reprise.Invalid, match=says):
        trainer(override)


def test_weights_that_verl_would_overwrite_are_refused(trainer: Callable[..., Any]) -> None:
    decoupled = ["algorithm.rollout_correction.bypass_mode=false", "algorithm.rollout_correction.rollout_is=token"]
    trainer(*decoupled)  # verl corrects with its own weights
    with pytest.raises(reprise.Invalid, match="importance_beta: 0.4: next to algorithm.rollout_correction.rollout_is"):
        trainer(*decoupled, importance_beta=0.4)


def test_rows_without_log_probs_and_with_images_are_refused_by_name(trainer: Callable[..., Any]) -> None:
    made, engine = trainer(), Engine()
    engine.generate(1, 2, logprobs=False)
    with pytest.raises(reprise.Invalid, match="rollout_log_probs: missing: want .*calculate_log_probs=true"):
        sample(made, 1)
    tq.kv_clear(keys=list(tq.kv_list("train")["train"]), partition_id="train")
    engine._compute_multi_modal_inputs = lambda *_: {"pixel_values": [[1.0]]}
    engine.generate(1, 2)
    with pytest.raises(reprise.Invalid, match="multi_modal_inputs: row 0: images"):
        sample(made, 1)


def test_in_the_asynchronous_modes_verl_waits_and_evicts_as_its_own_buffer_does(trainer: Callable[..., Any]) -> None:
    made, engine = trainer(mode="colocate_async"), Engine()
    assert isinstance(made.replay_buffer, ReplayBufferAsync)
    engine.generate(1, 2)
    clear(sample(made, 1)[0])
    asked: list[int] = []
    made.replay_buffer.refill_fn = lambda count: asked.append(count) or engine.generate(20, count)
    engine.generate(2, 2)  # more than max_off_policy_threshold (8) steps old at step 20
    meta, metrics = sample(made, 20)
    assert asked == [2] and metrics["training/off_policy/evicted_samples"] == 2
    assert len(meta.keys) == 2 * N and metrics["replay/replayed_rows"] == 0  # what the table held was too stale


def test_a_response_that_two_versions_generated_keeps_both(trainer: Callable[..., Any]) -> None:
    made, engine = trainer(), Engine()
    for step in (3, 4):
        uids = engine.generate(step, 2)
        tags = [{"min_global_steps": step - 3, "max_global_steps": step - 1} for _ in range(2 * N)]
        keys = [f"{uid}_{i}_0" for uid in uids for i in range(N)]
        tq.kv_batch_put(keys=keys, partition_id="train", tags=tags)
        meta, metrics = sample(made, step)
    drawn = [tag for key, tag in zip(meta.keys, meta.tags) if key.startswith("replay-")]
    assert [(tag["min_global_steps"], tag["max_global_steps"]) for tag in drawn] == [(0, 2)] * 2 * N
    assert metrics["replay/staleness/mean"] == 3  # of the oldest token


@pytest.mark.parametrize("limit", [8, 2])
def test_a_trainer_that_died_replays_what_was_generated_before(
    trainer: Callable[..., Any], binary: pathlib.Path, tmp_path: pathlib.Path, limit: int
) -> None:
    """The trainer has a checkpoint of step 10 and dies before step 15 takes its batch, and the service is killed."""
    server, engine = Server("--data", str(tmp_path)), Engine()
    options = dict(address=server.address, capacity=100, max_staleness=limit)
    seconds: dict[tuple[int, ...], float] = {}  # of each rollout
    spent: dict[int, float] = {}  # in each step

    def generate(step: int) -> None:
        keys = [f"{uid}_{i}_0" for uid in engine.generate(step, 2) for i in range(N)]
        data = tq.kv_batch_get(keys=keys, partition_id="train", select_fields=["input_ids", "responses"])
        new = {tuple(row["input_ids"].tolist()): len(row["responses"]) / 4 for row in map(dict, data)}
        spent[step] = sum(new.values())
        seconds.update(new)

    try:
        made = trainer(**options)
        for step in range(1, 15):
            generate(step)
            clear(sample(made, step)[0])
        generate(15)
        server.stop(signal.SIGKILL)
        empty()  # TransferQueue dies with the trainer: verl alone generates for steps 11 to 15 again
        server = Server("--data", str(tmp_path))
        again = trainer(**{**options, "address": server.address})
        engine.generate(11, 2)
        meta, metrics = sample(again, 11)
        held = range(14 - limit, 15)  # the table's steps when the trainer died
        kept = [step for step in held if step <= 11 + limit]
        table = again.replay_buffer.table.export().to_pandas()
        old = [seconds[tuple(row)] for row in table.tokens if tuple(row) in seconds]
        assert len(old) == len(kept) * 2 * N and sum(old) == sum(spent[step] for step in kept)
        for name, steps in (("resumed", kept), ("lost", set(held) - set(kept))):
            newer = [spent[step] for step in steps if step > 11]  # step 11 is of the checkpoint's weights
            assert metrics[f"replay/{name}_rows"] == len(newer) * 2 * N
            assert metrics[f"replay/{name}_seconds"] == sum(newer)
        drawn = [tuple(row.tolist()) for row in fields(meta)["input_ids"].unbind()][2 * N :]
        assert metrics["replay/replayed_rows"] == len(drawn) == 2 * N
        assert metrics["replay/generation_seconds"] == sum(seconds[row] for row in drawn)
        want = [10] + [10 - abs(step - 11) for step in kept]  # as far from the checkpoint as they were, but before it
        assert sorted(table.versions.map(max)) == sorted(want * 2 * N)
        assert table.groupby("group").size().eq(N).all()
        clear(meta)
    finally:
        server.stop()


def test_a_trainer_that_dies_while_it_goes_back_loses_nothing(
    trainer: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    server, engine = Server("--data", str(tmp_path)), Engine()
    try:
        made = trainer(address=server.address, capacity=100)
        for step in range(1, 4):
            engine.generate(step, 2)
            clear(sample(made, step)[0])
        dying = trainer(address=server.address, capacity=100)

        def die(*_: Any, **__: Any) -> None:
            raise KeyboardInterrupt

        engine.generate(2, 2)
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(reprise.Table, "insert", die)
            sample(dying, 2)
        empty()  # TransferQueue dies with the trainer
        again = trainer(address=server.address, capacity=100)
        engine.generate(2, 2)
        meta, metrics = sample(again, 2)
        assert metrics["replay/resumed_rows"] == 2 * N and metrics["replay/lost_rows"] == 0
        assert len(again.replay_buffer.table) == 4 * 2 * N and again.replay_buffer.table.checkpoints() == []
        clear(meta)
    finally:
        server.stop()


def test_a_trainer_without_an_address_serves_its_own_table(
    trainer: Callable[..., Any], binary: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REPRISE", str(binary))
    made, engine = trainer(f"trainer.default_local_dir={tmp_path}", address="null"), Engine()
    engine.generate(1, 2)
    clear(sample(made, 1)[0])
    assert len(made.replay_buffer.table) == 2 * N and (tmp_path / "replay" / "serve.log").exists()


def test_validation_is_left_to_verl(trainer: Callable[..., Any]) -> None:
    made, engine = trainer(), Engine()
    uids = engine.generate(1, 2)
    keys = [f"{uid}_{i}_0" for uid in uids for i in range(N)]
    data = tq.kv_batch_get(keys=keys, partition_id="train")
    tq.kv_batch_put(keys=keys, partition_id="val", fields=data, tags=[{"status": "success"} for _ in keys])
    tags = [{"is_prompt": True, "status": "finished", "global_steps": 1} for _ in uids]
    tq.kv_batch_put(keys=uids, partition_id="val", tags=tags)
    meta, metrics = made.replay_buffer.sample(global_steps=1, partition_id="val", batch_size=2)
    assert sorted(meta.keys) == sorted(keys) and not metrics and len(made.replay_buffer.table) == 0


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> RayWorkerGroup:
    """verl's actor worker in a process of Ray, with a random model: FSDP on one rank, AdamW."""
    model = str(tmp_path_factory.mktemp("model"))
    torch.manual_seed(0)
    shape = dict(
        vocab_size=50, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, pad_token_id=0, eos_token_id=1, bos_token_id=None,
    )  # fmt: skip
    Qwen2ForCausalLM(Qwen2Config(**shape)).save_pretrained(model)
    words = RawTokenizer(WordLevel({str(word): word for word in range(50)}, unk_token="0"))
    PreTrainedTokenizerFast(tokenizer_object=words, pad_token="0", eos_token="1").save_pretrained(model)
    config = configuration(
        f"actor_rollout_ref.model.path={model}", "actor_rollout_ref.model.use_remove_padding=false",
        "actor_rollout_ref.actor.strategy=fsdp2",
        "+actor_rollout_ref.model.override_config.attn_implementation=eager", "actor_rollout_ref.rollout.name=vllm",
        "actor_rollout_ref.actor.fsdp_config.use_torch_compile=false", "actor_rollout_ref.actor.optim.lr=0.001",
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=2",
        "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=2",
    )  # fmt: skip
    group = RayWorkerGroup(
        resource_pool=RayResourcePool([1], use_gpu=False, max_colocate_count=1), device_name="cpu",
        ray_cls_with_init=RayClassWithInitArgs(
            cls=ray.remote(verl_on_cpu.Worker), config=config.actor_rollout_ref, role="actor"
        ),
    )  # fmt: skip
    group.init_model()
    return group


def generate(engine: Engine, worker: RayWorkerGroup, step: int, logprobs: Any = None) -> Any:
    """Put two groups into TransferQueue, by default with log-probs of the worker's weights, as an engine would."""
    uids = engine.generate(step, 2, rewards=[[1, 0, 0, 0], [1, 1, 0, 0]])
    keys = [f"{uid}_{i}_0" for uid in uids for i in range(N)]
    if logprobs is None:
        meta = KVBatchMeta(partition_id="train", keys=keys, tags=[{} for _ in keys])
        meta.extra_info.update(calculate_entropy=False, compute_loss=False, temperature=1.0)
        data = fields(worker.compute_log_prob(meta), "log_probs", "response_mask")
        logprobs = response_from_nested(data["log_probs"], data["response_mask"]).float()
    values = TensorDict({"rollout_log_probs": logprobs}, [len(keys)])
    tq.kv_batch_put(keys=keys, partition_id="train", fields=values)
    return logprobs


def update(made: Any, meta: KVBatchMeta) -> dict[str, Any]:
    """Do with a batch what verl's trainer does."""
    metrics: dict[str, Any] = {}
    meta.extra_info["temperature"] = 1.0
    meta = made._compute_old_log_prob(made._balance_batch(meta, metrics), metrics)
    made._update_actor(made._compute_advantage(meta, metrics), metrics)
    clear(meta)
    return metrics


@pytest.mark.parametrize("beta", [0, 1])
def test_verls_worker_learns_from_replayed_rows_bit_for_bit_as_from_its_own(
    trainer: Callable[..., Any], worker: RayWorkerGroup, beta: int
) -> None:
    """Two steps with replay; then verl alone, given the same rows: in its second step those of both as new ones."""
    replayed, own = trainer(importance_beta=beta), trainer("trainer.v1.sampler.custom_sampler.name=null")
    assert type(own.replay_buffer) is ReplayBuffer
    replayed.actor_rollout_wg = own.actor_rollout_wg = worker
    worker.reset()
    [before] = worker.weights()
    engine, steps = Engine(), []
    for step in (1, 2):
        logprobs = generate(engine, worker, step)
        meta, metrics = sample(replayed, step)
        assert metrics["replay/fresh_rows"] == 2 * N and metrics["replay/replayed_rows"] == (step - 1) * 2 * N
        data = fields(meta)
        metrics = update(replayed, meta)
        assert 0 < metrics["actor/grad_norm"] < 10
        steps.append((logprobs, data, worker.weights()[0]))
    (first, _, _), (_, data, _) = steps
    if beta:
        drawn = data["rollout_is_weights"].values()[2 * N :]
        assert 0 < drawn.min() < drawn.max() == 1

    worker.reset()
    engine = Engine()
    for step, (logprobs, data, want) in enumerate(steps, 1):
        again = generate(engine, worker, step)
        assert torch.equal(again.values(), logprobs.values())
        if step == 2:
            generate(Engine(), worker, step, first)
        meta, _ = sample(own, step, prompts=2 * step)
        known, order = ([tuple(row.tolist()) for row in rows["input_ids"].unbind()] for rows in (fields(meta), data))
        assert sorted(known) == sorted(order)
        meta.reorder([known.index(row) for row in order])
        if beta:
            tq.kv_batch_put(keys=meta.keys, partition_id="train", fields=data.select("rollout_is_weights"))
        update(own, meta)
        [got] = worker.weights()
        assert all(torch.equal(got[name], want[name]) and not torch.equal(got[name], before[name]) for name in want)
