"""ReplayGRPOTrainer: TRL's GRPOTrainer with a table between generation and training.

Nothing of TRL is copied. Each method here calls TRL's own of that name. The table's version is TRL's ``global_step``.
The main process alone talks to the service; what it draws or what went wrong is broadcast. docs/trl-upstream.md names
what is private to TRL here, and the protocol that would replace it.
"""

from __future__ import annotations

import copy
import hashlib
import json
import os
import subprocess
import sys
import time
import warnings
from collections import defaultdict
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from .. import errors
from ..advice import Meter
from ..batch import Batch
from ..stats import Stats
from ..torch.store import RolloutStore, square_of_gradient
from . import layout
from .replay import Replay

TESTED = ("0.29.1", "1.0.0", "1.8.0", "1.16.0")
"""Versions of TRL that `make test-trainers` runs; minor versions between the first and the last are accepted."""

OVERRIDE = "REPRISE_TRL"
"""In the environment, ``untested`` accepts a newer TRL without the self-test."""


def _minor(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2])


def _refuse_old(version: str) -> None:
    """Refuse a version of TRL that is older than those tested."""
    if _minor(version) < _minor(TESTED[0]):
        raise ImportError(f"trl {version}: reprise.trl was tested with {', '.join(TESTED)}: install one from "
                          f"{TESTED[0]} to {TESTED[-1]}")  # fmt: skip


def _try_new(version: str) -> None:
    """Try a version of TRL that is newer than those tested, in a process of its own, and refuse it if that fails."""
    if _minor(version) <= _minor(TESTED[-1]) or os.environ.get(OVERRIDE) == "untested":
        return
    warnings.warn(f"trl {version} is newer than {TESTED[-1]}, the newest that reprise.trl was tested with: trying it "
                  f"for some ten seconds (python -m reprise.trl.selftest; {OVERRIDE}=untested skips it)",
                  stacklevel=2)  # fmt: skip
    of_launchers = ("ACCELERATE_", "MASTER_", "TORCHELASTIC_", "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")
    own = {key: value for key, value in os.environ.items() if not key.startswith(of_launchers)}
    tried = subprocess.run(
        [sys.executable, "-m", "reprise.trl.selftest"], capture_output=True, text=True,
        env={**own, OVERRIDE: "untested", "CUDA_VISIBLE_DEVICES": ""},
    )  # fmt: skip
    if tried.returncode:
        said = (tried.stdout + tried.stderr).strip().splitlines()
        raise ImportError(f"trl {version}: python -m reprise.trl.selftest failed: {said[-1] if said else 'no output'}: "
                          f"install one from {TESTED[0]} to {TESTED[-1]}, or a newer reprise, or set "
                          f"{OVERRIDE}=untested")  # fmt: skip


try:
    _refuse_old(metadata.version("trl"))
except metadata.PackageNotFoundError as error:
    raise ImportError(f"trl is not installed: want one from {TESTED[0]} to {TESTED[-1]}: pip install trl") from error

import torch  # noqa: E402
from accelerate.utils import broadcast_object_list, gather_object  # noqa: E402
from trl import GRPOTrainer  # noqa: E402

T = TypeVar("T")

COLUMNS = [
    "id", "tokens", "mask", "logprobs", "ref_logprobs", "advantage", "advantages", "reward", "weight", "staleness",
    "uses",
]  # fmt: skip
"""Columns of a batch that training reads."""

CHECKPOINT = "reprise.json"
"""File in a checkpoint of the trainer that names the table's."""


