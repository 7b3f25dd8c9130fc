"""Rollouts in every form become the same record batch, and the golden files of Go's package wire read and write
alike."""

import base64
import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from conftest import ROOT, rollouts

import reprise
from reprise import Invalid, record_batch
from reprise.rollouts import ENGINE_COLUMNS, OTHER_COLUMNS, ROW_COLUMNS, TOKEN_COLUMNS

LENGTHS = [5, 9, 3, 7]


def forms() -> dict[str, dict[str, object]]:
    """The same rollouts: lists, arrays, padded right and left, flat."""
    columns = rollouts(LENGTHS)
    lengths, width = np.array(LENGTHS), 11
    right = np.arange(width) < lengths[:, None]
    left = np.arange(width) >= (width - lengths)[:, None]
    per_token = ("tokens", "mask", "logprobs", "versions")

    def padded(keep: np.ndarray, fill: int) -> dict[str, np.ndarray]:
        out = {}
        for name in per_token:
            flat = np.concatenate([np.asarray(row) for row in columns[name]])
            out[name] = np.full(keep.shape, fill, flat.dtype)
            out[name][keep] = flat
        return out

    return {
        "arrays": {**columns, **{name: [np.asarray(row) for row in columns[name]] for name in per_token}},
        "padded right": {**columns, **padded(right, 99), "lengths": lengths},
        "padded left": {**columns, **padded(left, 99), "attention_mask": left},
        "flat": {
            **columns,
            **{n: np.concatenate([np.asarray(r) for r in columns[n]]) for n in per_token},
            "lengths": LENGTHS,
        },
        "arrow": {name: pa.array(value) for name, value in columns.items()},
    }


@pytest.mark.parametrize("form", forms())
def test_every_form_of_columns_gives_the_same_rollouts(form: str) -> None:
    assert record_batch(forms()[form]).to_pydict() == record_batch(rollouts(LENGTHS)).to_pydict()


def test_a_list_of_dicts_gives_the_same_as_columns() -> None:
    columns = rollouts(LENGTHS)
    rows = [{name: value[i] for name, value in columns.items()} for i in range(len(LENGTHS))]
    assert record_batch(rows).equals(record_batch(columns))


def test_columns_beside_dicts_are_the_rollouts_or_one_for_all() -> None:
    columns = rollouts(LENGTHS)
    rows = [{name: value[i] for name, value in columns.items() if name != "reward"} for i in range(len(LENGTHS))]
    batch = record_batch(rows, reward=columns["reward"], temperature=0.5, text="same")
    assert batch["reward"].to_pylist() == columns["reward"]
    assert batch["temperature"].to_pylist() == [0.5] * 4 and batch["text"].to_pylist() == ["same"] * 4
    with pytest.raises(Invalid, match="tokens: given twice"):
        record_batch(rows, tokens=columns["tokens"])


def test_torch_tensors_give_the_same_as_numpy() -> None:
    torch = pytest.importorskip("torch")
    padded = forms()["padded left"]
    tensors = {n: torch.from_numpy(v) if isinstance(v, np.ndarray) else v for n, v in padded.items()}
    assert record_batch(tensors).equals(record_batch(padded))


def test_bfloat16_tensors_are_taken() -> None:
    torch = pytest.importorskip("torch")
    columns = {**rollouts([4, 4]), "logprobs": torch.full((2, 4), -0.5, dtype=torch.bfloat16)}
    assert record_batch(columns)["logprobs"].to_pylist() == [[0, 0, -0.5, -0.5]] * 2  # the prompt has none


def test_types_are_those_of_the_wire() -> None:
    batch = record_batch(
        {**rollouts(LENGTHS), "temperature": 0.7, "truncated": [True, False, False, True]}, group_size=2
    )
    types = {field.name: str(field.type) for field in batch.schema}
    assert types == {
        "prompt_id": "string", "tokens": "list<item: int32>", "mask": "list<item: uint8>",
        "logprobs": "list<item: float>", "versions": "list<item: int32>", "reward": "float",
        "temperature": "float", "truncated": "bool", "group": "uint64",
    }  # fmt: skip


def test_flat_arrays_of_the_wires_types_are_not_copied() -> None:
    tokens = np.arange(1000, dtype=np.int32)
    batch = record_batch({"tokens": tokens, "lengths": [400, 600], "prompt_lengths": 3, "version": 0})
    assert batch["tokens"].values.buffers()[1].address == tokens.ctypes.data


def test_prompt_lengths_make_the_mask() -> None:
    batch = record_batch({"tokens": [[1, 2, 3], [4, 5]], "prompt_lengths": [2, 1]})
    assert batch["mask"].to_pylist() == [[0, 0, 1], [0, 1]]


