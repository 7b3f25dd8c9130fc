"""Carries out tasks of bench-service with the Python client, and measures them.

A task is a line of JSON on standard input: what (insert; sample: batches as flat arrays, without a copy; padded:
batches as [B, W] arrays; draw: a request for each batch, of some of the prompts if there are any), address, table,
tokens, batch, seconds, prompts and per_prompt. The answer is a line on standard output: operations, seconds and
latencies_us, or error.
"""

import json
import sys
import time
from functools import lru_cache
from itertools import cycle

import numpy as np
import reprise

TOKEN_COLUMNS = ("tokens", "mask", "logprobs", "versions")


@lru_cache(maxsize=None)
def connected(address):
    return reprise.connect(address)


@lru_cache(maxsize=1)
def rollouts(batch, tokens):
    """One batch as numpy arrays [B, W], a quarter of each row its prompt."""
    random = np.random.default_rng(1)
    mask = np.zeros((batch, tokens), np.uint8)
    mask[:, tokens // 4 :] = 1
    return {
        "prompt_id": [f"bench-py-{row // 16}" for row in range(batch)],
        "group": np.arange(batch, dtype=np.uint64) // np.uint64(16),
        "tokens": random.integers(0, 32000, (batch, tokens), np.int32),
        "mask": mask,
        "logprobs": np.where(mask, -4 * random.random((batch, tokens), np.float32), np.float32(0)),
        "versions": np.where(mask, np.int32(0), np.int32(-1)),
        "reward": random.integers(0, 2, batch).astype(np.float32),
    }


def repeat(operation, seconds):
    """Repeat an operation for so long, at least once."""
    latencies = []
    begin = now = time.perf_counter()
    while not latencies or now - begin < seconds:
        last = now
        operation()
        now = time.perf_counter()
        latencies.append(1e6 * (now - last))
    return {"operations": len(latencies), "seconds": now - begin, "latencies_us": latencies}


def drawing(table, batch, prompts, per_prompt):
    """What draws a batch: plainly, or of the next of the prompts."""
    asked = batch // per_prompt
    starts = cycle(range(0, len(prompts or []) - asked + 1, asked))

    def draw():
        if prompts:
            start = next(starts)
            drawn = table.sample_prompts(prompts[start : start + asked], per_prompt)
        else:
            drawn = table.sample(batch)
        if len(drawn) != batch:
            raise ValueError(f"a batch of {len(drawn)} rollouts: want {batch}")

    return draw


def carry_out(task):
    table = connected(task["address"]).table(task["table"])
    batch, tokens, seconds = task["batch"], task["tokens"], task["seconds"]
    if task["what"] == "insert":
        rows = rollouts(batch, tokens)
        return repeat(lambda: table.insert(rows), seconds)
    if task["what"] == "draw":
        return repeat(drawing(table, batch, task.get("prompts"), task.get("per_prompt", 1)), seconds)
    with table.stream(batch) as stream:

        def sample():
            drawn = next(stream)
            if task["what"] == "padded":
                arrays = [drawn.padded().tokens]
            else:
                arrays = [drawn.flat(name) for name in TOKEN_COLUMNS]
            if any(array.size != batch * tokens for array in arrays):
                raise ValueError(f"got {[array.size for array in arrays]} values: want {batch * tokens}")

        return repeat(sample, seconds)


def main():
    for line in sys.stdin:
        try:
            answer = carry_out(json.loads(line))
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)


main()
