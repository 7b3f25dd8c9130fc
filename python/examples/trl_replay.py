"""TRL's GRPOTrainer with replay: what it generates goes into a table, and it trains on what the table draws.

    trainer = ReplayGRPOTrainer(..., table=reprise.connect("grpc://127.0.0.1:7447").table("math"))

Written for TRL 1.16.0; tests/test_trl.py runs it. Nothing of TRL is copied: two methods are wrapped.
"""

from __future__ import annotations

from typing import Any

from accelerate.utils import gather_object
from trl import GRPOTrainer

import reprise
from reprise.adapters import trl


class ReplayGRPOTrainer(GRPOTrainer):
    """Trains on as many rollouts as it generates, drawn from a table."""

    def __init__(self, *args: Any, table: reprise.Table, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.table = table

    def _calculate_rewards(self, *args: Any, **kwargs: Any) -> Any:
        per_function = super()._calculate_rewards(*args, **kwargs)
        weights = self.reward_weights.to(per_function.device)
        self._rewards = (per_function * weights).nansum(dim=1)  # of all processes
        return per_function

    def _generate_and_score_completions(self, inputs: Any) -> dict[str, Any]:
        outputs: dict[str, Any] = super()._generate_and_score_completions(inputs)
        if not self.model.training:
            return outputs
        rows = len(outputs["completion_ids"])
        first = self.accelerator.process_index * rows
        columns = trl.rollouts(
            outputs,
            rewards=self._rewards[first : first + rows],
            version=self.state.global_step,
            num_generations=self.num_generations,
            first_row=first,
            logprobs=trl.logprobs(self, outputs),
            temperature=self.temperature,
            top_p=self.top_p,
        )
        parts = gather_object([columns])
        if self.accelerator.is_main_process:
            if self.table.info().version > self.state.global_step:  # of an earlier run, or after a checkpoint's restore
                self.table.rewind(self.state.global_step)
            self.table.advance(self.state.global_step)
            merged = trl.merge(parts)
            if len(merged["lengths"]):
                self.table.insert(merged)
        self.accelerator.wait_for_everyone()
        drawn = trl.tensors(
            self.table.sample(rows),
            pad_token_id=self.processing_class.pad_token_id,
            torch=True,
            device=self.accelerator.device,
        )
        drawn["num_items_in_batch"] = self.accelerator.gather(drawn["num_items_in_batch"]).sum()
        return drawn