def test_one_number_stands_for_all_rollouts() -> None:
    batch = record_batch({**rollouts(LENGTHS), "version": 4, "top_p": 0.9, "prompt_id": "same"})
    assert batch["version"].to_pylist() == [4] * 4
    assert batch["top_p"].to_pylist() == [pytest.approx(0.9)] * 4
    assert batch["prompt_id"].to_pylist() == ["same"] * 4


def test_what_a_rollout_does_not_have_is_null() -> None:
    batch = record_batch(
        {**rollouts([3, 3]), "advantages": [None, [0, 0, 1]], "advantage": [0.5, None], "text": [None, "x"]}
    )
    assert batch["advantages"].to_pylist() == [None, [0, 0, 1]]
    assert batch["advantage"].to_pylist() == [0.5, None]
    assert batch["text"].to_pylist() == [None, "x"]


def test_nested_columns_and_own_columns_are_carried() -> None:
    turns = [[{"start": 2, "end": 5, "reward": 1.0, "done": True}], []]
    batch = record_batch(
        {
            **rollouts([5, 5]),
            "turns": turns,
            "meta": [{"a": "b"}, {}],
            "images": [[b"\x00"], []],
            "x_e": np.eye(2, dtype=np.float32),
        }
    )
    assert batch["turns"].to_pylist() == turns
    assert batch["meta"].to_pylist() == [[("a", "b")], []]
    assert batch["images"].to_pylist() == [[b"\x00"], []]
    assert batch["x_e"].to_pylist() == [[1, 0], [0, 1]]


def test_groups_are_consecutive_rows() -> None:
    assert record_batch(rollouts(LENGTHS), group_size=2)["group"].to_pylist() == [0, 0, 1, 1]
    table = pa.table(rollouts(LENGTHS))
    assert record_batch(table, group_size=4)["group"].to_pylist() == [0] * 4


def test_a_table_of_several_chunks_becomes_one_batch() -> None:
    chunked = pa.concat_tables([pa.table(rollouts([3, 4])), pa.table(rollouts([5], seed=1))])
    assert record_batch(chunked).num_rows == 3


WRONG = {
    "tokens: missing": {"reward": [1.0]},
    "rewad: no such column (did you mean reward?)": {**rollouts([3]), "rewad": [1]},
    "tokens: row 0: token 1: 2147483648: want a whole number": {**rollouts([3]), "tokens": [[1, 2**31, 3]]},
    "tokens: row 0: token 0: 1.5: want a whole number": {**rollouts([2]), "tokens": [[1.5, 2]]},
    "mask: row 1: token 2: 256": {**rollouts([3, 4]), "mask": [[0, 0, 1], [0, 0, 256, 1]]},
    "mask: row 0: token 0: -1": {**rollouts([3]), "mask": np.array([[-1, 0, 1]])},
    "group: row 0: -1": {**rollouts([3]), "group": [-1]},
    "truncated: row 0: 2": {**rollouts([3]), "truncated": [2]},
    "logprobs: row 0: token 1: -1e+300: want what fits float32": {**rollouts([3]), "logprobs": [[0, -1e300, 0]]},
    "logprobs: row 0: shape [2]: want 3 entries": {**rollouts([3]), "logprobs": [[0, 0]]},
    "logprobs: row 0: objects: want numbers": {**rollouts([3]), "logprobs": [[0, None, 0]]},
    "logprobs: 2 rows: want 1": {**rollouts([3]), "logprobs": [[0, 0, 0]] * 2},
    "reward: 2 rows: want 1": {**rollouts([3]), "reward": [1, 2]},
    "reward: str: want numbers": {**rollouts([3]), "reward": ["1"]},
    "tokens: row 0 is int: want a list": {"tokens": [3]},
    "tokens: a flat array": {"tokens": np.array([3])},
    "lengths: row 1: 5: want 0 to 4": {"tokens": np.zeros((2, 4), int), "lengths": [4, 5]},
    "lengths: 3 tokens in all: want the 4": {"tokens": np.zeros(4, int), "lengths": [1, 2]},
    "attention_mask: [1, 4]: want the shape of tokens, [2, 4]": {
        "tokens": np.zeros((2, 4), int),
        "attention_mask": np.ones((1, 4)),
    },
    "mask: shape [2, 3]: want that of tokens, [2, 4]": {"tokens": np.zeros((2, 4), int), "mask": np.ones((2, 3))},
    "values: row 1: token 0: 1e+300: want what fits float32": {**rollouts([3, 2]), "values": [None, [1e300, 0]]},
    "prompt_lengths: row 1: 2: want 0 to 1": {"tokens": [[1, 2, 3], [4, 5]], "prompt_lengths": 2},
    "prompt_lengths: shape [3]: want one for each of 2 rollouts": {
        "tokens": [[1, 2], [4, 5]],
        "prompt_lengths": [1, 1, 1],
    },
    "prompt_lengths: row 0: 0.5: want a whole number": {"tokens": [[1, 2]], "prompt_lengths": [0.5]},
    "lengths: row 0: 2.5: want a whole number": {"tokens": np.zeros((1, 4), int), "lengths": [2.5]},
    "turns: ": {**rollouts([3]), "turns": [["no turn"]]},
    "sampling_mask: Value 2147483648 too large": {**rollouts([3]), "sampling_mask": [[[], [], [2**31]]]},
    "sampling_mask: 2 rows: want 1": {**rollouts([3]), "sampling_mask": [None, None]},
    "routed_experts: row 1: shape [2, 6]: want [4, E], a row for each token": {
        **rollouts([3, 4]),
        "routed_experts": [None, np.zeros((2, 6))],
    },
    "routed_experts: row 0: token 1: -1: want a whole number from 0 to 65535": {
        **rollouts([3]),
        "routed_experts": [[[0, 1], [2, -1], [3, 4]]],
    },
}


