"""Layout hits and captures over time."""

from __future__ import annotations

import polars as pl

from experiments.report.panel import Line, Mark, Panel, Plot, Points, View, most, shown

MOST = 8


def draw(view: View) -> list[Panel] | str:
    panels = []
    for rows in view.by_evidence():
        known = [
            row
            for row in rows
            if row.arm.runs[0].config.get("layout", "off") != "off"
            and row.arm.runs[0].steps is not None
        ]
        kept = most(known, MOST)
        marks: list[Mark] = []
        for colour, row in enumerate(kept):
            steps, name = row.arm.runs[0].steps, row.arm.label
            assert steps is not None
            path = steps.filter(pl.col("kind") == "window")["path"]
            hits = (path == "replayed").cast(pl.Float64).cum_sum() / (
                pl.Series(range(path.len())) + 1
            )
            marks.append(
                Line(name, list(range(path.len())), hits.to_list(), colour, dots=False, arm=name)
            )
            captures = [i for i, how in enumerate(path) if how == "capturing"]
            marks.append(
                Points(
                    f"{name}: captures",
                    captures,
                    [hits[i] for i in captures],
                    colour,
                    "diamond",
                    arm=name,
                    legend=False,
                )
            )
        if marks:
            title = "Windows replayed so far" + shown(known, kept, "each run's steps.parquet")
            panels.append(
                Panel(
                    title,
                    "window",
                    "share",
                    marks,
                    [row.arm.runs[0] for row in kept],
                    wide=True,
                    y_range=(-0.02, 1.05),
                )
            )
    return panels or "no run has captured layouts and steps.parquet (layout=off)"


PLOT = Plot(
    "layouts",
    "Layout hits and captures",
    "The share of windows so far that replayed a captured pair; a diamond is a capture.",
    draw,
)
