"""Calibration of the drafter: its confidence against what was accepted."""

from __future__ import annotations

import polars as pl

from experiments.report.panel import Line, Mark, Panel, Plot, View, most, shown

BINS, DEPTHS, MOST, FEWEST = 10, 3, 4, 10  # FEWEST drafts that make a point


def draw(view: View) -> list[Panel] | str:
    panels = []
    for rows in view.by_evidence():
        tapes = {row.arm.label: row.arm.runs[0].table("tape") for row in rows}
        known = [row for row in rows if tapes[row.arm.label] is not None]
        kept = most(known, MOST)
        missing = shown(known, kept, "each run's tape.parquet")
        for row in kept:
            tape = tapes[row.arm.label]
            assert tape is not None
            marks: list[Mark] = [
                Line("calibrated", [0.0, 1.0], [0.0, 1.0], 6, dashed=True, dots=False)
            ]
            marks += [
                line
                for depth in range(1, DEPTHS + 1)
                if (line := reliability(tape, depth)) is not None
            ]
            if len(marks) > 1:
                drafter = row.arm.runs[0].config.get("drafter")
                panels.append(
                    Panel(
                        f"{row.arm.label}, drafter {drafter}{missing}",
                        "confidence",
                        "accepted",
                        marks,
                        [row.arm.runs[0]],
                        x_range=(0.0, 1.0),
                        y_range=(0.0, 1.05),
                    )
                )
    return panels or "no run has a tape.parquet with confidences (experiment=record writes one)"


def reliability(tape: pl.DataFrame, depth: int) -> Line | None:
    """Of drafts whose chain was right up to them. A bin with few drafts says nothing and is left
    out."""
    name = f"confidence_{depth}"
    if name not in tape.columns:
        return None
    drafts = tape.filter((pl.col("matches") >= depth - 1) & pl.col(name).is_not_null())
    bins = drafts.group_by((pl.col(name) * BINS).floor().clip(0, BINS - 1).alias("bin")).agg(
        pl.col(name).mean().alias("confidence"),
        (pl.col("matches") >= depth).mean().alias("accepted"),
        pl.len().alias("n"),
    )
    bins = bins.filter(pl.col("n") >= FEWEST).sort("bin")
    hover = [f"n = {n}" for n in bins["n"]]
    x, y = bins["confidence"].to_list(), bins["accepted"].to_list()
    return (
        Line(f"draft {depth} (n = {bins['n'].sum()})", x, y, depth - 1, hover=hover)
        if bins.height
        else None
    )


PLOT = Plot(
    "calibration",
    "Calibration of the drafter",
    "On the dashed line a confidence is a probability; below it the drafter is too sure.",
    draw,
)
