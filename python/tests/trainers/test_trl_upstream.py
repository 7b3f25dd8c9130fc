"""The protocol of docs/trl-upstream.md: a patch of TRL's GRPOTrainer, a table behind it, and what they train."""

from __future__ import annotations

import ast
import functools
import os
import pathlib
import re
import sys
import uuid
from typing import Any, Protocol

import numpy as np
import pytest
from conftest import ROOT, Server

import reprise

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
if "REPRISE_TRAINERS" not in os.environ:
    pytest.skip("make test-trainers runs these", allow_module_level=True)

import torch  # noqa: E402
from tiny import difference, make, weights  # noqa: E402
from trl import GRPOTrainer  # noqa: E402

from reprise import trl  # noqa: E402
from reprise.torch import RolloutStore  # noqa: E402
from reprise.trl.trainer import COLUMNS  # noqa: E402

torch.set_num_threads(1)
Rollouts = dict[str, torch.Tensor]


class RolloutStoreProtocol(Protocol):
    """As on the page, which explains it."""

    def add(self, rollouts: Rollouts, step: int) -> None: ...
    def draw(self, size: int, step: int) -> Rollouts: ...
    def report(self, batch: Rollouts, per_token_logps: torch.Tensor) -> dict[str, float]: ...
    def save(self, checkpoint: str) -> None: ...
    def load(self, checkpoint: str) -> None: ...


