"""The names and arguments of the release before go on: docs/upgrades.md."""

from __future__ import annotations

import inspect
import json
import os
import pathlib
from typing import Any

import reprise

FILE = pathlib.Path(__file__).with_name("api.json")


def arguments(what: Any) -> list[str]:
    """Return the names of the arguments of a function or class that callers may give by name; [] for what is neither."""
    if what is reprise.Keys:  # the keyword arguments of create and serve
        return sorted(what.__annotations__)
    try:
        parameters = inspect.signature(what).parameters.values()
    except (TypeError, ValueError):
        return []
    return [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY) and p.name != "self"]


def published() -> dict[str, list[str]]:
    """Return the public names, methods included, with their arguments."""
    names: dict[str, list[str]] = {}
    for name in reprise.__all__:
        value = getattr(reprise, name)
        names[name] = arguments(value)
        if inspect.isclass(value):
            for member, of in inspect.getmembers(value):
                if not member.startswith("_") and not hasattr(BaseException, member):
                    names[f"{name}.{member}"] = arguments(of)
    return names


def missing(then: dict[str, list[str]], now: dict[str, list[str]]) -> list[str]:
    """Return what a release had and this version lacks."""
    gone = [name for name in then if name not in now]
    return gone + [f"{name}({a})" for name in then if name in now for a in then[name] if a not in now[name]]


def test_what_a_release_published_is_still_there() -> None:
    if os.environ.get("REPRISE_WRITE_API"):  # before the tag of a release
        FILE.write_text(json.dumps(published(), indent=1, sort_keys=True) + "\n")
    then = json.loads(FILE.read_text())
    assert len(then) > 150 and "capacity" in then["Keys"]
    assert missing(then, published()) == []


def test_a_name_or_an_argument_that_is_gone_is_told() -> None:
    now = published()
    fewer = {name: [a for a in of if a != "max_staleness"] for name, of in now.items() if name != "Table.sample"}
    gone = missing(now, fewer)
    assert "Table.sample" in gone and "Keys(max_staleness)" in gone
