"""reprise.torch computes what the Go side computes: on the batches that its tests write, and on one of a service."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import pathlib
import shutil
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from conftest import ROOT, Server, rollouts, sampled

import reprise

try:
    import torch

    import reprise.torch as rt
except ImportError:  # the first test runs without it
    torch = None
needs_torch = pytest.mark.skipif(torch is None, reason="torch is not installed: pip install torch")


def test_without_torch_the_import_says_what_to_install() -> None:
    code = "import sys; sys.modules['torch'] = None; import reprise; import reprise.torch"
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT / "python" / "src", timeout=60
    )
    assert "ImportError: reprise.torch needs PyTorch: pip install torch" in ran.stderr


def go_test(package: str, run: str, *arguments: str) -> None:
    """Run a Go test, which writes files for this one."""
    if not shutil.which("go"):
        pytest.skip("go is not installed: it computes what torch is compared with")
    ran = subprocess.run(
        ["go", "test", "-count=1", package, "-run", run, "-args", *arguments],
        cwd=ROOT, env={"GOEXPERIMENT": "simd", **os.environ}, capture_output=True, text=True, timeout=1800,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """400 batches with the losses and gradients of gomlx in float64, and options that Go refuses."""
    file = tmp_path_factory.mktemp("golden") / "batches.json"
    go_test("./lab/objective", "TestGoldenBatches", f"-write-golden={file}")
    written: dict[str, Any] = json.loads(file.read_text())
    return written


class Golden:
    """A golden batch as tensors [R, T] and [R] of a dtype."""

    def __init__(self, golden: dict[str, Any], dtype: Any = None) -> None:
        self.want = golden
        self.objective = rt.Objective(**golden["options"])
        self.whole = {name: golden[name] for name in ("num_rollouts", "num_tokens", "second_moment")}
        self.tokens = {name: torch.tensor(x, dtype=dtype or torch.float64) for name, x in golden["tokens"].items()}
        unknown = torch.tensor(golden["expert"])[:, None] * torch.tensor(golden["tokens"]["mask"]) != 0
        self.tokens["behaviour"] = self.tokens["behaviour"].masked_fill(unknown, math.nan)
        self.rollouts = {name: torch.tensor(x, dtype=dtype or torch.float64) for name, x in golden["rollouts"].items()}

    def loss(self, tokens: dict[str, Any], **more: Any) -> tuple[Any, Any, Any]:
        """Return the output, and the gradients by the log-probs and by the values."""
        tokens = {name: x.clone() for name, x in tokens.items()}
        leaves = [tokens[name].requires_grad_() for name in ("logprobs", "values")]
        out = rt.loss(objective=self.objective, **tokens, **{**self.rollouts, **self.whole, **more})
        out.loss.backward()
        return out, leaves[0].grad, leaves[1].grad


def packed(padded: Any, keep: Any) -> Any:
    """The kept entries of a tensor [R, T] as [N]."""
    return padded[keep]


def close(got: Any, want: Any, relative: float = 1e-6) -> None:
    torch.testing.assert_close(
        torch.as_tensor(got, dtype=torch.float64), torch.as_tensor(want, dtype=torch.float64), rtol=relative, atol=1e-14
    )


@needs_torch
@pytest.mark.parametrize("layout", ["padded", "packed"])
def test_value_and_gradient_agree_with_go(golden: dict[str, Any], layout: str) -> None:
    assert len(golden["batches"]) == 400
    for number, written in enumerate(golden["batches"]):
        batch = Golden(written)
        # Packed rows have different lengths: they leave out some tokens that do not count, in some rows all.
        keep = (batch.tokens["mask"] != 0) | (torch.arange(batch.tokens["mask"].shape[1]) % 3 == number % 3)
        if layout == "packed":
            bounds = torch.cat([torch.zeros(1), keep.sum(1).cumsum(0)]).int()
            tokens = {name: packed(x, keep) for name, x in batch.tokens.items()}
            out, gradient, critic = batch.loss(tokens, cu_seqlens=bounds)
        else:
            keep = torch.ones_like(keep)
            out, gradient, critic = batch.loss(batch.tokens)
        close(out.loss, written["loss"])
        close(gradient, packed(torch.tensor(written["gradient"], dtype=torch.float64), keep).reshape(gradient.shape))
        if batch.objective.objective == "ppo":
            want = torch.tensor(written["values_gradient"], dtype=torch.float64)
            close(critic, packed(want, keep).reshape(critic.shape))
        assert out.metrics.keys() == written["metrics"].keys()
        for name, value in out.metrics.items():
            close(value, written["metrics"][name])
        for name, field in {"tokens": "Tokens", "ratio_sum": "RatioSum", "ratio_squares": "RatioSquares"}.items():
            close(out.rows[name], [row[field] for row in written["rows"]])


@needs_torch
def test_the_second_moment_of_a_batch_is_found(golden: dict[str, Any]) -> None:
    found = 0
    for written in golden["batches"]:
        batch = Golden(written)
        names = ("logprobs", "mask", "behaviour", "advantages")
        bound = rt.second_moment(**{name: batch.tokens[name].flatten() for name in names})
        out, gradient, _ = batch.loss(batch.tokens, second_moment=bound)
        close(out.loss, written["loss"])
        close(gradient, written["gradient"])
        given, found_itself = (
            batch.loss(batch.tokens, num_rollouts=None, num_tokens=None, second_moment=moment)
            for moment in (bound, None)
        )
        assert torch.equal(given[1], found_itself[1])
        if written["second_moment"] > 1e38:
            assert bound == math.inf
        else:
            close(bound, written["second_moment"])
            found += 1
    assert found > 50


@needs_torch
def test_equal_squares_go_together_and_as_few_as_needed() -> None:
    """m^2 of 1, 0.25, 0.25 and 0.01. Only the token of 0.01 leads back."""
    logprobs = torch.tensor([1.0, 0.5, -0.5, -0.1])
    advantages = torch.tensor([1.0, 1.0, -1.0, 1.0])

    def dropped(limit: float) -> list[bool]:
        given = {"mask": torch.ones(4), "behaviour": torch.zeros(4), "advantages": advantages}
        bound = rt.second_moment(logprobs, **given, limit=limit)
        c = rt.correct(logprobs, **given, correction=[{"kind": "m2po", "limit": limit}], second_moment=bound,
                       cu_seqlens=torch.tensor([0, 4]))  # fmt: skip
        assert c.dropped is not None
        hit: list[bool] = c.dropped.tolist()
        return hit

    assert dropped(0.4) == [False] * 4  # the mean is 0.3775
    assert dropped(0.18) == [True, False, False, False]  # without the first 0.17
    assert dropped(0.15) == [True, True, True, False]  # 0.13 without one of the two
    assert dropped(0.001) == [True, True, True, False]


@needs_torch
def test_defaults_are_those_of_a_configuration() -> None:
    kinds = ["truncate", "mask", "opsm", "m2po", "dppo"]
    objective = rt.Objective(proximal="recompute", correction=[{"kind": kind} for kind in kinds])
    defaults = {step.kind: (step.level, step.low, step.high, step.limit) for step in objective.correction}
    assert defaults == {
        "truncate": ("token", 0, 2, 0), "mask": ("token", 0.5, 5, 0), "opsm": ("", 0, 0, 0.1),
        "m2po": ("", 0, 0, 0.04), "dppo": ("", 0.2, 0.2, 0),
    }  # fmt: skip
    for given, bounds in (({"low": 0.5}, (0.5, math.inf)), ({"high": 3}, (0, 3))):
        step = rt.Objective(correction=[{"kind": "mask", **given}]).correction[0]
        assert (step.low, step.high) == bounds
    for name, options in {"asymre": {"correction": []}, "grpo": {"correction": [{"kind": "mask", "low": 0.5}]}}.items():
        objective = rt.Objective(name, **options)
        assert dataclasses.replace(objective) == objective  # written out, it says the same


@needs_torch
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_narrow_types_are_computed_in_float32_and_stay_finite(golden: dict[str, Any], dtype: str) -> None:
    for written in golden["batches"]:
        batch = Golden(written, getattr(torch, dtype))
        out, gradient, _ = batch.loss(batch.tokens)
        assert out.loss.dtype == torch.float32 and gradient.dtype == getattr(torch, dtype)
        assert all(math.isfinite(x) for x in out.metrics.values()) and gradient.isfinite().all()
        exact, _, _ = batch.loss({name: x.double() for name, x in batch.tokens.items()})
        torch.testing.assert_close(out.loss.double(), exact.loss, rtol=1e-3, atol=1e-6)


@needs_torch
def test_on_policy_no_correction_changes_a_bit(golden: dict[str, Any]) -> None:
    corrected = 0
    for written in golden["batches"]:
        batch = Golden(written, torch.float32)
        if written["options"].get("correction") or batch.objective.proximal != "behaviour":
            batch.tokens["behaviour"] = batch.tokens["anchor"] = batch.tokens["logprobs"]
            out, gradient, _ = batch.loss(batch.tokens)
            plain = {k: v for k, v in written["options"].items() if k not in ("correction", "proximal")}
            batch.objective = rt.Objective(**plain)
            want, want_gradient, _ = batch.loss(batch.tokens)
            assert out.loss == want.loss and torch.equal(gradient, want_gradient)
            assert not any(share for name, share in out.metrics.items() if name.startswith("corrected_"))
            corrected += 1
    assert corrected > 100


@needs_torch
def test_shards_add_up_to_the_batch(golden: dict[str, Any]) -> None:
    for written in golden["batches"]:
        batch = Golden(written)
        whole, gradient, _ = batch.loss(batch.tokens)
        cut = len(batch.rollouts["weights"]) // 2
        if batch.objective.objective == "trajectory_balance":
            cut -= cut % 2  # a prompt has two rollouts
        shards = []
        for part in (slice(0, cut), slice(cut, None)):
            more = {name: x[part] for name, x in batch.rollouts.items()}
            shards.append(batch.loss({name: x[part] for name, x in batch.tokens.items()}, **more))
        torch.testing.assert_close(shards[0][0].loss + shards[1][0].loss, whole.loss, rtol=1e-9, atol=1e-12)
        close(torch.cat([shards[0][1], shards[1][1]]), gradient)
        metrics = rt.combine(shards[0][0].sums, shards[1][0].sums)
        assert metrics.keys() == whole.metrics.keys()
        for name, value in metrics.items():
            assert value == pytest.approx(whole.metrics[name], rel=1e-9, abs=1e-12), name


def small(**more: Any) -> dict[str, Any]:
    """Two rollouts of three tokens, of which three tokens count."""
    return {
        "logprobs": torch.tensor([[0.0, -0.5, -1.0], [0.0, -0.25, 0.0]], requires_grad=True),
        "mask": torch.tensor([[False, True, True], [False, True, False]]),
        "behaviour": torch.tensor([[0.0, -0.5, -1.25], [0.0, -1.25, 0.0]]),
        "advantages": torch.tensor([1.0, -2.0]),
        **more,
    }


@needs_torch
def test_denominators_are_of_what_counts_unless_they_are_given() -> None:
    up, down = math.exp(0.25), -2 * math.e  # r of the second token is clipped at 1.2; nothing bounds that of the third
    assert up > 1.2
    loss = rt.loss(**small()).loss
    assert loss.item() == pytest.approx(-((1 + 1.2) / 2 + down) / 2)
    assert rt.loss(**small(num_rollouts=8)).loss.item() == pytest.approx(loss.item() / 4)
    token = rt.Objective(normalisation="token")
    assert rt.loss(objective=token, **small()).loss.item() == pytest.approx(-(1 + 1.2 + down) / 3)
    assert rt.loss(objective=token, **small(num_tokens=torch.tensor(6))).loss.item() == pytest.approx(
        -(1 + 1.2 + down) / 6
    )
    assert rt.loss(**small(weights=torch.tensor([1.0, 0.5]))).loss.item() == pytest.approx(-(2.2 / 2 + down / 2) / 2)
    first = small()
    first["mask"][1] = False  # the second rollout counts nowhere
    assert rt.loss(**first).loss.item() == pytest.approx(-(1 + 1.2) / 2)


@needs_torch
def test_what_the_mask_leaves_out_does_not_matter() -> None:
    want = rt.loss(**small())
    given = small()
    for name in ("logprobs", "behaviour"):
        given[name] = given[name].detach().masked_fill(~given["mask"], math.nan)
    given["logprobs"].requires_grad_()
    out = rt.loss(**given, entropy=given["logprobs"])
    out.loss.backward()
    assert out.loss == want.loss and (given["logprobs"].grad[~given["mask"]] == 0).all()
    nothing = small(mask=torch.zeros(2, 3))
    out = rt.loss(**nothing)
    out.loss.backward()
    assert out.metrics == {"loss": 0, "tokens": 0} and not nothing["logprobs"].grad.any()


@needs_torch
def test_only_the_logprobs_get_a_gradient() -> None:
    given = small(anchor=torch.full([2, 3], -0.5))
    for name in ("behaviour", "advantages", "anchor"):
        given[name].requires_grad_()
    objective = rt.Objective(proximal="recompute", correction=[{"kind": "truncate"}, {"kind": "opsm"}])
    rt.loss(objective=objective, **given).loss.backward()
    assert given["logprobs"].grad is not None
    assert given["behaviour"].grad is None and given["advantages"].grad is None and given["anchor"].grad is None


@needs_torch
def test_corrections_serve_a_loss_of_ones_own() -> None:
    given = small(anchor=torch.tensor([[0.0, -0.5, -0.25], [0.0, -1.25, 0.0]]))  # k: 1 and e, 1
    correction = [{"kind": "truncate", "high": 2.0}, {"kind": "opsm", "limit": 0.5}, {"kind": "mask", "high": 3.0}]
    c = rt.correct(proximal="recompute", correction=correction, **given)
    assert c.factor is not None and c.dropped is not None
    assert c.factor[given["mask"]].tolist() == [1, 2, 1] and not c.dropped.any()
    assert {name: hit[given["mask"]].tolist() for name, hit in c.touched.items()} == {
        "truncate": [False, True, False], "opsm": [False] * 3, "mask_token": [False] * 3,
    }  # fmt: skip
    torch.testing.assert_close(c.of(c.log_ratio), c.factor * c.log_ratio)
    worse = {**given, "logprobs": given["logprobs"] - 3}  # the second rollout has A < 0 and became less likely
    c = rt.correct(proximal="recompute", correction=correction, **worse)
    assert c.dropped is not None and c.dropped.tolist() == [[False] * 3, [False, True, False]]
    assert not c.of(torch.full([2, 3], math.nan))[1, 1].any()


@needs_torch
def test_options_that_go_refuses_are_refused_alike(golden: dict[str, Any]) -> None:
    def problems(text: str) -> list[str]:
        return sorted(line.split(": want ")[0].lower() for line in text.splitlines())

    assert len(golden["refused"]) == 24
    for refused in golden["refused"]:
        with pytest.raises(reprise.Invalid) as caught:
            rt.Objective(**refused["options"])
        assert problems(str(caught.value)) == problems(refused["problems"])


@needs_torch
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: rt.Objective("grpo", shift=0.5), "shift: 0.5: want nothing: objective grpo does not read it"),
        (lambda: rt.Objective("asymre", correction=[{"kind": "m2po"}]), "objective asymre does not read it"),
        (lambda: rt.Objective(correction=[{"kind": "mask", "hi": 3}]), "correction[0].hi: 3: want another key: kind, "),
        (lambda: rt.Objective(correction=[{"kind": "m2po", "limit": math.nan}]), "correction[0].limit: nan: want a"),
        (lambda: rt.Objective(clip_low="low"), "clip_low: low: want above 0 to 1"),
        (lambda: rt.loss(**small(behaviour=None)), "behaviour: None: want a tensor of shape [2, 3]: objective grpo re"),
        (lambda: rt.loss(objective=rt.Objective(proximal="recompute"), **small()), "anchor: None: want a tensor of sh"),
        (lambda: rt.loss(objective="ppo", **small()), "values: None: want a tensor"),
        (lambda: rt.loss(**{**small(), "behaviour": torch.tensor([[0.0, -1.0, -1.0], [0.0, math.nan, 0.0]])}),
         "behaviour: NaN for rollouts [1]: want numbers: objective grpo reads them; leave such rollouts out"),
        (lambda: rt.correct(**{**small(), "behaviour": torch.tensor([[0.0, -1.0, math.nan], [0.0, -1.0, 0.0]])}),
         "behaviour: NaN for rollouts [0]: want numbers: correct reads them; leave such rollouts out"),
        (lambda: rt.loss(objective="trajectory_balance", reference=torch.ones(2, 3), rewards=torch.ones(2), **small()),
         "groups: None: want a tensor of shape [2]: objective trajectory_balance reads it"),
        (lambda: rt.loss(objective="asymre", **small()), "rewards: None: want a tensor of shape [2]"),
        (lambda: rt.loss(**small(mask=torch.ones(3))), "mask: shape [3]: want [2, 3], as logprobs has [2, 3]"),
        (lambda: rt.loss(**small(advantages=torch.ones(3))), "advantages: shape [3]: want [2] or one for each r"),
        (lambda: rt.loss(**small(weights=torch.ones(2, 3))), "weights: shape [2, 3]: want [2]"),
        (lambda: rt.loss(**small(logprobs=torch.ones(2, 3).long())), "logprobs: torch.int64: want a float type"),
        (lambda: rt.loss(torch.ones(4), mask=torch.ones(4)), "logprobs: shape [4]: want [B, T], or [N] with cu_seqle"),
        (lambda: rt.loss(**small(cu_seqlens=torch.tensor([0, 3]))), "logprobs: shape [2, 3]: want [N] with cu_seqlens"),
        (lambda: m2po(num_tokens=6), "second_moment: None: want reprise.torch.second_moment of the whole batch with n"),
        (lambda: m2po(num_rollouts=2, num_tokens=6), "the whole batch with num_rollouts and num_tokens: m2po drops"),
        (lambda: rt.restrict(torch.ones(4, 9), cut().padded().torch()), "logits: shape [4, 9]: want [3, 5, V] or [3,"),
        (lambda: rt.restrict(torch.ones(11, 9), cut().packed().torch()), "logits: shape [11, 9]: want [12, V], as"),
        (lambda: rt.restrict(torch.ones(12, 6), cut().packed().torch()), "logits: a vocabulary of 6: want that of t"),
        (lambda: bounds([0, 5]), "want the start of each rollout, from 0 in ascending order, and the end, at most 4"),
        (lambda: bounds([0, 3, 2]), "cu_seqlens: tensor([0, 3, 2]): want the start"),
        (lambda: bounds([0, 3]), "cu_seqlens: ends at 3: want no token in the mask behind the last rollout"),
        (lambda: rt.second_moment(torch.ones(3), mask=torch.ones(3), behaviour=torch.ones(2), advantages=torch.ones(3),
                                  limit=-1), "limit: -1: want a finite number above 0\nbehaviour: shape [2]: want [3]"),
    ],
)  # fmt: skip
def test_mistakes_are_named(call: Callable[[], object], message: str) -> None:
    with pytest.raises(reprise.Invalid) as caught:
        call()
    assert message in str(caught.value)


@needs_torch
def test_a_loss_does_not_look_at_numbers_which_a_gpu_would_wait_for() -> None:
    """A look at a tensor of device meta, which has no numbers, is an error; in a full graph of torch.compile too."""
    for o in (rt.Objective(), rt.Objective("cispo"), rt.Objective("grpo_off"), rt.Objective(experts="phi")):
        given = small()
        elsewhere = {name: x.to("meta") for name, x in given.items()}
        assert rt.loss(objective=o, **elsewhere).loss.is_meta and rt.correct(**elsewhere).log_ratio.is_meta
        compiled = torch.compile(lambda o, given: rt.loss(objective=o, **given).loss, backend="eager", fullgraph=True)
        assert compiled(o, given) == rt.loss(objective=o, **given).loss
        unknown = {**given, "behaviour": given["behaviour"].masked_fill(given["mask"], math.nan)}
        assert compiled(o, unknown).isnan() == (not o.experts)


def bounds(of: list[int]) -> None:
    rt.loss(torch.ones(4), mask=torch.ones(4), cu_seqlens=torch.tensor(of))


def m2po(**more: Any) -> None:
    rt.loss(objective=rt.Objective(correction=[{"kind": "m2po"}]), **small(**more))


LISTS: list[Any] = [[[], [], [6], []], None, [[3], [], [0, 1, 2, 3, 4, 5, 6], [], [1, 4]]]


def cut() -> reprise.Batch:
    """Rollouts of 4, 3 and 5 tokens of a vocabulary of 7. The second has no sampling mask, others lack some ids."""
    columns = rollouts([4, 3, 5])
    columns["tokens"] = [[5, 0, 6, 2], [1, 1, 3], [3, 3, 0, 2, 4]]
    return sampled(columns, sampling_mask=pa.array(LISTS, pa.list_(pa.list_(pa.int32()))))


@needs_torch
@pytest.mark.parametrize("layout", ["right", "left", "without last", "packed", "packed, padded"])
def test_log_probs_are_over_the_ids_that_the_engine_kept(layout: str) -> None:
    """As in policy/score.go: the softmax of a token is over its ids, or without any over the whole vocabulary."""
    batch, vocabulary, last = cut(), 7, 0
    if layout.startswith("packed"):
        arrays: Any = batch.packed(multiple_of=16 if "padded" in layout else 1).torch()
        places = [[(int(start) + t,) for t in range(n)] for start, n in zip(arrays.cu_seqlens, batch.lengths)]
    else:
        arrays = batch.padded(side="left" if layout == "left" else "right", multiple_of=6).torch()
        places = [[tuple(at.tolist()) for at in row.nonzero()] for row in arrays.attention_mask]
        places = [[(i, *at) for at in row] for i, row in enumerate(places)]
        last = int(layout == "without last")
    torch.manual_seed(4)
    shape = arrays.tokens.shape[:-1] + (arrays.tokens.shape[-1] - last, vocabulary)
    logits = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    restricted = rt.restrict(logits, arrays)
    assert restricted.dtype == torch.float64 and restricted.shape == logits.shape
    tokens = [row.tolist() for row in batch.ragged("tokens")]
    got, want = [], []
    kept = torch.ones(shape, dtype=torch.bool)
    for row, lists in enumerate(LISTS):
        for t in range(1, len(tokens[row])):
            before, token = places[row][t - 1], tokens[row][t]
            ids = lists and lists[t] or list(range(vocabulary))
            got.append(restricted[before].log_softmax(-1)[token])
            want.append(logits[before][ids].log_softmax(-1)[ids.index(token)])
            kept[before] = torch.zeros(vocabulary).index_fill(0, torch.tensor(ids), 1).bool()
    assert len(got) == 9 and (~kept).sum() == 6 + 5  # those of [6] and [1, 4]; the first token's [3] limits nothing
    close(torch.stack(got), torch.stack(want).tolist())
    assert torch.equal(restricted.isfinite(), kept) and torch.equal(restricted[kept], logits[kept])
    gradient, whole = (torch.autograd.grad(sum(x), logits)[0] for x in (got, want))
    torch.testing.assert_close(gradient, whole)
    assert not gradient[~kept].any() and gradient[kept].any()


@needs_torch
def test_without_a_sampling_mask_logits_stay_as_they_are() -> None:
    logits = torch.randn(1, 4, 7)
    assert rt.restrict(logits, sampled(rollouts([4])).padded().torch()) is logits
    empty = sampled(rollouts([4]), sampling_mask=pa.array([[[]] * 4], pa.list_(pa.list_(pa.int32()))))
    assert torch.equal(rt.restrict(logits, empty.padded().torch()), logits)
    cut_off = sampled(rollouts([4]), sampling_mask=pa.array([[[], [], [3], [4]]], pa.list_(pa.list_(pa.int32()))))
    narrow = rt.restrict(logits.bfloat16(), cut_off.padded().torch())
    assert narrow.dtype == torch.bfloat16 and narrow.isfinite().sum() == 4 * 7 - 2 * 6


@needs_torch
def test_inputs_have_all_that_asymre_reads() -> None:
    batch = sampled(rollouts([4, 3]), group_mean=pa.array([0.25, -1.0], pa.float32()))
    weight, gain = batch.weights, np.array([0 - 0.25 + 0.1, 1 + 1 + 0.1])  # reward - (group mean - 0.1)
    for arrays in (batch.padded().torch(), batch.packed().torch()):
        given = rt.inputs(arrays)
        out = rt.loss(given["behaviour"], "asymre", **given)
        sums = [part.sum() for part in batch.ragged("logprobs")]
        assert out.loss.item() == pytest.approx(-(weight * gain * sums).sum() / 2)
    assert sampled(rollouts([4])).padded().group_means is None  # not among the sampled columns


@needs_torch
def test_padded_and_packed_batches_of_a_client_have_the_same_loss() -> None:
    batch = sampled(rollouts([5, 9, 3, 7]))
    losses = []
    layouts = (batch.padded(multiple_of=4), batch.padded(side="left"), batch.packed(), batch.packed(multiple_of=32))
    for arrays in layouts:
        given = rt.inputs(arrays.torch())
        logprobs = (given["behaviour"].double() * 1.5).requires_grad_()
        out = rt.loss(logprobs, **given)
        out.loss.backward()
        losses.append((out.loss, logprobs.grad[arrays.torch().loss_mask], *out.rows.values()))
    for other in losses[1:]:
        for got, want in zip(other, losses[0]):
            torch.testing.assert_close(got, want)


@needs_torch
def test_inputs_pool_by_prompt_and_age_by_token() -> None:
    columns = rollouts([4, 3, 5, 3])
    columns["prompt_id"] = ["b", "a", "b", "c"]  # the groups are 0, 0, 1 and 1
    columns["versions"] = [[-1, -1, 5, 5], [-1, -1, 4], [-1, -1, 5, 3, 4], [-1, -1, -1]]
    columns["mask"][3] = [0, 0, 0]
    batch = sampled(columns)  # at version 5: the oldest tokens of rows 0 to 2 are 0 to 2 versions old
    want = [[0, 0, 0, 0], [0, 0, 1], [0, 0, 0, 2, 1], [0, 0, 0]]
    padded = (batch.padded(), batch.padded(side="left", multiple_of=8))
    for arrays in (*padded, batch.packed(), batch.packed(multiple_of=8)):
        given = rt.inputs(arrays.torch())
        assert given["groups"].tolist() == [0, 1, 0, 2]
        keep = arrays.attention_mask if isinstance(arrays, reprise.Padded) else arrays.sequence_ids < 4
        assert given["staleness"].numpy()[keep].tolist() == [x for row in want for x in row]
        assert not given["staleness"].numpy()[~keep].any()
    narrow = batch.padded().torch()
    assert rt.inputs(dataclasses.replace(narrow, prompts=None))["groups"] is narrow.groups
    every = torch.full_like(narrow.versions, -1)  # versions are not among the sampled columns
    ages = rt.inputs(dataclasses.replace(narrow, versions=every))["staleness"]
    assert ages[narrow.loss_mask].tolist() == [0, 0, 1, 2, 2, 2]


CONFIGURATIONS: list[dict[str, Any]] = [
    {"objective": "grpo"},
    {"objective": "grpo", "ratio": "sequence", "proximal": "recompute", "correction": [
        {"kind": "truncate", "level": "sequence", "high": 1.05}, {"kind": "opsm", "limit": 0.01},
        {"kind": "dppo", "high": 0.02}]},
    {"objective": "grpo", "correction": [{"kind": "m2po", "limit": 0.02}, {"kind": "mask", "low": 0.8, "high": 1.25}]},
    {"objective": "cispo", "proximal": "recompute", "correction": [{"kind": "truncate", "high": 1.1}]},
    {"objective": "grpo_off", "r_prime": "exact", "kl_coef": 0.1, "kl_weighted": True},
    {"objective": "dr_grpo", "constant_length": 12},
    {"objective": "asymre", "shift": -0.2},
    {"objective": "oapl", "beta": 0.1},
]  # fmt: skip


@needs_torch
def test_a_batch_of_a_service_has_the_same_loss_in_torch_as_in_go(
    server: Server, table: Callable[..., reprise.Table], tmp_path: pathlib.Path
) -> None:
    """Python inserts and draws a batch. Go's client gets the same batch from the service by its request id. The
    policies are bigrams in float64: Go is told their log-probs of each rollout and reads all else from its batch."""
    vocabulary, size, rng = 11, 24, np.random.default_rng(3)
    to = table(capacity=64, sampler="prioritized", group_size=2)
    lengths = rng.integers(4, 13, 32).tolist()
    columns = rollouts(lengths, seed=3)
    columns["tokens"] = [rng.integers(0, vocabulary, length).tolist() for length in lengths]
    columns["reward"] = rng.normal(size=32).round(3).tolist()

    def scores(logits: Any, tokens: Any) -> Any:
        logprobs = torch.log_softmax(logits, -1)[tokens[:-1], tokens[1:]]
        return torch.cat([logprobs.new_zeros(1), logprobs])

    torch.manual_seed(3)
    logits = torch.randn(vocabulary, vocabulary, dtype=torch.float64)
    policies = {
        "behaviour": logits, "logprobs": logits + 0.3 * torch.randn_like(logits),
        "anchor": logits + 0.2 * torch.randn_like(logits), "reference": logits + 0.1 * torch.randn_like(logits),
    }  # fmt: skip
    columns["logprobs"] = [
        (scores(logits, torch.tensor(tokens)).float() * torch.tensor(mask)).tolist()
        for tokens, mask in zip(columns["tokens"], columns["mask"])
    ]
    to.insert(columns, group_size=2)

    batch = to.sample(size, request_id="golden")
    assert len(set(batch.weights.tolist())) > 3
    known = {}
    for number, tokens in zip(batch.ids.tolist(), batch.ragged("tokens")):
        rows = {name: scores(policies[name], torch.tensor(tokens).long()) for name in policies}
        known[number] = {name: rows[name].tolist() for name in ("logprobs", "anchor", "reference")}
    file = tmp_path / "batch.json"
    file.write_text(json.dumps({
        "service": server.address, "table": to.name, "request": "golden", "size": size, "rollouts": known,
        "configurations": [{"learner": options} for options in CONFIGURATIONS],
    }))  # fmt: skip
    go_test("./lab/run", "TestTheLossOfABatchThatPythonDrew", f"-sampled={file}")

    written = json.loads((tmp_path / "batch.json.losses").read_text())
    assert len(written) == len(CONFIGURATIONS)
    touched: set[str] = set()
    for options, want in zip(CONFIGURATIONS, written):
        padded, flat = batch.padded().torch(), batch.packed().torch()
        tensors = {name: torch.zeros(padded.tokens.shape, dtype=torch.float64) for name in policies}
        for row, number in enumerate(batch.ids.tolist()):
            for name in known[number]:
                tensors[name][row, : len(known[number][name])] = torch.tensor(known[number][name], dtype=torch.float64)
        for arrays in (padded, flat):
            given = rt.inputs(arrays)
            keep = padded.attention_mask
            for name in ("logprobs", "anchor", "reference"):
                given[name] = tensors[name].clone() if arrays is padded else tensors[name][keep]
            logprobs = given["logprobs"].requires_grad_()
            out = rt.loss(objective=rt.Objective(**options), **given)
            out.loss.backward()
            close(out.loss, want["Loss"])
            gradient = logprobs.grad[keep] if arrays is padded else logprobs.grad
            close(gradient, [x for row in want["Gradient"] for x in row])
            touched |= {name for name, share in out.metrics.items() if share and name.startswith("corrected_")}
    assert len(touched) == 10, touched  # truncate, opsm, dppo, m2po and mask_token, of tokens and of rollouts


def plain_regroup(prompts: list[int], rewards: list[float], ratios: list[float], kind: str) -> list[float]:
    """Advantages by their definition, one rollout after another."""
    out = []
    for i, prompt in enumerate(prompts):
        all_of = [k for k, other in enumerate(prompts) if other == prompt]
        others = [k for k in all_of if k != i]
        over = others if kind == "leave_one_out" else all_of
        weight = sum(ratios[k] for k in over)
        alike = len({rewards[k] for k in all_of}) == 1
        if weight == 0 or alike:
            out.append(0.0)
            continue
        mean = sum(ratios[k] * rewards[k] for k in over) / weight
        var = sum(ratios[k] * (rewards[k] - mean) ** 2 for k in over) / weight
        out.append((rewards[i] - mean) / (math.sqrt(var + 1e-8) if kind == "group" else 1))
    return out


@needs_torch
@pytest.mark.parametrize("kind", ["group", "no_std", "leave_one_out"])
@pytest.mark.parametrize("weighted", [False, True])
def test_regrouped_advantages_are_those_of_the_definition(kind: str, weighted: bool) -> None:
    print("seed 7")
    random = np.random.default_rng(7)
    for _ in range(200):
        n = int(random.integers(1, 12))
        prompts = random.integers(0, 4, n).tolist()
        rewards = random.choice([0.0, 0.1, 1.0], n).tolist()
        ratios = random.choice([0.0, 0.5, 1.0, 3.0], n).tolist() if weighted else [1.0] * n
        given = torch.tensor(ratios, dtype=torch.float64) if weighted else None
        got = rt.regroup(prompts, torch.tensor(rewards, dtype=torch.float64), ratios=given, kind=kind)
        assert got.tolist() == pytest.approx(plain_regroup(prompts, rewards, ratios, kind), abs=1e-9)


@needs_torch
def test_regroup_says_what_it_wants() -> None:
    rewards = torch.tensor([0.0, 1.0])
    for change, message in (
        ({"kind": "batch"}, "kind: 'batch': want group, no_std or leave_one_out"),
        ({"prompts": ["a"]}, r"rewards: shape \[2\]: want \[1\]"),
        ({"ratios": torch.ones(3)}, r"ratios: shape \[3\]: want \[2\]"),
        ({"ratios": torch.tensor([1.0, math.inf])}, "want finite numbers of at least 0"),
        ({"ratios": torch.tensor([1.0, -1.0])}, "want finite numbers of at least 0"),
    ):
        with pytest.raises(reprise.Invalid, match=message):
            rt.regroup(**{"prompts": ["a", "b"], "rewards": rewards, **change})
