"""A wheel carries the program: that of REPRISE_WHEEL_PROGRAM, or one that Go builds from the source beside this folder.

`make wheels` sets REPRISE_WHEEL_PROGRAM and REPRISE_WHEEL_PLATFORM. REPRISE_WHEEL_PROGRAM=none makes a wheel without the
program, for any platform.
"""

import os
import pathlib
import shutil
import subprocess
import sysconfig
import tempfile
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

REMEDY = (
    "install Go, 1.21 or newer, which fetches the toolchain of go.mod, and install from a clone of the repository again; or set "
    "REPRISE_WHEEL_PROGRAM to the path of a program that make build built, or to none for the client alone"
)


class Program(BuildHookInterface):
    """Puts the program into the package, and its platform into the wheel's tag."""

    built = ""  # the folder of a program that was built here

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        program = os.environ.get("REPRISE_WHEEL_PROGRAM") or None
        if version != "standard" or program == "none":
            return
        here = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{os.environ.get('REPRISE_WHEEL_PLATFORM', here)}"
        build_data["force_include"][os.path.abspath(program or self.build())] = "reprise/bin/reprise"

    def build(self) -> str:
        """Build the program and return its path."""
        source, go = pathlib.Path(self.root).parent, shutil.which("go")
        if not (source / "cmd" / "reprise").is_dir():
            self.app.abort(f"the source of the program is not beside {self.root}: {REMEDY}")
        if go is None:
            self.app.abort(f"the program is written in Go, and there is no go on PATH: {REMEDY}")
        self.built = tempfile.mkdtemp(prefix="reprise-")
        program = os.path.join(self.built, "reprise")
        command = [str(go), "build", "-buildvcs=auto", "-ldflags=-s -w", "-o", program, "./cmd/reprise"]
        # Without SIMD tensors are eight times slower. Go fetches the toolchain of go.mod if its own is older, also where
        # an image of Go has set GOTOOLCHAIN=local.
        env = {**os.environ, "GOEXPERIMENT": "simd", "GOTOOLCHAIN": "auto"}
        ran = subprocess.run(command, cwd=source, env=env, text=True,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT)  # fmt: skip
        if ran.returncode != 0:
            self.finalize("", {}, "")
            self.app.abort(f"go build ended with exit code {ran.returncode}:\n{ran.stdout}\n{REMEDY}")
        return program

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if self.built:
            shutil.rmtree(self.built, ignore_errors=True)
