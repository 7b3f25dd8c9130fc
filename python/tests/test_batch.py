"""Batches become padded and packed arrays, with every entry where it belongs."""

import numpy as np
import pyarrow as pa
import pytest
from conftest import rollouts, sampled

import reprise
from reprise import Batch, Invalid, NotFound

LENGTHS = [5, 9, 3, 7]


@pytest.fixture
def columns() -> dict[str, list[object]]:
    return rollouts(LENGTHS, version=4)


@pytest.fixture
def batch(columns: dict[str, list[object]]) -> Batch:
    return sampled(columns)


@pytest.mark.parametrize("side", ["right", "left"])
def test_padded_rows_hold_each_rollout_at_its_side(batch: Batch, columns: dict[str, list], side: str) -> None:
    padded = batch.padded(side=side, pad_id=99, multiple_of=4)
    assert padded.tokens.shape == (4, 12) and padded.tokens.dtype == np.int32
    for row, length in enumerate(LENGTHS):
        at = slice(0, length) if side == "right" else slice(12 - length, 12)
        keep = np.zeros(12, bool)
        keep[at] = True
        assert padded.tokens[row, at].tolist() == columns["tokens"][row]
        assert (padded.tokens[row, ~keep] == 99).all()
        assert (padded.attention_mask[row] == keep).all()
        assert padded.loss_mask[row, at].tolist() == [bool(m) for m in columns["mask"][row]]
        assert padded.logprobs[row, at].tolist() == columns["logprobs"][row]
        assert padded.versions[row, at].tolist() == columns["versions"][row]
        assert padded.position_ids[row, at].tolist() == list(range(length))
        assert not padded.loss_mask[row, ~keep].any() and not padded.logprobs[row, ~keep].any()
        assert (padded.versions[row, ~keep] == -1).all() and not padded.position_ids[row, ~keep].any()
    assert padded.lengths.tolist() == LENGTHS
    assert padded.ids.tolist() == [10, 11, 12, 13]
    assert padded.weights.tolist() == batch.weights.tolist()


def test_an_advantage_stands_at_the_policys_tokens_alone(batch: Batch) -> None:
    padded = batch.padded()
    assert (padded.advantages == np.where(padded.loss_mask, batch.column("advantage")[:, None], 0)).all()
    assert padded.advantages[0, 4] == -1


def test_advantages_per_token_come_before_the_rollouts() -> None:
    given = pa.array([[1.0, 2.0, 3.0], None], pa.list_(pa.float32()))
    batch = sampled(rollouts([3, 4]), advantages=given)
    assert batch.advantages.tolist() == [1, 2, 3, 0, 0, 1, 1]


def test_a_column_that_is_null_in_some_rows_has_zeros_there() -> None:
    batch = sampled(rollouts([3, 4]), values=pa.array([None, [1, 2, 3, 4]], pa.list_(pa.float32())))
    assert batch.flat("values").tolist() == [0, 0, 0, 1, 2, 3, 4]
    assert batch.padded().values.tolist() == [[0, 0, 0, 0], [1, 2, 3, 4]]
    assert batch.padded().ref_logprobs is None


def test_a_column_that_is_null_throughout_is_not_there() -> None:
    batch = sampled(rollouts([3]), values=pa.array([None], pa.list_(pa.float32())))
    assert not batch.has("values") and batch.has("tokens")
    assert batch.padded().values is None


def test_a_sampling_mask_comes_out_per_token() -> None:
    lists = pa.array([[[], [2, 5], [7]], None, [[], [], [1], []]], pa.list_(pa.list_(pa.int32())))
    batch = sampled(rollouts([3, 2, 4]), sampling_mask=lists)
    for got, want in ((batch, lists.to_pylist()), (Batch(batch.record_batch.slice(1)), lists.to_pylist()[1:])):
        assert [mask and [ids.tolist() for ids in mask] for mask in got.sampling_mask] == want
    assert batch.sampling_mask[0][1].dtype == np.int32
    places, ids = batch.kept_ids
    assert places.tolist() == [1, 1, 2, 7] and ids.tolist() == [2, 5, 7, 1] and ids.dtype == np.int32
    assert batch.packed(multiple_of=4).sampling_mask.tolist() == [[1, 2], [1, 5], [2, 7], [7, 1]]
    assert batch.padded(side="left").sampling_mask.tolist() == [[0, 2, 2], [0, 2, 5], [0, 3, 7], [2, 2, 1]]
    assert sampled(rollouts([3])).padded().sampling_mask is None
    for get in (batch.column, batch.flat):
        with pytest.raises(Invalid, match="sampling_mask: several values per token: want the attribute sampling_mask"):
            get("sampling_mask")


