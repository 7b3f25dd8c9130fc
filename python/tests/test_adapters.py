"""The layouts of TRL, verl and AReaL: there and back again."""

import contextlib
import sys
import types
import warnings

import numpy as np
import pytest
from conftest import rollouts, sampled

from reprise import Batch, Invalid, RepairWarning, record_batch, trl
from reprise.adapters import areal, verl

LENGTHS = [5, 9, 3, 7]
PER_TOKEN = ("tokens", "mask", "logprobs", "versions")


@pytest.fixture
def columns() -> dict[str, list]:
    made = rollouts(LENGTHS, version=4)
    # A tool's tokens in the midst of one completion.
    made["mask"][1][4:6] = [0, 0]
    made["logprobs"][1][4:6] = [0.0, 0.0]
    made["versions"][1][4:6] = [-1, -1]
    return made


@pytest.fixture
def batch(columns: dict[str, list]) -> Batch:
    return sampled(columns)


def same(
    inserted: dict[str, object], columns: dict[str, list], names: tuple[str, ...] = (*PER_TOKEN, "reward")
) -> None:
    arrow = record_batch(inserted)
    for name in names:
        assert arrow[name].to_pylist() == columns[name], name


def frameworks(use_torch: bool) -> list[bool]:
    if use_torch:
        pytest.importorskip("torch")
    return [use_torch]


@pytest.mark.parametrize("torch", [False, True])
def test_trl_there_and_back(batch: Batch, columns: dict[str, list], torch: bool) -> None:
    frameworks(torch)
    tensors = trl.tensors(batch, pad_token_id=99, weigh=False, torch=torch)
    back = trl.rollouts(tensors, rewards=columns["reward"], version=4, num_generations=2)
    same(back, columns)
    assert record_batch(back)["group"].to_pylist() == [0, 0, 1, 1]
    assert record_batch(back)["advantage"].to_pylist() == batch.column("advantage").tolist()


def test_trl_takes_prompts_from_the_left_and_completions_from_the_right(batch: Batch, columns: dict[str, list]) -> None:
    tensors = trl.tensors(batch, pad_token_id=99, max_prompt_length=4, pad_to_multiple_of=4)
    assert tensors["prompt_ids"].shape == (4, 4) and tensors["completion_ids"].shape == (4, 8)
    assert tensors["prompt_ids"][2].tolist() == [99, 99, *columns["tokens"][2][:2]]
    assert tensors["prompt_mask"][2].tolist() == [0, 0, 1, 1]
    assert tensors["completion_ids"][2].tolist() == [columns["tokens"][2][2], *[99] * 7]
    assert tensors["completion_mask"][2].tolist() == [1, *[0] * 7]
    assert tensors["tool_mask"][1].tolist() == [1, 1, 0, 0, 1, 1, 1, 1]
    assert tensors["num_items_in_batch"] == sum(sum(mask) for mask in columns["mask"])
    assert tensors["advantages"].tolist() == (batch.column("advantage") * batch.weights).tolist()


def test_trl_takes_advantages_per_token(batch: Batch, columns: dict[str, list]) -> None:
    outputs = trl.tensors(batch, pad_token_id=0)
    shape = outputs["completion_ids"].shape
    outputs["advantages"] = 1 + np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    inserted = record_batch(trl.rollouts(outputs, rewards=columns["reward"], version=4, num_generations=2))
    again = trl.tensors(sampled(columns, advantages=inserted["advantages"]), pad_token_id=0, weigh=False)
    policy = outputs["completion_mask"] * outputs["tool_mask"]
    assert (again["advantages"] == outputs["advantages"] * policy).all()


def test_trl_has_no_tool_mask_without_tools() -> None:
    assert "tool_mask" not in trl.tensors(sampled(rollouts(LENGTHS)), pad_token_id=0)


def test_trl_prefers_the_samplers_logprobs_and_says_where_there_are_none(batch: Batch) -> None:
    tensors = trl.tensors(batch, pad_token_id=0)
    given = {**tensors, "sampling_per_token_logps": tensors["old_per_token_logps"] - 1}
    row = record_batch(trl.rollouts(given, rewards=[0] * 4, version=0, num_generations=4))["logprobs"][0].as_py()
    assert row[2] == tensors["old_per_token_logps"][0, 0] - 1 and row[:2] == [0, 0]
    del tensors["old_per_token_logps"]
    with pytest.raises(Invalid, match="logprobs: missing.*trl.logprobs"):
        trl.rollouts(tensors, rewards=[0] * 4, version=0, num_generations=4)


