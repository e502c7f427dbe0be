"""Jobs of a sweep that were never run: what Hydra noted at its start against the folders that are there."""

from __future__ import annotations

from pathlib import Path

import yaml
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException

from experiments.report.runs import LOADER, first_line


def not_run(folder: Path) -> list[str]:
    """The overrides of each job that has no folder, for every sweep at or below the folder (its multirun.yaml)."""
    missing: list[str] = []
    for file in sorted(folder.rglob("multirun.yaml")):
        done = {frozenset(saved) for job in file.parent.rglob(".hydra/overrides.yaml") if (saved := overrides_of(job)) is not None}
        try:
            missing += [" ".join(job) for job in jobs_of(file) if frozenset(job) not in done]
        except (OSError, yaml.YAMLError, KeyError, TypeError, HydraException) as wrong:
            missing.append(f"unknown: {file} cannot be read ({first_line(wrong)})")
    return missing


def jobs_of(file: Path) -> list[list[str]]:
    """The overrides of every job, as Hydra's own sweeper splits them."""
    saved = yaml.load(file.read_text(encoding="utf-8"), LOADER)["hydra"]
    given = [f"{key}={value}" for key, value in (saved["sweeper"].get("params") or {}).items()] + saved["overrides"]["task"]
    batches = BasicSweeper.split_arguments(OverridesParser.create().parse_overrides(given), None)
    return [list(job) for batch in batches for job in batch]


def overrides_of(file: Path) -> list[str] | None:
    try:
        return yaml.load(file.read_text(encoding="utf-8"), LOADER) or []
    except (OSError, yaml.YAMLError):
        return None
