"""reprise.trl in the real TRL, on the CPU, with the real service: make test-trainers."""

from __future__ import annotations

import math
import multiprocessing
import os
import pathlib
import queue as queues
import signal
import socket
import sys
import uuid
from importlib import metadata
from typing import Any

import numpy as np
import pytest
from conftest import Server

import reprise

HERE = pathlib.Path(__file__).resolve().parent
SOURCES = [str(HERE), str(HERE.parents[1] / "src")]
sys.path.insert(0, SOURCES[0])
os.environ["PYTHONPATH"] = os.pathsep.join([*SOURCES, os.environ.get("PYTHONPATH", "")])  # of processes started here
if "REPRISE_TRAINERS" not in os.environ:
    pytest.skip("make test-trainers runs these", allow_module_level=True)

import tiny  # noqa: E402
import torch  # noqa: E402
from tiny import difference, make, train, weights  # noqa: E402

from reprise.trl import Replay, rollouts, selftest, tensors  # noqa: E402
from reprise.trl import trainer as trl_trainer  # noqa: E402
from reprise.trl.layout import CORRECTIONS  # noqa: E402
from reprise.trl.trainer import TESTED  # noqa: E402

torch.set_num_threads(1)
VERSION = metadata.version("trl")
asynchronous = pytest.mark.skipif(VERSION != "1.16.0", reason="RolloutWorker is for TRL 1.16")


def name() -> str:
    return f"t{uuid.uuid4().hex}"


def queue(server: Server, **more: Any) -> Replay:
    """Each rollout once, in order, none stale: what comes out is what went in."""
    return Replay(server.address, name(), sampler="fifo", max_staleness=0, **more)


CASES: dict[str, dict[str, Any]] = {
    "dapo": {},
    "accumulation": dict(per_device_train_batch_size=4, gradient_accumulation_steps=4),
    "grpo": dict(loss_type="grpo", per_device_train_batch_size=8, gradient_accumulation_steps=2),
    "cispo": dict(loss_type="cispo", epsilon_high=5.0),
    "kl": dict(beta=0.1),
    "temperature": dict(temperature=0.7),
    "sequence": dict(importance_sampling_level="sequence"),
    "dropout": dict(dropout=0.1),
    **{loss: dict(loss_type=loss, max_steps=4) for loss in ("bnpo", "dr_grpo", "sapo", "vespo")},
    "luspo": dict(loss_type="luspo", importance_sampling_level="sequence", max_steps=4),
}


@pytest.mark.parametrize("case", CASES)
def test_a_queue_trains_bitwise_as_trl_does(server: Server, case: str) -> None:
    if CASES[case].get("loss_type") == "vespo" and VERSION == "0.29.1":
        pytest.skip("this version of TRL has no such loss")
    plain = train(**CASES[case])
    assert difference(weights(plain), weights(train(queue(server), **CASES[case]))) == 0
    start = weights(make(**CASES[case]))
    assert difference(weights(plain), start) > 1e-3, "it does not train"


def test_the_versions_that_run_are_those_that_are_named_as_tested() -> None:
    assert VERSION in TESTED
    for known in (*TESTED, "1.12.0", "1.16.1"):
        trl_trainer._refuse_old(known)
        trl_trainer._try_new(known)
    with pytest.raises(ImportError, match="trl 0.28.0: reprise.trl was tested with 0.29.1, .*: install one"):
        trl_trainer._refuse_old("0.28.0")


