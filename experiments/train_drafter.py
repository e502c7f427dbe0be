"""The Hydra entry point of training a drafter for a frozen target.

`python -m experiments.train_drafter target.path=DIR out=DIR`
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import hydra
from omegaconf import DictConfig, OmegaConf
from rich.console import Console

from experiments.config import resolvers
from experiments.config.build import folder
from experiments.config.checks import BadInput
from experiments.runs.entry import CONFIGS, enter, refuse
from experiments.runs.spec import checked_target
from experiments.training.drafters.recipe import DrafterRecipe


def settings(config: DictConfig) -> tuple[DrafterRecipe, Path, str, Path]:
    """Recipe, the target's folder and dtype, and what to write. Raises BadInput."""
    values: Any = OmegaConf.to_container(config)
    target, out, _ = (values.pop(name) for name in ("target", "out", "drafter"))
    if not isinstance(out, str) or not out:
        raise BadInput(f"out is {out!r}, expected a folder")
    recipe = DrafterRecipe.of(values)
    checked_target(config.target)
    # not measured: it has to be the same after a kill
    dtype = "stored" if target["dtype"] == "auto" else target["dtype"]
    return recipe, Path(folder("target.path", config.target)), dtype, Path(out)


@hydra.main(version_base="1.3", config_path=CONFIGS, config_name="train_drafter")
def job(config: DictConfig) -> None:
    from experiments.training.drafters.card import table
    from experiments.training.drafters.session import Session

    console = Console()
    try:
        recipe, path, dtype, out = settings(config)
        found = Session(recipe, path, dtype, out, console).run()
    except BadInput as wrong:
        sys.exit(refuse(wrong))
    console.print(table(found), highlight=False, soft_wrap=True)
    drafter = "gemma_assistant" if recipe.style == "assistant" else recipe.style
    console.print(
        f"written: {out} (use it with drafter={drafter} drafter.path={out})",
        highlight=False,
        markup=False,
        soft_wrap=True,
    )


def run(arguments: Sequence[str]) -> int:
    """The exit code."""
    resolvers.register()
    return enter("train_drafter", arguments, settings, job)


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
