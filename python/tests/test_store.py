"""RolloutStore, and what it tells of the loop that uses it."""

import logging
import math
import os
import pathlib
import re
import subprocess
import sys
import uuid
from typing import Any

import pytest
from conftest import ROOT, Server

import reprise

torch = pytest.importorskip("torch", reason="torch is not installed: make test-loops installs it")

from reprise.advice import Meter  # noqa: E402
from reprise.stats import Stats  # noqa: E402
from reprise.torch import Objective, RolloutStore, inputs, loss, restrict  # noqa: E402

GROUP, BATCH = 8, 64


class Clock:
    """Time that passes when a test says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Bandit:
    """A policy of one token, and a loop with a store. Rewards are of the token, or of nothing."""

    def __init__(self, client: reprise.Client, tokens: int, reward: Any, **options: Any) -> None:
        self.logits = torch.zeros(tokens, requires_grad=True)
        self.rng, self.reward, self.clock = torch.Generator().manual_seed(1), reward, Clock()
        table = client.create(f"t{uuid.uuid4().hex}", capacity=BATCH, sampler="fifo", group_size=GROUP)
        self.store = RolloutStore(table, batch=BATCH, parameters=[self.logits], clock=self.clock, **options)

    def logprobs(self, tokens: Any) -> Any:
        """Return log-probs [B, 2]: of a prompt's token, 0, and of the answer."""
        taken = self.logits.log_softmax(0)[tokens[:, 1:]]
        return torch.cat([torch.zeros_like(taken), taken], 1)

    def insert(self, prompts: Any = None) -> None:
        policy = self.logits.detach().softmax(0)
        answers = torch.multinomial(policy, BATCH, replacement=True, generator=self.rng)[:, None]
        tokens = torch.cat([torch.zeros_like(answers), answers], 1)
        named = {} if prompts is None else {"prompt_id": prompts}
        self.store.insert(tokens=tokens, prompt_lengths=1, logprobs=self.logprobs(tokens).detach(),
                          reward=self.reward(answers[:, 0], self.rng), **named)  # fmt: skip

    def update(self, generate: float, learn: float, parts: int = 4, prompts: Any = None) -> None:
        """Generate, which takes so many seconds for each rollout, and learn."""
        self.clock.now += generate * BATCH
        self.insert(prompts)
        drawn = self.store.draw()
        self.logits.grad = None
        for part in drawn.split(BATCH // parts):
            part.loss(self.logprobs(part.padded.tokens)).loss.backward()
        with torch.no_grad():
            self.logits -= 1e-3 * self.logits.grad
        self.clock.now += learn * BATCH
        self.store.report(drawn)


def low(answers: Any, rng: Any) -> Any:
    """Every rollout says the same of the policy: half of the tokens are right."""
    return (answers < 2).float() + 0.001 * (answers % 2)


def noise(answers: Any, rng: Any) -> Any:
    """No rollout says anything of the policy."""
    return torch.rand(len(answers), generator=rng)


@pytest.fixture
def program(binary: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPRISE", str(binary))


def test_parts_of_a_batch_add_up_to_the_loss_of_the_whole_and_are_reported(client: reprise.Client) -> None:
    bandit = Bandit(client, 4, noise, advice=False)
    bandit.insert()
    drawn = bandit.store.draw()
    whole = loss(bandit.logprobs(drawn.padded.tokens), **inputs(drawn.padded))
    whole.loss.backward()
    want, bandit.logits.grad = bandit.logits.grad, None
    total = 0.0
    for part in drawn.split(24):  # 24, 24 and 16
        out = part.loss(bandit.logprobs(part.padded.tokens))
        out.loss.backward()
        total += out.loss.item()
    assert total == pytest.approx(whole.loss.item(), abs=1e-6)
    torch.testing.assert_close(bandit.logits.grad, want)
    assert drawn.metrics["tokens"] == BATCH and drawn.metrics["ess"] == pytest.approx(1)
    bandit.store.report(drawn)
    drawn.inputs["advantages"] = torch.arange(BATCH)
    assert [part.inputs["advantages"][0].item() for part in drawn.split(24)] == [0, 24, 48]
    stats = bandit.store.table.stats()
    assert bandit.store.version == stats.version == 1 and stats.acknowledged == BATCH
    assert [each.first for each in stats.ess_by_age] == [0] and stats.ess_by_age[0].tokens > 0.9 * BATCH, "they fade"


def test_parts_are_as_wide_as_their_longest_rollout_and_keep_its_sampling_mask(client: reprise.Client) -> None:
    table = client.create(f"t{uuid.uuid4().hex}", capacity=8, sampler="fifo")
    store = RolloutStore(table, batch=4)
    for length in (1, 2, 5, 3):
        kept = [[], *[[7, 8 + length]] * length]
        store.insert(tokens=[[1, *[7] * length]], prompt_lengths=1, logprobs=[[0.0, *[-0.5] * length]],
                     sampling_mask=[kept], reward=1.0)  # fmt: skip
    assert store.meter.figures()["groups"] == 0, "of one rollout nobody says that it has no signal"
    drawn = store.draw()
    parts = list(drawn.split(2))
    assert [list(part.padded.tokens.shape) for part in parts] == [[2, 3], [2, 6]]
    logits = torch.zeros(2, 6, 16)
    allowed = restrict(logits, parts[1].padded).isfinite()[:, 0]
    assert [row.nonzero().flatten().tolist() for row in allowed] == [[7, 13], [7, 11]]
    assert parts[0].inputs["behaviour"].shape == (2, 3) and len(parts[0].batch) == 2


def test_the_gradients_noise_is_measured_between_a_part_and_the_whole(client: reprise.Client) -> None:
    bandit = Bandit(client, 4, noise)
    bandit.insert()
    drawn = bandit.store.draw()
    want = []
    for part in (next(drawn.split(16)), drawn):
        loss(bandit.logprobs(part.padded.tokens), **part.inputs).loss.backward()
        want.append(bandit.logits.grad.square().sum().item())
        bandit.logits.grad = None
    for part in drawn.split(16):
        part.loss(bandit.logprobs(part.padded.tokens)).loss.backward()
    figures = bandit.store.meter.figures()["gradients"]
    assert (figures["part"], figures["whole"]) == (16, BATCH)
    assert figures["squares"] == [pytest.approx(want, rel=1e-4)]


def test_a_report_without_the_losses_of_all_rollouts_is_refused(client: reprise.Client) -> None:
    bandit = Bandit(client, 4, low)
    bandit.insert()
    drawn = bandit.store.draw()
    with pytest.raises(reprise.Invalid, match="no loss was taken"):
        bandit.store.report(drawn)
    part = next(drawn.split(16))
    part.loss(bandit.logprobs(part.padded.tokens))
    with pytest.raises(reprise.Invalid, match="parts of its 64 rollouts"):
        bandit.store.report(drawn)
    with pytest.raises(reprise.Invalid, match="rows: 0: want 1"):
        next(drawn.split(0))


def test_a_loop_that_begins_again_takes_the_table_back(client: reprise.Client) -> None:
    bandit = Bandit(client, 4, low)
    bandit.update(1, 1)
    bandit.update(1, 1)
    bandit.insert()
    assert bandit.store.present() == bandit.store.unseen == BATCH
    again = RolloutStore(bandit.store.table, batch=BATCH, version=1)
    assert again.version == again.table.info().version == 1 and again.present() == 0, "the rollouts are of version 2"
    assert bandit.store.follow(1) == 0 and bandit.store.unseen == 0
    assert bandit.store.follow(3) == 0 and again.table.info().version == 3


def test_a_method_by_its_name_sets_the_table_the_loss_and_what_is_fresh(server: Server) -> None:
    name = f"t{uuid.uuid4().hex}"
    with RolloutStore.open(server.address, name, batch=48, method="advantage-replay") as store:
        keys = store.table.info().definition
        assert (keys["capacity"], keys["sampler"], keys["max_staleness"]) == (768, "prioritized", 32)
        assert store.fresh == 0.5 and store.objective == Objective("grpo")
    with RolloutStore.open(server.address, f"{name}e", batch=48, method="er", fresh=0.25) as store:
        assert store.objective == Objective("asymre", shift=-0.1) and store.fresh == 0.25
    with RolloutStore.open(server.address, f"{name}p", batch=48, sampler="uniform") as store:
        assert store.table.info().definition["capacity"] == 96 and store.fresh == 0
    with pytest.raises(reprise.Invalid, match="'remix' has reference_every, reference_swaps beside a loss"):
        RolloutStore.open(server.address, f"{name}r", batch=48, method="remix")
    with pytest.raises(reprise.Invalid, match="method: 'erlp': want one of"):
        RolloutStore.open(server.address, f"{name}x", batch=48, method="erlp")
    with pytest.raises(reprise.Invalid, match="fresh: 2: want a share"):
        RolloutStore.open(server.address, f"{name}f", batch=48, fresh=2)


def test_of_a_draw_the_share_fresh_was_never_drawn_as_fresh(client: reprise.Client) -> None:
    table = client.create(f"t{uuid.uuid4().hex}", capacity=2 * BATCH, sampler="distinct", group_size=GROUP)
    store = RolloutStore(table, batch=BATCH, fresh=0.5)
    drawn: list[int] = []  # as fresh
    for update, size in enumerate((32, BATCH, BATCH)):
        store.follow(update)
        rewards = [float(row % 2) for row in range(32)]
        store.insert([reprise.rollout("p", [1], [2], logprobs=[-1.0], version=update, reward=r) for r in rewards])
        batch = store.draw(size).batch
        assert batch.column("fresh").sum() == size / 2
        drawn += batch.ids[batch.column("fresh").astype(bool)].tolist()
    rest = store.draw_present(BATCH, BATCH)
    assert len(rest) == BATCH and rest.column("fresh").sum() == 96 - len(drawn) == 16, "fewer than were asked for"
    drawn += rest.ids[rest.column("fresh").astype(bool)].tolist()
    assert len(set(drawn)) == 96 and store.unseen == 0


def test_opposite_loops_get_the_opposite_advice(
    client: reprise.Client, program: None, caplog: pytest.LogCaptureFixture
) -> None:
    costly, cheap = Bandit(client, 4, low), Bandit(client, 64, noise)
    with caplog.at_level(logging.WARNING, "reprise"):
        for _ in range(20):
            costly.update(generate=5, learn=1)
        for _ in range(20):
            cheap.update(generate=0.4, learn=1)
    said = [record.getMessage() for record in caplog.records if "advice" in record.getMessage()]
    assert len(said) == 2, "one line each"
    assert "after 20 batches of 64 rollouts: reuse pays: " in said[0] and "takes 5 times as long" in said[0]
    assert "after 20 batches of 64 rollouts: reuse does not pay: " in said[1] and "takes 0.4 times as long" in said[1]
    assert "a smaller batch pays: 16 rollouts" in said[0] and "cannot tell whether a larger batch pays: 128" in said[1]
    first, second = costly.store.advice(), cheap.store.advice()
    assert [str(first), str(second)] == [line.removeprefix("advice ") for line in said]
    assert first.verdicts["reuse"]["most"] <= 0.9 and second.verdicts["reuse"]["least"] >= 1
    assert second.figures["gradients"]["part"] == 16 and len(second.figures["gradients"]["squares"]) == 20
    assert first.figures["groups"] == 160 and first.figures["ess"][0]["ess"] == pytest.approx(1, abs=0.01)


def test_rare_right_answers_to_prompts_that_come_back_are_worth_a_table(client: reprise.Client, program: None) -> None:
    prompts = [f"p{row // GROUP}" for row in range(BATCH)]
    bandit = Bandit(client, 64, lambda answers, rng: (answers == 0).float())
    for _ in range(20):
        bandit.update(5, 1, prompts=prompts)
    advice = bandit.store.advice()
    assert advice.figures["asked"] == 20 and 0 < advice.figures["right"] < 0.1
    assert advice.verdicts["table"]["answer"] == "pays" and "come back 20 times" in advice.line


def test_groups_whose_rewards_come_later_are_left_out_of_the_advice() -> None:
    meter = Meter(8, 2, Stats)
    for rewards in ([1.0, 0.0, 0.0, math.nan], [0.0, 0.0, math.nan, math.nan]):
        meter.inserted(rewards, [7, 7, 9, 9])
    figures = meter.figures()
    assert (figures["groups"], figures["flat_groups"], figures["right"]) == (2, 1, 0.25)


def test_what_the_figures_do_not_decide_is_said(
    client: reprise.Client, program: None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    bandit = Bandit(client, 4, low)
    assert str(bandit.store.advice()) == "cannot tell: no batch was measured"
    bandit.update(5, 1, parts=1)
    advice = bandit.store.advice()
    assert "cannot tell whether reuse pays" in advice.line and "two or more micro-batches" in advice.line
    monkeypatch.setenv("REPRISE", "/nowhere")
    assert "cannot tell: the program that computes it is missing: REPRISE: /nowhere" in str(bandit.store.advice())
    silent = Bandit(client, 4, low, advice=False)
    with caplog.at_level(logging.WARNING, "reprise"):
        for _ in range(21):
            silent.update(5, 1)
    assert str(silent.store.advice()) == "cannot tell: advice is switched off"
    assert not [record for record in caplog.records if "advice" in record.getMessage()]


RANKS = ("-m", "torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1", "--nproc-per-node=2")


def run(binary: pathlib.Path, example: str, *arguments: str, launcher: tuple[str, ...] = ()) -> tuple[str, str]:
    """Run an example, or the program at a path, and return what it printed and logged."""
    paths = [str(ROOT / "python" / "src"), os.environ.get("PYTHONPATH", "")]
    ran = subprocess.run(
        [sys.executable, *launcher, str(ROOT / "python" / "examples" / example), *arguments],
        capture_output=True, text=True, timeout=1200,
        env={**os.environ, "REPRISE": str(binary), "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    return ran.stdout, ran.stderr


def learned(printed: str) -> float:
    found = re.search(r"held-out accuracy: ([\d.]+) before, ([\d.]+) after", printed)
    assert found, printed
    return float(found[2]) - float(found[1])


WEIGHTS = '''
import reprise, torch, torch.distributed as dist
from reprise.torch import RolloutStore
dist.init_process_group("gloo")
with RolloutStore.open(batch=32, fresh=0.5, sampler="prioritized", priority_base="reward", importance_beta=1.0,
                       group_size=4, capacity=256, advice=False) as store:
    rewards = [1.0 + 9 * (row % 3 == 0) + 0.01 * row * (dist.get_rank() + 1) for row in range(32)]
    store.insert([reprise.rollout("p", [1], [2], logprobs=[-1.0], version=0, reward=r) for r in rewards], group_size=4)
    dist.barrier()
    drawn = store.draw()
    fresh, weights = torch.as_tensor(drawn.batch.column("fresh").astype(bool)), drawn.inputs["weights"]
    largest = weights[~fresh].max()
    dist.all_reduce(largest, dist.ReduceOp.MAX)
    ones = weights[fresh].tolist() == [1.0] * 8
    print(f"largest {largest.item():.6f} fresh {ones}\\n", end="", flush=True)  # at once: the ranks share the output
'''


@pytest.mark.examples
def test_weights_of_two_ranks_are_over_the_largest_of_both_and_1_where_fresh(
    binary: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    (tmp_path / "weights.py").write_text(WEIGHTS)
    assert run(binary, str(tmp_path / "weights.py"), launcher=RANKS)[0].count("largest 1.000000 fresh True") == 2


@pytest.mark.examples
@pytest.mark.parametrize("ranks", [1, 2])
def test_the_example_in_plain_pytorch_learns_to_add(binary: pathlib.Path, ranks: int) -> None:
    printed, logged = run(
        binary, "torch_grpo.py", "--largest", "9", "--warm-up", "50", "--updates", "60", "--learning-rate", "1e-3",
        launcher=RANKS if ranks > 1 else (),
    )  # fmt: skip
    assert learned(printed) > 0.1 and "staleness" in printed
    assert logged.count("advice after 20 batches of 256 rollouts: ") == 1, "of rank 0 alone"


@pytest.mark.examples
@pytest.mark.parametrize("framework", ["accelerate", "lightning"])
def test_the_example_in_a_framework_learns_to_add(binary: pathlib.Path, framework: str) -> None:
    pytest.importorskip(framework, reason=f"{framework} is not installed: make test-loops installs it")
    assert learned(run(binary, f"{framework}_grpo.py")[0]) > 0.1
