"""A run of TRL that takes a second: a random model of 20,000 parameters, and letters as words."""

from __future__ import annotations

import os
import pathlib
import tempfile
from collections.abc import Callable
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from reprise.trl import Replay, ReplayGRPOTrainer

WORDS = ["<pad>", "<eos>", *"abcdefghijklmnopqrstuvwxyz0123"]


def tokenizer() -> Any:
    raw = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<pad>"))
    raw.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=raw, pad_token="<pad>", eos_token="<eos>", padding_side="left")


def vowels(completions: list[str], **_: Any) -> list[float]:
    return [sum(letter in "aeiou" for letter in text) / 12 for text in completions]


class Pace(TrainerCallback):
    """Tells the number of each update, to tests that kill the run at one."""

    def __init__(self, tell: Callable[[int], Any]) -> None:
        self._tell = tell

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._tell(state.global_step)


def write(folder: pathlib.Path) -> pathlib.Path:
    """Write the model before training, unless it is there, and return where: TRL loads the reference model from there."""
    model = folder / "model"
    if not model.exists():
        torch.manual_seed(0)
        shape = dict(
            vocab_size=len(WORDS), hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
            pad_token_id=0, eos_token_id=1, bos_token_id=None,
        )  # fmt: skip
        LlamaForCausalLM(LlamaConfig(**shape)).save_pretrained(model)
    return model


def make(replay: Replay | None = None, cls: Any = None, rewards: Any = vowels, tell: Any = None, **options: Any) -> Any:
    """Return a trainer, TRL's own without a replay."""
    peft = options.pop("peft_config", None)
    work = options.pop("output_dir", None) or tempfile.mkdtemp()
    model = write(pathlib.Path(work))
    torch.manual_seed(0)
    defaults = dict(
        output_dir=work, per_device_train_batch_size=16, num_generations=4, max_completion_length=12, max_steps=10,
        learning_rate=1e-2, logging_steps=1, report_to="none", use_cpu=True, bf16=False, save_strategy="no",
        disable_tqdm=True,
    )  # fmt: skip
    common = dict(
        model=LlamaForCausalLM.from_pretrained(model), reward_funcs=rewards, processing_class=tokenizer(),
        args=GRPOConfig(**{**defaults, **options}), callbacks=[Pace(tell)] if tell else None, peft_config=peft,
        train_dataset=Dataset.from_dict({"prompt": [f"{a} {b}" for a in "abcdefgh" for b in "stuvwxyz"]}),
    )  # fmt: skip
    if replay is None:
        return (cls or GRPOTrainer)(**common)
    return (cls or ReplayGRPOTrainer)(**common, replay=replay)


def train(replay: Replay | None = None, resume: str | None = None, **options: Any) -> Any:
    """Train, and return the trainer."""
    trainer = make(replay, **options)
    trainer.train(resume_from_checkpoint=resume)
    return trainer


def weights(trainer: Any) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in trainer.accelerator.unwrap_model(trainer.model).state_dict().items()}


def difference(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> float:
    assert one.keys() == other.keys()
    return max(float((one[name] - other[name]).abs().max()) for name in one)


def work(job: dict[str, Any], tell: Any, environment: dict[str, str]) -> None:
    """Train in a process of its own, and save the weights."""
    os.environ.update(environment)
    torch.set_num_threads(1)
    replay = job.get("replay")
    trained = train(None if replay is None else Replay(**replay), job.get("resume"), tell=tell.send, **job["options"])
    if trained.accelerator.is_main_process:
        torch.save(weights(trained), job["weights"])
