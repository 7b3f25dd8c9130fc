"""slime: replay behind its options ``--data-source-path`` and ``--rollout-function-path``.

.. code-block:: sh

    --data-source-path reprise.slime.DataSource --rollout-function-path reprise.slime.generate_rollout \\
    --use-rollout-logprobs --custom-config-path replay.yaml

.. code-block:: yaml

    reprise: {table: slime, fresh: 0.5, capacity: 1024, max_staleness: 4}

Of each batch slime generates the fresh share, and the rest is drawn from the table, whole groups at a time. Versions
are rollout ids, minus the weight updates that a sample's oldest tokens lag behind the newest.
"""

from __future__ import annotations

import copy
import hashlib
import json
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from slime.rollout import sglang_rollout
from slime.rollout.base_types import RolloutFnEvalOutput, RolloutFnTrainOutput
from slime.rollout.data_source import RolloutDataSourceWithBuffer
from slime.utils.types import Sample

from .adapters import layout, step
from .address import connect_or_serve
from .batch import Batch
from .errors import Invalid

_COLUMNS = (
    "tokens", "response_length", "loss_mask", "rollout_log_probs", "rollout_top_p_token_ids",
    "rollout_top_p_token_offsets", "rollout_routed_experts",
)  # fmt: skip
"""Fields of a Sample that columns of the table hold. The others travel as JSON in its column ``meta``."""


class DataSource(RolloutDataSourceWithBuffer):
    """slime's own data source with a table of a service beside it.

    A trainer that resumes from a checkpoint rewinds the table: rollouts of weights that no longer exist leave, and
    older ones stay, for nothing of the table is in slime's checkpoint.

    Args:
        args: slime's. ``args.reprise`` (of the file ``--custom-config-path``) has ``address``, ``table`` and ``fresh``,
            the share of each batch that is generated, in (0, 1]; its other keys are the table's (`Definition`). Without
            an address, here or in the environment's REPRISE_ADDRESS, this process serves ``replay`` in ``args.save``.
    """

    def __init__(self, args: Namespace) -> None:
        super().__init__(args)
        options = {"address": None, "table": "slime", "fresh": 0.5, **getattr(args, "reprise", {})}
        self.fresh = options.pop("fresh")
        if not 0 < self.fresh <= 1:
            raise Invalid(f"reprise.fresh: {self.fresh}: want a share above 0, at most 1")
        folder = Path(getattr(args, "save", None) or ".", "replay")
        client, name = connect_or_serve(options.pop("address"), folder), options.pop("table")
        self.table = client.create(name, unit="group", group_size=args.n_samples_per_prompt, **options)

    def load(self, rollout_id: int | None = None) -> None:
        """Load what slime saved after a rollout, and rewind the table to the weights of then."""
        super().load(rollout_id)
        step.follow(self.table, 0 if rollout_id is None else rollout_id + 1)

    def insert(self, groups: Sequence[Sequence[Sample]], rollout_id: int) -> int:
        """Insert the groups that have all their rewards, and return how many samples entered."""
        done = [group for group in groups if all(_scored(sample) for sample in group)]
        rows = [sample for group in done for sample in group]
        if not rows:
            return 0
        labels = [_weights(sample) for sample in rows]
        newest = max((max(label) for label in labels if label), default=0)
        every = getattr(self.args, "update_weights_interval", 1) or 1
        columns = [_row(self.args, sample) for sample in rows]
        lengths = np.array([len(sample.tokens) for sample in rows])
        joined = {name: np.concatenate([row.pop(name) for row in columns]) for name in ("tokens", "mask", "logprobs")}
        lag = [(newest - min(label)) * every if label else 0 for label in labels]
        versions = layout.versions(np.maximum(rollout_id - np.array(lag), 0), joined["mask"], lengths)
        per_row: dict[str, Any] = {name: [row[name] for row in columns] for name in columns[0]}
        per_row["reward"] = np.array(per_row["reward"], np.float64)
        for name in ("sampling_mask", "routed_experts"):
            if all(value is None for value in per_row[name]):
                del per_row[name]
        group = np.repeat(np.arange(len(done)), [len(each) for each in done])
        per_row |= {"lengths": lengths, "versions": versions, "group": group}
        return step.insert(self.table, {**joined, **per_row})


def generate_rollout(
    args: Namespace, rollout_id: int, data_source: DataSource, evaluation: bool = False
) -> RolloutFnTrainOutput | RolloutFnEvalOutput:
    """Return a batch of which slime's own function generated the fresh share, and insert that share into the table.

    Until the table has enough, all is generated. Evaluation is slime's.
    """
    if evaluation:
        return sglang_rollout.generate_rollout(args, rollout_id, data_source, evaluation=True)
    if not isinstance(data_source, DataSource):
        raise Invalid(f"--data-source-path: {args.data_source_path}: want reprise.slime.DataSource")
    if not (args.use_rollout_logprobs or args.use_tis):
        raise Invalid(
            "--use-rollout-logprobs, --use-tis: neither is set, and slime would take replayed rollouts for its own: "
            "want one of them"
        )
    step.follow(data_source.table, rollout_id)
    fresh = max(round(data_source.fresh * args.rollout_batch_size), 1)
    size = args.n_samples_per_prompt
    batch = step.draw(data_source.table, args.rollout_batch_size - fresh, size)
    samples = [] if batch is None else _samples(batch)
    replayed = [samples[begin : begin + size] for begin in range(0, len(samples), size)]
    fewer = copy.copy(args)
    fewer.rollout_batch_size -= len(replayed)
    # slime submits a number of prompts at a time, and drops or sets aside those that finish after the batch is full.
    more = args.over_sampling_batch_size - args.rollout_batch_size
    fewer.over_sampling_batch_size = fewer.rollout_batch_size + round(
        more * fewer.rollout_batch_size / args.rollout_batch_size
    )
    output = sglang_rollout.generate_rollout(fewer, rollout_id, data_source)
    inserted = data_source.insert(output.samples, rollout_id)
    metrics = step.metrics(sum(len(group) for group in output.samples), inserted, batch)
    return RolloutFnTrainOutput(samples=output.samples + replayed, metrics={**(output.metrics or {}), **metrics})


