"""Refuses to be imported from files that are mixed with those of another project."""

from __future__ import annotations

from pathlib import Path


def refuse(folder: Path) -> None:
    """Raise ImportError if the distribution `reprise`, another project's, is installed into a folder of packages.

    It has a package `reprise` too. The later of two installations replaces files of the other, and removing one removes
    them. Looking for its metadata in the folder takes less than 1 ms; importing importlib.metadata takes 40.
    """
    for other in folder.glob("reprise-*-info"):
        raise ImportError(
            f"{other} is another project's package reprise, in the same folder as reprise-rl, and files of one have "
            "replaced the other's: pip uninstall -y reprise reprise-rl, then install ours again"
        )


refuse(Path(__file__).parents[1])
