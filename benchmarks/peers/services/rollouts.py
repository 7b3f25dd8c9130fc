"""Rollouts as a GRPO trainer holds them, and whether what was drawn is what was inserted."""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

GROUP = 8
BATCH = 64
POOL = 512  # different rollouts, which are inserted in turn
BYTES_PER_TOKEN = 9  # tokens 4, mask 1, log-probs 4: what every peer carries, and what GB/s counts

Rollout = dict[str, Any]
"""tokens int32 [L], mask uint8 [L], logprobs float32 [L], reward, version, group."""


class Batch(Protocol):
    """Arrays by name: tokens, mask, logprobs [B, L], reward [B], and perhaps others."""

    def __getitem__(self, name: str, /) -> Any: ...


class Wrong(Exception):
    """A draw is not what was inserted."""


def pool(length: int) -> list[Rollout]:
    """Return rollouts of the given tokens, a quarter of them the prompt. Token 0 is the rollout's number."""
    rng = np.random.default_rng([1, length])
    prompt = length // 4
    rollouts = []
    for number in range(POOL):
        tokens = np.minimum(rng.zipf(1.2, length), 49_999).astype(np.int32)  # as skewed as text
        tokens[0] = number
        mask = np.ones(length, np.uint8)
        logprobs = -rng.exponential(0.5, length).astype(np.float32)
        mask[:prompt], logprobs[:prompt] = 0, 0
        reward = float(np.float32(rng.random()))
        rollouts.append({"tokens": tokens, "mask": mask, "logprobs": logprobs, "reward": reward, "version": 0,
                         "group": number // GROUP})  # fmt: skip
    return rollouts


def collate(rollouts: Sequence[Rollout]) -> dict[str, Any]:
    """Return rollouts of one length as arrays [B, L] and [B]: the work of a consumer that receives single rollouts."""
    batch: dict[str, Any] = {name: np.stack([r[name] for r in rollouts]) for name in ("tokens", "mask", "logprobs")}
    batch["reward"] = np.array([r["reward"] for r in rollouts], np.float32)
    return batch


def check(batch: Batch, inserted: Sequence[Rollout]) -> None:
    """Raise Wrong unless the batch is BATCH of the rollouts inserted, bit for bit."""
    numbers = np.asarray(batch["tokens"])[:, 0]
    if len(numbers) != BATCH or numbers.min() < 0 or numbers.max() >= len(inserted):
        raise Wrong(f"rollouts {numbers.tolist()} were drawn: want {BATCH} of 0 to {len(inserted) - 1}")
    for name, want in collate([inserted[n] for n in numbers]).items():
        got = np.asarray(batch[name])
        if got.shape != want.shape or got.astype(want.dtype).tobytes() != want.tobytes():
            raise Wrong(f"{name}: what was drawn is not what was inserted")
