"""Sources of frameworks without a package, at pinned commits, for tests that import their types."""

from __future__ import annotations

import os
import pathlib
import subprocess

import pytest

CACHE = pathlib.Path(os.environ.get("REPRISE_SOURCES", pathlib.Path.home() / ".cache" / "reprise" / "sources"))


def checkout(repository: str, commit: str) -> pathlib.Path:
    """Return a folder with a commit of a repository on GitHub, or skip the test where it cannot be had."""
    folder = CACHE / f"{repository.replace('/', '-')}-{commit}"
    if not (folder / ".git" / "done").exists():
        folder.mkdir(parents=True, exist_ok=True)
        url = f"https://github.com/{repository}"
        for command in (["init", "-q"], ["fetch", "-q", "--depth", "1", url, commit], ["checkout", "-qf", commit]):
            try:
                ran = subprocess.run(["git", *command], cwd=folder, capture_output=True, text=True, timeout=300,
                                     env={**os.environ, "GIT_TERMINAL_PROMPT": "0"})  # fmt: skip
            except (OSError, subprocess.TimeoutExpired) as error:
                pytest.skip(f"{url} at {commit}: {error}")
            if ran.returncode:
                pytest.skip(f"{url} at {commit}: {ran.stderr.strip()}")
        (folder / ".git" / "done").touch()
    return folder
