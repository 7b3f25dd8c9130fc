"""What a table's keys are to the service: `definition` has the keys."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from .errors import Invalid


class Options:
    """A dataclass whose None and empty fields mean the service's defaults."""

    def asdict(self) -> dict[str, Any]:
        """Return the fields that are set, as the service's JSON."""
        return _json({entry.name: getattr(self, entry.name) for entry in fields(self)})  # type: ignore[arg-type]


def given(definition: object, keys: Mapping[str, object]) -> dict[str, Any]:
    """Return keys that are given one by one or as a definition, as the service's JSON. The service says what is wrong
    with them, all at once."""
    if definition is None:
        if "max_size" in keys:
            if "capacity" in keys:
                raise Invalid("max_size: another name for capacity, which was given too: want one of them")
            keys = {"capacity" if name == "max_size" else name: value for name, value in keys.items()}
        return _json(keys)
    if keys:
        raise Invalid(f"definition: next to {', '.join(keys)}: want one or the other")
    if not isinstance(definition, Options):
        raise Invalid(f"definition: {definition!r}: want a reprise.Definition, or its keys by name: capacity=4096")
    return definition.asdict()


def _json(values: Mapping[str, object]) -> dict[str, Any]:
    return {name: _plain(name, value) for name, value in values.items() if value is not None and value != {}}


def _plain(name: str, value: object) -> object:
    if isinstance(value, Options):
        return value.asdict()
    if name == "columns" and isinstance(value, Mapping):
        return [{"name": column, "type": kind} for column, kind in value.items()]
    if isinstance(value, (list, tuple)):
        return [_plain("", each) for each in value]
    if isinstance(value, float) and math.isinf(value):
        return "inf"
    return value
