"""A wheel of a platform carries the program: make wheels sets REPRISE_WHEEL_PROGRAM and REPRISE_WHEEL_PLATFORM."""

import os
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Program(BuildHookInterface):
    """Puts the program into the package, and its platform into the wheel's tag. Without one the wheel is pure."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        program = os.environ.get("REPRISE_WHEEL_PROGRAM")
        if program and version == "standard":
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-{os.environ['REPRISE_WHEEL_PLATFORM']}"
            build_data["force_include"][os.path.abspath(program)] = "reprise/bin/reprise"
