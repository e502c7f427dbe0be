"""Window time against rows, with the fitted line."""

from __future__ import annotations

import numpy as np
import polars as pl

from experiments.report.panel import Line, Mark, Panel, Plot, Points, View, most, shown
from experiments.report.runs import Run

MOST = 6


def draw(view: View) -> list[Panel] | str:
    panels = []
    for rows in view.by_evidence():
        known = [row for row in rows if any(run.steps is not None for run in row.arm.runs)]
        kept = most(known, MOST)
        marks: list[Mark] = []
        for colour, row in enumerate(kept):
            windows = pl.concat(
                [times for run in row.arm.runs if (times := window_times(run)) is not None]
            )
            if not windows.height:
                continue
            by = (
                windows.group_by("x")
                .agg(
                    pl.col("ms").median().alias("mid"),
                    pl.col("ms").quantile(0.1).alias("low"),
                    pl.col("ms").quantile(0.9).alias("high"),
                    pl.len().alias("n"),
                )
                .sort("x")
            )
            # intervals side by side
            name, aside = (
                row.arm.label,
                0.05 * (colour - (len(kept) - 1) / 2),
            )
            x = [rows + aside for rows in by["x"]]
            hover = [f"{name}: median of n = {n} windows, p10 to p90" for n in by["n"]]
            fit = fitted(windows)
            legend = (
                f"{name}: {fit[0]:.2f} + {fit[1]:.3f} × rows ms"
                if fit
                else f"{name}: one row count"
            )
            marks.append(
                Points(
                    legend,
                    x,
                    by["mid"].to_list(),
                    colour,
                    low=by["low"].to_list(),
                    high=by["high"].to_list(),
                    arm=name,
                    hover=hover,
                )
            )
            if fit:
                marks.append(
                    Line(
                        name,
                        [x[0], x[-1]],
                        [fit[0] + fit[1] * x[0], fit[0] + fit[1] * x[-1]],
                        colour,
                        dots=False,
                        arm=name,
                        legend=False,
                    )
                )
        if marks:
            runs = [run for row in kept for run in row.arm.runs]
            panels.append(
                Panel(
                    "Window time" + shown(known, kept, "each run's steps.parquet"),
                    "rows, padding included",
                    "ms",
                    marks,
                    runs,
                    wide=True,
                    height=380,
                    whole_x=True,
                )
            )
    return panels or "no run has steps.parquet"


def window_times(run: Run) -> pl.DataFrame | None:
    """x: rows, ms: of verify and commit, of every window without a capture."""
    if run.steps is None:
        return None
    windows = run.steps.filter((pl.col("kind") == "window") & (pl.col("path") != "capturing"))
    ms = (1000 * (pl.col("verify_s") + pl.col("commit_s"))).alias("ms")
    return windows.select((pl.col("rows") + pl.col("padded")).alias("x"), ms)


def fitted(windows: pl.DataFrame) -> tuple[float, float] | None:
    """Least squares over all windows: ms = a + b * rows."""
    if windows["x"].n_unique() < 2:
        return None
    slope, start = np.polyfit(windows["x"].to_numpy(), windows["ms"].to_numpy(), 1)
    return float(start), float(slope)


PLOT = Plot(
    "window_time",
    "Window time against rows",
    "Medians, p10 to p90; lines by least squares over all windows. Windows that captured a graph "
    "are left out.",
    draw,
)
