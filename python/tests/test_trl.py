"""The adapter in TRL itself: a queue trains as TRL does. It needs trl and torch, and skips without them."""

from __future__ import annotations

import os
import pathlib
import sys
import tempfile
from collections.abc import Callable
from typing import Any

import pytest
from conftest import ROOT

import reprise

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("trl", reason="trl is not installed: pip install trl==1.16.0")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

WORDS = ["<pad>", "<eos>", *"abcdefghijklmnopqrstuvwxyz0123"]


def vowels(completions: list[str], **_: Any) -> list[float]:
    return [sum(letter in "aeiou" for letter in text) / 12 for text in completions]


def train(table: reprise.Table | None, steps: int = 3, **options: Any) -> Any:
    """Train a random model of 20,000 parameters."""
    from datasets import Dataset
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
    from trl import GRPOConfig, GRPOTrainer

    sys.path.insert(0, str(pathlib.Path(ROOT, "python", "examples")))
    from trl_replay import ReplayGRPOTrainer

    raw = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<pad>"))
    raw.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=raw, pad_token="<pad>", eos_token="<eos>", padding_side="left"
    )
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        LlamaForCausalLM(
            LlamaConfig(
                vocab_size=len(WORDS), hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
                pad_token_id=0, eos_token_id=1, bos_token_id=None,
            )
        ).save_pretrained(folder)  # fmt: skip
        defaults = dict(
            output_dir=folder, per_device_train_batch_size=8, num_generations=4, max_completion_length=12,
            learning_rate=1e-2, max_steps=steps, report_to="none", use_cpu=True, bf16=False, save_strategy="no",
            disable_tqdm=True,
        )  # fmt: skip
        common = dict(
            model=LlamaForCausalLM.from_pretrained(folder), reward_funcs=vowels, processing_class=tokenizer,
            args=GRPOConfig(**{**defaults, **options}),
            train_dataset=Dataset.from_dict({"prompt": [f"{a} {b}" for a in "abcdefgh" for b in "stuvwxyz"]}),
        )  # fmt: skip
        trainer = GRPOTrainer(**common) if table is None else ReplayGRPOTrainer(**common, table=table)
        trainer.train()
    return trainer


def same(one: Any, other: Any) -> float:
    pairs = zip(one.model.state_dict().values(), other.model.state_dict().values())
    return max(float((a - b).abs().max()) for a, b in pairs)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"gradient_accumulation_steps": 4, "per_device_train_batch_size": 4},
        {"loss_type": "grpo", "beta": 0.1},
        {"temperature": 0.7},
    ],
    ids=["defaults", "accumulation", "kl", "temperature"],
)
def test_attack_a_queue_trains_as_trl_does(table: Callable[..., reprise.Table], options: dict[str, Any]) -> None:
    plain = train(None, **options)
    queue = table(sampler="fifo", capacity=64, max_staleness=0)
    assert same(plain, train(queue, **options)) < 1e-6
    assert same(plain, train(None, steps=1, **options)) > 1e-4, "it does not train"


def test_attack_trl_goes_on_where_completions_are_truncated(table: Callable[..., reprise.Table]) -> None:
    uniform = table(sampler="uniform", capacity=64)
    with pytest.warns(reprise.RepairWarning, match="mask: .* mask_truncated_completions"):
        train(uniform, max_completion_length=24, mask_truncated_completions=True, steps=4)
    assert 0 < len(uniform) < 32


def test_attack_the_loss_of_vllm_mode_finds_what_it_reads(table: Callable[..., reprise.Table]) -> None:
    trainer = train(table(sampler="uniform", capacity=64), steps=1)
    trainer.use_vllm = True  # the loss alone: vLLM is not here
    trainer.model.train()
    from reprise.adapters import trl

    inputs = trl.tensors(trainer.table.sample(8), pad_token_id=0, micro_batches=1, torch=True)
    assert torch.isfinite(trainer._compute_loss(trainer.model, inputs))
