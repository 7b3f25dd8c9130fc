"""The keys of a table: types and editors know them, and the service says all that is wrong with them at once."""

from __future__ import annotations

import pathlib
import re
import typing
from collections.abc import Callable
from typing import Any

import pytest
from conftest import ROOT, Server
from mypy import api

import reprise
from reprise import definition

CALLS = """
from __future__ import annotations

import math

import reprise
from reprise import aio
from reprise.trl import Replay


def right(client: reprise.Client) -> None:
    client.create("a", capacity=8, sampler="lifo", age_decay=math.inf, columns={"x_a": "int8"}, max_size=8, parts=2)
    client.create("a", reprise.Definition(capacity=8, limiter=reprise.Limiter(1, 8)))
    reprise.serve(tables={"a": {"capacity": 8}, "b": reprise.Definition(unit="group", group_size=2)})
    Replay(sampler="lifo", options={"age_decay": 20})
    keys: reprise.Keys = {"capacity": 8}
    client.create("a", **keys)


def wrong(client: reprise.Client) -> None:
    client.create("a", capacity="x")
    client.create("a", samplr="lifo")
    client.create("a", sampler="lfio")
    client.create("a", reprise.Definition(capacity="x"))
    client.create("a", limiter=3)
    client.create("a", columns=["x_a"])
    reprise.serve(tables={"a": {"capacty": 8}})
    Replay(options={"capacity": "x"})
    Replay(sampler="x")


async def awaited(client: aio.Client) -> aio.Table:
    await client.create("a", capacity="x")
    return await client.create("a", capacity=8)
"""


def test_mypy_knows_every_key_and_its_type(tmp_path: pathlib.Path) -> None:
    source = tmp_path / "calls.py"
    source.write_text(CALLS)
    config = ROOT / "python" / "pyproject.toml"
    command = ["--config-file", str(config), "--strict", "--cache-dir", str(tmp_path / "cache"), str(source)]
    out, problems, _ = api.run(command)
    assert not problems
    lines = CALLS.split("\n")
    found = {int(line) for line in re.findall(r"calls\.py:(\d+): error", out)}
    begin, end = lines.index("def wrong(client: reprise.Client) -> None:"), lines.index("async def awaited"
        "(client: aio.Client) -> aio.Table:")  # fmt: skip
    assert found == {*range(begin + 2, end - 1), end + 2}, out


def test_every_key_has_a_doc_that_editors_show() -> None:
    keys = typing.get_type_hints(definition.Keys, {**vars(definition), **vars(typing)})
    assert {"capacity", "limiter", "max_size"} <= keys.keys()
    source = pathlib.Path(definition.__file__).read_text()
    _, _, body = source.partition("class Keys(")
    documented = re.findall(r'^    (\w+): .+\n    """\S', body, re.MULTILINE)
    assert documented == list(keys)
    assert all(f"\n            {name}: " in (definition.Creator.create.__doc__ or "") for name in keys)


WRONG: dict[str, Any] = {"capacity": "x", "samplr": "lifo", "positive_share": 2}

ALL = re.escape(
    'capacity: "x": want a whole number; samplr: unknown key: want sampler; positive_share: 2: want 0 to 1'
) + "$"  # fmt: skip


@pytest.mark.parametrize(
    ("keys", "want"),
    [
        (WRONG, ALL),
        ({"capacity": 7.5, "min_size": 9, "group_size": 9}, r"table \"t\": capacity: 7.5: want a whole number$"),
        ({"gate": reprise.Gate(1, "x")}, r'gate.max_staleness: "x": want a whole number$'),  # type: ignore[arg-type]
        ({"columns": {"x_a": "int7"}, "vocab": -1}, "vocab: -1: want .*; columns.0..type: .int7.: .* is no type"),
        ({"columns": ["x_a"], "limiter": 3}, "columns.0.: x_a: want a mapping with name, type; limiter: 3: want a mapping"),
        ({"sampler": "prioritized", "age_decay": "soon"}, "age_decay: soon: want versions, or inf for none"),
    ],
)
def test_all_that_is_wrong_is_told_at_once(client: reprise.Client, keys: dict[str, Any], want: str) -> None:
    with pytest.raises(reprise.Invalid, match=want):
        client.create("t", **keys)


def test_a_table_in_parts_and_one_that_is_served_are_told_the_same(
    server: Server, binary: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REPRISE", str(binary))
    with reprise.serve() as service, reprise.connect([server.address, service.address]) as client:
        with pytest.raises(reprise.Invalid, match=ALL):
            client.create("t", **WRONG)
    with pytest.raises(reprise.Invalid, match=ALL):
        reprise.serve(tables={"t": typing.cast(reprise.Keys, WRONG)})


def test_keys_and_a_definition_are_one_or_the_other(table: Callable[..., reprise.Table]) -> None:
    assert table(max_size=8).info().definition["capacity"] == 8
    for definition_given, keys, want in (
        (reprise.Definition(capacity=8), {"capacity": 8}, "definition: next to capacity: want one or the other"),
        ({"capacity": 8}, {}, "definition: .*: want a reprise.Definition"),
        (None, {"capacity": 8, "max_size": 8}, "max_size: another name for capacity"),
        (None, {"parts": 2}, "parts: 2: want 1 on one service"),
    ):
        with pytest.raises(reprise.Invalid, match=want):
            table(definition=definition_given, **keys)
