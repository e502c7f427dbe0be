"""The way into a Hydra job that has one config and no sweep: what cannot be used is refused
before Hydra makes a folder for it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.errors import HydraException
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from experiments.config.checks import BadInput
from experiments.config.overrides import shows
from experiments.io import PROJECT

CONFIGS = str(PROJECT / "configs")


def enter(
    name: str, arguments: Sequence[str], check: Callable[[DictConfig], Any], job: Callable[[], Any]
) -> int:
    """The exit code: 2 with one line for input that cannot be used. name: of the config; check:
    raises BadInput."""
    if not shows(arguments):
        try:
            with initialize_config_dir(CONFIGS, version_base="1.3"):
                check(
                    compose(name, overrides=[one for one in arguments if not one.startswith("-")])
                )
        except (BadInput, HydraException, OmegaConfBaseException) as wrong:
            return refuse(wrong)
    job()
    return 0


def refuse(wrong: Exception) -> int:
    print(f"error: {' '.join(str(wrong).split())}", file=sys.stderr)
    return 2
