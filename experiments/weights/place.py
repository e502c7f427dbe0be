"""Where converted weights are: a folder a name, in the user's cache."""

from __future__ import annotations

import os
from pathlib import Path

HOME = "MTPLAB_WEIGHTS"  # the environment variable that moves them


def root() -> Path:
    """$MTPLAB_WEIGHTS, else mtplab/weights in $XDG_CACHE_HOME, else in ~/.cache."""
    if moved := os.environ.get(HOME):
        return Path(moved).expanduser().absolute()
    cache = os.environ.get("XDG_CACHE_HOME")
    return (
        (Path(cache) if cache and Path(cache).is_absolute() else Path.home() / ".cache")
        / "mtplab"
        / "weights"
    )


def folder_of(name: str) -> Path:
    return root() / name


def how_to_get(path: Path) -> str | None:
    """What to say where a folder of converted weights is not there; None for any other path."""
    return (
        f"target {path.name} is not here: make weights NAME={path.name}"
        if path.parent == root()
        else None
    )
