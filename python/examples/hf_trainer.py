"""A trainer of a Hugging Face model beside engines: draws from a served table, and publishes weights for them.

Generators fill the table: `reprise rollout ADDRESS/TABLE TASK --engine … --weights FOLDER` (docs/eight-gpus.md).

    python hf_trainer.py MODEL --address grpc://127.0.0.1:7447 --table math --weights runs/weights
    torchrun --nproc_per_node 2 hf_trainer.py …      # one process a GPU, each with the whole model
"""

from __future__ import annotations

import argparse
import contextlib
import os

import torch
import torch.distributed as dist
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging

import reprise
import reprise.torch

RANK, RANKS = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
CUDA = torch.cuda.is_available()
OBJECTIVE = reprise.torch.Objective("grpo", proximal="recompute", correction=[{"kind": "truncate", "high": 2.0}])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--address", default="grpc://127.0.0.1:7447")
    parser.add_argument("--table", default="math")
    parser.add_argument("--weights", default="runs/weights", help="folder that the engines see under the same path")
    parser.add_argument("--updates", type=int, default=200)
    parser.add_argument("--batch", type=int, default=512, help="rollouts of one update, of all ranks")
    parser.add_argument("--micro", type=int, default=4, help="rollouts of one forward and backward pass")
    parser.add_argument("--learning-rate", type=float, default=1e-6)
    parser.add_argument("--temperature", type=float, default=1.0, help="that of the engines")
    o = parser.parse_args()
    device = f"cuda:{os.environ.get('LOCAL_RANK', 0)}" if CUDA else "cpu"
    if RANKS > 1:
        dist.init_process_group("nccl" if CUDA else "gloo")
    logging.disable_progress_bar()
    tokenizer = AutoTokenizer.from_pretrained(o.model)
    model = AutoModelForCausalLM.from_pretrained(o.model, dtype=torch.float32).to(device)
    if CUDA:
        model.gradient_checkpointing_enable()
    network = torch.nn.parallel.DistributedDataParallel(model) if RANKS > 1 else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=o.learning_rate, weight_decay=0.0)
    share = o.batch // RANKS

    with reprise.connect(o.address) as client, client.table(o.table).stream(share) as batches:
        table = client.table(o.table)
        first = table.info().version
        for version in range(first + 1, first + 1 + o.updates):
            batch = next(batches)
            padded = batch.padded(pad_id=tokenizer.pad_token_id or 0).torch(device)
            count, inputs = padded.loss_mask.sum(), reprise.torch.inputs(padded)
            if RANKS > 1:
                dist.all_reduce(count)
                scale = torch.tensor(batch.info.log_weight_scale, dtype=torch.float64, device=device)
                dist.all_reduce(largest := scale.clone(), dist.ReduceOp.MAX)
                inputs["weights"] = inputs["weights"] * (scale - largest).exp()  # over the largest weight of all ranks
            optimizer.zero_grad()
            sums, rows = [], []
            for at in range(0, share, o.micro):
                part = slice(at, at + o.micro)
                with torch.autocast("cuda", torch.bfloat16, enabled=CUDA):  # bfloat16 weights would lose small updates
                    logits = network(padded.tokens[part], attention_mask=padded.attention_mask[part]).logits
                scores = torch.log_softmax(logits[:, :-1].float() / o.temperature, -1)
                logprobs = scores.gather(-1, padded.tokens[part, 1:, None])[..., 0]
                logprobs = torch.nn.functional.pad(logprobs, (1, 0))  # entry i is of token i
                few = {name: value[part] for name, value in inputs.items()}
                out = reprise.torch.loss(logprobs, OBJECTIVE, anchor=logprobs.detach(), **few,
                                         num_tokens=count, num_rollouts=o.batch)  # fmt: skip
                last = at + o.micro >= share or RANKS == 1
                with contextlib.nullcontext() if last else network.no_sync():
                    (out.loss * RANKS).backward()  # DDP averages gradients
                sums.append(out.sums)
                rows.append(out.rows)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            table.report(batch.ids, batch.staleness,
                         **{name: torch.cat([each[name] for each in rows]) for name in rows[0]})  # fmt: skip
            if RANKS > 1:
                dist.barrier()  # every rank has drawn and reported before the version goes up
            if RANK == 0:
                reprise.publish(o.weights, version, lambda to: (model.save_pretrained(to), tokenizer.save_pretrained(to)))
                table.advance(version)
                metrics = reprise.torch.combine(*sums)
                print(f"update {version:4}  reward {batch.rewards.mean():.3f}  staleness {batch.staleness.mean():.2f}  "
                      f"ess {metrics['ess']:.3f}", flush=True)  # fmt: skip
    if RANKS > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