def _scored(sample: Sample) -> bool:
    if isinstance(sample, list):
        raise Invalid("samples: a rollout of several samples, as compact rollouts return: want one for each rollout")
    return sample.reward is not None and sample.response_length > 0


def _weights(sample: Sample) -> list[int]:
    """Return the labels of the weights that produced a sample, which are the numbers of slime's weight updates."""
    return [int(label) for label in sample.weight_versions if str(label).isdigit()]


def _row(args: Namespace, sample: Sample) -> dict[str, Any]:
    """Return a sample's columns."""
    if sample.multimodal_train_inputs is not None:
        raise Invalid("multimodal_train_inputs: images are not carried: want samples of text")
    if sample.rollout_log_probs is None:
        raise Invalid("rollout_log_probs: None: want the engine's, as append_response_tokens sets them")
    length, prompt = len(sample.tokens), len(sample.tokens) - sample.response_length
    mask, logprobs = np.zeros(length, np.uint8), np.zeros(length, np.float32)
    mask[prompt:] = 1 if sample.loss_mask is None else sample.loss_mask
    logprobs[prompt:] = np.where(mask[prompt:], sample.rollout_log_probs, 0)
    kept = {name: value for name, value in sample.to_dict().items() if name not in _COLUMNS}
    kept["had_mask"], kept["response_length"] = sample.loss_mask is not None, sample.response_length
    nucleus: list[Any] | None = None
    experts = None
    if sample.rollout_top_p_token_ids is not None:
        ids = np.asarray(sample.rollout_top_p_token_ids)
        parts = np.split(ids, np.asarray(sample.rollout_top_p_token_offsets)[1:-1])
        nucleus = [[]] * prompt + [part if trained else [] for part, trained in zip(parts, mask[prompt:])]
    if sample.rollout_routed_experts is not None:
        experts = np.asarray(sample.rollout_routed_experts)  # [L - 1, layers, experts per token]
        kept["experts"] = experts.shape[1:]
    try:
        text = json.dumps(kept)
    except TypeError as error:
        raise Invalid(f"Sample: {error}: want metadata and labels of JSON") from error
    prompt_text = json.dumps([sample.prompt, sample.label], default=str)
    return {
        "tokens": np.asarray(sample.tokens, np.int64),
        "mask": mask,
        "logprobs": logprobs,
        "reward": sample.get_reward_value(args),
        "prompt_id": hashlib.blake2b(prompt_text.encode(), digest_size=8).hexdigest(),
        "truncated": sample.status == Sample.Status.TRUNCATED,
        "temperature": args.rollout_temperature,
        "top_p": args.rollout_top_p,
        "meta": {"slime": text},
        "sampling_mask": nucleus,
        "routed_experts": experts,
    }


def _samples(batch: Batch) -> list[Sample]:
    """Return a batch as samples."""
    tokens, masks, logprobs = batch.ragged("tokens"), batch.ragged("mask"), batch.ragged("logprobs")
    nuclei = batch.sampling_mask if batch.has("sampling_mask") else [None] * len(batch)
    experts = batch.routed_experts if batch.has("routed_experts") else [None] * len(batch)
    out = []
    for row, meta in enumerate(batch.column("meta")):
        kept = json.loads(dict(meta)["slime"])
        shape, had_mask, response = kept.pop("experts", None), kept.pop("had_mask"), kept["response_length"]
        prompt = len(tokens[row]) - response
        kept.update(
            tokens=tokens[row].tolist(),
            loss_mask=masks[row][prompt:].tolist() if had_mask else None,
            rollout_log_probs=logprobs[row][prompt:].tolist(),
            rollout_id=None,  # slime numbers samples without one: a group drawn twice counts twice
        )
        nucleus = nuclei[row]
        if nucleus is not None:
            offsets = np.cumsum([0] + [len(ids) for ids in nucleus[prompt:]])
            kept["rollout_top_p_token_ids"] = torch.from_numpy(np.concatenate(nucleus[prompt:]).astype(np.int32))
            kept["rollout_top_p_token_offsets"] = torch.from_numpy(offsets.astype(np.int32))
        routed = experts[row]
        if routed is not None:
            kept["rollout_routed_experts"] = torch.from_numpy(routed[:-1].astype(np.int32).reshape(-1, *shape))
        out.append(Sample.from_dict(kept))
    return out
