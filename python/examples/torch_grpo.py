"""GRPO with replay, in PyTorch, against the replay service: a small transformer learns to add.

A generator and a trainer work at the same time, as an inference engine and a trainer would. The generator asks the gate
how many groups it may start, generates them with the newest weights that were published, and inserts them. The trainer
draws batches by priority, corrects for their staleness with the ratio to the policy that generated, reports what it
measured, and publishes new weights after it has advanced the table.

    reprise serve &
    python examples/torch_grpo.py

On two cores it takes about a minute; with --replay 1 each rollout is used about once.
"""

from __future__ import annotations

import argparse
import copy
import math
import threading
import time
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import reprise
import reprise.torch

GRPO = reprise.torch.Objective("grpo", normalisation="token")  # the mean over all tokens of a batch

DIGITS, PLUS, EQUALS, END = 10, 10, 11, 12
VOCABULARY = 13
PROMPT, ANSWER = 6, 4  # tokens: "07+15=", then "022" and the end


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
        length = tokens.shape[1]
        x = self.tokens(tokens) + self.positions.weight[:length]
        causal = nn.Transformer.generate_square_subsequent_mask(length)
        out: Tensor = self.head(self.layers(x, mask=causal, is_causal=True))
        return out


def logprobs_of(model: Adder, tokens: Tensor) -> Tensor:
    """Log-probs [B, L] of each token given those before it; 0 for the first."""
    logits = model(tokens[:, :-1])
    taken = torch.log_softmax(logits, -1).gather(-1, tokens[:, 1:, None])[..., 0]
    return F.pad(taken, (1, 0))


# The task.


