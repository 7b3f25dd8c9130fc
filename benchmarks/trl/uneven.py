"""Does a table save wall time where generators run beside the trainer and take unevenly long?

The task and the model are those of learn.py, without TRL. Four generators take the newest weights, sample a group of
8 rollouts and insert it after a time that has a long tail: lognormal, so that together they take --cost updates for a
batch of 32 on average. Tokens, weights, staleness and updates are real; each event waits until it is due by the clock,
as if generators and trainer had devices of their own. An update takes --update seconds. With 0 nothing waits, the times
are those of the same schedule in updates, and a run takes a minute.

    queue    the trainer waits for 32 new rollouts, and makes one, two or four updates with them
    replay   32 rollouts of which 16 or 8 are new, from a table of 64; it waits for the new ones

    python uneven.py --model FOLDER --out FOLDER [--plot FILE]

It writes uneven.jsonl, a line for each run, skips runs that are there, and prints the table of docs/trl.md.
"""

from __future__ import annotations

import argparse
import copy
import heapq
import json
import math
import multiprocessing
import os
import pathlib
import random
import statistics
import time
from typing import Any

from learn import OPENINGS, mentioned, median_interval

ARMS: dict[str, dict[str, Any]] = {
    "queue": dict(sampler="fifo", uses=1, fresh=0),
    "queue, 2 updates": dict(sampler="fifo", uses=2, fresh=0),
    "replay": dict(sampler="prioritized", uses=1, fresh=16),
    "queue, 4 updates": dict(sampler="fifo", uses=4, fresh=0),
    "replay, fresh 0.25": dict(sampler="prioritized", uses=1, fresh=8),
}
BATCH, GROUP, GENERATORS, TOKENS = 32, 8, 4, 48
WINDOW = 5 * BATCH // GROUP  # groups whose mean reward counts


