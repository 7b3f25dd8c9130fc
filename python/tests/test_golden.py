"""The golden files of package wire: what the Go side writes, Python reads; and what Python makes, the Go side would have made."""

from __future__ import annotations

import base64
import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from conftest import ROOT

import reprise
from reprise import schema

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
        return {kind.field(i).name: rounded(value[kind.field(i).name], kind.field(i).type) for i in range(kind.num_fields)}
    return value


@pytest.mark.parametrize("name", ["insert", "sample"])
def test_what_the_go_side_writes_reads_as_its_twin_says(name: str) -> None:
    batch, rows = read(name), twin(name)
    assert batch.schema.metadata[b"reprise.schema"] == schema.VERSION.encode()
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
    known = {*schema.TOKEN_COLUMNS, *schema.ROW_COLUMNS, *schema.OTHER_COLUMNS}
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
