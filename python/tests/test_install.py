"""What is installed: a wheel with the program, and another project's package of the same name beside ours."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys
import sysconfig
import zipfile

import pytest
from conftest import ROOT

PACKAGE = ROOT / "python" / "src" / "reprise"


def python(folder: pathlib.Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python with a folder of packages, and without a program but the folder's."""
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        [sys.executable, *arguments], env=environment, capture_output=True, text=True, timeout=120
    )


def install_ours(folder: pathlib.Path) -> None:
    shutil.copytree(PACKAGE, folder / "reprise", dirs_exist_ok=True)
    (folder / "reprise_rl-0.1.0.dist-info").mkdir()


def install_the_other(folder: pathlib.Path, metadata: str) -> None:
    """Write its files as an installer does, over those that are there."""
    (folder / "reprise").mkdir(exist_ok=True)
    (folder / "reprise" / "__init__.py").write_text("print('imported the other')\n")
    (folder / metadata).mkdir()


@pytest.mark.parametrize("metadata", ["reprise-1.0.0.dist-info", "reprise-1.0.0-py3.11.egg-info"])
def test_another_package_of_this_name_is_refused(tmp_path: pathlib.Path, metadata: str) -> None:
    install_ours(tmp_path)
    assert python(tmp_path, "-c", "import reprise; reprise.connect").returncode == 0
    shutil.rmtree(tmp_path / "reprise_rl-0.1.0.dist-info")
    install_the_other(tmp_path, metadata)
    install_ours(tmp_path)
    ran = python(tmp_path, "-c", "import reprise")
    assert f"ImportError: {tmp_path / metadata} is another project's package reprise" in ran.stderr
    assert "pip uninstall -y reprise reprise-rl, then install ours again" in ran.stderr


@pytest.mark.parametrize("line", ["import reprise.adapters", "from reprise import torch", "from reprise import client"])
def test_it_is_refused_too_where_its_init_replaced_ours(tmp_path: pathlib.Path, line: str) -> None:
    if "torch" in line:
        pytest.importorskip("torch", reason="torch is not installed: pip install torch")
    install_ours(tmp_path)
    install_the_other(tmp_path, "reprise-1.0.0.dist-info")
    ran = python(tmp_path, "-c", line)
    assert "imported the other" in ran.stdout
    assert "is another project's package reprise" in ran.stderr


def test_a_wheel_carries_the_program(tmp_path: pathlib.Path, binary: pathlib.Path) -> None:
    platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    environment = os.environ | {"REPRISE_WHEEL_PROGRAM": str(binary), "REPRISE_WHEEL_PLATFORM": platform}
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT / "python", env=environment, check=True, capture_output=True, timeout=300)
    wheel = tmp_path / f"reprise_rl-0.1.0-py3-none-{platform}.whl"
    install = [sys.executable, "-m", "pip", "install", "--no-deps", "--no-index", "--target", str(tmp_path / "site")]
    subprocess.run([*install, str(wheel)], check=True, capture_output=True, timeout=300)
    code = "import reprise; s = reprise.serve(); print(s.list(), s.create('math', capacity=4).name); s.close()"
    ran = python(tmp_path / "site", "-c", code)
    assert ran.stdout == "[] math\n", ran.stderr
    script = python(tmp_path / "site", str(tmp_path / "site" / "bin" / "reprise"), "serve", "--help")
    assert "--stop-at-eof" in script.stdout, script.stderr


def test_a_wheel_without_the_program_is_for_any_platform(tmp_path: pathlib.Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    environment = os.environ | {"REPRISE_WHEEL_PROGRAM": "none"}
    subprocess.run(build, cwd=ROOT / "python", env=environment, check=True, capture_output=True, timeout=300)
    with zipfile.ZipFile(tmp_path / "reprise_rl-0.1.0-py3-none-any.whl") as wheel:
        names = wheel.namelist()
    assert "reprise/__main__.py" in names and "reprise/bin/reprise" not in names


def build_wheel(tmp_path: pathlib.Path, project: pathlib.Path, go: str) -> subprocess.CompletedProcess[str]:
    """Build a wheel of a copy of the project, with a program ``go`` that is this script."""
    folder = tmp_path / "path"
    folder.mkdir(exist_ok=True)
    if go:
        (folder / "go").write_text(go)
        (folder / "go").chmod(0o755)
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path / "dist")]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("REPRISE_WHEEL")}
    environment["PATH"] = f"{folder}:/usr/bin:/bin"
    return subprocess.run(build, cwd=project, env=environment, capture_output=True, text=True, timeout=300)


def test_a_wheel_from_the_source_has_the_program_that_go_builds(tmp_path: pathlib.Path) -> None:
    project = tmp_path / "clone" / "python"
    shutil.copytree(ROOT / "python", project, ignore=shutil.ignore_patterns("tests", "__pycache__"))
    if shutil.which("go", path="/usr/bin:/bin") is None:
        (tmp_path / "clone" / "cmd" / "reprise").mkdir(parents=True)
        ran = build_wheel(tmp_path, project, "")
        assert ran.returncode != 0 and "there is no go on PATH: install Go" in ran.stdout + ran.stderr
        shutil.rmtree(tmp_path / "clone" / "cmd")
    ran = build_wheel(tmp_path, project, "#!/bin/sh\nexit 0\n")
    assert ran.returncode != 0 and f"the source of the program is not beside {project}: " in ran.stdout + ran.stderr
    (tmp_path / "clone" / "cmd" / "reprise").mkdir(parents=True)
    ran = build_wheel(tmp_path, project, "#!/bin/sh\necho no such import; exit 3\n")
    said = ran.stdout + ran.stderr
    assert ran.returncode != 0 and "go build ended with exit code 3:\nno such import\n" in said
    go = '#!/bin/sh\ntest $GOEXPERIMENT = simd && test $GOTOOLCHAIN = auto && test -d cmd/reprise && for a; do test "$w" = -o && echo built >$a && chmod 755 $a; w=$a; done\n'
    ran = build_wheel(tmp_path, project, go)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    (built,) = (tmp_path / "dist").iterdir()
    platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    assert built.name == f"reprise_rl-0.1.0-py3-none-{platform}.whl"
    with zipfile.ZipFile(built) as wheel:
        assert wheel.read("reprise/bin/reprise") == b"built\n"
        assert wheel.getinfo("reprise/bin/reprise").external_attr >> 16 & 0o100, "it can be executed"
