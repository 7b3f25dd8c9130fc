"""Install PyTorch from PyPI without NVIDIA's libraries, for tests on a CPU: 1.2 GB on disk instead of 5.

    VENV/bin/python cpu_torch.py torch==2.15.0

PyPI's PyTorch for Linux is the one for CUDA, on ARM too, and looks for NVIDIA's libraries when it is imported. CUDA's
runtime is small, and stays: it says that there is no GPU. In place of the others come libraries of the same names whose
functions do nothing, and what PyTorch asks pip for is cut accordingly. This needs a C compiler, readelf and nm; without
them, and on other systems, it does nothing, and pip installs PyTorch as it is.
"""

from __future__ import annotations

import collections
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig

NVIDIA = re.compile(r"lib(?!cudart)(cu|nccl|nv)\w*\.so\.\d+$")


def output(*command: object) -> str:
    return subprocess.run([str(part) for part in command], check=True, stdout=subprocess.PIPE, text=True).stdout


def wanted(libraries: list[pathlib.Path]) -> dict[str, dict[str, str]]:
    """Return the functions that libraries look for in each of NVIDIA's, with their versions.

    One without a version, "", may be in any library: all of these are in each library that has none with a version.
    """
    functions: dict[str, dict[str, str]] = {}
    loose: dict[str, str] = {}
    for library in libraries:
        for name in re.findall(r"NEEDED.*\[(.*)]", output("readelf", "-dW", library)):
            if NVIDIA.match(name):
                functions.setdefault(name, {})
        source = {}  # the library of each version
        for line in output("readelf", "-VW", library).splitlines():
            if found := re.search(r"File: (\S+)", line):
                file = found[1]
            elif found := re.search(r"Name: (\S+)\s+Flags", line):
                source[found[1]] = file
        for line in output("nm", "-D", "--undefined-only", library).splitlines():
            name, _, version = line.split()[-1].partition("@")
            if source.get(version) in functions:
                functions[source[version]][name] = version
            elif not version and re.match("cu|nccl|nv", name):
                loose[name] = ""
    return {name: symbols or loose for name, symbols in functions.items()}


def build(library: pathlib.Path, symbols: dict[str, str]) -> None:
    """Compile a library of functions that return 1, an error."""
    source, script = library.with_suffix(".c"), library.with_suffix(".map")
    source.write_text("".join(f"long {name}(void) {{ return 1; }}\n" for name in sorted(symbols)))
    named = collections.defaultdict(list)
    for name, version in symbols.items():
        named[version].append(f"{name};")
    script.write_text("".join(f"{version} {{ global: {' '.join(names)} }};\n" for version, names in named.items()))
    options = ["-shared", "-fPIC", "-w", f"-Wl,-soname,{library.name},--version-script={script}"]
    output("cc", *options, "-o", library, source)
    source.unlink()
    script.unlink()


def main(requirement: str) -> None:
    if sys.platform != "linux":
        return
    if missing := [tool for tool in ("cc", "readelf", "nm") if not shutil.which(tool)]:
        print(f"PyTorch comes with NVIDIA's libraries, 5 GB: there is no {' or '.join(missing)} to leave them out")
        return
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--retries", "1"]
    if code := subprocess.run([*pip, "--no-compile", "--no-deps", requirement]).returncode:
        sys.exit(code)
    packages = pathlib.Path(sysconfig.get_path("platlib"))
    folder = packages / "torch" / "lib"
    for name, symbols in wanted([*folder.glob("libtorch*.so"), *folder.glob("libc10*.so")]).items():
        build(folder / name, symbols)
    metadata = next(packages.glob("torch-*.dist-info")) / "METADATA"
    text = re.sub(r"(?m)^Requires-Dist: (cuda-bindings|nvidia|triton).*\n", "", metadata.read_text())
    metadata.write_text(re.sub(r"cuda-toolkit\[.*?\]", "cuda-toolkit[cudart]", text))


if __name__ == "__main__":
    main(*sys.argv[1:])
