"""publish: versions of a model's weights for the engines of ``reprise rollout``."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

from . import errors

MANIFEST = "manifest.json"


def publish(folder: str | os.PathLike[str], version: int, save: Callable[[Path], object], *, keep: int = 3) -> Path:
    """Publish a version of the weights in a folder of its own below ``folder``, ``v7`` for version 7.

    Workers (``reprise rollout --weights FOLDER``) have their engines take the newest version that the table has
    reached: publish it first, then ``table.advance(version)``. The folder appears under its name once it is whole and on the
    disk, with a manifest of sizes and SHA-256; an existing folder of that version is replaced.

    Args:
        folder: of all versions, which the engines see under the same path.
        version: number of updates so far, 0 or more.
        save: writes a Hugging Face model into the folder that it is given: ``model.save_pretrained`` and
            ``tokenizer.save_pretrained``.
        keep: how many of the newest versions to keep, 2 or more: engines may be reading the one before.

    Returns:
        the folder of this version.

    Raises:
        Invalid: a number is out of its range, or ``save`` wrote nothing.

    >>> def save(part):  # doctest: +SKIP
    ...     model.save_pretrained(part)
    ...     tokenizer.save_pretrained(part)
    >>> reprise.publish("runs/weights", 7, save)  # doctest: +SKIP
    """
    if version < 0:
        raise errors.Invalid(f"version: {version}: want 0 or more")
    if keep < 2:
        raise errors.Invalid(f"keep: {keep}: want 2 or more: engines may be reading the version before the newest")
    place = Path(folder).absolute() / f"v{version}"
    for other in _numbers(place.parent):
        if other > version:
            raise errors.Invalid(
                f"folder: {folder}: has version {other}, of another run: remove its versions, or publish elsewhere"
            )
    part = place.with_name(place.name + ".part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    try:
        save(part)
        files = {path.relative_to(part).as_posix(): path for path in sorted(part.rglob("*")) if path.is_file()}
        if not files:
            raise errors.Invalid(f"save: it wrote nothing into {part}: want a model in Hugging Face's layout")
        manifest = {"version": version, "files": {name: _synced(path) for name, path in files.items()}}
        (part / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n")
        _synced(part / MANIFEST)
        shutil.rmtree(place, ignore_errors=True)
        part.rename(place)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise
    _sync_folder(place.parent)
    for old in sorted(_numbers(place.parent))[:-keep]:
        shutil.rmtree(place.with_name(f"v{old}"), ignore_errors=True)
    return place


def _numbers(folder: Path) -> list[int]:
    return [int(path.name[1:]) for path in folder.glob("v*") if path.name[1:].isdecimal()]


def _synced(path: Path) -> dict[str, object]:
    """Make a file survive a loss of power, and return its size and digest."""
    with path.open("rb") as file:
        digest = hashlib.sha256()
        while block := file.read(1 << 20):
            digest.update(block)
        os.fsync(file.fileno())
        return {"bytes": file.tell(), "sha256": digest.hexdigest()}


def _sync_folder(path: Path) -> None:
    if os.name == "posix":
        opened = os.open(path, os.O_RDONLY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)
