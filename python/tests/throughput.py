"""Throughput of insert and sample with numpy on both sides: python tests/throughput.py [grpc://127.0.0.1:7447]

64 rollouts of 4,096 tokens to a request; bytes are those of the per-token columns. Prints GB/s of the best of several rounds.
"""

from __future__ import annotations

import sys
import time

import numpy as np

import reprise

B, L, ROUNDS = 64, 4096, 60


def main(address: str) -> None:
    rng = np.random.default_rng(1)
    columns = {
        "tokens": rng.integers(0, 50_000, (B, L), np.int32),
        "mask": np.ones((B, L), np.uint8),
        "logprobs": -rng.random((B, L), np.float32),
        "versions": np.zeros((B, L), np.int32),
        "reward": rng.random(B, np.float32),
    }
    size = B * L * (4 + 1 + 4 + 4)
    with reprise.connect(address) as client:
        if "throughput" in [info.name for info in client.list()]:
            client.drop_table("throughput")
        table = client.create_table("throughput", capacity=16 * B)

        def best(call: object) -> float:
            times = []
            for _ in range(ROUNDS):
                began = time.perf_counter()
                call()  # type: ignore[operator]
                times.append(time.perf_counter() - began)
            return size / min(times) / 1e9

        print(f"insert             {best(lambda: table.insert(columns)):6.2f} GB/s")
        print(f"sample             {best(lambda: table.sample(B)):6.2f} GB/s")
        print(f"sample, padded     {best(lambda: table.sample(B).padded()):6.2f} GB/s")
        for prefetch in (0, 1):
            with table.batches(B, prefetch=prefetch) as stream:
                next(stream)
                began = time.perf_counter()
                for _ in range(ROUNDS):
                    next(stream)
                each = (time.perf_counter() - began) / ROUNDS
            print(f"stream, prefetch {prefetch} {size / each / 1e9:6.2f} GB/s, mean")
        with table.batches(B, prefetch=1) as stream:
            began = time.perf_counter()
            for _ in range(ROUNDS):
                next(stream).padded()
            each = (time.perf_counter() - began) / ROUNDS
        print(f"stream, padded     {size / each / 1e9:6.2f} GB/s, mean")
        table.drop()


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "grpc://127.0.0.1:7447")