class Library(types.ModuleType):
    """As much of torch as the adapters use, for machines without it."""

    no_grad = contextlib.nullcontext

    class Tensor(np.ndarray):
        def to(self, device: object) -> "Library.Tensor":
            return self

    @staticmethod
    def from_numpy(array: np.ndarray) -> np.ndarray:
        return array.view(Library.Tensor)

    @staticmethod
    def cat(parts: list[np.ndarray], dim: int) -> np.ndarray:
        return np.concatenate(parts, axis=dim)


def test_attack_trls_number_of_items_has_no_dimension(batch: Batch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", Library("torch"))
    assert trl.tensors(batch, pad_token_id=0, torch=True)["num_items_in_batch"].shape == ()


def test_attack_trls_loss_of_micro_batches_is_divided_by_all_of_their_tokens(batch: Batch) -> None:
    tokens = trl.tensors(batch, pad_token_id=0)["num_items_in_batch"]
    assert trl.tensors(batch, pad_token_id=0, micro_batches=8)["num_items_in_batch"] == 8 * tokens


def test_attack_trls_vllm_mode_finds_its_importance_sampling_ratio(batch: Batch) -> None:
    tensors = trl.tensors(batch, pad_token_id=0)
    assert (tensors["importance_sampling_ratio"] == np.ones(tensors["completion_ids"].shape)).all()


def test_attack_trls_recipe_computes_the_logprobs_that_trl_omits(
    batch: Batch, columns: dict[str, list], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch", Library("torch"))
    outputs = trl.tensors(batch, pad_token_id=99)
    computed = outputs.pop("old_per_token_logps")

    class Model:
        training = True

        def eval(self) -> None:
            self.training = False

        def train(self, mode: bool) -> None:
            self.training = mode

    class Trainer:
        model = Model()
        args = types.SimpleNamespace(per_device_train_batch_size=2)

        def _get_per_token_logps_and_entropies(self, model, ids, mask, logits_to_keep, batch_size):
            assert (model, logits_to_keep, batch_size) == (self.model, 7, 2)
            assert not model.training, "dropout is off"
            assert ids.shape == mask.shape == (4, 2 + 7)
            return computed, None, None

    found = trl.logprobs(Trainer(), outputs)
    assert Trainer.model.training
    same(trl.rollouts(outputs, rewards=columns["reward"], version=4, num_generations=2, logprobs=found), columns)


def repaired(outputs: dict, rewards: object = (0.0, 1.0, 0.0, 1.0), **options: object) -> tuple[dict, list[tuple]]:
    """Columns of TRL's outputs, and what the warnings say."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = trl.rollouts(outputs, rewards=np.array(rewards), version=4, num_generations=2, **options)
    assert all(issubclass(w.category, RepairWarning) for w in caught)
    return found, [(w.message.name, w.message.count) for w in caught]


def test_attack_one_bad_rollout_of_trl_does_not_refuse_the_others(batch: Batch, columns: dict[str, list]) -> None:
    def bad(**changes: object) -> dict:
        tensors = {name: value.copy() for name, value in trl.tensors(batch, pad_token_id=0, weigh=False).items()}
        for name, value in changes.items():
            tensors[name][2, ...] = value
        return tensors

    without = {name: [*value[:2], value[3]] for name, value in columns.items()}
    for changes, rewards, name in (
        ({"completion_mask": 0}, (0, 1, 0, 1), "mask"),
        ({"old_per_token_logps": np.nan}, (0, 1, 0, 1), "logprobs"),
        ({"old_per_token_logps": -np.inf}, (0, 1, 0, 1), "logprobs"),
        ({"advantages": np.nan}, (0, 1, 0, 1), "advantage"),
        ({}, (0, 1, np.nan, 1), "reward"),
    ):
        found, said = repaired(bad(**changes), rewards, prompt_ids=columns["prompt_id"], truncated=[True] * 4)
        assert said == [(name, 1)], changes
        same(found, without)
        arrow = record_batch(found)
        assert arrow["group"].to_pylist() == [0, 0, 1] and arrow["prompt_id"].to_pylist() == without["prompt_id"]
        found, said = repaired(bad(**changes), rewards, whole_groups=True)
        assert said == [(name, 1), ("group", 1)] and record_batch(found)["group"].to_pylist() == [0, 0]
    found, said = repaired({**bad(), "completion_mask": bad()["completion_mask"] * 0})
    assert said == [("mask", 4)] and len(found["lengths"]) == 0
    with pytest.raises(Invalid, match="rows: none"):
        record_batch(found)


def test_attack_a_logprob_that_rounding_put_above_0_is_0(batch: Batch) -> None:
    tensors = trl.tensors(batch, pad_token_id=0)
    tensors["old_per_token_logps"][0, :2] = 1e-8, -1
    found, said = repaired(tensors)
    assert said == [("logprobs", 1)]
    assert record_batch(found)["logprobs"][0].as_py()[2:4] == [0, -1]
    tensors["old_per_token_logps"][0, 0] = 0.3  # a probability
    with pytest.raises(Invalid, match="logprobs: row 0: 0.3.*natural logs of probabilities"):
        repaired(tensors)


def test_attack_what_vllm_could_not_score_has_the_trainers_logprob(batch: Batch) -> None:
    tensors = trl.tensors(batch, pad_token_id=0)
    sampling = tensors["old_per_token_logps"].copy()
    sampling[:, 0] = np.nan
    found, said = repaired({**tensors, "sampling_per_token_logps": sampling})
    assert said == [("sampling_per_token_logps", 4)] and np.isnan(sampling[:, 0]).all()
    assert record_batch(found)["logprobs"][0][2].as_py() == tensors["old_per_token_logps"][0, 0]


def test_attack_trls_groups_that_span_processes_are_merged(batch: Batch, columns: dict[str, list]) -> None:
    tensors = {name: value for name, value in trl.tensors(batch, pad_token_id=0, weigh=False).items() if value.ndim}
    parts = [
        trl.rollouts(
            {name: value[first:end] for name, value in tensors.items()}, rewards=columns["reward"][first:end],
            prompt_ids=columns["prompt_id"][first:end], version=4, num_generations=2, first_row=first,
        )
        for first, end in ((0, 1), (1, 4))
    ]  # fmt: skip
    merged = trl.merge(parts)
    same(merged, columns, (*PER_TOKEN, "reward", "prompt_id"))
    assert record_batch(merged)["group"].to_pylist() == [0, 0, 1, 1]
    with pytest.raises(Invalid, match="num_generations: 3: want a divisor of the 4 rows, or first_row"):
        trl.rollouts(tensors, rewards=[0] * 4, version=0, num_generations=3)


def test_attack_trls_images_are_refused_by_name(batch: Batch) -> None:
    tensors = {**trl.tensors(batch, pad_token_id=0), "image_grid_thw": None, "pixel_values": np.zeros((4, 3, 8, 8))}
    with pytest.raises(Invalid, match="pixel_values: images are not stored"):
        trl.rollouts(tensors, rewards=[0] * 4, version=0, num_generations=2)


@pytest.mark.parametrize("torch", [False, True])
def test_verl_there_and_back(batch: Batch, columns: dict[str, list], torch: bool) -> None:
    frameworks(torch)
    tensors, others = verl.tensors(batch, pad_token_id=99, torch=torch)
    back = verl.rollouts(tensors, others, keep_advantages=True)
    same(back, columns)
    arrow = record_batch(back)
    assert arrow["group"].to_pylist() == [0, 0, 1, 1] and arrow["prompt_id"].to_pylist() == ["0", "0", "1", "1"]
    assert np.concatenate(arrow["advantages"].to_pylist()).tolist() == batch.advantages.tolist()


def test_verl_reads_what_has_the_shape_of_a_data_proto(batch: Batch, columns: dict[str, list]) -> None:
    class DataProto:
        batch, non_tensor_batch = verl.tensors(sampled(columns), pad_token_id=0)

    same(verl.rollouts(DataProto()), columns)


def test_verl_puts_prompt_and_response_into_one_sequence(batch: Batch, columns: dict[str, list]) -> None:
    tensors, others = verl.tensors(batch, pad_token_id=99, max_prompt_length=3, max_response_length=8)
    assert tensors["input_ids"].shape == (4, 11)
    assert tensors["input_ids"][0].tolist() == [99, *columns["tokens"][0], *[99] * 5]
    assert tensors["attention_mask"][0].tolist() == [0, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0]
    assert tensors["position_ids"][0].tolist() == [0, 0, 1, 2, 3, 4, 4, 4, 4, 4, 4]
    assert tensors["response_mask"][1].tolist() == [1, 1, 0, 0, 1, 1, 1, 0]
    assert tensors["token_level_scores"].sum(axis=1).tolist() == columns["reward"]
    assert tensors["token_level_scores"][1, 6] == 1
    assert tensors["rollout_is_weights"][3].tolist() == [*[batch.weights[3]] * 5, 0, 0, 0]
    assert others["min_global_steps"].tolist() == others["max_global_steps"].tolist() == [4] * 4


def test_verl_names_what_is_missing(batch: Batch) -> None:
    tensors, others = verl.tensors(batch, pad_token_id=0)
    with pytest.raises(Invalid, match="version: missing"):
        verl.rollouts(tensors)
    for both in (("rollout_log_probs", "old_log_probs"), ("token_level_scores", "rm_scores")):
        with pytest.raises(Invalid, match=f"{both[0]}: missing, and so is {both[1]}"):
            verl.rollouts({name: value for name, value in tensors.items() if name not in both}, others)
    with pytest.raises(Invalid, match="prompts: missing"):
        verl.rollouts({name: value for name, value in tensors.items() if name != "prompts"}, others)


class Jagged:
    """As much of a nested tensor with layout torch.jagged as the adapter uses."""

    is_nested = True

    def __init__(self, parts: list[np.ndarray]) -> None:
        self.parts = parts

    def unbind(self) -> list[np.ndarray]:
        return self.parts

    def detach(self) -> None:
        raise RuntimeError("numpy() of a nested tensor")


def jagged(tensors: dict[str, np.ndarray]) -> dict[str, Jagged]:
    """verl's V1: no padding, and no attention mask."""
    rows = range(len(tensors["responses"]))
    keep = tensors["attention_mask"].astype(bool)
    width = tensors["prompts"].shape[1]
    out = {"prompts": Jagged([tensors["prompts"][row][keep[row, :width]] for row in rows])}
    for name in ("responses", "response_mask", "rollout_log_probs", "token_level_scores", "advantages"):
        out[name] = Jagged([tensors[name][row][keep[row, width:]] for row in rows])
    whole = [tensors["input_ids"][row][keep[row]] for row in rows]
    return {**out, "input_ids": Jagged(whole), "position_ids": Jagged([np.arange(len(each)) for each in whole])}


def test_attack_verls_jagged_tensors_are_read(batch: Batch, columns: dict[str, list]) -> None:
    tensors, others = verl.tensors(batch, pad_token_id=99)
    with_non_tensors = {**jagged(tensors), **{name: value.tolist() for name, value in others.items()}}
    back = verl.rollouts(with_non_tensors, keep_advantages=True)
    same(back, columns)
    assert record_batch(back)["prompt_id"].to_pylist() == ["0", "0", "1", "1"]
    assert np.concatenate(record_batch(back)["advantages"].to_pylist()).tolist() == batch.advantages.tolist()


def test_attack_verls_jagged_tensordict_is_read(batch: Batch, columns: dict[str, list]) -> None:
    torch = pytest.importorskip("torch")
    tensordict = pytest.importorskip("tensordict")
    tensors, others = verl.tensors(batch, pad_token_id=99)
    nested = {
        name: torch.nested.as_nested_tensor([torch.as_tensor(part) for part in value.unbind()], layout=torch.jagged)
        for name, value in jagged(tensors).items()
    }
    stacks = {name: tensordict.NonTensorStack(*value.tolist()) for name, value in others.items()}
    same(verl.rollouts(tensordict.TensorDict({**nested, **stacks}, batch_size=[4])), columns)


def test_attack_verls_missing_attention_mask_is_found_by_the_padding(batch: Batch, columns: dict[str, list]) -> None:
    tensors, others = verl.tensors(batch, pad_token_id=99_999)
    del tensors["attention_mask"]
    with pytest.raises(Invalid, match="attention_mask: missing.*pad_token_id"):
        verl.rollouts(tensors, others)
    same(verl.rollouts(tensors, others, pad_token_id=99_999), columns)
    columns["tokens"][0][-1] = 7  # the end-of-sequence token is the padding's
    tensors, others = verl.tensors(sampled(columns), pad_token_id=7)
    del tensors["attention_mask"]
    same(verl.rollouts(tensors, others, pad_token_id=7), columns)


def test_attack_verls_non_tensors_come_back(batch: Batch, columns: dict[str, list]) -> None:
    tensors, others = verl.tensors(batch, pad_token_id=0)
    given = {"data_source": "gsm8k", "reward_model": {"ground_truth": np.float32(8), "style": "rule"}, "index": 3}
    for name, value in given.items():
        others[name] = np.array([value] * 4, object)
    others["multi_modal_inputs"] = np.array([{}] * 4, object)
    others["lock"] = np.array([object()] * 4)
    with pytest.warns(RepairWarning, match="lock: 4 entries left out: no JSON"):
        inserted = verl.rollouts(tensors, others)
    meta = record_batch(inserted)["meta"]
    _, back = verl.tensors(sampled(columns, meta=meta), pad_token_id=0)
    for name, value in given.items():
        assert back[name].tolist() == [value] * 4
    others["multi_modal_inputs"][1] = {"pixel_values": np.zeros(3)}
    with pytest.raises(Invalid, match="multi_modal_inputs: images are not carried"):
        verl.rollouts(tensors, others)


def test_attack_one_bad_rollout_of_verl_does_not_refuse_the_others(batch: Batch, columns: dict[str, list]) -> None:
    tensors, others = verl.tensors(batch, pad_token_id=0)
    tensors["rollout_log_probs"][1, 0] = np.nan
    with pytest.warns(RepairWarning, match="logprobs: 1 rollouts dropped: NaN or infinite"):
        inserted = verl.rollouts(tensors, others)
    same(inserted, {name: [value[0], *value[2:]] for name, value in columns.items()})
    assert record_batch(inserted)["prompt_id"].to_pylist() == ["0", "1", "1"]


@pytest.mark.parametrize("torch", [False, True])
def test_areal_there_and_back(batch: Batch, columns: dict[str, list], torch: bool) -> None:
    frameworks(torch)
    trajectories = areal.tensors(batch, pad_token_id=99, torch=torch)
    inserted = areal.rollouts(trajectories)
    same(inserted, columns)
    assert inserted["group"].tolist() == [0, 0, 1, 1]
    half = areal.rollouts(trajectories[0])
    assert "group" not in half and areal.rollouts(trajectories[0], group_size=2)["group"].tolist() == [0, 0]


def test_attack_areal_gets_the_list_of_groups_that_it_asserts(batch: Batch) -> None:
    found = areal.tensors(batch)
    assert isinstance(found, list) and all(isinstance(each, dict) for each in found)
    assert [len(each["rewards"]) for each in found] == [2, 2]
    assert len({each["input_ids"].shape[1] for each in found}) == 1


def test_attack_a_group_drawn_twice_in_a_row_is_two_trajectories_of_areal(columns: dict[str, list]) -> None:
    import pyarrow as pa

    ids, groups = pa.array([7, 8, 7, 8], pa.uint64()), pa.array([7, 7, 7, 7], pa.uint64())
    assert [len(each["rewards"]) for each in areal.tensors(sampled(columns, id=ids, group=groups))] == [2, 2]


def test_attack_one_bad_rollout_of_areal_does_not_refuse_the_others(batch: Batch, columns: dict[str, list]) -> None:
    trajectories = areal.tensors(batch)
    trajectories[1]["rewards"][0] = np.nan
    trajectories[0]["loss_mask"][1] = 0
    with pytest.warns(RepairWarning) as caught:
        inserted = areal.rollouts(trajectories, prompt_ids=columns["prompt_id"])
    assert [str(w.message).split(":")[0] for w in caught] == ["mask", "reward"]
    same(inserted, {name: [value[0], value[3]] for name, value in columns.items()})


def test_areal_has_what_models_say_one_token_earlier(columns: dict[str, list]) -> None:
    import pyarrow as pa

    reference = pa.array(columns["logprobs"], pa.list_(pa.float32()))
    tensors, _ = areal.tensors(sampled(columns, ref_logprobs=reference, values=reference))
    for name in ("ref_logp", "values"):
        assert tensors[name][0, 1:4].tolist() == columns["logprobs"][0][2:5]
    back = areal.rollouts(tensors)
    assert record_batch(back)["ref_logprobs"].to_pylist() == columns["logprobs"][:2]


def test_areal_refuses_rewards_of_another_number(batch: Batch) -> None:
    tensors = areal.tensors(batch)[0]
    with pytest.raises(Invalid, match="rewards: 1 of them: want 2"):
        areal.rollouts({**tensors, "rewards": tensors["rewards"][:1]})
    with pytest.raises(Invalid, match="loss_mask: missing"):
        areal.rollouts({name: value for name, value in tensors.items() if name != "loss_mask"})