@pytest.mark.parametrize("message", WRONG)
def test_what_is_wrong_is_named_with_its_column(message: str) -> None:
    with pytest.raises(Invalid) as caught:
        record_batch(WRONG[message])
    assert str(caught.value).startswith(message)


def test_what_is_no_rollout_at_all_is_refused() -> None:
    for rows in ([], {"tokens": []}, "tokens", 3, [1]):
        with pytest.raises(Invalid):
            record_batch(rows)  # type: ignore[arg-type]
    with pytest.raises(Invalid, match="group_size: 3: want a divisor of the 4 rows"):
        record_batch(rollouts(LENGTHS), group_size=3)


def test_own_columns_take_the_tables_types() -> None:
    declared = pa.schema([("x_score", pa.float32())])
    batch = record_batch({**rollouts([3, 3]), "x_score": [1, 2]}, extra=declared)
    assert batch["x_score"].type == pa.float32()
    with pytest.raises(Invalid, match="x_other: not a column of the table"):
        record_batch({**rollouts([3]), "x_other": [1]}, extra=declared)
    assert reprise.Invalid.code == "invalid"


def test_a_rollout_is_made_from_a_prompt_and_its_completion() -> None:
    row = reprise.rollout("p1", [5, 6], [7, 8, 2], logprobs=[-0.5, -0.25, 0], version=3, reward=1, text="x")
    batch = record_batch(
        [row, reprise.rollout("p2", np.array([], int), [9], logprobs=[-1.0], version=4, reward=0, top_p=0.5)]
    )
    assert batch.to_pylist() == [
        {"prompt_id": "p1", "tokens": [5, 6, 7, 8, 2], "mask": [0, 0, 1, 1, 1], "logprobs": [0, 0, -0.5, -0.25, 0],
         "version": 3, "reward": 1, "temperature": 1, "top_p": 1, "text": "x"},
        {"prompt_id": "p2", "tokens": [9], "mask": [1], "logprobs": [-1], "version": 4, "reward": 0, "temperature": 1,
         "top_p": 0.5, "text": None},
    ]  # fmt: skip
    with pytest.raises(Invalid, match=r"logprobs: shape \[1\]: want \[2\], one for each token of the completion"):
        reprise.rollout("p", [1], [2, 3], logprobs=[0], version=0, reward=0)


def test_a_sampling_mask_of_the_completion_is_joined_with_the_prompts_empty_lists() -> None:
    row = reprise.rollout("p", [5, 6], [7, 8], logprobs=[-0.5, 0], version=3, reward=1, sampling_mask=[[9, 7, 2], None])
    batch = record_batch([row, reprise.rollout("p", [5], [6], logprobs=[0], version=3, reward=1)])
    assert batch["sampling_mask"].to_pylist() == [[[], [], [2, 7, 9], []], None]
    assert batch["sampling_mask"].type == pa.list_(pa.list_(pa.int32()))
    with pytest.raises(Invalid, match="sampling_mask: 1 lists: want 2, one for each token of the completion"):
        reprise.rollout("p", [5], [6, 7], logprobs=[0, 0], version=0, reward=0, sampling_mask=[[6]])


def test_sampling_masks_are_sorted_within_their_tokens() -> None:
    masks = [[[], np.array([8, 3, 5]), [1]], None, [np.array([2], np.int64), [], [0, 2**31 - 1]]]
    batch = record_batch({**rollouts([3, 4, 3]), "sampling_mask": masks})
    assert batch["sampling_mask"].to_pylist() == [[[], [3, 5, 8], [1]], None, [[2], [], [0, 2**31 - 1]]]
    given = batch["sampling_mask"]
    assert record_batch({**rollouts([3, 4, 3]), "sampling_mask": given})["sampling_mask"].equals(given)


