"""Does a queue train as TRL does, in the TRL that is installed? `python -m reprise.trl.selftest` tells in ten seconds.

A random model of 20,000 parameters, whose words are letters, is trained twice on the CPU: by TRL's GRPOTrainer, and by
ReplayGRPOTrainer with a queue, which gives each rollout back once. The weights must be equal bit by bit.
"""

from __future__ import annotations

import contextlib
import io
import os
import pathlib
import tempfile
from importlib import metadata
from typing import Any

WORDS = ["<pad>", "<eos>", *"abcdefghijklmnopqrstuvwxyz0123"]


def tokenizer() -> Any:
    """Return one that has a token for each letter."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    raw = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<pad>"))
    raw.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=raw, pad_token="<pad>", eos_token="<eos>", padding_side="left")


def vowels(completions: list[str], **_: Any) -> list[float]:
    """Return the rewards: the share of vowels."""
    return [sum(letter in "aeiou" for letter in text) / 12 for text in completions]


def write(folder: pathlib.Path) -> pathlib.Path:
    """Write the model, unless it is there, and return where: TRL loads the reference model from there."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    model = folder / "model"
    if not model.exists():
        torch.manual_seed(0)
        shape: dict[str, Any] = dict(
            vocab_size=len(WORDS), hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
            pad_token_id=0, eos_token_id=1, bos_token_id=None,
        )  # fmt: skip
        LlamaForCausalLM(LlamaConfig(**shape)).save_pretrained(model)
    return model


def make(
    folder: pathlib.Path, cls: Any, rewards: Any = vowels, callbacks: Any = None, peft_config: Any = None,
    dropout: float = 0.0, replay: Any = None, **options: Any,
) -> Any:  # fmt: skip
    """Return a trainer of a class.

    Args:
        folder: what it writes goes there.
        cls: GRPOTrainer, or what takes its arguments.
        rewards, callbacks, peft_config: as TRL has them.
        dropout: of the model's attention.
        replay: of a trainer that takes one.
        options: of GRPOConfig.
    """
    import torch
    from datasets import Dataset
    from transformers import LlamaForCausalLM
    from trl import GRPOConfig

    model = write(folder)
    torch.manual_seed(0)
    defaults = dict(
        output_dir=str(folder), per_device_train_batch_size=16, num_generations=4, max_completion_length=12,
        max_steps=10, learning_rate=1e-2, logging_steps=1, report_to="none", use_cpu=True, bf16=False,
        save_strategy="no", disable_tqdm=True,
    )  # fmt: skip
    return cls(
        model=LlamaForCausalLM.from_pretrained(model, attention_dropout=dropout), reward_funcs=rewards,
        processing_class=tokenizer(), args=GRPOConfig(**{**defaults, **options}), callbacks=callbacks,
        peft_config=peft_config, **({} if replay is None else {"replay": replay}),
        train_dataset=Dataset.from_dict({"prompt": [f"{a} {b}" for a in "abcdefgh" for b in "stuvwxyz"]}),
    )  # fmt: skip


def weights(trainer: Any) -> dict[str, Any]:
    """Return a copy of the weights by name."""
    return {name: value.clone() for name, value in trainer.accelerator.unwrap_model(trainer.model).state_dict().items()}


def difference(one: dict[str, Any], other: dict[str, Any]) -> float:
    """Return the largest between two copies."""
    assert one.keys() == other.keys()
    return max(float((one[name] - other[name]).abs().max()) for name in one)


def run(cls: Any = None) -> tuple[float, float]:
    """Train both ways. Return the largest difference between their weights, which is to be 0, and how far training
    took them from where they began.

    Args:
        cls: the trainer that takes a `Replay`; ReplayGRPOTrainer by default.
    """
    from trl import GRPOTrainer

    from ..service import serve
    from .replay import Replay
    from .trainer import ReplayGRPOTrainer

    with tempfile.TemporaryDirectory() as work, serve() as service:
        trained, queue = [], Replay(service.address, "queue", sampler="fifo")
        for each, replay in ((GRPOTrainer, None), (cls or ReplayGRPOTrainer, queue)):
            trainer = make(pathlib.Path(work), each, replay=replay, max_steps=3)
            start = weights(trainer)
            trainer.train()
            trained.append(weights(trainer))
            if replay is not None:
                trainer.table._connection.close()
    return difference(*trained), difference(trained[0], start)


def main() -> int:
    os.environ["HF_HUB_OFFLINE"] = "1"
    with contextlib.redirect_stdout(io.StringIO()):  # TRL prints its log
        apart, moved = run()
    name = f"TRL {metadata.version('trl')}"
    if apart or not moved:
        print(f"{name}: three updates by a queue end {apart:.2g} from TRL's, which moved the weights by {moved:.2g}")
        return 1
    print(f"{name}: a queue trains as TRL does, bit by bit")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
