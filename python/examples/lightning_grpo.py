"""The adder of torch_grpo.py, trained with Lightning.

    python examples/lightning_grpo.py
"""

from __future__ import annotations

from typing import Any

import lightning
import torch
from torch import Tensor
from torch_grpo import GRPO, PROMPT, Adder, accuracy, generate, logprobs_of, problems, warm_up

from reprise.torch import Drawn, RolloutStore

BATCH, UPDATES, LARGEST = 256, 60, 9


class Learner(lightning.LightningModule):
    """Draws a batch of the store for each batch of prompts that Lightning gives it."""

    def __init__(self, adder: Adder, store: RolloutStore) -> None:
        super().__init__()
        self.adder, self.store = adder, store
        self.rng = torch.Generator().manual_seed(2)
        self.drawn: Drawn | None = None

    def training_step(self, batch: tuple[Tensor, Tensor], index: int) -> Tensor:
        prompts, answers = (each.repeat_interleave(8, 0) for each in batch)
        tokens, logprobs = generate(self.adder, prompts, self.rng)
        reward = (tokens[:, PROMPT:] == answers).all(1).float()
        self.store.insert(tokens=tokens, prompt_lengths=PROMPT, logprobs=logprobs, reward=reward)
        self.drawn = self.store.draw()
        return self.drawn.loss(logprobs_of(self.adder, self.drawn.padded.tokens.to(self.device))).loss

    def on_train_batch_end(self, *_: Any) -> None:
        assert self.drawn is not None
        self.store.report(self.drawn)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.adder.parameters(), lr=1e-3, weight_decay=0.0)


def main() -> tuple[float, float]:
    """Return the held-out accuracy before and after."""
    torch.manual_seed(1)
    torch.set_num_threads(1)
    adder = Adder()
    warm_up(adder, 50, LARGEST)
    held_out = problems(1000, LARGEST, torch.Generator().manual_seed(0))
    first = accuracy(adder, *held_out)
    asked = problems(UPDATES * BATCH // 16, LARGEST, torch.Generator().manual_seed(3))
    with RolloutStore.open(batch=BATCH, objective=GRPO, sampler="prioritized", max_staleness=8, group_size=8,
                           min_size=BATCH // 2) as store:  # fmt: skip
        trainer = lightning.Trainer(
            accelerator="cpu", devices=1, max_steps=UPDATES, gradient_clip_val=1.0, logger=False,
            enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
        )  # fmt: skip
        prompts = torch.utils.data.TensorDataset(*asked)
        trainer.fit(Learner(adder, store), torch.utils.data.DataLoader(prompts, batch_size=BATCH // 16))
    last = accuracy(adder, *held_out)
    print(f"held-out accuracy: {first:.3f} before, {last:.3f} after {UPDATES} updates")
    return first, last


if __name__ == "__main__":
    main()
