"""The state of an unfinished training on disk: whole, or as it was before."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import torch

from experiments.config.checks import BadInput
from mtp.files import whole


def save(state: dict[str, Any], file: Path) -> None:
    with whole(file) as aside:
        torch.save(state, aside)


def recipe_in(file: Path) -> dict[str, Any]:
    """What it is a training of, without the rest being read. Raises BadInput as below."""
    recipe: dict[str, Any] = saved(file, mapped=True)["recipe"]
    return recipe


def saved(file: Path, *, mapped: bool = False) -> dict[str, Any]:
    """Raises BadInput for a file that is not whole."""
    try:
        state = torch.load(file, weights_only=True, mmap=mapped)
        if not isinstance(state, dict) or "recipe" not in state:
            raise ValueError("it holds no recipe")
        return state
    except (OSError, EOFError, RuntimeError, ValueError, pickle.UnpicklingError) as wrong:
        why = " ".join(str(wrong).split())[:200]
        raise BadInput(
            f"out holds {file}, which cannot be read ({why}), expected a whole checkpoint, or none"
        ) from wrong
