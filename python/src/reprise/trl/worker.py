"""RolloutWorker: replay in TRL's AsyncGRPOTrainer, by its protocol for rollout workers (TRL 1.16)."""

from __future__ import annotations

import dataclasses
import json
import logging
import queue
import threading
import time
from typing import Any

import numpy as np
from trl.experimental.async_grpo.async_rollout_worker import RolloutSample

from ..batch import Batch
from ..errors import Invalid, Starved
from .replay import Replay

log = logging.getLogger("reprise")

COLUMNS = ["tokens", "mask", "logprobs", "versions", "advantage", "group", "meta", "weight", "staleness", "uses"]


class RolloutWorker:
    """A rollout worker that puts what another one generates into a table, and pushes it with rollouts drawn from there.

    .. code-block:: python

        worker = RolloutWorker(AsyncRolloutWorker(...), replay=Replay("grpc://127.0.0.1:7447", fresh=0.5), batch=64)
        trainer = AsyncGRPOTrainer(model, reward_funcs, args=args, train_dataset=data, rollout_worker=worker)

    Of the samples that the trainer gets, the share ``replay.fresh`` was just generated. Drawn samples keep their
    log-probs and versions, so the trainer's ``max_staleness`` drops those that are too old for it: give the table the
    same. Metrics in TRL's log: ``replay/staleness``, ``replay/uses`` and ``replay/present``.

    Args:
        worker: generates: TRL's `AsyncRolloutWorker`, or any other of the protocol. None: programs elsewhere insert
            into the table, with the version of their weights, and all samples are drawn.
        replay: the table. Of the samplers, queues hand out each rollout once.
        batch: samples drawn at a time, and samples that wait for the trainer at most.
        output_dir: of the trainer, for a table without an address.
    """

    def __init__(
        self, worker: Any = None, *, replay: Replay | None = None, batch: int = 64, output_dir: str = "."
    ) -> None:
        self.replay = replay or Replay()
        if worker is not None and self.replay.fresh == 0:
            raise Invalid("fresh: 0 with a worker: want more than 0, or no worker")
        self._worker, self._batch = worker, batch
        self.table = self.replay.open(output_dir, batch, corrections=False)
        self.rollout_buffer: queue.Queue[RolloutSample] = queue.Queue(maxsize=batch)
        self.metrics_queue: queue.Queue[dict[str, float]] = queue.Queue(maxsize=4096)
        self._owed = 0.0  # replayed samples still to be drawn to meet the fresh share
        self._alive = 0.0  # when a sample was pushed last
        self._failed: BaseException | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="reprise-rollout-worker", daemon=True)

    def start(self) -> None:
        """Begin to push samples."""
        self._alive = time.time()
        if self._worker is not None:
            self._worker.start()
        self._thread.start()

    def stop(self) -> None:
        """Stop pushing. What the other worker has generated since stays out of the table."""
        self._stop.set()
        if self._worker is not None:
            self._worker.stop()
        if self._thread.is_alive():
            self._thread.join()

    def update_model_version(self, model_version: int) -> None:
        """Take the trainer's version. If the table is ahead of it, rewind the table, which drops newer rollouts."""
        if self.table.info().version > model_version:
            self.table.rewind(model_version)
        self.table.advance(model_version)
        if self._worker is not None:
            self._worker.update_model_version(model_version)

    def check_health(self, stale_after_s: float) -> None:
        """Raise if this worker or the other one failed, or has not pushed for the given seconds."""
        if self._failed is not None:
            raise RuntimeError(f"reprise's rollout worker failed: {self._failed}") from self._failed
        if self._worker is not None:
            self._worker.check_health(stale_after_s)
        elif (age := time.time() - self._alive) > stale_after_s:
            raise RuntimeError(f"table {self.table.name}: nothing to draw for {age:.0f} s: want programs that insert")

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                if self._worker is None:
                    drawn = self._draw(self._batch)
                    self._push(drawn)
                    if not drawn:
                        self._stop.wait(1)
                    continue
                fresh = self._generated()
                self._insert(fresh)
                self._push(fresh)
                self._owed += len(fresh) * (1 / self.replay.fresh - 1)
                while self._owed >= 1 and not self._stop.is_set():
                    drawn = self._draw(min(int(self._owed), self._batch))
                    self._owed = self._owed - len(drawn) if drawn else 0.0  # an empty table owes nothing later
                    self._push(drawn)
        except BaseException as error:  # the trainer asks for it
            self._failed = error

    def _generated(self) -> list[RolloutSample]:
        """Return what the other worker has pushed, after waiting for the first, and forward its metrics."""
        out = []
        try:
            out.append(self._worker.rollout_buffer.get(timeout=0.2))
            while len(out) < self._batch:
                out.append(self._worker.rollout_buffer.get_nowait())
        except queue.Empty:
            pass
        try:
            while True:
                self._measure(self._worker.metrics_queue.get_nowait())
        except queue.Empty:
            return out

    def _insert(self, samples: list[RolloutSample]) -> None:
        rows = [s for s in samples if s.completion_mask.any() and np.isfinite(s.old_log_probs).all()]
        if not rows:
            return
        masks = [np.asarray(sample.completion_mask, np.uint8) for sample in rows]
        self.table.insert(
            tokens=[sample.input_ids for sample in rows],
            mask=masks,
            logprobs=[np.where(mask, np.minimum(row.old_log_probs, 0), 0) for mask, row in zip(masks, rows)],
            version=np.array([sample.model_version for sample in rows]),
            reward=np.array([sample.metrics.get("reward", 0.0) for sample in rows]),
            advantage=np.array([sample.advantage for sample in rows], np.float32),
            group=np.array([sample.group_id for sample in rows]),
            meta=[{"trl": _messages(row)} for row in rows],
        )

    def _draw(self, size: int) -> list[RolloutSample]:
        """Draw samples, none if the table has none."""
        size = min(size, self.table.info().present)
        if not size:
            return []
        try:
            batch = self.table.sample(size, columns=COLUMNS, timeout=0, scope="global")
        except Starved:
            return []
        self._measure(
            {
                "replay/staleness": float(batch.staleness.mean()),
                "replay/uses": float(batch.uses.mean()),
                "replay/present": float(batch.info.present),
            }
        )
        return _samples(batch, self.replay.weigh)

    def _measure(self, metrics: dict[str, Any]) -> None:
        try:
            self.metrics_queue.put_nowait(metrics)
        except queue.Full:  # nobody drains it
            log.debug("metrics left out: %s", metrics)

    def _push(self, samples: list[RolloutSample]) -> None:
        for sample in samples:
            while not self._stop.is_set():
                try:
                    self.rollout_buffer.put(dataclasses.replace(sample, enqueued_at=time.time()), timeout=0.2)
                    self._alive = time.time()
                    break
                except queue.Full:
                    self._alive = time.time()  # the trainer is busy