def test_a_newer_version_of_trl_is_tried_before_it_trains(
    server: Server, binary: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REPRISE", str(binary))
    monkeypatch.setenv("RANK", "0")  # of a launcher, which the trial has nothing to do with
    monkeypatch.setattr(trl_trainer, "TESTED", ("0.29.1", "0.29.1"))
    if VERSION.startswith("0.29."):
        monkeypatch.setattr(trl_trainer.metadata, "version", lambda _: "0.30.0")
    with pytest.warns(UserWarning, match="is newer than 0.29.1, the newest that reprise.trl was tested with: trying"):
        make(queue(server))
    monkeypatch.setattr(sys, "executable", "false")
    with pytest.raises(reprise.Failed, match="selftest failed: no output: install one from 0.29.1 .*=untested"):
        with pytest.warns(UserWarning):
            make(queue(server))
    monkeypatch.setenv("REPRISE_TRL", "untested")
    assert make(queue(server)).args.num_iterations == 1


def test_the_self_test_finds_a_trainer_that_is_not_trls(binary: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Doubled(trl_trainer.ReplayGRPOTrainer):
        def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> Any:
            return 2 * super()._compute_loss(model, inputs)

    monkeypatch.setenv("REPRISE", str(binary))
    apart, moved = selftest.run(Doubled)
    assert apart > 0 and moved > 0


def logged(trainer: Any, metric: str) -> list[float]:
    return [entry[metric] for entry in trainer.state.log_history if metric in entry]


def test_by_default_half_of_each_batch_is_fresh_and_every_batch_is_reported(server: Server) -> None:
    trainer = train(Replay(server.address, name()), max_steps=6)
    assert trainer.num_iterations == trainer.args.num_iterations == 2 and trainer.table.info().definition["capacity"] == 32
    assert logged(trainer, "replay/dropped") == [0] * 3, "TRL generated for every second batch"
    staleness = logged(trainer, "replay/staleness")
    assert len(staleness) == 6 and staleness[0] == 0 and max(staleness) >= 1
    assert all(0.4 < ess <= 1.001 for ess in logged(trainer, "replay/ess")) and len(logged(trainer, "replay/ess")) == 6
    assert max(staleness) <= 2, "half of the batch is at most 1 version old, and none is older than 3"
    assert trainer.table.info().version == 5
    assert trainer.table.stats().ess_by_age, "the ratios were not reported"


def test_after_20_batches_a_line_says_what_would_pay_here(
    server: Server, binary: pathlib.Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("REPRISE", str(binary))
    options = dict(per_device_train_batch_size=4, gradient_accumulation_steps=4, max_steps=21)
    with caplog.at_level("WARNING", "reprise"):
        trainer = train(Replay(server.address, name()), **options)
        silent = train(Replay(server.address, name(), advice=False), **options)
    said = [record.getMessage() for record in caplog.records if record.getMessage().startswith("advice ")]
    assert len(said) == 1 and said[0].startswith("advice after 20 batches of 16 rollouts: ")
    assert "Measured: generating a rollout takes " in said[0] and "noise scale" in said[0] and "ESS" in said[0]
    advice = trainer.store.advice()
    figures = advice.figures
    assert (figures["batch"], figures["group"], figures["batches"]) == (16, trainer.num_generations, 20)
    assert figures["groups"] == 10 * 16 / trainer.num_generations, "TRL generates for every second batch"
    assert figures["gradients"]["part"] == 4 and len(figures["gradients"]["squares"]) == 20
    parts, wholes = map(sum, zip(*figures["gradients"]["squares"]))
    assert 1.1 < parts / wholes < 4, "noise of four rollouts to that of sixteen, beside the signal"
    assert figures["asked"] == 10.5 * 16 / trainer.num_generations / len(trainer.train_dataset)
    assert set(advice.verdicts) == {"reuse", "table", "batch"}
    assert str(silent.store.advice()) == "cannot tell: advice is switched off"


def test_two_lines_are_enough(binary: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REPRISE_ADDRESS", raising=False)
    monkeypatch.setenv("REPRISE", str(binary))
    trainer = train(Replay(), output_dir=str(tmp_path / "a run"), max_steps=2)
    assert trainer.table.name.startswith("a-run-") and len(trainer.table) == 16
    assert (tmp_path / "a run" / "replay" / "serve.log").exists()


@pytest.mark.parametrize(
    ("options", "says"),
    [({"fresh": 0.75}, "fresh: 0.75: want 1 over a whole number, such as 1"), ({"fresh": 2}, "fresh: 2: want a share"),
     ({"fresh": "half"}, "fresh: 'half': want a share"), ({"capacity": "big"}, "capacity: 'big': want a whole number"),
     ({"max_staleness": 0}, "max_staleness: 0: would be no limit"), ({"method": "erlp"}, "method: 'erlp': want one of"),
     ({"method": "vcrl"}, "method: 'vcrl' chooses prompts, which is TRL's to do"),
     ({"method": "rlep"}, "method: 'rlep' has the table take what is fresh, which `fresh` does here")],
)  # fmt: skip
def test_what_replay_cannot_do_is_refused_by_name(options: dict[str, Any], says: str) -> None:
    with pytest.raises(reprise.Invalid, match=says):
        Replay(**options)


def test_what_is_no_replay_is_refused() -> None:
    with pytest.raises(reprise.Invalid, match=r"replay: 0.5: want a Replay\(…\)"):
        trl_trainer.ReplayGRPOTrainer(replay=0.5)  # type: ignore[arg-type]


def test_training_returns_the_metrics_that_trl_returns(server: Server) -> None:
    options = {"max_steps": 3, "logging_steps": 2}  # one step is left for the end
    missing = set(make(**options).train().metrics) - set(make(Replay(server.address, name()), **options).train().metrics)
    assert not missing


METHODS = [
    name
    for name, method in reprise.METHODS.items()
    if "prompts" not in method.keys and all(s.get("pool") != "fresh" for s in method.keys.get("sources", ()))
]


@pytest.mark.parametrize("method", METHODS)
def test_a_published_method_trains_by_its_name(server: Server, method: str) -> None:
    trainer = train(Replay(server.address, name(), method=method), max_steps=4)
    keys, made = reprise.METHODS[method].keys, trainer.table.info().definition
    assert made["sampler"] == keys["sampler"]
    assert made["capacity"] == math.ceil(keys["capacity"] / 480 * 16)  # rollouts of a batch
    again = keys["sampler"] not in ("fifo", "lifo")  # which deliver each rollout once
    assert (sum(logged(trainer, "replay/uses")) > 0) == again
    given = train(Replay(server.address, name(), method=method, capacity=32), max_steps=1)
    assert given.table.info().definition["capacity"] == 32


def test_a_second_run_finds_the_table_of_the_first(server: Server) -> None:
    replay = queue(server)
    first = weights(train(replay, max_steps=3))
    assert difference(first, weights(train(replay, max_steps=3))) == 0


def test_truncated_completions_are_left_out(server: Server) -> None:
    options = dict(max_steps=4, max_completion_length=24, mask_truncated_completions=True)
    trainer = train(Replay(server.address, name(), capacity=64), **options)
    dropped = logged(trainer, "replay/dropped")
    assert sum(dropped) > 0 and len(trainer.table) == 32 - sum(dropped)


def test_a_queue_without_truncated_completions_trains_as_trl_does(server: Server) -> None:
    options: dict[str, Any] = dict(max_completion_length=24, mask_truncated_completions=True, max_steps=4)
    options |= dict(optim="sgd", learning_rate=0.1)  # Adam would make steps of any size of what rounding leaves
    if tuple(map(int, VERSION.split(".")[:2])) < (1, 12):
        options["loss_type"] = "grpo"  # older versions divided dapo's loss by the tokens that they masked, too
    assert difference(weights(train(**options)), weights(train(queue(server), **options))) < 1e-6


def short(completions: list[str], **_: Any) -> list[float | None]:
    return [None if text.startswith("a") else -len(text) / 24 for text in completions]


def test_several_rewards_are_weighted_as_trl_weights_them(server: Server) -> None:
    options: dict[str, Any] = dict(rewards=[tiny.vowels, short], reward_weights=[1.0, 0.5], max_steps=3)
    replay = queue(server)
    assert difference(weights(train(**options)), weights(train(replay, **options))) == 0


@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_an_adapter_of_peft_is_trained_as_trl_does(server: Server, dropout: float) -> None:
    from peft import LoraConfig

    adapter = LoraConfig(target_modules=["q_proj", "v_proj"], lora_dropout=dropout)
    options: dict[str, Any] = dict(peft_config=adapter, max_steps=3)
    assert difference(weights(train(**options)), weights(train(queue(server), **options))) == 0


def test_evaluation_leaves_the_table_alone(server: Server) -> None:
    trainer = train(Replay(server.address, name()), max_steps=1, per_device_eval_batch_size=4)
    trainer.evaluate(trainer.train_dataset.select(range(4)))
    assert len(trainer.table) == 16


def test_the_loss_of_vllm_mode_is_that_of_trl(server: Server) -> None:
    """vLLM is not here: a second policy's log-probs stand for its own, and TRL's loss reads what the table returns."""
    trainer = make(queue(server))
    trainer.use_vllm = True
    trainer.vllm_importance_sampling_correction = True
    trainer.model.train()
    client = reprise.connect(server.address)
    table = client.create(name(), sampler="fifo", capacity=64, columns=CORRECTIONS)
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(2, 30, (8, 16), generator=generator)
    old, sampler = -torch.rand((2, 8, 12), generator=generator)
    outputs = dict(
        prompt_ids=ids[:, :4], prompt_mask=torch.ones_like(ids[:, :4]), completion_ids=ids[:, 4:],
        completion_mask=torch.ones_like(ids[:, 4:]), advantages=torch.randn(8, generator=generator),
        old_per_token_logps=old, sampling_per_token_logps=sampler, num_items_in_batch=torch.tensor(96),
        importance_sampling_ratio=(old - sampler).exp().clamp(max=1.2),
    )  # fmt: skip
    table.insert(rollouts(outputs, rewards=[0.0] * 8, version=0, num_generations=4, corrections=True))
    back = tensors(table.sample(8, columns="all"), pad_token_id=0, torch=True)
    for key in ("old_per_token_logps", "sampling_per_token_logps", "importance_sampling_ratio", "advantages"):
        assert torch.equal(back[key], outputs[key]), key
    trainer.current_gradient_accumulation_steps = 1
    want, got = (trainer._compute_loss(trainer.model, inputs) for inputs in (outputs, back))
    assert torch.equal(want, got)


class Generator:
    """A rollout worker that pushes given samples, as TRL's own does without its engine."""

    def __init__(self, samples: list[Any]) -> None:
        self.rollout_buffer: queues.Queue[Any] = queues.Queue()
        self.metrics_queue: queues.Queue[Any] = queues.Queue()
        self._samples, self.version, self.failed = samples, -1, False

    def start(self) -> None:
        for sample in self._samples:
            self.rollout_buffer.put(sample)
        self.metrics_queue.put({"rollout/tokens": 1.0})

    def stop(self) -> None:
        self.failed = True

    def update_model_version(self, model_version: int) -> None:
        self.version = model_version

    def check_health(self, stale_after_s: float) -> None:
        if self.failed:
            raise RuntimeError("the generator failed")


def samples(count: int, version: int) -> list[Any]:
    from trl.experimental.async_grpo.async_rollout_worker import RolloutSample

    rng = np.random.default_rng(version)
    return [
        RolloutSample(
            prompt=[{"role": "user", "content": f"prompt {i // 4}"}],
            completion=[{"role": "assistant", "content": "yes"}],
            input_ids=rng.integers(2, 30, 8),
            completion_mask=np.array([0, 0, 0, 1, 1, 0, 1, 1]),
            old_log_probs=-rng.random(8).astype(np.float32),
            advantage=float(rng.normal()),
            model_version=version,
            group_id=i // 4,
            metrics={"reward": float(i)},
        )
        for i in range(count)
    ]


@asynchronous
def test_the_asynchronous_trainer_gets_what_was_generated_and_what_is_drawn(server: Server) -> None:
    from collections import defaultdict

    from trl.experimental.async_grpo.async_grpo_trainer import RolloutQueueDataset

    from reprise.trl import RolloutWorker

    given = samples(32, version=1)
    inner = Generator(given)
    worker = RolloutWorker(inner, replay=Replay(server.address, name(), sampler="uniform", weigh=False), batch=16)
    worker.update_model_version(1)
    assert inner.version == 1 and worker.table.info().version == 1
    metrics: dict[str, list[float]] = defaultdict(list)
    dataset = RolloutQueueDataset(worker.rollout_buffer, lambda: 1, worker.check_health, 60.0, metrics)
    worker.start()
    got = [row for _, row in zip(range(64), dataset)]
    fresh = [row for row in got if row["group_id"] >= 0]
    drawn = [row for row in got if row["group_id"] < 0]
    assert len(fresh) == len(drawn) == 32
    assert [row["metrics"]["reward"] for row in fresh] == list(range(32)), "as they were generated, in order"
    for row in drawn:
        sample = given[int(row["metrics"]["reward"])]
        trained = sample.completion_mask == 1
        assert (row["input_ids"] == sample.input_ids).all() and (row["completion_mask"] == sample.completion_mask).all()
        assert (row["old_log_probs"] == np.where(trained, sample.old_log_probs, 0)).all()
        assert row["advantage"] == pytest.approx(sample.advantage, rel=1e-6)
    assert metrics["sample/staleness_max"] == [0.0] * 64
    measured = [worker.metrics_queue.get(timeout=60) for _ in range(2)]
    assert {"rollout/tokens": 1.0} in measured and any("replay/staleness" in each for each in measured)
    inner.failed = True
    with pytest.raises(RuntimeError, match="the generator failed"):
        worker.check_health(60.0)
    worker.update_model_version(0)
    assert worker.table.info().version == 0 and len(worker.table) == 0, "rollouts of later weights left"
    worker.stop()


@asynchronous
def test_without_a_worker_all_samples_are_drawn_from_what_others_insert(server: Server) -> None:
    from reprise.trl import RolloutWorker

    replay = Replay(server.address, name(), sampler="fifo", capacity=8)
    worker = RolloutWorker(replay=replay, batch=4)
    worker.start()
    with reprise.connect(server.address) as client:
        row = reprise.rollout("p", [5, 6], [7, 8], logprobs=[-0.5, -0.25], version=0, reward=1, advantage=2)
        client.table(replay.table or "").insert([row, row])
    first = worker.rollout_buffer.get(timeout=60)
    assert first.input_ids.tolist() == [5, 6, 7, 8] and first.completion_mask.tolist() == [0, 0, 1, 1]
    assert first.old_log_probs.tolist() == [0, 0, -0.5, -0.25] and (first.advantage, first.model_version) == (2, 0)
    worker.stop()
    with pytest.raises(RuntimeError, match="nothing to draw for .* want programs that insert"):
        worker.check_health(-1.0)


class Run:
    """A run in processes of its own. Each imports TRL anew: gRPC and gloo do not survive a fork."""

    def __init__(self, folder: pathlib.Path, job: dict[str, Any], ranks: int = 1) -> None:
        self._weights = folder / "weights.pt"
        tiny.write(folder)  # before two ranks look for it
        job = {"weights": str(self._weights), **job}
        context = multiprocessing.get_context("spawn")
        self._told, tell = context.Pipe(duplex=False)
        environments: list[dict[str, str]] = [{}]
        if ranks > 1:
            with socket.create_server(("127.0.0.1", 0)) as free:
                port = str(free.getsockname()[1])
            common = {"WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
            environments = [{**common, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(ranks)]
        self._processes = [
            context.Process(target=tiny.work, args=(job, tell, environment), daemon=True) for environment in environments
        ]
        for process in self._processes:
            process.start()
        tell.close()

    def until(self, step: int) -> None:
        """Wait until an update is over."""
        while self._told.recv() != step:  # raises EOFError if the run ends before
            pass

    def kill(self) -> None:
        for process in self._processes:
            process.kill()
            process.join()

    def weights(self) -> dict[str, torch.Tensor]:
        """Wait for the end, and return the weights."""
        for process in self._processes:
            process.join()
            if process.exitcode != 0:
                self.kill()
            assert process.exitcode == 0, "the run failed: its error is in the captured output"
        return dict(torch.load(self._weights))


def test_two_processes_train_as_trl_does_also_where_groups_span_them(server: Server, tmp_path: pathlib.Path) -> None:
    replay = queue(server)
    as_dict = dict(address=replay.address, table=replay.table, sampler="fifo", max_staleness=0)
    results = []
    for given, label in ((None, "plain"), (as_dict, "replay")):
        folder = tmp_path / label
        folder.mkdir()
        options = dict(output_dir=str(folder), per_device_train_batch_size=6, max_steps=10, ddp_backend="gloo")
        job = {"replay": given, "options": options}
        results.append(Run(folder, job, ranks=2).weights())
    assert difference(*results) < 1e-6


@pytest.mark.parametrize("sampler", ["fifo", "prioritized"])
def test_a_killed_run_goes_on_from_its_checkpoint_as_if_nothing_had_happened(
    server: Server, tmp_path: pathlib.Path, sampler: str
) -> None:
    results = []
    for killed in (False, True):
        folder = tmp_path / str(killed)
        folder.mkdir()
        options = dict(output_dir=str(folder), max_steps=6, save_strategy="steps", save_steps=2, save_total_limit=2)
        job = {"replay": dict(address=server.address, table=name(), sampler=sampler), "options": options}
        run = Run(folder, job)
        if killed:
            run.until(5)
            run.kill()
            job["resume"] = str(folder / "checkpoint-4")
            assert pathlib.Path(job["resume"], "reprise.json").exists()
            run = Run(folder, job)
        results.append(run.weights())
        with reprise.connect(server.address) as client:
            saved = client.table(job["replay"]["table"]).checkpoints()
            assert len(saved) == 2, "the table's checkpoints go with the trainer's"
    assert difference(*results) == 0


@pytest.mark.parametrize("sampler", ["fifo", "prioritized"])
def test_the_service_may_be_killed_in_the_middle_of_a_run(tmp_path: pathlib.Path, sampler: str) -> None:
    data = str(tmp_path / "data")
    service = Server("--data", data)
    results = []
    try:
        for killed in (False, True):
            folder = tmp_path / str(killed)
            folder.mkdir()
            replay = dict(address=service.address, table=name(), sampler=sampler, timeout=600)
            run = Run(folder, {"replay": replay, "options": dict(output_dir=str(folder), max_steps=8)})
            if killed:
                run.until(3)
                service.stop(signal.SIGKILL)
                service = Server("--data", data, listen=service.address.removeprefix("grpc://"))
            results.append(run.weights())
    finally:
        service.stop()
    # After a crash priorities are as of the last insertion, so that other rollouts are drawn.
    assert sampler != "fifo" or difference(*results) == 0
