"""GRPO with replay in plain PyTorch: a small transformer learns to add, and generates half of what it trains on.

    python examples/torch_grpo.py
    torchrun --nproc_per_node 2 examples/torch_grpo.py     # two ranks, DistributedDataParallel over gloo
"""

from __future__ import annotations

import argparse
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from reprise.torch import Objective, RolloutStore

GRPO = Objective("grpo", normalisation="token")  # the mean over all tokens of a batch
PLUS, EQUALS, VOCABULARY = 10, 11, 12
PROMPT, ANSWER = 6, 3  # tokens: "07+15=", then "022"
RANK, RANKS = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))


class Adder(nn.Module):
    """A decoder-only transformer over digits: tokens [B, L] -> logits [B, L, V]."""

    def __init__(self, width: int = 64, layers: int = 2, heads: int = 4) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, width)
        self.positions = nn.Embedding(PROMPT + ANSWER, width)
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, dropout=0.0, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, VOCABULARY)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]
        causal = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1])
        out: Tensor = self.head(self.layers(x, mask=causal, is_causal=True))
        return out


def logprobs_of(model: nn.Module, tokens: Tensor) -> Tensor:
    """Return log-probs [B, L] of each token given those before it; 0 for the first."""
    taken = torch.log_softmax(model(tokens[:, :-1]), -1).gather(-1, tokens[:, 1:, None])[..., 0]
    return F.pad(taken, (1, 0))


def problems(count: int, largest: int, rng: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return prompts [B, PROMPT] and right answers [B, ANSWER]."""
    a, b = torch.randint(0, largest + 1, (count, 2), generator=rng).unbind(1)
    prompts = [a // 10, a % 10, torch.full_like(a, PLUS), b // 10, b % 10, torch.full_like(a, EQUALS)]
    return torch.stack(prompts, 1), torch.stack([(a + b) // 100, (a + b) // 10 % 10, (a + b) % 10], 1)


@torch.no_grad()
def generate(model: nn.Module, prompts: Tensor, rng: torch.Generator) -> tuple[Tensor, Tensor]:
    """Sample answers, and return tokens [B, L], prompts included, and the log-probs [B, L] of what was sampled."""
    tokens, logprobs = prompts, torch.zeros(prompts.shape)
    for _ in range(ANSWER):
        logp = torch.log_softmax(model(tokens)[:, -1], -1)
        new = torch.multinomial(logp.exp(), 1, generator=rng)
        tokens, logprobs = torch.cat([tokens, new], 1), torch.cat([logprobs, logp.gather(-1, new)], 1)
    return tokens, logprobs


def accuracy(model: nn.Module, prompts: Tensor, answers: Tensor) -> float:
    tokens, _ = generate(model, prompts, torch.Generator().manual_seed(0))
    return float((tokens[:, PROMPT:] == answers).all(1).float().mean())


def warm_up(model: nn.Module, steps: int, largest: int) -> None:
    """Imitate right answers until some come out, as a pretrained model's do. All ranks do the same."""
    rng, optimizer = torch.Generator().manual_seed(1), torch.optim.AdamW(model.parameters(), lr=2e-3)
    for _ in range(steps):
        loss = -logprobs_of(model, torch.cat(problems(256, largest, rng), 1))[:, PROMPT:].mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def problems_of_a_rank(o: argparse.Namespace, rng: torch.Generator) -> list[Tensor]:
    """Return prompts and answers for half of an update's rollouts, 8 of each prompt."""
    return [each.repeat_interleave(8, 0) for each in problems(o.batch // RANKS // 16, o.largest, rng)]


def train(store: RolloutStore, adder: Adder, o: argparse.Namespace) -> tuple[float, float]:
    """Return the held-out accuracy before and after."""
    held_out, rng = problems(1000, o.largest, torch.Generator().manual_seed(0)), torch.Generator().manual_seed(2 + RANK)
    first = accuracy(adder, *held_out)
    model = nn.parallel.DistributedDataParallel(adder) if RANKS > 1 else adder
    optimizer = torch.optim.AdamW(adder.parameters(), lr=o.learning_rate, weight_decay=0.0)
    for update in range(o.updates):
        prompts, answers = problems_of_a_rank(o, rng)
        tokens, logprobs = generate(adder, prompts, rng)
        reward = (tokens[:, PROMPT:] == answers).all(1).float()
        store.insert(tokens=tokens, prompt_lengths=PROMPT, logprobs=logprobs, reward=reward)

        drawn = store.draw()
        optimizer.zero_grad()
        if RANKS == 1:
            for part in drawn.split(o.batch // 2):  # parts show the gradient's noise, which decides the advice
                part.loss(logprobs_of(model, part.padded.tokens)).loss.backward()
        else:
            drawn.loss(logprobs_of(model, drawn.padded.tokens)).loss.backward()
        nn.utils.clip_grad_norm_(adder.parameters(), 1.0)
        optimizer.step()
        store.report(drawn)
        if RANK == 0 and (update + 1) % max(1, o.updates // 10) == 0:
            batch = drawn.batch
            print(f"update {update + 1:4}  accuracy {accuracy(adder, *held_out):.3f}  reward {reward.mean():.3f}  "
                  f"staleness {batch.staleness.mean():.2f}  uses {batch.uses.mean():.2f}", flush=True)  # fmt: skip
    return first, accuracy(adder, *held_out)


def main(arguments: list[str] | None = None) -> tuple[float, float]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--largest", type=int, default=99, help="number to add, at most 99")
    parser.add_argument("--updates", type=int, default=300)
    parser.add_argument("--warm-up", type=int, default=300, help="steps of imitation before")
    parser.add_argument("--batch", type=int, default=256, help="rollouts of one update, of all ranks")
    parser.add_argument("--learning-rate", type=float, default=3e-4)
    options = parser.parse_args(arguments)
    torch.manual_seed(1)
    torch.set_num_threads(1)
    adder = Adder()
    warm_up(adder, options.warm_up, options.largest)
    if RANKS > 1:
        dist.init_process_group("gloo")
    with RolloutStore.open(table="sums", batch=options.batch, objective=GRPO, parameters=adder.parameters(),
                           sampler="prioritized", max_staleness=8, group_size=8,
                           min_size=options.batch // 2) as store:  # fmt: skip
        first, last = train(store, adder, options)
    if RANKS > 1:
        dist.destroy_process_group()
    if RANK == 0:
        print(f"held-out accuracy: {first:.3f} before, {last:.3f} after {options.updates} updates")
    return first, last


if __name__ == "__main__":
    main()