@pytest.mark.parametrize("side", ["right", "left"])
def test_experts_come_out_per_token_padded_and_packed(side: str) -> None:
    parts = [np.arange(6, dtype=np.uint16).reshape(3, 2), np.arange(10, 14, dtype=np.uint16).reshape(2, 2)]
    column = pa.array([part.reshape(-1) for part in parts], pa.list_(pa.uint16()))
    batch = sampled(rollouts([3, 2]), routed_experts=column)
    assert all((got == want).all() and got.dtype == np.uint16 for got, want in zip(batch.routed_experts, parts))
    padded = batch.padded(side=side, length=4)
    assert padded.routed_experts.shape == (2, 4, 2) and padded.routed_experts.dtype == np.uint16
    assert (padded.routed_experts[padded.attention_mask] == np.concatenate(parts)).all()
    assert not padded.routed_experts[~padded.attention_mask].any()
    packed = batch.packed(multiple_of=8)
    assert (packed.routed_experts[:5] == np.concatenate(parts)).all() and not packed.routed_experts[5:].any()


def test_experts_that_some_rollouts_lack_or_have_more_of_are_not_padded() -> None:
    for second in (None, [1, 2]):
        column = pa.array([[1, 2, 3, 4], second], pa.list_(pa.uint16()))
        batch = sampled(rollouts([2, 2], prompt=1), routed_experts=column)
        assert batch.padded().routed_experts is None and batch.packed().routed_experts is None
        assert batch.routed_experts[0].tolist() == [[1, 2], [3, 4]]
        assert batch.routed_experts[1] is None if second is None else batch.routed_experts[1].tolist() == [[1], [2]]


def test_packed_arrays_follow_cu_seqlens(batch: Batch, columns: dict[str, list]) -> None:
    packed = batch.packed()
    assert packed.cu_seqlens.tolist() == [0, 5, 14, 17, 24] and packed.cu_seqlens.dtype == np.int32
    assert packed.max_seqlen == 9
    for row in range(4):
        at = slice(packed.cu_seqlens[row], packed.cu_seqlens[row + 1])
        assert packed.tokens[at].tolist() == columns["tokens"][row]
        assert packed.position_ids[at].tolist() == list(range(LENGTHS[row]))
        assert (packed.sequence_ids[at] == row).all()


def test_what_fills_up_a_packed_end_is_a_sequence_of_its_own(batch: Batch) -> None:
    packed = batch.packed(multiple_of=16, pad_id=99)
    assert packed.cu_seqlens.tolist() == [0, 5, 14, 17, 24, 32]
    assert (packed.tokens[24:] == 99).all() and not packed.loss_mask[24:].any()
    assert (packed.sequence_ids[24:] == 4).all() and (packed.versions[24:] == -1).all()
    assert {len(getattr(packed, name)) for name in ("tokens", "logprobs", "advantages", "position_ids")} == {32}


def test_a_slice_of_a_batch_reads_as_itself(batch: Batch, columns: dict[str, list]) -> None:
    part = Batch(batch.record_batch.slice(1, 2))
    assert part.lengths.tolist() == [9, 3]
    assert [row.tolist() for row in part.ragged("tokens")] == columns["tokens"][1:3]
    assert part.padded().tokens[1, :3].tolist() == columns["tokens"][2]
    assert part.prompt_lengths.tolist() == [2, 2]


def test_flat_columns_are_views_of_what_was_received(batch: Batch) -> None:
    values = batch.record_batch["logprobs"].values
    assert batch.flat("logprobs").ctypes.data == values.buffers()[1].address


def test_a_given_length_is_kept_or_refused(batch: Batch) -> None:
    assert batch.padded(length=20).tokens.shape == (4, 20)
    with pytest.raises(Invalid, match="length: 8: want at least the 9 tokens of row 1"):
        batch.padded(length=8)


