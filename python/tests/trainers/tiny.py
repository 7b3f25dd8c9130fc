"""Runs of TRL that take a second, with the model of the self-test."""

from __future__ import annotations

import os
import pathlib
import tempfile
from collections.abc import Callable
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
from transformers import TrainerCallback
from trl import GRPOTrainer

from reprise.trl import Replay, ReplayGRPOTrainer, selftest
from reprise.trl.selftest import WORDS, difference, tokenizer, vowels, weights, write

__all__ = ["WORDS", "difference", "make", "tokenizer", "train", "vowels", "weights", "work", "write"]


class Pace(TrainerCallback):
    """Tells the number of each update, to tests that kill the run at one."""

    def __init__(self, tell: Callable[[int], Any]) -> None:
        self._tell = tell

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._tell(state.global_step)


def make(replay: Replay | None = None, cls: Any = None, tell: Any = None, **options: Any) -> Any:
    """Return a trainer, TRL's own without a replay."""
    folder = pathlib.Path(options.pop("output_dir", None) or tempfile.mkdtemp())
    cls = cls or (GRPOTrainer if replay is None else ReplayGRPOTrainer)
    return selftest.make(folder, cls, replay=replay, callbacks=[Pace(tell)] if tell else None, **options)


def train(replay: Replay | None = None, resume: str | None = None, **options: Any) -> Any:
    """Train, and return the trainer."""
    trainer = make(replay, **options)
    trainer.train(resume_from_checkpoint=resume)
    return trainer


def work(job: dict[str, Any], tell: Any, environment: dict[str, str]) -> None:
    """Train in a process of its own, and save the weights."""
    os.environ.update(environment)
    torch.set_num_threads(1)
    replay = job.get("replay")
    trained = train(None if replay is None else Replay(**replay), job.get("resume"), tell=tell.send, **job["options"])
    if trained.accelerator.is_main_process:
        torch.save(weights(trained), job["weights"])
