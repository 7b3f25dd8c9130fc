"""Exports as Hugging Face's datasets reads them. The package is no requirement: without it these tests are skipped."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from conftest import BINARY, rollouts

import reprise

Create = Callable[..., reprise.Table]

datasets = pytest.importorskip("datasets", reason="Hugging Face's datasets is not installed")


@pytest.fixture
def filled(table: Create) -> reprise.Table:
    t = table(unknown_logprobs=True, columns=[{"name": "x_vector", "type": "fixed_size_list<float32, 2>"}])
    t.advance(5)
    t.insert(rollouts([4, 9, 5, 6]), text=["", "ä\n", "b", "c"], meta=[{"a": "b"}, {}, {}, {}],
             images=[[b"\xff"], [], [], []], turns=[[], [{"start": 3, "end": 9, "reward": 0.5, "done": True}], [], []],
             x_vector=[[1.0, 2.0], None, None, [3.0, 4.0]])  # fmt: skip
    unknown = rollouts([5, 5], seed=1, version=3)
    unknown["logprobs"] = [[float("nan") if kept else 0.0 for kept in mask] for mask in [[0, 0, 1, 1, 1]] * 2]
    t.insert(unknown)
    return t


def export(table: reprise.Table, to: Path, *flags: str) -> str:
    address = table._connection.address
    subprocess.run([BINARY, "export", f"{address}/{table.name}", "--out", to, *flags], check=True)
    return str(to)


def load(folder: str, name: str | None = None) -> pa.Table:
    loaded = datasets.load_dataset(folder, name, split="train", cache_dir=f"{folder}-cache")
    return loaded.with_format("arrow")[:]


@pytest.mark.parametrize("format", ["parquet", "jsonl"])
def test_a_dataset_has_what_the_table_has(filled: reprise.Table, tmp_path: Path, format: str) -> None:
    loaded = load(export(filled, tmp_path / "table", "--format", format))
    expected = filled.export()
    assert loaded.schema.names == expected.schema.names
    for name in expected.schema.names:
        got, want = loaded[name].combine_chunks(), expected[name].combine_chunks()
        if name == "meta":
            want = want.cast(pa.list_(pa.struct([("key", pa.string()), ("value", pa.string())])))
            assert got.to_pylist() == want.to_pylist()
        elif name == "images" and format == "jsonl":
            assert got.to_pylist()[0] == ["/w=="]  # base64
        elif name == "logprobs":
            np.testing.assert_array_equal(
                got.flatten().to_numpy(zero_copy_only=False), want.flatten().to_numpy(zero_copy_only=False)
            )
        else:
            assert got.to_pylist() == want.to_pylist(), name
    types = {name: str(loaded.schema.field(name).type) for name in ("id", "tokens", "mask", "reward", "probability")}
    item = "list<item: {}>" if "item" in types["tokens"] else "list<element: {}>"
    assert types == {"id": "uint64", "tokens": item.format("int32"), "mask": item.format("uint8"), "reward": "float",
                     "probability": "double"}  # fmt: skip


@pytest.mark.parametrize("format", ["parquet", "jsonl"])
def test_a_version_is_loaded_by_name(filled: reprise.Table, tmp_path: Path, format: str) -> None:
    folder = export(filled, tmp_path / "table", "--format", format, "--by-version")
    assert load(folder, "version-0").num_rows == 4
    assert load(folder, "version-3").num_rows == 2
    assert sorted(load(folder)["id"].to_pylist()) == filled.export()["id"].to_pylist()


def test_a_part_of_a_table_is_loaded(filled: reprise.Table, tmp_path: Path) -> None:
    flags = ["--format", "jsonl", "--where", "!known(mean_logprob)", "--columns", "id,logprobs"]
    loaded = load(export(filled, tmp_path / "table", *flags))
    assert loaded.schema.names == ["id", "logprobs"] and loaded.num_rows == 2