def test_columns_that_were_not_sampled_are_named() -> None:
    few = Batch(pa.record_batch({"id": pa.array([1, 2], pa.uint64()), "logprobs": [[0.0], [1.0, 2.0]]}))
    assert few.lengths.tolist() == [1, 2]
    with pytest.raises(NotFound, match="reward: not among the sampled columns"):
        few.rewards
    with pytest.raises(NotFound, match="tokens"):
        few.padded()
    with pytest.raises(NotFound, match="tokens: not among"):
        Batch(pa.record_batch({"id": [1]})).lengths


def test_padding_agrees_with_a_plain_loop_for_random_shapes() -> None:
    rng = np.random.default_rng(5)
    for seed in range(30):
        lengths = (2 + rng.integers(1, 40, rng.integers(1, 12))).tolist()
        columns = rollouts(lengths, seed=seed)
        batch, side = sampled(columns), ("left", "right")[seed % 2]
        padded = batch.padded(side=side, multiple_of=int(rng.integers(1, 9)))
        want = np.zeros(padded.tokens.shape, int)
        for row, tokens in enumerate(columns["tokens"]):
            at = 0 if side == "right" else want.shape[1] - len(tokens)
            want[row, at : at + len(tokens)] = tokens
        assert (padded.tokens == want).all(), f"seed {seed}"


def test_a_batch_in_pieces_reads_as_if_it_was_in_one() -> None:
    rng = np.random.default_rng(6)
    for seed in range(60):
        longest = int(rng.choice([3, 40, 600]))
        lengths = rng.integers(2, longest, rng.integers(1, 12)).tolist() if seed % 5 else [longest] * 4
        known = [rng.random() < [0, 0.5, 1, 1][seed % 4] for _ in lengths]
        values = [rng.random(n).astype(np.float32) if know else None for n, know in zip(lengths, known)]
        batch = sampled(rollouts(lengths, seed=seed), values=pa.array(values, pa.list_(pa.float32())))
        whole, rows = batch.record_batch, len(batch)
        at = [0, *sorted(rng.integers(0, rows + 1, rng.integers(0, 4)).tolist()), rows]
        pieces = Batch([whole.slice(begin, end - begin) for begin, end in zip(at, at[1:])], batch.info)
        side = ("left", "right")[seed % 2]
        for mine, want in (
            (pieces.padded(side=side, multiple_of=3), batch.padded(side=side, multiple_of=3)),
            (pieces.packed(multiple_of=seed % 3 + 1), batch.packed(multiple_of=seed % 3 + 1)),
        ):
            assert mine.asdict().keys() == want.asdict().keys()
            for name, array in want.asdict().items():
                assert np.array_equal(mine[name], array), (seed, name)
                assert np.asarray(mine[name]).dtype == np.asarray(array).dtype, (seed, name)
        assert len(pieces) == rows and pieces.record_batch.equals(whole) and pieces.to_table().equals(batch.to_table())
        assert [each.tolist() for each in pieces.ragged("tokens")] == [each.tolist() for each in batch.ragged("tokens")]
        assert pieces.prompt_ids == batch.prompt_ids and pieces.prompt_lengths.tolist() == batch.prompt_lengths.tolist()


def test_padding_takes_little_more_than_what_was_received(batch: Batch) -> None:
    # tokens, position_ids, logprobs, advantages and versions of 4 bytes, two masks of 1.
    padded = batch.padded()
    per_token = [array for array in padded.asdict().values() if array.ndim == 2]
    assert sum(array.nbytes for array in per_token) == 22 * padded.tokens.size
    block = per_token[0].base
    while block.base is not None:
        block = block.base
    assert all(np.shares_memory(array, block) for array in per_token)
    assert np.shares_memory(batch.packed().tokens, batch.flat("tokens"))  # a view of what was received