class Run:
    """One arm with one seed. Times are in updates from the beginning."""

    def __init__(self, given: argparse.Namespace, arm: str, seed: int, address: str) -> None:
        os.environ.update(OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1")
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer

        import reprise

        torch.manual_seed(seed)
        torch.set_num_threads(1)
        self.given, self.arm, self.seed = given, arm, seed
        self.sampler, self.uses, self.fresh = ARMS[arm]["sampler"], ARMS[arm]["uses"], ARMS[arm]["fresh"]
        self.table = reprise.connect(address).create(
            f"seed-{seed}-arm-{list(ARMS).index(arm)}", capacity=(8 if self.sampler == "fifo" else 2) * BATCH,
            sampler=self.sampler, min_size=BATCH, group_size=GROUP,
        )  # fmt: skip
        self.tokenizer = AutoTokenizer.from_pretrained(given.model)
        self.model = AutoModelForCausalLM.from_pretrained(given.model).eval()  # it has no dropout
        self.generator = copy.deepcopy(self.model)  # has the weights that were published last
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=given.rate, weight_decay=0.0)
        self.optimizer.step()  # without gradients: it imports much the first time
        self.random = [random.Random(f"{seed} {n}") for n in range(GENERATORS)]  # openings and times, as in every arm
        self.events: list[tuple[float, int, int, Any]] = []  # time, number, generator or -1 for the trainer, rollouts
        self.numbers, self.groups, self.staleness = 0, [], []
        self.version, self.left, self.training = 0, 0, False
        self.batch: Any = None

    def train(self) -> dict[str, Any]:
        """Train for --batches times --cost updates, and return the groups that were generated."""
        end, begin, behind = self.given.batches * self.given.cost, time.monotonic(), 0.0
        for generator in range(GENERATORS):
            self._generate(0.0, generator)
        while self.events[0][0] < end:
            now, _, who, rows = heapq.heappop(self.events)
            if self.given.update:
                due = begin + now * self.given.update - time.monotonic()
                time.sleep(max(due, 0))
                behind = max(behind, -due)
            if who >= 0:
                self.table.insert(rows)
                self._generate(now, who)
            else:
                self._publish()
            if not self.training:
                self._update(now)
        settings = {"arm": self.arm, "seed": self.seed, "rate": self.given.rate, "batches": self.given.batches}
        return {**settings, "unit": self.given.update, "updates": self.version, "behind": behind,
                "staleness": statistics.mean(self.staleness), "groups": self.groups}  # fmt: skip

    def _push(self, at: float, who: int, rows: Any = None) -> None:
        self.numbers += 1
        heapq.heappush(self.events, (at, self.numbers, who, rows))

    def _generate(self, now: float, number: int) -> None:
        """Begin a group: sample it with the weights of this moment, and deliver it later."""
        rng, sigma = self.random[number], self.given.sigma
        rows = self._sample(rng.choice(OPENINGS))
        self.groups.append({"start": now, "reward": statistics.mean(row["reward"] for row in rows)})
        mean = self.given.cost * GENERATORS * GROUP / BATCH
        self._push(now + rng.lognormvariate(math.log(mean) - sigma**2 / 2, sigma), number, rows)

    def _sample(self, opening: str) -> list[dict[str, Any]]:
        """Return a group of rollouts."""
        import torch

        prompt = self.tokenizer(opening, return_tensors="pt").input_ids
        ids, cache, tokens, taken = prompt.repeat(GROUP, 1), None, [], []
        with torch.no_grad():
            for _ in range(TOKENS):
                out = self.generator(input_ids=ids, past_key_values=cache, use_cache=True)
                logp, cache = out.logits[:, -1].log_softmax(-1), out.past_key_values
                ids = torch.multinomial(logp.exp(), 1)
                tokens.append(ids)
                taken.append(logp.gather(-1, ids))
        new, logprobs = torch.cat(tokens, 1), torch.cat(taken, 1)
        ended = new == self.tokenizer.eos_token_id
        lengths = torch.where(ended.any(1), ended.int().argmax(1) + 1, TOKENS).tolist()
        texts = [self.tokenizer.decode(row[:length], skip_special_tokens=True) for row, length in zip(new, lengths)]
        return [
            {
                "tokens": torch.cat([prompt[0], new[row, :length]]).numpy(), "prompt_lengths": prompt.shape[1],
                "logprobs": torch.cat([torch.zeros(prompt.shape[1]), logprobs[row, :length]]).numpy(),
                "version": self.version, "reward": reward,
            }
            for row, (length, reward) in enumerate(zip(lengths, mentioned(texts)))
        ]  # fmt: skip

    def _update(self, now: float) -> None:
        """Begin an update, if the table has what it needs."""
        import torch

        import reprise.torch

        if not self.left:
            try:
                self.batch = self.table.sample(BATCH, fresh=self.fresh, timeout=0)
            except reprise.errors.Starved:
                return
            self.left = self.uses
        self.staleness.append(float(self.batch.staleness.mean()) + self.uses - self.left)
        self.left -= 1
        padded = self.batch.padded().torch()
        attention = torch.arange(padded.tokens.shape[1]) < padded.lengths[:, None]
        logits = self.model(input_ids=padded.tokens, attention_mask=attention.long()).logits[:, :-1]
        logprobs = logits.log_softmax(-1).gather(-1, padded.tokens[:, 1:, None])[..., 0]
        objective = reprise.torch.Objective("grpo", normalisation="token")
        inputs = reprise.torch.inputs(padded)
        self.out = reprise.torch.loss(torch.nn.functional.pad(logprobs, (1, 0)), objective, **inputs)
        self.optimizer.zero_grad()
        self.out.loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.training = True
        self._push(now + 1, -1)

    def _publish(self) -> None:
        """End an update."""
        self.version, self.training = self.version + 1, False
        if self.sampler == "fifo":
            self.table.advance(self.version)
        else:
            self.table.report(self.batch.ids, self.batch.staleness, **self.out.rows, version=self.version)
        self.generator.load_state_dict(self.model.state_dict())


def run(job: tuple[argparse.Namespace, str, int, str]) -> dict[str, Any]:
    return Run(*job).train()


def curve(run: dict[str, Any]) -> list[tuple[float, float]]:
    """Return times and the mean rewards of the WINDOW groups whose generation began last."""
    groups = run["groups"]
    ends = range(WINDOW, len(groups) + 1)
    return [(groups[e - 1]["start"], statistics.mean(g["reward"] for g in groups[e - WINDOW : e])) for e in ends]


def reached(run: dict[str, Any], goal: float) -> float | None:
    return next((at for at, reward in curve(run) if reward >= goal), None)


