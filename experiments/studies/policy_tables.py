"""cells.parquet: one row per cell and arm."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from experiments.studies.bars import best_static, speed
from experiments.studies.cell import Cell


def cells_table(cells: Mapping[str, Cell], found: Mapping[str, Any]) -> pl.DataFrame:
    """tokens_per_s: virtual; over_best_static, over_rotate_grow: ratios - 1; regret_oracle_p,
    regret_hindsight: 1 - ratio."""
    rows = []
    for name, one in found.items():
        cell, arms = cells[name], one["arms"]
        speeds = {arm: speed(figures) for arm, figures in arms.items()}
        best = best_static(arms)
        about = {
            key: value for key, value in vars(cell).items() if key not in ("name", "sizes")
        } | {"sizes": "".join(map(str, cell.sizes))}
        for arm, figures in arms.items():
            rows.append(
                {
                    "cell": name,
                    "arm": arm,
                    "evidence": "tape" if cell.family == "tape" else "synthetic",
                    **about,
                    "tokens_per_s": speeds[arm],
                    "best_static": best,
                    "over_best_static": speeds[arm] / speeds[best] - 1,
                    "over_rotate_grow": _over(speeds, arm, "rotate_grow"),
                    "regret_oracle_p": _behind(speeds, arm, "oracle_p"),
                    "regret_hindsight": _behind(speeds, arm, "hindsight"),
                    "tokens": sum(figures["tokens"]),
                    "windows": figures["windows"],
                    "rows_verified": figures["rows"],
                    "captures": figures["captures"],
                    "late_capture": figures["late_capture"],
                }
            )
    return pl.DataFrame(rows, infer_schema_length=None)


def _over(speeds: Mapping[str, float], arm: str, other: str) -> float | None:
    return speeds[arm] / speeds[other] - 1 if other in speeds else None


def _behind(speeds: Mapping[str, float], arm: str, other: str) -> float | None:
    return 1 - speeds[arm] / speeds[other] if other in speeds else None