def test_torch_gets_the_same_numbers_in_types_that_it_computes_with() -> None:
    torch = pytest.importorskip("torch")
    batch = sampled(rollouts(LENGTHS))
    padded, tensors = batch.padded(), batch.padded().torch()
    assert tensors.tokens.dtype == tensors.ids.dtype == tensors.groups.dtype == torch.int64
    assert tensors.versions.dtype == tensors.position_ids.dtype == torch.int32
    assert tensors.loss_mask.dtype == torch.bool and tensors.logprobs.dtype == torch.float32
    assert (tensors.tokens.numpy() == padded.tokens).all()
    assert tensors.values is None
    packed = batch.packed().torch()
    assert packed.cu_seqlens.dtype == torch.int32 and packed.max_seqlen == 9
    assert torch.equal(packed.logprobs, torch.from_numpy(batch.flat("logprobs").copy()))


def test_writing_to_tensors_leaves_the_batch_alone() -> None:
    pytest.importorskip("torch")
    batch = sampled(rollouts([4, 4]))
    before = batch.flat("logprobs").copy()
    batch.packed().torch().logprobs.zero_()
    batch.padded().torch().logprobs.zero_()
    batch.padded().logprobs[:] = 0
    assert (batch.flat("logprobs") == before).all()


def test_padded_and_packed_tell_what_they_hold_by_name(batch: Batch) -> None:
    assert set(batch.padded().asdict()) == {
        "ids", "groups", "prompts", "rewards", "weights", "staleness", "lengths", "tokens", "loss_mask", "position_ids",
        "logprobs", "advantages", "versions", "attention_mask",
    }  # fmt: skip
    assert repr(batch) == "<reprise.Batch 7: 4 rollouts, version 3>"
    assert batch.to_table().num_rows == len(batch) == 4
    assert isinstance(batch.info, reprise.BatchInfo)


def test_what_has_another_shape_is_named_with_what_to_take(batch: Batch) -> None:
    for message, call in {
        r"reward: float, one value per rollout: want column\('reward'\)": lambda: batch.flat("reward"),
        r"tokens: one value per token: want flat\('tokens'\)": lambda: batch.column("tokens"),
        "multiple_of: 0: want at least 1": lambda: batch.padded(multiple_of=0),
        "multiple_of: -1: want at least 1": lambda: batch.packed(multiple_of=-1),
        "side: up": lambda: batch.padded(side="up"),  # type: ignore[arg-type]
    }.items():
        with pytest.raises(Invalid, match=message):
            call()


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("lengths", [[700, 1, 300, 512], [600] * 3, [1, 2, 1], [4] * 3], ids=str)
def test_rows_of_any_length_are_laid_out_alike(lengths: list[int], side: str) -> None:
    batch = sampled(
        rollouts([max(n, 3) for n in lengths], version=4), values=pa.array([[0.5] * max(n, 3) for n in lengths])
    )
    width = int(batch.lengths.max()) + (5 if len(set(lengths)) > 1 else 0)
    padded = batch.padded(side=side, pad_id=-9, length=width)
    for row, length in enumerate(batch.lengths.tolist()):
        room = [0] * (width - length)
        begin, end = batch.offsets[row : row + 2]

        def want(flat: np.ndarray, fill: float) -> list[float]:
            padding = [fill] * len(room)
            return padding + flat[begin:end].tolist() if side == "left" else flat[begin:end].tolist() + padding

        assert padded.tokens[row].tolist() == want(batch.flat("tokens"), -9)
        assert padded.loss_mask[row].tolist() == want(batch.flat("mask"), 0)
        assert padded.logprobs[row].tolist() == want(batch.flat("logprobs"), 0)
        assert padded.versions[row].tolist() == want(batch.flat("versions"), -1)
        assert padded.advantages[row].tolist() == want(batch.advantages, 0)
        assert padded.values is not None and padded.values[row].tolist() == want(batch.flat("values"), 0)
        assert padded.attention_mask[row].tolist() == want(np.ones(int(batch.offsets[-1])), 0)
        assert padded.position_ids[row].tolist() == want(np.arange(int(batch.offsets[-1])) - begin, 0)
    per_token = {name: value for name, value in padded.asdict().items() if value.ndim == 2}
    before = {name: value.copy() for name, value in per_token.items()}
    for name, value in per_token.items():  # they are the caller's, and none reaches into another
        value[:] = 1
        before[name] = value.copy()
        assert all((per_token[other] == before[other]).all() for other in before), name