class ReplayGRPOTrainer(GRPOTrainer):
    """GRPOTrainer whose batches come from a table: some rollouts fresh, the others replayed.

    It takes what TRL's trainer takes, and a `Replay`. Saving a checkpoint saves the table too, and
    ``resume_from_checkpoint`` restores it. TRL's log has the metrics ``replay/…``; docs/trl.md explains them.

    Attributes:
        replay: as given.
        table: the `reprise.Table`; None in all but the main process.
        store: the `reprise.torch.RolloutStore` of that table, whose ``advice()`` says what would pay here; None too.
    """

    def __init__(self, *args: Any, replay: Replay | None = None, **kwargs: Any) -> None:
        if replay is not None and not isinstance(replay, Replay):
            raise errors.Invalid(f"replay: {replay!r}: want a Replay(…), such as Replay(fresh=0.5), or None")
        super().__init__(*args, **kwargs)
        self.replay = replay or Replay()
        self._on_main(lambda: _try_new(metadata.version("trl")))
        self.num_iterations = self.replay.iterations(self.args.num_iterations)
        self.args: Any = copy.copy(self.args)  # the caller's stay as they are
        self.args.num_iterations = self.num_iterations
        self._corrected = bool(self.use_vllm and getattr(self, "vllm_importance_sampling_correction", True))
        self._rows = self.args.per_device_train_batch_size * self.args.steps_per_generation  # of this process
        self._omits = False  # TRL compares a new batch with the log-probs of the update's own forward pass
        self._passes = 0  # micro-batches that were trained on
        self._batch: Batch | None = None  # the last one drawn, of all processes
        self._tap: list[torch.Tensor] | None = None  # log-probs of the forward passes of a loss
        self._seen: list[torch.Tensor] = []  # [b, 4] of each micro-batch: row, tokens, ratios, their squares
        self._replay_metrics: dict[str, list[float]] = defaultdict(list)  # since the last line of TRL's log
        batch = self._rows * self.accelerator.num_processes
        where, group = self.args.output_dir, self.num_generations
        self.table = self._on_main(lambda: self.replay.open(where, batch, self._corrected, group), share=False)
        update = batch // self.args.steps_per_generation * self.args.gradient_accumulation_steps
        self.store = self._on_main(lambda: RolloutStore(self.table, batch=update, version=None,
                                                        advice=self.replay.advice), share=False)  # fmt: skip
        self._meter = self.store.meter if self.store is not None else Meter(update, group, Stats, on=False)
        self._handed: float | None = None  # when TRL got the last batch
        self._part = 0.0  # squared norm of the gradient of an update's first micro-batch

    # Generation goes into the table, batches come out of it.

    def _calculate_rewards(self, *args: Any, **kwargs: Any) -> Any:
        per_function = super()._calculate_rewards(*args, **kwargs)
        weights = self.reward_weights.to(per_function.device)
        self._rewards = (per_function * weights).nansum(dim=1)  # of all processes
        return per_function

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        if not self.model.training:
            return super()._generate_and_score_completions(inputs)
        began = time.monotonic()
        if self._handed is not None:
            self._meter.updated(began - self._handed, self._rows * self.accelerator.num_processes)
        batch = self._next_batch(inputs)
        self._handed = time.monotonic()
        return batch

    def _next_batch(self, inputs: Any) -> Any:
        """Generate if it is time, and return this process's part of a batch of the table."""
        outputs = columns = None
        if self._passes % (self.args.steps_per_generation * self.num_iterations) == 0:
            began = time.monotonic()
            outputs = super()._generate_and_score_completions(inputs)
            self._meter.generated(time.monotonic() - began, self._rows * self.accelerator.num_processes)
            self._meter.asked = self._asked()
            self._omits = outputs.get("old_per_token_logps") is None
            columns = self._columns(outputs)
        batch = self._on_main(lambda: self._exchange(columns))
        if batch is not None:
            return self._tensors(batch)
        # The table is empty: TRL masked all completions as truncated, or max_staleness dropped them.
        return super()._generate_and_score_completions(inputs) if outputs is None else outputs

    def _columns(self, outputs: dict[str, Any]) -> dict[str, Any] | None:
        """Return what this generation inserts, of all processes; None in all but the main one."""
        behaviour = layout.logprobs(self, outputs).clamp(max=0)  # rounding may put it above
        first = self.accelerator.process_index * self._rows
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "mask: ", errors.RepairWarning)  # replay/dropped counts them
            columns = layout.rollouts(
                outputs,
                rewards=self._rewards[first : first + self._rows],
                version=self.state.global_step,
                num_generations=self.num_generations,
                first_row=first,
                logprobs=behaviour,
                truncated=self._truncated(outputs),
                temperature=self.temperature,
                top_p=self.top_p,
                corrections=self._corrected,
            )
        parts = gather_object([columns])
        return layout.merge(parts) if self.accelerator.is_main_process else None

    def _asked(self) -> float | None:
        """Return how often this run generates for each prompt, None if the data set does not say how long it is."""
        try:
            prompts = len(self.train_dataset)
        except TypeError:
            return None
        steps = self.state.max_steps * self.args.gradient_accumulation_steps
        batches = steps / (self.args.steps_per_generation * self.num_iterations)
        return float(batches * self._rows * self.accelerator.num_processes / self.num_generations / prompts)

    def _truncated(self, outputs: dict[str, Any]) -> torch.Tensor:
        """Return which completions [B] do not end with an end-of-sequence token."""
        ids, mask = outputs["completion_ids"], outputs["completion_mask"]
        ends = getattr(self, "eos_token_ids", None) or [self._text.eos_token_id]
        last = (mask.sum(dim=1, keepdim=True) - 1).clamp(min=0)
        return ~torch.isin(ids.gather(1, last).squeeze(1), torch.tensor(list(ends), device=ids.device))

    @property
    def _text(self) -> Any:
        """The tokenizer, also where TRL has a processor."""
        return getattr(self.processing_class, "tokenizer", self.processing_class)

    def _exchange(self, columns: dict[str, Any] | None) -> Batch | None:
        """Insert, and return a batch for all processes: fewer rollouts if the table has fewer, None if it has none."""
        want = self._rows * self.accelerator.num_processes
        present = self.store.follow(self.state.global_step)
        if columns is not None:
            count = len(columns["lengths"])
            if count:
                self.store.insert(columns)
            self._replay_metrics["replay/dropped"].append(float(want - count))
            present = self.store.present()
        size = min(want, present)
        if not size:
            return None
        fresh = self.replay.fresh_rows(size, self.num_iterations, self.num_generations)
        wanted = [*COLUMNS, *(layout.CORRECTIONS if self._corrected else ())]
        return self.store.draw_present(size, fresh, wanted, "global")

    def _tensors(self, batch: Batch) -> dict[str, Any]:
        """Return this process's part of a batch for `_compute_loss`. Pads a short batch with masked rows."""
        rows = np.arange(self._rows) + self.accelerator.process_index * self._rows
        inputs = layout.tensors(
            Batch(batch.record_batch.take(rows % len(batch)), batch.info),
            pad_token_id=self._text.pad_token_id,
            pad_to_multiple_of=getattr(self, "pad_to_multiple_of", None) or 1,
            weigh=self.replay.weigh,
            torch=True,
            device=self.accelerator.device,
        )
        real = torch.from_numpy(rows < len(batch)).to(self.accelerator.device)
        if not self._corrected:
            del inputs["importance_sampling_ratio"]
        inputs["reprise_logps"] = inputs["old_per_token_logps"]
        if self._omits and not batch.staleness.any() and not batch.uses.any():
            del inputs["old_per_token_logps"]  # dropout makes them other than those of the update's forward pass
        inputs["completion_mask"] *= real[:, None]
        mask = inputs["completion_mask"] * inputs.get("tool_mask", 1)
        inputs["num_items_in_batch"] = self.accelerator.gather(mask.sum()).sum()
        inputs["reprise_row"] = torch.from_numpy(rows).to(self.accelerator.device)
        self._batch = batch
        self._seen.clear()
        for name, values in {
            "staleness": batch.staleness, "uses": batch.uses, "first": batch.uses == 0, "reward": batch.rewards,
            "weight": batch.weights, "present": batch.info.present,
        }.items():  # fmt: skip
            self._replay_metrics[f"replay/{name}"].append(float(np.mean(values)))
        return inputs

    # What the training step measured goes back.

    def _get_per_token_logps_and_entropies(self, *args: Any, **kwargs: Any) -> Any:
        out = super()._get_per_token_logps_and_entropies(*args, **kwargs)
        if self._tap is not None:
            self._tap.append(out[0].detach())
        return out

    def compute_loss(self, model: Any, inputs: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        """Return TRL's loss, and note the ratios of its rollouts."""
        if "reprise_row" not in inputs:  # evaluation
            return super().compute_loss(model, inputs, *args, **kwargs)
        tap: list[torch.Tensor] = []
        self._tap = tap
        try:
            loss = super().compute_loss(model, inputs, *args, **kwargs)
        finally:
            self._tap = None
        if not tap:  # Liger's fused loss, of older versions, has no log-probs
            if not getattr(self, "use_liger_kernel", False):
                raise RuntimeError("TRL's loss does not call _get_per_token_logps_and_entropies, which gives the ratios: "
                                   "use a version of TRL that docs/trl.md names")  # fmt: skip
            return loss
        logps = tap[0]
        mask = inputs["completion_mask"] * inputs.get("tool_mask", 1)
        behaviour = inputs.get("sampling_per_token_logps", inputs["reprise_logps"])
        ratio = torch.exp((logps - behaviour).double()) * mask
        measured = [inputs["reprise_row"], mask.sum(1), ratio.sum(1), ratio.square().sum(1)]
        self._seen.append(torch.stack([each.double() for each in measured], dim=1))
        return loss

    def training_step(self, *args: Any, **kwargs: Any) -> Any:
        """Train on a micro-batch; after the last one of a batch report what was measured."""
        out = super().training_step(*args, **kwargs)
        self._passes += 1
        if self._meter.wants_gradients and not (self.is_deepspeed_enabled or self.is_fsdp_enabled):
            self._measure_gradient()
        if self._passes % self.args.steps_per_generation == 0:
            self._buffered_inputs = None  # then TRL asks for a batch, shuffles it and splits it
            if self._seen:
                self._report()
        return out

    def log(self, logs: dict[str, float], *args: Any, **kwargs: Any) -> None:
        """Add this trainer's metrics to a line of TRL's log, each its mean since the last one."""
        if self.model.training:
            logs.update({name: sum(values) / len(values) for name, values in self._replay_metrics.items()})
            self._replay_metrics.clear()
        super().log(logs, *args, **kwargs)

    def _measure_gradient(self) -> None:
        """Note the gradient of an update's first micro-batch, of this process alone, and that of all."""
        count = self.args.gradient_accumulation_steps
        if count > 1 and self._passes % count == 1:
            self._part = square_of_gradient(self.model.parameters()) * count**2
        elif count > 1 and self._passes % count == 0:
            whole = square_of_gradient(self.model.parameters())
            self._meter.gradient(self._part, whole, self.args.per_device_train_batch_size)

    def _report(self) -> None:
        measured = self.accelerator.gather(torch.cat(self._seen)).cpu().numpy()
        self._seen.clear()
        counted = (measured[:, 1] > 0) & np.isfinite(measured).all(axis=1)  # not the masked rows that pad the batch
        row, tokens, ratios, squares = measured[counted].T
        if not len(row):
            return
        self._replay_metrics["replay/ess"].append(float(ratios.sum() ** 2 / (tokens.sum() * squares.sum())))
        self._on_main(lambda: self._send(row.astype(int), tokens, ratios, squares))

    def _send(self, row: Any, tokens: Any, ratios: Any, squares: Any) -> None:
        batch = self._batch
        assert batch is not None
        measured = {"tokens": tokens, "ratio_sum": ratios, "ratio_squares": squares}
        if not batch.has("advantages"):
            measured["advantage"] = np.abs(batch.column("advantage")[row])
        self.store.send(batch, row, **measured)

    # Checkpoints of the table with the trainer's.

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        super()._save_checkpoint(model, trial)
        self._on_main(lambda: self._save_table(Path(self._get_output_dir(trial=trial))))

    def _save_table(self, folder: Path) -> None:
        name = f"checkpoint-{self.state.global_step}"
        run = "trl-" + hashlib.sha256(os.fsencode(folder.resolve())).hexdigest()[:12] + "-"
        try:
            self.table.checkpoint(run + name)
        except errors.Invalid as error:
            warnings.warn(f"table {self.table.name}: not saved with {name}: {error}", stacklevel=2)
            return
        if (folder / name).exists():  # save_total_limit may have removed it
            (folder / name / CHECKPOINT).write_text(json.dumps({"table": self.table.name, "checkpoint": run + name}))
        for saved in self.table.checkpoints():
            if saved.name.startswith(run) and not (folder / saved.name[len(run) :]).exists():
                self.table.delete_checkpoint(saved.name)

    def _load_optimizer_and_scheduler(self, checkpoint: Any) -> None:
        super()._load_optimizer_and_scheduler(checkpoint)
        if checkpoint is not None:
            self._on_main(lambda: self._restore_table(Path(checkpoint, CHECKPOINT)))

    def _restore_table(self, saved: Path) -> None:
        """Restore the table that belongs to a checkpoint. Without one, the first batch rewinds the table."""
        self.store.unseen = 0
        try:
            self.table.restore(json.loads(saved.read_text())["checkpoint"])
        except (FileNotFoundError, errors.NotFound) as error:
            warnings.warn(f"table {self.table.name}: not restored, only rewound: {error}", stacklevel=2)

    def _on_main(self, do: Callable[[], T], share: bool = True) -> T:
        """Return in every process what a call returns in the main one, or raise there what it raises.

        Args:
            do: the call.
            share: broadcast the result; otherwise the other processes get None.
        """
        result: list[Any] = [None]
        failed: list[Any] = [None]
        if self.accelerator.is_main_process:
            try:
                result[0] = do()
            except errors.Error as error:
                failed[0] = error
            except Exception as error:  # the other processes wait for an answer
                failed[0] = errors.Failed(f"{type(error).__name__}: {error}")
        if self.accelerator.num_processes > 1:
            broadcast_object_list(failed)
            if share and failed[0] is None:
                broadcast_object_list(result)
        if failed[0] is not None:
            raise failed[0]
        return result[0]  # type: ignore[no-any-return]
