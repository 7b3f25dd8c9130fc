"""Where the program is: the `reprise` that serves tables, trains and reports."""

from __future__ import annotations

import os
from pathlib import Path

from . import errors

WITHIN = Path(__file__).with_name("bin") / "reprise"
"""The program in a wheel of a platform."""


def find() -> str:
    """Return the path of the program: REPRISE in the environment, else the one in this package, else `reprise` on PATH.

    Raises:
        NotFound: there is none.
    """
    named = os.environ.get("REPRISE")
    if named:
        if not _runs(Path(named)):
            raise errors.NotFound(f"REPRISE: {named}: no program: want the path of reprise, as make build builds it")
        return named
    for candidate in [WITHIN, *(Path(folder, "reprise") for folder in os.get_exec_path())]:
        if _runs(candidate):
            return str(candidate)
    raise errors.NotFound(
        "this installation of reprise-rl has no program, and there is none on PATH: run pip install ./python in a clone of "
        "the repository where Go is installed, or make build there and set REPRISE to its bin/reprise"
    )


def _runs(path: Path) -> bool:
    """Tell whether a path is a native program. This package's script `reprise` is on PATH too, and calls `find`."""
    if not (path.is_file() and os.access(path, os.X_OK)):
        return False
    with path.open("rb") as file:
        return file.read(2) != b"#!"