class PatchedGRPOTrainer(GRPOTrainer):
    """Behaves as GRPOTrainer would with the patch. The private names of TRL are all in here.

    A patch needs no `_calculate_rewards` or `_get_per_token_logps_and_entropies`: it has their results at hand. `draw`
    stands in another method than on the page.
    """

    def __init__(self, *args: Any, rollout_store: RolloutStoreProtocol | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.rollout_store = rollout_store

    def _prepare_inputs(self, generation_batch: Any) -> Any:
        if self.rollout_store is not None and self._step % self.args.steps_per_generation == 0:
            self._buffered_inputs = None  # each of the num_iterations has a batch of its own
        return super()._prepare_inputs(generation_batch)

    def _calculate_rewards(self, *args: Any) -> Any:
        per_function = super()._calculate_rewards(*args)
        self._rewards = (per_function * self.reward_weights.to(per_function.device)).nansum(dim=1)
        return per_function

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        store, step = self.rollout_store, self.state.global_step
        if store is None or not self.model.training:
            return super()._generate_and_score_completions(inputs)
        size = self.args.per_device_train_batch_size * self.args.steps_per_generation
        if self._step % (self.args.steps_per_generation * self.num_iterations) == 0:
            generated = super()._generate_and_score_completions(inputs)
            generated["rewards"] = self._rewards[self.accelerator.process_index * size :][:size]
            generated["per_token_logps"] = trl.logprobs(self, generated)
            store.add(generated, step)
        batch = store.draw(size, step)
        mask = batch["completion_mask"] * batch.get("tool_mask", 1)
        return batch | {"num_items_in_batch": self.accelerator.gather(mask.sum()).sum()}

    def _get_per_token_logps_and_entropies(self, *args: Any, **kwargs: Any) -> Any:
        self._logps, *others = super()._get_per_token_logps_and_entropies(*args, **kwargs)
        return self._logps, *others

    def _compute_loss(self, model: Any, inputs: Any) -> Any:
        loss = super()._compute_loss(model, inputs)
        if self.rollout_store is not None and self.model.training:
            for name, value in self.rollout_store.report(inputs, self._logps.detach()).items():
                self._metrics["train"][name].append(value)
        return loss

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        super()._save_checkpoint(model, trial)
        if self.rollout_store is not None:
            folder = self._get_output_dir(trial=trial)
            self.rollout_store.save(os.path.join(folder, f"checkpoint-{self.state.global_step}"))

    def _load_optimizer_and_scheduler(self, checkpoint: Any) -> None:
        super()._load_optimizer_and_scheduler(checkpoint)
        if self.rollout_store is not None and checkpoint is not None:
            self.rollout_store.load(checkpoint)


class TableStore:
    """The protocol for one process, by a table that has a whole batch. It knows nothing of the trainer."""

    def __init__(self, table: reprise.Table, fresh: float = 0.0) -> None:
        self.table, self._fresh = table, fresh
        self._store = RolloutStore(table, batch=16, version=None, advice=False)
        self._aligned = False  # TRL compares a new batch with the log-probs of the update's own forward pass
        self._seen: list[torch.Tensor] = []
        self.added: list[int] = []  # steps
        self.drawn: list[int] = []

    def add(self, rollouts: Rollouts, step: int) -> None:
        self.added.append(step)
        self._store.follow(step)
        self._aligned = "old_per_token_logps" not in rollouts
        behaviour = rollouts["per_token_logps"].clamp(max=0)  # rounding may put it above
        columns = trl.rollouts(
            rollouts, rewards=rollouts["rewards"], version=step, num_generations=4, logprobs=behaviour
        )
        self._store.insert(columns)

    def draw(self, size: int, step: int) -> Rollouts:
        self.drawn.append(step)
        size = min(size, self._store.follow(step))
        self._batch = self._store.draw_present(size, int(size * self._fresh), COLUMNS, "global")
        batch: Rollouts = trl.tensors(self._batch, pad_token_id=0, torch=True)
        batch["behaviour"], batch["row"] = batch["old_per_token_logps"], torch.arange(size)
        if self._aligned and not self._batch.staleness.any():
            del batch["old_per_token_logps"]
        return batch

    def report(self, batch: Rollouts, per_token_logps: torch.Tensor) -> dict[str, float]:
        ratio = (per_token_logps - batch["behaviour"]).double().exp() * batch["completion_mask"]
        measured = batch["row"], batch["completion_mask"].sum(1), ratio.sum(1), ratio.square().sum(1)
        self._seen.append(torch.stack([each.double() for each in measured]))
        row, tokens, sums, squares = torch.cat(self._seen, dim=1).numpy()
        if len(row) < len(self._batch):
            return {}
        self._seen.clear()
        self._store.send(self._batch, row.astype(int), tokens=tokens, ratio_sum=sums, ratio_squares=squares)
        return {
            "replay/staleness": float(self._batch.staleness.mean()),
            "replay/uses": float(self._batch.uses.mean()),
            "replay/ess": float(sums.sum() ** 2 / (tokens.sum() * squares.sum())),
        }

    def save(self, checkpoint: str) -> None:
        self.table.checkpoint(self._name(checkpoint))

    def load(self, checkpoint: str) -> None:
        self.table.restore(self._name(checkpoint))

    def _name(self, checkpoint: str) -> str:
        return f"{self.table.name}-{pathlib.Path(checkpoint).name}"


def store(server: Server, sampler: str, fresh: float = 0.0) -> TableStore:
    client = reprise.connect(server.address)
    return TableStore(client.create(f"u{uuid.uuid4().hex}", sampler=sampler, capacity=32), fresh)


def train(given: TableStore | None, resume: str | None = None, **options: Any) -> Any:
    trainer = make(cls=functools.partial(PatchedGRPOTrainer, rollout_store=given), **options)
    trainer.train(resume_from_checkpoint=resume)
    return trainer


def plain(**options: Any) -> Any:
    trainer = make(**options)
    start = weights(trainer)
    trainer.train()
    assert difference(weights(trainer), start) > 1e-3, "it does not train"
    return trainer


def logged(trainer: Any, metric: str) -> list[float]:
    return [entry[metric] for entry in trainer.state.log_history if metric in entry]


OPTIONS: dict[str, dict[str, Any]] = {
    "one micro-batch": dict(max_steps=3),
    "accumulation": dict(max_steps=3, per_device_train_batch_size=4, gradient_accumulation_steps=4),
    "two updates a batch": dict(max_steps=4, per_device_train_batch_size=8, steps_per_generation=2),
    "kl": dict(max_steps=3, beta=0.1),
    "dropout": dict(max_steps=3, dropout=0.1),
}


@pytest.mark.parametrize("case", OPTIONS)
def test_without_a_store_the_patch_changes_nothing(case: str) -> None:
    assert difference(weights(plain(**OPTIONS[case])), weights(train(None, **OPTIONS[case]))) == 0


@pytest.mark.parametrize("case", OPTIONS)
def test_a_queue_behind_the_protocol_trains_bitwise_as_trl_does(server: Server, case: str) -> None:
    queue = store(server, "fifo")
    assert difference(weights(plain(**OPTIONS[case])), weights(train(queue, **OPTIONS[case]))) == 0
    assert len(queue.table) == 0 and queue.table.info().version >= 1, "it went through the table"


def test_a_queue_that_alters_a_rollout_is_noticed(server: Server) -> None:
    class Altered(TableStore):
        def draw(self, size: int, step: int) -> Rollouts:
            batch = super().draw(size, step)
            batch["advantages"][0] += 0.1
            return batch

    altered = Altered(store(server, "fifo").table)
    assert difference(weights(plain(max_steps=3)), weights(train(altered, max_steps=3))) > 0


def test_a_store_that_replays_is_asked_for_each_batch_and_told_of_each(server: Server) -> None:
    replay = store(server, "uniform", fresh=0.5)
    trainer = train(replay, max_steps=6, num_iterations=2, per_device_train_batch_size=4, gradient_accumulation_steps=4)
    uses, staleness = logged(trainer, "replay/uses"), logged(trainer, "replay/staleness")
    assert replay.added == [0, 2, 4] and replay.drawn == [0, 1, 2, 3, 4, 5]
    ess = logged(trainer, "replay/ess")
    assert len(uses) == len(ess) == 6, "one report for each batch"
    assert ess[0] == pytest.approx(1, abs=1e-6), "the first batch is on policy"
    assert uses[0] == staleness[0] == 0 and max(uses) > 0 and max(staleness) >= 1
    assert len(logged(trainer, "reward")) == 3, "TRL generates for every second batch"
    assert all(np.isfinite(loss) for loss in logged(trainer, "loss")) and replay.table.stats().ess_by_age
    assert difference(weights(trainer), weights(make())) > 1e-3, "it does not train"


def test_a_resumed_run_goes_on_with_the_rollouts_of_its_checkpoint(server: Server, tmp_path: pathlib.Path) -> None:
    replay = store(server, "uniform", fresh=0.5)
    options: dict[str, Any] = dict(output_dir=str(tmp_path), max_steps=4, num_iterations=2, save_strategy="steps",
                                   save_steps=2)  # fmt: skip
    whole = weights(train(replay, **options))
    again = TableStore(replay.table, fresh=0.5)
    assert difference(whole, weights(train(again, resume=str(tmp_path / "checkpoint-2"), **options))) == 0


def test_the_page_names_each_private_name_of_trl_that_we_use() -> None:
    plain_trainer, used = make(), set()
    for path in (ROOT / "python/src/reprise/trl").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "name", None)
            if isinstance(name, str) and re.fullmatch(r"_[a-z]\w*", name) and hasattr(plain_trainer, name):
                used.add(name)
    page = (ROOT / "docs/trl-upstream.md").read_text()
    table = page[page.index("| private name") :].split("\n\n")[0]
    first = "".join(line.split("|")[1] for line in table.splitlines())
    assert set(re.findall(r"`(_\w+)`", first)) == used


def test_the_page_shows_the_protocol_that_is_trained_by() -> None:
    page = (ROOT / "docs/trl-upstream.md").read_text()
    shown = page[page.index("class RolloutStoreProtocol") :].split("```")[0]
    signatures = [ast.unparse(each.args) for each in ast.walk(ast.parse(shown)) if isinstance(each, ast.FunctionDef)]
    source = ast.parse(pathlib.Path(__file__).read_text())
    ours = next(n for n in source.body if isinstance(n, ast.ClassDef) and n.name == "RolloutStoreProtocol")
    of_ours = [ast.unparse(each.args) for each in ours.body if isinstance(each, ast.FunctionDef)]
    spelled = [each.replace("Rollouts", "dict[str, Tensor]").replace("torch.Tensor", "Tensor") for each in of_ours]
    assert signatures == spelled
