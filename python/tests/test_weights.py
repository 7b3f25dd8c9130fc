"""Published weights, as engine/publish_test.go checks those of the Go trainer."""

from pathlib import Path

import pytest
import reprise

# What engine.Publish writes for the same file.
MANIFEST = """{
  "version": 7,
  "files": {
    "config.json": {
      "bytes": 2,
      "sha256": "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
    }
  }
}
"""


def save(folder: Path) -> None:
    (folder / "config.json").write_text("{}")


def test_versions_are_whole_and_only_the_newest_stay(tmp_path: Path) -> None:
    place = reprise.publish(tmp_path / "weights", 7, save)
    assert place == tmp_path / "weights" / "v7"
    assert (place / "manifest.json").read_text() == MANIFEST
    for version in (8, 9, 10, 10):
        reprise.publish(tmp_path / "weights", version, save, keep=2)
    assert sorted(path.name for path in (tmp_path / "weights").iterdir()) == ["v10", "v9"]


def test_what_fails_leaves_nothing(tmp_path: Path) -> None:
    def full(folder: Path) -> None:
        save(folder)
        raise OSError("the disk is full")

    with pytest.raises(OSError, match="disk is full"):
        reprise.publish(tmp_path, 1, full)
    with pytest.raises(reprise.Invalid, match="save: it wrote nothing"):
        reprise.publish(tmp_path, 1, lambda _: None)
    with pytest.raises(reprise.Invalid, match="version: -1: want 0 or more"):
        reprise.publish(tmp_path, -1, save)
    with pytest.raises(reprise.Invalid, match="keep: 1: want 2 or more"):
        reprise.publish(tmp_path, 1, save, keep=1)
    assert list(tmp_path.iterdir()) == []
    reprise.publish(tmp_path, 5, save)
    with pytest.raises(reprise.Invalid, match="has version 5, of another run"):
        reprise.publish(tmp_path, 4, save)
