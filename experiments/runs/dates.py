"""The date that a chat template may write into prompts: one for all jobs of a sweep, so that they
are given the same prompts, and kept when it goes on another day."""

from __future__ import annotations

import os
from datetime import date
from pathlib import Path

from hydra.utils import to_absolute_path
from omegaconf import DictConfig, OmegaConf

TODAY = "MTPLAB_TODAY"  # the environment variable by which a sweep tells its jobs


def today() -> str:
    """The day on which this process, or the sweep it belongs to, began."""
    return os.environ.setdefault(TODAY, date.today().isoformat())


def begun_on(day: str) -> None:
    """From now on this process and those it starts belong to that day."""
    os.environ[TODAY] = day


def settle_date(config: DictConfig) -> None:
    """`workload.date` becomes the date that prompts depend on, null where they depend on none.

    Raises BadInput for a chat template that cannot be read."""
    if "date" not in config.workload:
        return
    from experiments.workloads.chat import asks_for_date  # needs jinja2, which tapes do without

    folder = OmegaConf.select(config, "target.path", throw_on_missing=False)
    asked = folder is not None and asks_for_date(
        Path(to_absolute_path(str(folder))), str(config.workload.chat)
    )
    config.workload.date = (config.workload.date or today()) if asked else None
