"""Published methods whose mechanism is a table's, as its keys.

Written from configs/methods by `go test ./cmd/reprise -run Reference -write-reference`: change those. The files
there say what was read of each source, and what differs here: `reprise methods NAME` prints them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .errors import Invalid

METHOD_BATCH = 480


@dataclass(frozen=True)
class Method:
    """A published method of replay.

    Attributes:
        title: what it does, in a line.
        source: where it was published.
        keys: of a table, as `Client.create` has them, with a capacity for batches of METHOD_BATCH rollouts.
        trainer: what the method has beside a table, as section.key of a run of the laboratory: the loss, how much of a
            batch is fresh.
    """

    title: str
    source: str
    keys: Mapping[str, Any]
    trainer: Mapping[str, Any]


def method_of(name: str) -> Method:
    """Return a method by its name. Raises Invalid, naming all."""
    if name not in METHODS:
        raise Invalid(f"method: {name!r}: want one of {', '.join(METHODS)}; the others that `reprise methods` lists "
                      "are losses or choose what is generated, with any table")  # fmt: skip
    return METHODS[name]


# fmt: off
METHODS: Mapping[str, Method] = {
    "advantage-replay": Method(
        title="Advantage-prioritized replay: draws by absolute advantage, old rollouts leave, part of each batch is fresh.",
        source="arXiv 2606.04560",
        keys={
            "sampler": "prioritized",
            "capacity": 7680,
            "priority_base": "advantage",
            "priority_exponent": 0.6,
            "max_staleness": 32,
        },
        trainer={"replay.fresh_share": 0.5},
    ),
    "arpo": Method(
        title="ARPO: a kept success takes a place in a group that failed entirely.",
        source="arXiv 2505.16282",
        keys={
            "sampler": "distinct",
            "capacity": 9600,
            "retention": "positive",
            "positive_fraction": 0.8,
            "positive_threshold": 0.1,
            "positives_per_prompt": 8,
            "sources": [{"name": "fresh", "pool": "fresh", "share": 1, "wait": True}, {"name": "kept", "pool": "prompts", "per_prompt": 1, "where": "reward > 0.1", "fresh_where": "group_mean < 0.2 && group_std < 0.05", "replace": True}],
            "draw_advantage": "regroup",
        },
        trainer={"pipeline.workers": 5, "pipeline.trainers": 1, "learner.objective": "grpo", "learner.clip_low": 0.2, "learner.clip_high": 0.3, "learner.proximal": "unweighted"},
    ),
    "bapo": Method(
        title="BAPO: hard prompts are asked again, and rollouts of groups that vary are learned from again.",
        source="arXiv 2602.20722",
        keys={
            "sampler": "unseen",
            "capacity": 1920,
            "sources": [{"name": "varied", "share": 0.5, "where": "group_std > 0"}],
            "prompts": {"fraction": 0.25, "keep": "pass_rate <= 0.25", "score": "pass_rate", "cooldown": 5},
        },
        trainer={},
    ),
    "er": Method(
        title="ER: uniform draws from a buffer of recent rollouts, right answers kept for longer, AsymRE.",
        source="arXiv 2604.08706",
        keys={
            "sampler": "uniform",
            "capacity": 1920,
            "retention": "positive",
            "positive_fraction": 0.5,
        },
        trainer={"learner.objective": "asymre", "learner.shift": -0.1},
    ),
    "exgrpo": Method(
        title="ExGRPO: prompts of medium difficulty are asked again, each with its surest success in the group.",
        source="arXiv 2510.02245",
        keys={
            "sampler": "distinct",
            "capacity": 9600,
            "retention": "positive",
            "positive_fraction": 0.8,
            "positive_threshold": 0.5,
            "positives_per_prompt": 8,
            "sources": [{"name": "fresh", "pool": "fresh", "share": 1, "wait": True}, {"name": "experience", "pool": "prompts", "per_prompt": 1, "where": "reward >= 0.5 && group_std > 0", "order": "mean_logprob", "replace": True}],
            "draw_advantage": "regroup",
            "advantage": "no_std",
            "prompts": {"fraction": 0.5, "band": 0.5, "cooldown": 1, "max_reuse": 1000},
        },
        trainer={"pipeline.workers": 5, "pipeline.trainers": 1, "learner.objective": "dr_grpo", "learner.clip_low": 1, "learner.clip_high": 1000000},
    ),
    "freshper": Method(
        title="FreshPER: prioritized replay whose priorities fade with age.",
        source="arXiv 2604.16918 and the README of its code",
        keys={
            "sampler": "prioritized",
            "capacity": 61440,
            "priority_base": "reward",
            "priority_exponent": 0.6,
            "age_decay": 500,
        },
        trainer={"pipeline.mode": "sync", "replay.mix": 1},
    ),
    "pods": Method(
        title="PODS: of a large group the subset whose rewards vary most is learned from.",
        source="arXiv 2504.13818",
        keys={
            "sampler": "lifo",
            "capacity": 960,
            "select": 4,
        },
        trainer={"pipeline.group": 16},
    ),
    "pope": Method(
        title="POPE: problems that are too hard are asked again with the first part of an expert’s solution, which is not learned from.",
        source="arXiv 2601.18779",
        keys={
            "sampler": "lifo",
            "capacity": 960,
            "prompts": {"fraction": 0.5, "keep": "pass_rate == 0", "cooldown": 1, "max_reuse": 1000},
        },
        trainer={"generate.prefix": {"share": 1, "length": 0.5, "of": "replayed"}},
    ),
    "problem-priority": Method(
        title="Prioritized replay of problems: by p(1 − p), with solved and unsolved problems tested again from time to time.",
        source="arXiv 2601.02648",
        keys={
            "sampler": "lifo",
            "capacity": 960,
            "prompts": {"fraction": 0.75, "keep": "true", "score": "streak > 0 ? 0.2 : pass_rate * (1 - pass_rate)", "interval": "streak > 0 ? 50 : 5", "max_reuse": 1000},
        },
        trainer={},
    ),
    "prompt-replay": Method(
        title="Prompt Replay: prompts of pass rate near one half are asked again.",
        source="arXiv 2603.21177",
        keys={
            "sampler": "fifo",
            "prompts": {"fraction": 0.75, "band": 0.3, "cooldown": 5, "max_reuse": 10},
        },
        trainer={"pipeline.mode": "sync"},
    ),
    "recall": Method(
        title="RECALL: mastered prompts are reviewed, at intervals that grow.",
        source="arXiv 2606.03087",
        keys={
            "sampler": "lifo",
            "capacity": 960,
            "prompts": {"fraction": 0.25, "keep": "pass_rate >= 1", "score": "-version", "interval": "10 * 2 ** min(streak - 1, 6)", "max_reuse": 1000},
        },
        trainer={},
    ),
    "remix": Method(
        title="ReMix: more updates on each batch, of which a part is old, under a convex KL constraint, then on-policy again.",
        source="arXiv 2507.06892",
        keys={
            "sampler": "distinct",
            "capacity": 1920,
            "sources": [{"name": "fresh", "pool": "fresh", "share": "version < 100 ? 0.6 : 1", "wait": True}, {"name": "past", "share": "version < 100 ? 0.4 : 0", "where": "age <= 4"}],
        },
        trainer={"pipeline.batch_updates": 2, "learner.objective": "grpo_off", "learner.r_prime": "exact", "learner.kl_coef": 0.01, "learner.kl_anchor": 0.5, "learner.reference_every": 100, "learner.reference_swaps": 1},
    ),
    "repo": Method(
        title="RePO: replayed rollouts of the same prompt beside fresh ones, with advantages of each apart.",
        source="arXiv 2506.09340",
        keys={
            "sampler": "distinct",
            "capacity": 24000,
            "sources": [{"name": "fresh", "pool": "fresh", "share": 0.5, "wait": True}, {"name": "replayed", "pool": "prompts", "share": 0.5, "per_prompt": 8, "order": "reward"}],
            "draw_advantage": "split",
        },
        trainer={"pipeline.workers": 2, "pipeline.trainers": 1, "learner.objective": "grpo"},
    ),
    "rlep": Method(
        title="RLEP: verified successes of a prompt join its fresh rollouts.",
        source="arXiv 2507.07451",
        keys={
            "sampler": "distinct",
            "capacity": 9600,
            "retention": "positive",
            "positive_fraction": 0.8,
            "positive_threshold": 0.5,
            "positives_per_prompt": 4,
            "sources": [{"name": "fresh", "pool": "fresh", "share": 0.8, "wait": True}, {"name": "successes", "pool": "prompts", "share": 0.2, "per_prompt": 2, "where": "reward >= 0.5"}],
            "draw_advantage": "regroup",
        },
        trainer={"pipeline.workers": 4, "pipeline.trainers": 1, "learner.objective": "grpo", "learner.clip_low": 0.2, "learner.clip_high": 0.28, "learner.normalisation": "token", "learner.proximal": "unweighted"},
    ),
    "spear": Method(
        title="SPEAR: successes are kept, and learned from again by advantages to a baseline that moves.",
        source="arXiv 2509.22601",
        keys={
            "sampler": "unseen",
            "capacity": 9600,
            "retention": "positive",
            "positive_fraction": 0.8,
            "positive_threshold": 0.5,
            "positives_per_prompt": 4,
            "positive_share": 0.25,
            "draw_advantage": "baseline",
            "advantage": "no_std",
        },
        trainer={},
    ),
    "tba": Method(
        title="TBA: trajectory balance on draws by recency and by reward.",
        source="arXiv 2503.18929",
        keys={
            "sampler": "distinct",
            "unit": "group",
            "capacity": 9600,
            "sources": [{"name": "recent", "share": 0.5, "where": "age <= 3"}, {"name": "rewarded", "share": 0.5, "weight": "exp(reward)"}],
        },
        trainer={"learner.objective": "trajectory_balance", "learner.beta": 0.1},
    ),
    "trinity": Method(
        title="Trinity-RFT’s priority queue: the newest groups first, less for each use, with a rest after it.",
        source="Trinity-RFT’s code, buffer/storage/queue.py",
        keys={
            "sampler": "ordered",
            "order": "version - 2 * uses",
            "cooldown": 1,
            "unit": "group",
            "max_uses": 3,
            "capacity": 960,
            "retention": "scored",
            "score": "version - 2 * uses",
        },
        trainer={},
    ),
    "trl-replay": Method(
        title="TRL's GRPO with a replay buffer: kept groups in the place of those without variance.",
        source="TRL’s grpo_with_replay_buffer",
        keys={
            "sampler": "distinct",
            "unit": "group",
            "capacity": 1920,
            "sources": [{"name": "fresh", "pool": "fresh", "share": 1, "where": "group_std > 0", "wait": True, "backfill": "kept"}, {"name": "kept", "where": "group_std > 0", "weight": "abs(advantage) * group_std"}],
        },
        trainer={},
    ),
    "vcrl": Method(
        title="VCRL: prompts whose answers vary most are kept in a memory and asked again.",
        source="arXiv 2509.19803",
        keys={
            "sampler": "lifo",
            "capacity": 960,
            "prompts": {"fraction": 0.5, "keep": "4 * pass_rate * (1 - pass_rate) >= 0.3", "score": "pass_rate * (1 - pass_rate)", "max_reuse": 100},
        },
        trainer={},
    ),
}