def _messages(sample: RolloutSample) -> str:
    try:
        return json.dumps([sample.prompt, sample.completion, {k: float(v) for k, v in sample.metrics.items()}])
    except TypeError as error:
        raise Invalid(f"prompt: {error}: images are not stored: want messages of text only") from error


def _samples(batch: Batch, weigh: bool) -> list[RolloutSample]:
    """Return drawn rollouts as TRL's samples. Their groups have negative numbers, unlike those that TRL makes."""
    tokens, masks, logprobs, versions = (batch.ragged(name) for name in ("tokens", "mask", "logprobs", "versions"))
    advantages = batch.column("advantage") * (batch.weights if weigh else 1)
    out = []
    for row, meta in enumerate(batch.column("meta")):
        prompt, completion, metrics = json.loads(dict(meta or []).get("trl", "[[], [], {}]"))
        out.append(
            RolloutSample(
                prompt=prompt,
                completion=completion,
                input_ids=tokens[row].astype(np.int64),
                completion_mask=masks[row].astype(np.int64),
                old_log_probs=logprobs[row].astype(np.float32),
                advantage=float(advantages[row]),
                model_version=int(versions[row][masks[row] != 0].min()),
                group_id=-1 - int(batch.groups[row]),
                metrics=metrics,
            )
        )
    return out
