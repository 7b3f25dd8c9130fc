"""Does a table save wall time where generators run beside the trainer and take unevenly long?

The task and the model are those of learn.py, without TRL. Four generators take the newest weights, sample a group of
8 rollouts and insert it after a time that has a long tail: lognormal, with a mean of --cost updates. Together they take
--cost updates for a batch of 32. An update takes --update seconds. Both sleep until their time by the clock has passed,
as if generators and trainer had devices of their own; the tokens, the weights they come from and the updates are real.

    queue             waits for 32 new rollouts, makes one update with them
    queue, 2 updates  makes two updates with them
    replay            32 rollouts, 16 of them new, from a table of 64: it waits for 16

    python uneven.py --model FOLDER --out FOLDER [--plot FILE]

It writes uneven.jsonl, a line for each run, skips runs that are there, and prints the table of docs/trl.md.
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import multiprocessing
import os
import pathlib
import random
import statistics
import threading
import time
from typing import Any

from learn import OPENINGS, mentioned, median_interval

ARMS: dict[str, dict[str, Any]] = {
    "queue": dict(sampler="fifo", uses=1, fresh=0),
    "queue, 2 updates": dict(sampler="fifo", uses=2, fresh=0),
    "replay": dict(sampler="prioritized", uses=1, fresh=16),
}
BATCH, GROUP, GENERATORS, TOKENS = 32, 8, 4, 48
WINDOW = 5 * BATCH // GROUP  # groups whose mean reward counts


class Run:
    """One arm with one seed: generators in threads, the trainer in the caller's."""

    def __init__(self, given: argparse.Namespace, arm: str, seed: int, address: str) -> None:
        os.environ.update(OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1")
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer

        import reprise

        torch.manual_seed(seed)
        torch.set_num_threads(1)
        self.given, self.arm, self.seed = given, arm, seed
        capacity = 8 * BATCH if ARMS[arm]["sampler"] == "fifo" else 2 * BATCH
        self.table = reprise.connect(address).create(
            f"seed-{seed}-arm-{list(ARMS).index(arm)}", capacity=capacity, sampler=ARMS[arm]["sampler"], min_size=BATCH
        )
        self.tokenizer = AutoTokenizer.from_pretrained(given.model)
        self.model = AutoModelForCausalLM.from_pretrained(given.model).eval()  # it has no dropout
        self.published = 0, copy.deepcopy(self.model.state_dict())
        self.groups: list[dict[str, float]] = []
        self.late = {"group": 0, "update": 0}  # what took longer than its time
        self.failed: BaseException | None = None

    def train(self) -> dict[str, Any]:
        """Train for --seconds and return the groups that were generated."""
        options = ARMS[self.arm]
        self.begin = time.monotonic()
        self.end = self.begin + self.given.seconds
        generators = [threading.Thread(target=self._generate, args=[n]) for n in range(GENERATORS)]
        for each in generators:
            each.start()
        try:
            updates, staleness = self._learn(**options)
        finally:
            self.end = 0.0
            for each in generators:
                each.join()
        if self.failed:
            raise self.failed
        return {
            "arm": self.arm, "seed": self.seed, "rate": self.given.rate, "seconds": self.given.seconds,
            "updates": updates, "staleness": staleness, "late": self.late,
            "groups": sorted(self.groups, key=lambda group: group["start"]),
        }  # fmt: skip

    def _generate(self, number: int) -> None:
        rng = random.Random(f"{self.seed} {number}")  # the same prompts and times in every arm
        model = copy.deepcopy(self.model)
        sigma = self.given.sigma
        scale = math.log(self.given.cost * self.given.update * GENERATORS * GROUP / BATCH) - sigma**2 / 2
        try:
            while time.monotonic() < self.end:
                start, (version, weights) = time.monotonic(), self.published
                model.load_state_dict(weights)
                rows, reward = self._sample(model, rng.choice(OPENINGS), version)
                self._sleep("group", start + rng.lognormvariate(scale, sigma))
                if time.monotonic() < self.end:
                    self.table.insert(rows)
                    self.groups.append({"start": start - self.begin, "reward": reward})
        except BaseException as error:
            self.failed = error

    def _sample(self, model: Any, opening: str, version: int) -> tuple[list[dict[str, Any]], float]:
        """Return a group of rollouts, and their mean reward."""
        import torch

        prompt = self.tokenizer(opening, return_tensors="pt").input_ids
        out = model.generate(
            prompt.repeat(GROUP, 1), attention_mask=torch.ones(GROUP, prompt.shape[1], dtype=torch.long),
            do_sample=True, temperature=1.0, top_k=0, top_p=1.0, max_new_tokens=TOKENS, return_dict_in_generate=True,
            output_logits=True, pad_token_id=self.tokenizer.eos_token_id,
        )  # fmt: skip
        new = out.sequences[:, prompt.shape[1] :]
        logprobs = torch.stack(out.logits, 1).log_softmax(-1).gather(-1, new[..., None])[..., 0]
        ended = new == self.tokenizer.eos_token_id
        lengths = torch.where(ended.any(1), ended.int().argmax(1) + 1, new.shape[1])
        rewards = mentioned(self.tokenizer.batch_decode(new, skip_special_tokens=True))
        rows = [
            {
                "tokens": out.sequences[row, : prompt.shape[1] + length].numpy(), "prompt_lengths": prompt.shape[1],
                "logprobs": torch.cat([torch.zeros(prompt.shape[1]), logprobs[row, :length]]).clamp(max=0).numpy(),
                "version": version, "reward": rewards[row], "group": 0,
            }
            for row, length in enumerate(lengths.tolist())
        ]  # fmt: skip
        return rows, statistics.mean(rewards)

    def _learn(self, *, sampler: str, uses: int, fresh: int) -> tuple[int, float]:
        """Train until the end; return how many updates were made, and their mean staleness."""
        import torch

        import reprise.torch

        objective = reprise.torch.Objective("grpo", normalisation="token")
        optimizer = torch.optim.AdamW(self.model.parameters(), lr=self.given.rate, weight_decay=0.0)
        updates, staleness = 0, 0.0
        while not self.failed:
            batch = self._draw(fresh)
            if batch is None:
                break
            padded = batch.padded().torch()
            for use in range(uses):
                start = time.monotonic()
                attention = torch.arange(padded.tokens.shape[1]) < padded.lengths[:, None]
                logits = self.model(input_ids=padded.tokens, attention_mask=attention.long()).logits[:, :-1]
                taken = logits.log_softmax(-1).gather(-1, padded.tokens[:, 1:, None])[..., 0]
                out = reprise.torch.loss(
                    torch.nn.functional.pad(taken, (1, 0)), objective, **reprise.torch.inputs(padded)
                )
                optimizer.zero_grad()
                out.loss.backward()
                torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
                optimizer.step()
                updates += 1
                staleness += float(batch.staleness.mean()) + use
                weights = {name: tensor.detach().clone() for name, tensor in self.model.state_dict().items()}
                self._sleep("update", start + self.given.update)
                if sampler == "fifo":
                    self.table.advance(updates)
                else:
                    self.table.report(batch.ids, batch.staleness, **out.rows, version=updates)
                self.published = updates, weights
        return updates, staleness / max(updates, 1)

    def _draw(self, fresh: int) -> Any:
        import reprise

        while not self.failed and time.monotonic() < self.end:
            try:
                return self.table.sample(BATCH, fresh=fresh, timeout=1)
            except reprise.errors.Starved:
                continue
        return None

    def _sleep(self, what: str, until: float) -> None:
        left = until - time.monotonic()
        self.late[what] += left < 0
        time.sleep(max(left, 0))


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
    print(f"| arm | updates | staleness | reward at the end | seconds to {goal} | over the queue's |\n|---|---|---|---|---|---|")
    for arm, of_seed in by_arm.items():
        if not of_seed:
            continue
        times = {seed: reached(r, goal) or r["seconds"] for seed, r in of_seed.items()}
        missed = sum(reached(r, goal) is None for r in of_seed.values())
        row = [arm, *(f"{statistics.median(r[key] for r in of_seed.values()):.3g}" for key in ("updates", "staleness"))]
        row.append(f"{statistics.median(curve(r)[-1][1] for r in of_seed.values()):.3f}")
        row.append(f"{statistics.median(times.values()):.0f}" + (f" ({missed} of {len(times)} never)" if missed else ""))
        seeds = [seed for seed in of_seed if seed in by_arm["queue"]]
        base = {seed: reached(by_arm["queue"][seed], goal) or by_arm["queue"][seed]["seconds"] for seed in seeds}
        ratio = median_interval([times[s] / base[s] for s in seeds]) if seeds and arm != "queue" else None
        row.append("{:.2f} [{:.2f}, {:.2f}]".format(*ratio) if ratio else "1")
        print("| " + " | ".join(row) + " |")
    late = {what: sum(r["late"][what] for r in runs) for what in ("group", "update")}
    print(f"late: {late['group']} of {sum(len(r['groups']) for r in runs)} groups, "
          f"{late['update']} of {sum(r['updates'] for r in runs)} updates")  # fmt: skip


def plot(runs: list[dict[str, Any]], path: str) -> None:
    """Draw the reward against wall time: medians over seeds with quartiles."""
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
    axis.set_xlabel("seconds by the clock")
    axis.set_ylabel("reward")
    axis.legend(fontsize="small")
    figure.savefig(path, dpi=80)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="folder of a checkpoint")
    parser.add_argument("--out", required=True, type=pathlib.Path)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4, 5])
    parser.add_argument("--arms", nargs="+", default=list(ARMS), choices=ARMS)
    parser.add_argument("--seconds", type=float, default=200, help="of a run")
    parser.add_argument("--update", type=float, default=1, help="seconds of an update")
    parser.add_argument("--cost", type=float, default=5, help="of generating a batch, in updates")
    parser.add_argument("--sigma", type=float, default=1, help="of the lognormal times: 1 puts the longest of 100 at 10 medians")
    parser.add_argument("--rate", type=float, default=1e-3, help="learning rate")
    parser.add_argument("--goal", type=float, default=0.6, help="reward to reach")
    parser.add_argument("--jobs", type=int, default=3, help="runs at once: each uses a fifth of a core")
    parser.add_argument("--plot", help="PNG to draw; needs matplotlib")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    lines = given.out / "uneven.jsonl"
    runs = [json.loads(line) for line in lines.read_text().splitlines()] if lines.exists() else []
    runs = [r for r in runs if (r["rate"], r["seconds"]) == (given.rate, given.seconds)]
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
                print(f"{len(runs)}: {finished['arm']}, seed {finished['seed']}: {curve(finished)[-1][1]:.3f}", flush=True)
    wanted = [r for r in runs if r["arm"] in given.arms and r["seed"] in given.seeds]
    report(wanted, given.goal)
    if given.plot:
        plot(wanted, given.plot)


if __name__ == "__main__":
    main()
