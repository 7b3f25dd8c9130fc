"""The adder of torch_grpo.py, trained with Hugging Face's accelerate.

    python examples/accelerate_grpo.py
    accelerate launch --num_processes 2 examples/accelerate_grpo.py
"""

from __future__ import annotations

import torch
from accelerate import Accelerator
from torch_grpo import GRPO, PROMPT, Adder, accuracy, generate, logprobs_of, problems, warm_up

from reprise.torch import RolloutStore

BATCH, UPDATES, LARGEST = 256, 60, 9


def main() -> tuple[float, float]:
    """Return the held-out accuracy before and after."""
    torch.manual_seed(1)
    torch.set_num_threads(1)
    accelerator = Accelerator()
    ranks, adder = accelerator.num_processes, Adder()
    warm_up(adder, 50, LARGEST)
    adder = adder.to(accelerator.device)
    model, optimizer = accelerator.prepare(adder, torch.optim.AdamW(adder.parameters(), lr=1e-3, weight_decay=0.0))
    held_out = problems(1000, LARGEST, torch.Generator().manual_seed(0))
    rng, first = torch.Generator().manual_seed(2 + accelerator.process_index), accuracy(adder, *held_out)
    with RolloutStore.open(batch=BATCH, objective=GRPO, sampler="prioritized", max_staleness=8, group_size=8,
                           min_size=BATCH // 2, device=accelerator.device) as store:  # fmt: skip
        for _ in range(UPDATES):
            prompts, answers = (x.repeat_interleave(8, 0) for x in problems(BATCH // ranks // 16, LARGEST, rng))
            tokens, logprobs = generate(adder, prompts, rng)
            reward = (tokens[:, PROMPT:] == answers).all(1).float()
            store.insert(tokens=tokens, prompt_lengths=PROMPT, logprobs=logprobs, reward=reward)
            drawn = store.draw()
            optimizer.zero_grad()
            accelerator.backward(drawn.loss(logprobs_of(model, drawn.padded.tokens)).loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            store.report(drawn)
    last = accuracy(adder, *held_out)
    accelerator.print(f"held-out accuracy: {first:.3f} before, {last:.3f} after {UPDATES} updates")
    accelerator.end_training()
    return first, last


if __name__ == "__main__":
    main()
