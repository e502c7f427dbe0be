"""`experiments.load(DIR)`: one row per run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl

from experiments.report.runs import Run, find_runs, flatten


def load(folder: str | Path) -> pl.DataFrame:
    """One row per run at or below the folder: where it is, its state and error, every config key
    as `config.key`, the scalar figures of metrics.json, nested ones as `group.name`. Failed,
    running and half-written runs have a row too."""
    return table(find_runs(Path(folder)))


def table(runs: list[Run], extra: list[dict[str, Any]] | None = None) -> pl.DataFrame:
    """extra: further columns, by run."""
    rows = []
    for run, more in zip(runs, extra or [{}] * len(runs), strict=True):
        metrics = {
            name: value
            for name, value in flatten(run.metrics).items()
            if not isinstance(value, list)
        }
        config = {f"config.{name}": value for name, value in run.config.items()}
        rows.append(
            {"folder": str(run.folder), "state": run.state, "error": run.error}
            | more
            | metrics
            | config
        )
    names = list(dict.fromkeys(name for row in rows for name in row))
    return pl.DataFrame({name: column([row.get(name) for row in rows]) for name in names})


def column(values: list[Any]) -> pl.Series:
    """Numbers stay numbers and flags flags; anything mixed becomes text, lists as JSON."""
    kinds = {type(value) for value in values if value is not None}
    if kinds <= {int} or kinds <= {bool} or kinds <= {str}:
        return pl.Series(values)
    if kinds <= {int, float}:
        return pl.Series(values, dtype=pl.Float64)
    return pl.Series(
        [
            value if value is None or isinstance(value, str) else json.dumps(value)
            for value in values
        ],
        dtype=pl.String,
    )
