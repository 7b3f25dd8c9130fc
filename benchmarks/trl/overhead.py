"""What replay adds to a training step of TRL: 32 rollouts of 1,024 tokens go into a table, and a batch comes out.

It times what `ReplayGRPOTrainer` does beside TRL: the conversion, the insertion, the draw, the conversion back and the
report, each in turn, with a service on this machine that syncs each insertion to disk.

    python overhead.py [--rows 32] [--tokens 1024] [--rounds 50]
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import tempfile
import time
from collections.abc import Iterator

import numpy as np
import torch

import reprise
from reprise.trl import rollouts, tensors


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=1024, help="of a rollout, half of them the completion")
    parser.add_argument("--rounds", type=int, default=50)
    given = parser.parse_args()
    rows, half = given.rows, given.tokens // 2
    generator = torch.Generator().manual_seed(1)

    def ids() -> torch.Tensor:
        return torch.randint(0, 32000, (rows, half), generator=generator)

    ones = torch.ones(rows, half, dtype=torch.long)
    outputs = dict(
        prompt_ids=ids(), prompt_mask=ones, completion_ids=ids(), completion_mask=ones,
        old_per_token_logps=-torch.rand(rows, half, generator=generator),
        advantages=torch.randn(rows, generator=generator), num_items_in_batch=ones.sum(),
    )  # fmt: skip
    times: dict[str, list[float]] = {}

    @contextlib.contextmanager
    def timed(name: str) -> Iterator[None]:
        begin = time.perf_counter()
        yield
        times.setdefault(name, []).append(1000 * (time.perf_counter() - begin))

    with tempfile.TemporaryDirectory() as folder, reprise.serve(folder) as service:
        table = service.create("overhead", capacity=2 * rows, sampler="prioritized")
        ratios = np.ones(rows)
        for step in range(given.rounds):
            with timed("advance"):
                table.advance(step)
            if step % 2 == 0:  # each generated batch serves two
                with timed("convert"):
                    columns = rollouts(outputs, rewards=torch.zeros(rows), version=step, num_generations=8)
                with timed("insert"):
                    table.insert(columns)
                    table.info()
            with timed("draw"):
                batch = table.sample(rows, fresh=rows // 2)
            with timed("convert back"):
                tensors(batch, pad_token_id=0, torch=True)
            with timed("report"):
                table.report(batch.ids, batch.staleness, tokens=ratios, ratio_sum=ratios, ratio_squares=ratios)
    total = 0.0
    for name, each in times.items():
        share = len(each) / given.rounds
        total += share * statistics.median(each)
        print(f"{name:14s} {statistics.median(each):6.2f} ms" + (" every second step" if share < 1 else ""))
    print(f"{'a step':14s} {total:6.2f} ms, {total / 5:.1f}% of one of 500 ms")


if __name__ == "__main__":
    main()