def test_every_form_of_experts_gives_the_same() -> None:
    lengths, width = [2, 4], 5
    flat = np.arange(6 * 2 * 3).reshape(6, 2, 3)  # tokens, layers, experts per token
    parts = [flat[:2], flat[2:]]
    keep = np.arange(width) < np.array(lengths)[:, None]
    padded = np.full((2, width, 2, 3), 7)
    padded[keep] = flat
    tokens = np.zeros((2, width), int)
    for name, columns in {
        "arrays": {**rollouts(lengths), "routed_experts": parts},
        "per token": {**rollouts(lengths), "routed_experts": [part.reshape(-1).tolist() for part in parts]},
        "flat": {"tokens": np.zeros(6, int), "lengths": lengths, "routed_experts": flat},
        "padded": {"tokens": tokens, "lengths": lengths, "routed_experts": padded},
    }.items():
        column = record_batch(columns)["routed_experts"]
        assert column.type == pa.list_(pa.uint16())
        assert column.to_pylist() == [part.reshape(-1).tolist() for part in parts], name


def test_the_last_token_that_an_engine_does_not_run_has_experts_0() -> None:
    experts = np.array([[[1, 2]], [[3, 4]]])
    batch = record_batch({**rollouts([3, 4]), "routed_experts": [experts, None]})
    assert batch["routed_experts"].to_pylist() == [[1, 2, 3, 4, 0, 0], None]


GOLDEN = ROOT / "wire" / "testdata"


def twin(name: str) -> list[dict[str, Any]]:
    """The rows of a file in plain values, their bytes and maps as pyarrow tells them."""
    rows = json.loads((GOLDEN / f"{name}.json").read_text())
    for row in rows:
        if row["images"] is not None:
            row["images"] = [base64.b64decode(image) for image in row["images"]]
        if row["meta"] is not None:
            row["meta"] = [(entry["key"], entry["value"]) for entry in row["meta"]]
    return rows


def read(name: str) -> pa.RecordBatch:
    with pa.ipc.open_stream(GOLDEN / f"{name}.arrow") as reader:
        table = reader.read_all()
    return table.combine_chunks().to_batches()[0]


def rounded(value: Any, kind: pa.DataType) -> Any:
    """A plain value as its column's type holds it."""
    if value is None:
        return None
    if pa.types.is_float32(kind):
        return float(np.float32(value))
    if pa.types.is_list(kind):
        return [rounded(item, kind.value_type) for item in value]
    if pa.types.is_struct(kind):
        return {
            kind.field(i).name: rounded(value[kind.field(i).name], kind.field(i).type) for i in range(kind.num_fields)
        }
    return value


@pytest.mark.parametrize("name", ["insert", "sample"])
def test_what_the_go_side_writes_reads_as_its_twin_says(name: str) -> None:
    batch, rows = read(name), twin(name)
    assert batch.schema.metadata[b"reprise.schema"] == b"1"
    assert batch.num_rows == len(rows) > 1
    for got, want in zip(batch.to_pylist(), rows, strict=True):
        assert got == {field.name: rounded(want[field.name], field.type) for field in batch.schema}


def test_what_python_makes_of_the_twin_is_what_the_go_side_wrote() -> None:
    golden = read("insert")
    made = reprise.record_batch(twin("insert"), extra=golden.schema)
    assert set(made.schema.names) == set(golden.schema.names)
    assert made.select(golden.schema.names).to_pylist() == golden.to_pylist()
    for field in golden.schema:
        # But for nullability, which an insertion need not declare.
        assert _kind(made.schema.field(field.name).type) == _kind(field.type), field.name


def _kind(kind: pa.DataType) -> str:
    return str(kind).replace(" not null", "")


def test_every_column_of_the_wire_is_known_here() -> None:
    known = {*TOKEN_COLUMNS, *ENGINE_COLUMNS, *ROW_COLUMNS, *OTHER_COLUMNS}
    theirs = {name for name in read("insert").schema.names if not name.startswith("x_")}
    assert known - theirs == {"version"} and theirs <= known


def test_a_sampled_batch_becomes_arrays() -> None:
    batch, rows = reprise.Batch(read("sample")), twin("sample")
    assert batch.ids.tolist() == [row["id"] for row in rows]
    padded = batch.padded(pad_id=-1)
    for i, row in enumerate(rows):
        length = len(row["tokens"])
        assert padded.tokens[i, :length].tolist() == row["tokens"] and (padded.tokens[i, length:] == -1).all()
        advantages = row["advantages"] or [row["advantage"] * kept for kept in row["mask"]]
        assert padded.advantages[i, :length].tolist() == advantages
        assert padded.loss_mask[i, :length].tolist() == [kept == 1 for kept in row["mask"]]
    assert padded.values is not None and padded.values[1].tolist() == [0] * padded.tokens.shape[1]
    assert batch.column("fresh").tolist() == [row["fresh"] for row in rows]
