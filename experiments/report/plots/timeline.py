"""The window timeline: how a policy shares the window."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from experiments.report.grant_marks import windows_of_grants
from experiments.report.panel import Bars, Mark, Panel, Plot, Points, View, left_out, most, shown
from experiments.report.runs import Run

MOST, WINDOWS, FIRST = 4, 240, 60  # panels, windows that can be scrolled to, windows at first sight


def draw(view: View) -> list[Panel] | str:
    panels = []
    for rows in view.by_evidence():
        with_rounds = [
            row
            for row in rows
            if row.arm.runs[0].rounds is not None and row.arm.runs[0].rounds.height
        ]
        kept = most(with_rounds, MOST)
        for row in kept:
            run = row.arm.runs[0]
            marks, missing = marks_of(run)
            where = "each run's rounds.parquet"
            windows = run.metrics.get("windows") or 0
            title = (
                f"{row.arm.label}, seed {run.seed}{missing}{shown(with_rounds, kept, where)}"
                + left_out(f"{WINDOWS} of {windows} windows", windows > WINDOWS, where)
            )
            last = float(min(FIRST, run.metrics.get("windows") or FIRST))
            panels.append(
                Panel(
                    title,
                    "window",
                    "row",
                    marks,
                    [run],
                    wide=True,
                    height=300,
                    x_range=(-1.0, last),
                )
            )
    return panels or "no run has rounds.parquet"


def marks_of(run: Run) -> tuple[list[Mark], str]:
    assert run.rounds is not None
    rounds = run.rounds.filter(pl.col("window") < WINDOWS).sort("window", "slot")
    rounds = rounds.with_columns(
        (pl.col("rows").cum_sum().over("window") - pl.col("rows")).alias("first")
    )
    marks: list[Mark] = []
    for (slot,), own in rounds.group_by("slot", maintain_order=True):
        hover = [
            f"slot {slot}, {name}: {rows} rows, {kept} kept"
            for name, rows, kept in own.select("request", "rows", "committed").iter_rows()
        ]
        lost = own["rows"] - own["committed"]
        windows, colour = own["window"].to_list(), int(str(slot))
        marks.append(
            Bars(
                f"slot {slot}",
                windows,
                own["committed"].to_list(),
                own["first"].to_list(),
                colour,
                hover=hover,
            )
        )
        above = (own["first"] + own["committed"]).to_list()
        marks.append(
            Bars(
                f"slot {slot}, rejected",
                windows,
                lost.to_list(),
                above,
                colour,
                True,
                hover=hover,
                legend=False,
            )
        )
    marks.sort(key=lambda mark: mark.colour if isinstance(mark, Bars) else 0)
    top = float(rounds.group_by("window").agg(pl.col("rows").sum())["rows"].max() or 0)  # type: ignore[arg-type]
    events, missing = events_of(run)
    for name, symbol, colour, height, events_at in events:
        inside = [window for window in events_at if window < WINDOWS]
        if inside:
            marks.append(Points(name, inside, [top + height] * len(inside), colour, symbol))
    return marks, missing


def events_of(run: Run) -> tuple[list[tuple[str, str, int, float, Sequence[int]]], str]:
    """(name, symbol, colour, height above the rows, windows), and what is not known."""
    if run.steps is None:
        return [], "; captures, parks and promotions: not recorded (no steps.parquet)"
    path = run.steps.filter(pl.col("kind") == "window")["path"]
    events: list[tuple[str, str, int, float, Sequence[int]]] = [
        ("capture", "diamond", 5, 0.6, [i for i, how in enumerate(path) if how == "capturing"])
    ]
    if run.config.get("grant", "off") == "off":
        return events, ""
    grants = windows_of_grants(run)
    if grants is None:
        return events, "; parks and promotions: not recorded (no grants.parquet)"
    events.append(
        (
            "promotion",
            "triangle-up",
            2,
            1.2,
            sorted(first for _, first, _, again, _ in grants if again),
        )
    )
    events.append(
        (
            "park",
            "triangle-down",
            1,
            1.8,
            sorted(last for _, _, last, _, parked in grants if parked),
        )
    )
    return events, ""


PLOT = Plot(
    "window_timeline",
    "Window timeline",
    "One column a window, one colour a slot; hatched rows were rejected. Marks above: captures, "
    "promotions, parks.",
    draw,
)
