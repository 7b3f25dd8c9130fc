"""The layouts of TRL, verl and AReaL: there and back again."""

import numpy as np
import pytest
from conftest import rollouts, sampled

from reprise import Batch, Invalid, record_batch
from reprise.adapters import areal, trl, verl

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


def test_trl_has_no_tool_mask_without_tools() -> None:
    assert "tool_mask" not in trl.tensors(sampled(rollouts(LENGTHS)), pad_token_id=0)


def test_trl_prefers_the_samplers_logprobs_and_says_where_there_are_none(batch: Batch) -> None:
    tensors = trl.tensors(batch, pad_token_id=0)
    given = {**tensors, "sampling_per_token_logps": tensors["old_per_token_logps"] - 1}
    row = record_batch(trl.rollouts(given, rewards=[0] * 4, version=0, num_generations=4))["logprobs"][0].as_py()
    assert row[2] == tensors["old_per_token_logps"][0, 0] - 1 and row[:2] == [0, 0]
    del tensors["old_per_token_logps"]
    with pytest.raises(Invalid, match="logprobs: missing.*use_vllm"):
        trl.rollouts(tensors, rewards=[0] * 4, version=0, num_generations=4)


def test_trl_refuses_what_mask_truncated_completions_emptied(batch: Batch) -> None:
    tensors = trl.tensors(batch, pad_token_id=0)
    tensors["completion_mask"][2] = 0
    with pytest.raises(Invalid, match="row 2: no token of the policy.*mask_truncated_completions"):
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


@pytest.mark.parametrize("torch", [False, True])
def test_areal_there_and_back(batch: Batch, columns: dict[str, list], torch: bool) -> None:
    frameworks(torch)
    tensors = areal.tensors(batch, pad_token_id=99, torch=torch)
    same(areal.rollouts(tensors), columns)
    assert "group" not in areal.rollouts(tensors)
    assert areal.rollouts(tensors, group_size=2)["group"].tolist() == [0, 0, 1, 1]


def test_areals_list_of_trajectories_is_a_list_of_groups(columns: dict[str, list]) -> None:
    def trajectory(rows: slice) -> dict[str, np.ndarray]:
        return areal.tensors(sampled({name: value[rows] for name, value in columns.items()}))

    inserted = areal.rollouts([trajectory(slice(0, 3)), trajectory(slice(3, 4))])
    same(inserted, columns)
    assert inserted["group"].tolist() == [0, 0, 0, 1]


def test_areal_has_what_models_say_one_token_earlier(columns: dict[str, list]) -> None:
    import pyarrow as pa

    reference = pa.array(columns["logprobs"], pa.list_(pa.float32()))
    tensors = areal.tensors(sampled(columns, ref_logprobs=reference, values=reference))
    for name in ("ref_logp", "values"):
        assert tensors[name][0, 1:4].tolist() == columns["logprobs"][0][2:5]
    back = areal.rollouts(tensors)
    assert record_batch(back)["ref_logprobs"].to_pylist() == columns["logprobs"]


def test_areal_refuses_rewards_of_another_number(batch: Batch) -> None:
    tensors = areal.tensors(batch)
    with pytest.raises(Invalid, match="rewards: 3 of them: want 4"):
        areal.rollouts({**tensors, "rewards": tensors["rewards"][:3]})
    with pytest.raises(Invalid, match="loss_mask: missing"):
        areal.rollouts({name: value for name, value in tensors.items() if name != "loss_mask"})