def report(runs: list[dict[str, Any]], goal: float) -> None:
    by_arm = {arm: {r["seed"]: r for r in runs if r["arm"] == arm} for arm in ARMS}
    columns = ("arm", "updates", "staleness", "reward at the end", f"time to {goal}", "over the queue's")
    print("| " + " | ".join(columns) + " |\n" + "|---" * len(columns) + "|")

    def time_to(r: dict[str, Any]) -> float:
        return reached(r, goal) or r["groups"][-1]["start"]  # a run that does not reach it takes at least all

    for arm, of_seed in by_arm.items():
        if not of_seed:
            continue
        missed = sum(reached(r, goal) is None for r in of_seed.values())
        row = [arm, *(f"{statistics.median(r[key] for r in of_seed.values()):.3g}" for key in ("updates", "staleness"))]
        row.append(f"{statistics.median(curve(r)[-1][1] for r in of_seed.values()):.3f}")
        times = statistics.median(map(time_to, of_seed.values()))
        row.append(f"{times:.0f}" + (f" ({missed} of {len(of_seed)} never)" if missed else ""))
        ratio = [time_to(r) / time_to(by_arm["queue"][seed]) for seed, r in of_seed.items() if seed in by_arm["queue"]]
        row.append("{:.2f} [{:.2f}, {:.2f}]".format(*median_interval(ratio)) if ratio and arm != "queue" else "1")
        print("| " + " | ".join(row) + " |")
    print(f"times are in updates; at most {max(r['behind'] for r in runs):.1f} s behind the clock")


def plot(runs: list[dict[str, Any]], path: str) -> None:
    """Draw the reward against time: medians over seeds with quartiles."""
    import matplotlib.pyplot as plt

    figure, axis = plt.subplots(figsize=(5, 3.2), layout="constrained")
    for arm in ARMS:
        curves = [curve(r) for r in runs if r["arm"] == arm]
        if not curves:
            continue
        first = max(points[0][0] for points in curves)
        times = [first + n for n in range(int(min(points[-1][0] for points in curves) - first))]
        at = [[[reward for when, reward in points if when <= t][-1] for points in curves] for t in times]
        low, middle, high = zip(*(statistics.quantiles(each, n=4, method="inclusive") for each in at))
        axis.plot(times, middle, label=arm)
        axis.fill_between(times, low, high, alpha=0.15)
    axis.set_xlabel("time, in updates")
    axis.set_ylabel("reward")
    axis.legend(fontsize="small")
    figure.savefig(path, dpi=80)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="folder of a checkpoint")
    parser.add_argument("--out", required=True, type=pathlib.Path)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4, 5])
    parser.add_argument("--arms", nargs="+", default=list(ARMS), choices=ARMS)
    parser.add_argument("--batches", type=int, default=50, help="of rollouts, to generate in a run on average")
    parser.add_argument("--update", type=float, default=0.5, help="seconds of an update; 0: do not wait")
    parser.add_argument("--cost", type=float, default=5, help="of generating a batch, in updates")
    parser.add_argument("--sigma", type=float, default=1, help="of the lognormal: 1: one of 100 takes 10 medians")
    parser.add_argument("--rate", type=float, default=1e-3, help="learning rate")
    parser.add_argument("--goal", type=float, default=0.6, help="reward to reach")
    parser.add_argument("--jobs", type=int, default=1, help="runs at once")
    parser.add_argument("--plot", help="PNG to draw; needs matplotlib")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    lines = given.out / "uneven.jsonl"
    same = {"rate": given.rate, "batches": given.batches, "unit": given.update}
    runs = [json.loads(line) for line in lines.read_text().splitlines()] if lines.exists() else []
    runs = [r for r in runs if all(r[key] == wanted for key, wanted in same.items())]
    done = {(r["arm"], r["seed"]) for r in runs}

    import reprise

    with reprise.serve() as service:
        jobs = [(given, arm, seed, service.address) for seed in given.seeds for arm in given.arms
                if (arm, seed) not in done]  # fmt: skip
        with multiprocessing.get_context("spawn").Pool(given.jobs, maxtasksperchild=1) as pool:
            for finished in pool.imap_unordered(run, jobs):
                runs.append(finished)
                with lines.open("a") as file:
                    file.write(json.dumps(finished) + "\n")
                end = curve(finished)[-1][1]
                print(f"{len(runs)}: {finished['arm']}, seed {finished['seed']}: {end:.3f}", flush=True)
    wanted = [r for r in runs if r["arm"] in given.arms and r["seed"] in given.seeds]
    report(wanted, given.goal)
    if given.plot:
        plot(wanted, given.plot)


if __name__ == "__main__":
    main()
