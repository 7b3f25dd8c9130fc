"""Does replay pay in TRL? Plain GRPO, TRL's own reuse and reprise.trl, on a story model of 656,000 parameters.

The task is `words` of reprise train: the reward is the share of given words in the continuation of a story's opening.
Arms share seeds. A batch of 32 rollouts is generated at once; plain TRL makes one update with each, the others two or
four. The reward is that of generated batches, so it is on policy in every arm.

Time is counted in updates: TRL's `generation` of a batch costs --cost of them, by default 5, as engines take in RL of
language models; generating with transformers on this CPU costs what it costs and is not counted.

    python learn.py --model FOLDER --out FOLDER [--plot FILE]

It writes runs.jsonl, a line for each run, skips runs that are there, and prints the table of docs/trl.md. Five seeds of
five arms take half an hour on two cores.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import pathlib
import random
import statistics
import tempfile
from typing import Any

WORDS = ["happy", "park", "mom", "play"]
OPENINGS = [
    "Once upon a time, there was a little girl named Lily.", "One day, a boy named Tim found a red ball.",
    "There was a big dog who lived in a small house.", "Tom and Sue were good friends.",
    "Once upon a time, in a green forest, there was a rabbit.", "One sunny day, Ben went outside.",
    "A little bird sat in a tall tree.", "Mia had a new toy car.",
]  # fmt: skip
ARMS: dict[str, dict[str, Any]] = {
    "plain": {},
    "TRL's reuse, 2": {"num_iterations": 2},
    "replay": {"replay": {}},
    "TRL's reuse, 4": {"num_iterations": 4},
    "replay, fresh 0.25": {"replay": {"fresh": 0.25}},
}
"""Arm by name: options of GRPOConfig, and those of Replay."""

WINDOW = 5  # generated batches whose mean reward counts


def mentioned(completions: list[str], **_: Any) -> list[float]:
    return [sum(word in text.lower().split() for word in WORDS) / len(WORDS) for text in map(_plain, completions)]


def _plain(text: str) -> str:
    return "".join(letter if letter.isalpha() else " " for letter in text)


def run(job: dict[str, Any]) -> dict[str, Any]:
    """Train one arm with one seed, and return the rewards of its generated batches."""
    os.environ.update(OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1")
    import torch
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from trl import GRPOConfig, GRPOTrainer

    from reprise.trl import Replay, ReplayGRPOTrainer

    torch.set_num_threads(1)
    options = dict(ARMS[job["arm"]])
    replay = options.pop("replay", None)
    uses = options.get("num_iterations", 1) if replay is None else Replay(**replay).iterations(1)
    updates = job["batches"] * uses
    with tempfile.TemporaryDirectory() as folder:
        config = GRPOConfig(
            output_dir=folder, seed=job["seed"], data_seed=job["seed"], max_steps=updates, learning_rate=job["rate"],
            per_device_train_batch_size=32, num_generations=8, max_completion_length=48, temperature=1.0, beta=0.0,
            lr_scheduler_type="constant", logging_steps=1, report_to="none", save_strategy="no", use_cpu=True,
            bf16=False, disable_tqdm=True, **options,
        )  # fmt: skip
        common = dict(
            model=AutoModelForCausalLM.from_pretrained(job["model"]), reward_funcs=mentioned, args=config,
            processing_class=AutoTokenizer.from_pretrained(job["model"], padding_side="left"),
            train_dataset=Dataset.from_dict({"prompt": OPENINGS * 64}),
        )  # fmt: skip
        if replay is None:
            trainer = GRPOTrainer(**common)
        else:
            table = f"seed-{job['seed']}-fresh-{replay.get('fresh', 'default')}"
            trainer = ReplayGRPOTrainer(**common, replay=Replay(job["address"], table, **replay))
        trainer.train()
    history = [entry for entry in trainer.state.log_history if "reward" in entry]
    rewards = [entry["reward"] for entry in history]
    # TRL logs a batch's reward with each of its updates, or with the first alone.
    rewards = rewards if len(rewards) <= job["batches"] else rewards[:: len(rewards) // job["batches"]]
    return {**{key: job[key] for key in ("arm", "seed", "rate", "batches")}, "updates": updates, "rewards": rewards}


def reached(rewards: list[float], goal: float) -> int | None:
    """Return after how many generated batches the mean of the last WINDOW is at a goal."""
    for end in range(WINDOW, len(rewards) + 1):
        if statistics.mean(rewards[end - WINDOW : end]) >= goal:
            return end
    return None


def median_interval(values: list[float]) -> tuple[float, float, float]:
    """Return the median and its 95% bootstrap interval."""
    rng = random.Random(1)
    medians = sorted(statistics.median(rng.choices(values, k=len(values))) for _ in range(10_000))
    return statistics.median(values), medians[250], medians[9749]


def report(runs: list[dict[str, Any]], cost: float, goal: float) -> None:
    by_arm = {arm: {r["seed"]: r for r in runs if r["arm"] == arm} for arm in ARMS}
    plain = by_arm["plain"]

    def time_to(r: dict[str, Any]) -> float:
        batches = reached(r["rewards"], goal) or len(r["rewards"])  # a run that does not reach it takes at least all
        return batches * (cost + r["updates"] / r["batches"])

    print(f"| arm | end | end less plain | batches to {goal} | updates | time at cost {cost:g} | time over plain's |")
    print("|---|---|---|---|---|---|---|")
    for arm, of_seed in by_arm.items():
        if not of_seed:
            continue
        ends = {seed: statistics.mean(r["rewards"][-WINDOW:]) for seed, r in of_seed.items()}
        at = [reached(r["rewards"], goal) for r in of_seed.values()]
        missed = sum(each is None for each in at)
        each = [len(r["rewards"]) if b is None else b for b, r in zip(at, of_seed.values())]
        batches = statistics.median(each)
        per = next(iter(of_seed.values()))
        row = [arm, f"{statistics.median(ends.values()):.3f}"]
        seeds = [seed for seed in of_seed if seed in plain and arm != "plain"]
        if seeds:
            gain = median_interval([ends[s] - statistics.mean(plain[s]["rewards"][-WINDOW:]) for s in seeds])
            ratio = median_interval([time_to(of_seed[s]) / time_to(plain[s]) for s in seeds])
            row.append("{:+.3f} [{:+.3f}, {:+.3f}]".format(*gain))
        else:
            row.append("")
        shown = f"{batches:g}" + (f" ({missed} of {len(at)} never)" if missed else "")
        row += [shown, f"{batches * per['updates'] / per['batches']:g}"]
        row.append(f"{statistics.median(time_to(r) for r in of_seed.values()):.0f}")
        row.append("{:.2f} [{:.2f}, {:.2f}]".format(*ratio) if seeds else "1")
        print("| " + " | ".join(row) + " |")


def plot(runs: list[dict[str, Any]], cost: float, path: str) -> None:
    """Draw the reward against generated batches, updates and time: medians over seeds with quartiles."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 3, figsize=(12, 3.5), sharey=True, layout="constrained")
    for arm in ARMS:
        of_arm = [r for r in runs if r["arm"] == arm]
        if not of_arm:
            continue
        means = [
            [statistics.mean(r["rewards"][end - WINDOW : end]) for end in range(WINDOW, len(r["rewards"]) + 1)]
            for r in of_arm
        ]
        low, middle, high = zip(*(statistics.quantiles(at, n=4, method="inclusive") for at in zip(*means)))
        uses = of_arm[0]["updates"] / of_arm[0]["batches"]
        batches = range(WINDOW, WINDOW + len(middle))
        for axis, unit in zip(axes, (1, uses, cost + uses)):
            x = [unit * batch for batch in batches]
            axis.plot(x, middle, label=arm)
            axis.fill_between(x, low, high, alpha=0.15)
    for axis, name in zip(axes, ("batches of 32 rollouts", "optimizer steps", f"time, generation {cost:g}")):
        axis.set_xlabel(name)
    axes[0].set_ylabel("reward")
    axes[0].legend(fontsize="small")
    figure.savefig(path, dpi=100)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="folder of a checkpoint")
    parser.add_argument("--out", required=True, type=pathlib.Path)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4, 5])
    parser.add_argument("--arms", nargs="+", default=list(ARMS), choices=ARMS)
    parser.add_argument("--batches", type=int, default=50, help="generated batches of a run")
    parser.add_argument("--rate", type=float, default=1e-3, help="learning rate")
    parser.add_argument("--cost", type=float, default=5, help="of generating a batch, in updates with it")
    parser.add_argument("--goal", type=float, default=0.6, help="reward to reach")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--plot", help="PNG to draw; needs matplotlib")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    lines = given.out / "runs.jsonl"
    runs = [json.loads(line) for line in lines.read_text().splitlines()] if lines.exists() else []
    runs = [r for r in runs if (r["rate"], r["batches"]) == (given.rate, given.batches)]
    done = {(r["arm"], r["seed"]) for r in runs}

    import reprise

    with reprise.serve() as service:
        jobs = [
            dict(arm=arm, seed=seed, model=given.model, rate=given.rate, batches=given.batches, address=service.address)
            for seed in given.seeds for arm in given.arms if (arm, seed) not in done
        ]  # fmt: skip
        with multiprocessing.get_context("spawn").Pool(given.jobs, maxtasksperchild=1) as pool:
            for finished in pool.imap_unordered(run, jobs):
                runs.append(finished)
                with lines.open("a") as file:
                    file.write(json.dumps(finished) + "\n")
                end = statistics.mean(finished["rewards"][-WINDOW:])
                print(f"{len(runs)}: {finished['arm']}, seed {finished['seed']}: {end:.3f}", flush=True)
    wanted = [r for r in runs if r["arm"] in given.arms and r["seed"] in given.seeds]
    report(wanted, given.cost, given.goal)
    if given.plot:
        plot(wanted, given.cost, given.plot)


if __name__ == "__main__":
    main()