def prompts_of(pairs: Tensor) -> Tensor:
    """Pairs of numbers [B, 2] -> prompts [B, PROMPT]."""
    a, b = pairs.unbind(1)
    plus, equals = torch.full_like(a, PLUS), torch.full_like(a, EQUALS)
    return torch.stack([a // 10, a % 10, plus, b // 10, b % 10, equals], 1)


def answers_of(pairs: Tensor) -> Tensor:
    """Pairs [B, 2] -> the right answers [B, ANSWER]: three digits and the end."""
    total = pairs.sum(1)
    return torch.stack([total // 100, total // 10 % 10, total % 10, torch.full_like(total, END)], 1)


def draw_pairs(count: int, largest: int, rng: torch.Generator) -> Tensor:
    return torch.randint(0, largest + 1, (count, 2), generator=rng)


@torch.no_grad()
def generate(model: Adder, prompts: Tensor, rng: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Sample answers.

    Returns:
        tokens [B, L] with the prompts, log-probs [B, L] of what was sampled, and lengths [B].
    """
    tokens, logprobs = prompts, torch.zeros(prompts.shape)
    for _ in range(ANSWER):
        logp = torch.log_softmax(model(tokens)[:, -1], -1)
        new = torch.multinomial(logp.exp(), 1, generator=rng)
        tokens = torch.cat([tokens, new], 1)
        logprobs = torch.cat([logprobs, logp.gather(-1, new)], 1)
    ended = (tokens[:, PROMPT:] == END).long()
    after_end = (ended.cumsum(1) - ended) > 0
    return tokens, logprobs, PROMPT + (~after_end).sum(1)


def is_right(pairs: Tensor, tokens: Tensor) -> Tensor:
    return (tokens[:, PROMPT:] == answers_of(pairs)).all(1)


def accuracy(model: Adder, pairs: Tensor) -> float:
    """Share of right answers, one sampled for each pair."""
    rng = torch.Generator().manual_seed(0)
    return float(is_right(pairs, generate(model, prompts_of(pairs), rng)[0]).float().mean())


# The two sides.


@dataclass
class Published:
    """The newest weights, from the trainer to the generator."""

    model: Adder
    version: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def publish(self, model: Adder, version: int) -> None:
        weights = copy.deepcopy(model.state_dict())
        with self.lock:
            self.model.load_state_dict(weights)
            self.version = version

    def take(self, into: Adder) -> int:
        with self.lock:
            into.load_state_dict(self.model.state_dict())
            return self.version


class Generator(threading.Thread):
    """Generates groups of answers for as long as the gate lets it."""

    def __init__(self, table: reprise.Table, published: Published, options: argparse.Namespace) -> None:
        super().__init__(name="generator", daemon=True)
        self.table, self.published, self.options = table, published, options
        self.model = copy.deepcopy(published.model)
        self.rng = torch.Generator().manual_seed(options.seed + 1)
        self.stopped = threading.Event()
        self.rewards: list[float] = []  # mean of each insertion
        self.problem: BaseException | None = None

    def run(self) -> None:
        try:
            while not self.stopped.is_set():
                grant = self.table.start(self.options.groups, group_size=self.options.group_size, timeout=0.5)
                if grant:
                    self.insert(grant)
        except BaseException as problem:
            self.problem = problem

    def insert(self, grant: reprise.Grant) -> None:
        version = self.published.take(self.model)
        pairs = draw_pairs(grant.groups, self.options.largest, self.rng).repeat_interleave(self.options.group_size, 0)
        tokens, logprobs, lengths = generate(self.model, prompts_of(pairs), self.rng)
        reward = is_right(pairs, tokens).float()
        self.table.insert(
            tokens=tokens,
            lengths=lengths,
            logprobs=logprobs,
            prompt_lengths=PROMPT,
            reward=reward,
            version=version,
            truncated=lengths == PROMPT + ANSWER,
            prompt_id=[f"{a}+{b}" for a, b in pairs.tolist()],
            text=["".join("0123456789+=$"[t] for t in row[:n]) for row, n in zip(tokens.tolist(), lengths.tolist())],
            group_size=self.options.group_size,
            grant=grant,
        )
        self.rewards.append(reward.mean().item())


def warm_up(model: Adder, options: argparse.Namespace) -> None:
    """Imitate right answers until some come out, as a pretrained model's do."""
    rng = torch.Generator().manual_seed(options.seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for _ in range(options.warm_up):
        pairs = draw_pairs(256, options.largest, rng)
        tokens = torch.cat([prompts_of(pairs), answers_of(pairs)], 1)
        loss = -logprobs_of(model, tokens)[:, PROMPT:].mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def train(table: reprise.Table, model: Adder, options: argparse.Namespace) -> tuple[float, float]:
    """Return the held-out accuracy before and after."""
    held_out = draw_pairs(1000, options.largest, torch.Generator().manual_seed(0))
    first = accuracy(model, held_out)
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.learning_rate, weight_decay=0.0)
    published = Published(copy.deepcopy(model))
    generator = Generator(table, published, options)
    generator.start()
    began = time.monotonic()
    print(f"{'update':>7} {'accuracy':>9} {'reward':>7} {'staleness':>10} {'uses':>5} {'rollouts':>9} {'seconds':>8}")
    try:
        with table.stream(options.batch, prefetch=1, timeout=120) as batches:
            for update in range(1, options.updates + 1):
                batch = next(batches)
                padded = batch.padded(length=PROMPT + ANSWER, pad_id=END).torch()
                out = reprise.torch.loss(logprobs_of(model, padded.tokens), GRPO, **reprise.torch.inputs(padded))
                optimizer.zero_grad()
                out.loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                # The table learns how far the policy has gone from each rollout (its ESS by age), then the new version,
                # and only then may anybody have the weights of that version.
                table.report(batch.ids, batch.staleness, **out.rows)
                table.advance(update)
                published.publish(model, update)
                if generator.problem:
                    raise generator.problem
                if update % max(1, options.updates // 10) == 0:
                    latest = generator.rewards[-20:] or [math.nan]
                    print(
                        f"{update:7} {accuracy(model, held_out):9.3f} {sum(latest) / len(latest):7.3f} "
                        f"{batch.staleness.mean():10.2f} {batch.uses.mean():5.2f} {table.stats().inserted:9} "
                        f"{time.monotonic() - began:8.1f}",
                        flush=True,
                    )
    finally:
        generator.stopped.set()
        generator.join(timeout=60)
    return first, accuracy(model, held_out)


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--address", default="grpc://127.0.0.1:7447", help="of the service (%(default)s)")
    parser.add_argument("--table", default="torch-grpo", help="created anew, and dropped at the end")
    parser.add_argument("--largest", type=int, default=99, help="number to add, at most 99")
    parser.add_argument("--updates", type=int, default=500)
    parser.add_argument("--warm-up", type=int, default=300, help="steps of imitation before")
    parser.add_argument("--batch", type=int, default=256, help="rollouts of one update")
    parser.add_argument("--group-size", type=int, default=8)
    parser.add_argument("--groups", type=int, default=16, help="that the generator starts at once")
    parser.add_argument("--replay", type=float, default=2.0, help="times that a rollout is used on average")
    parser.add_argument("--max-staleness", type=int, default=4, help="versions")
    parser.add_argument("--learning-rate", type=float, default=3e-4)
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> tuple[float, float]:
    options = parse(arguments)
    torch.manual_seed(options.seed)
    torch.set_num_threads(1)  # the generator has a core of its own
    model = Adder()
    warm_up(model, options)
    with reprise.connect(options.address) as client:
        if options.table in [info.name for info in client.list()]:
            client.drop(options.table)
        table = client.create(
            options.table,
            capacity=8 * options.batch,
            sampler="prioritized",
            age_decay=options.max_staleness,
            min_size=options.batch,
            max_staleness=2 * options.max_staleness,
            group_size=options.group_size,
            vocab=VOCABULARY,
            seed=options.seed,
            gate=reprise.Gate(rollouts_per_update=options.batch / options.replay, max_staleness=options.max_staleness),
        )
        try:
            first, last = train(table, model, options)
        finally:
            client.drop(options.table)
    print(f"held-out accuracy: {first:.3f} before, {last:.3f} after {options.updates} updates")
    return first, last


if __name__ == "__main__":
    main()
