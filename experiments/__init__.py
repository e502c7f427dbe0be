"""Experiments: the Hydra entry points, workloads, outputs and reports."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import polars as pl


def load(folder: str | Path) -> pl.DataFrame:
    """One row per run at or below the folder; see `experiments.report.load`."""
    from experiments.report import load as report

    return report.load(folder)


__all__ = ["load"]
