"""Panels as SVG and PDF: one file of each a plot, a panel a row of it."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MultipleLocator

from experiments.io import write_whole
from experiments.report.draw_plotly import THICK, categories
from experiments.report.panel import COLOURS, Bars, Heat, Line, Mark, Panel, Points

STYLE: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "mtplab",
    "pdf.fonttype": 42,
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "hatch.linewidth": 0.7,
}
SYMBOLS = {"circle": "o", "diamond": "D", "triangle-up": "^", "triangle-down": "v", "x": "x"}
WIDTH = 9.0  # inches


def save(panels: Sequence[Panel], stem: Path) -> list[Path]:
    """Writes stem.svg and stem.pdf."""
    with matplotlib.rc_context(STYLE):
        heights = [max(2.4, panel.height / 100) for panel in panels]
        figure = Figure(figsize=(WIDTH, sum(heights)), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.subplots(len(panels), squeeze=False, height_ratios=heights)[:, 0]
        for ax, panel in zip(axes, panels, strict=True):
            draw(ax, panel)
        written = []
        for kind, metadata in (("svg", {"Date": None}), ("pdf", {"CreationDate": None})):
            content = io.BytesIO()
            figure.savefig(content, format=kind, metadata=metadata)
            write_whole(path := stem.with_suffix(f".{kind}"), content.getvalue())
            written.append(path)
        return written


def draw(ax: Any, panel: Panel) -> None:
    names = categories(panel)
    place = {name: len(names) - 1 - i for i, name in enumerate(names)}
    for mark in panel.marks:
        draw_mark(ax, mark, place)
    ax.set_title(f"{plain(panel.title)}  [{panel.evidence}]", loc="left", fontsize=9)
    ax.set_xlabel(plain(panel.x))
    ax.set_ylabel(plain(panel.y))
    if names:
        ax.set_yticks(range(len(names)), [plain(name) for name in names[::-1]])
    if panel.x_range:
        ax.set_xlim(panel.x_range)
    if panel.y_range:
        ax.set_ylim(panel.y_range)
    if panel.whole_x:
        ax.xaxis.set_major_locator(MultipleLocator(1))
    if panel.line_at is not None:
        ax.axvline(panel.line_at, color="#888888", linestyle=":", linewidth=1.2)
    handles, _ = ax.get_legend_handles_labels()
    if handles:
        ax.legend(fontsize=7, loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)


def draw_mark(ax: Any, mark: Mark, place: dict[str, int]) -> None:
    if isinstance(mark, Heat):
        draw_heat(ax, mark)
        return
    colour = COLOURS[mark.colour % len(COLOURS)]
    name = plain(mark.name) if mark.legend and len(mark.name) < 200 else None
    if isinstance(mark, Line):
        ax.plot(
            mark.x,
            mark.y,
            color=colour,
            linestyle="--" if mark.dashed else "-",
            marker="o" if mark.dots else None,
            markersize=3.5,
            label=name,
        )
    elif isinstance(mark, Bars):
        places = [
            place.get(entry, entry) if isinstance(entry, str) else entry for entry in mark.place
        ]
        base = list(mark.base) or [0.0] * len(places)
        style: dict[str, Any] = (
            {"color": "none", "edgecolor": colour, "hatch": "////", "linewidth": 0.3}
            if mark.hatched
            else {"color": colour}
        )
        if mark.across:
            ax.barh(places, mark.length, left=base, height=THICK, label=name, **style)
        else:
            ax.bar(places, mark.length, bottom=base, width=THICK, label=name, **style)
    else:
        draw_points(ax, mark, place, colour, name)


def draw_points(
    ax: Any, mark: Points, place: dict[str, int], colour: str, name: str | None
) -> None:
    y: list[float] = [place[entry] if isinstance(entry, str) else entry for entry in mark.y]
    style = {
        "color": colour,
        "marker": SYMBOLS[mark.symbol],
        "linestyle": "none",
        "markersize": 5,
        "label": name,
    }
    if not mark.low:
        ax.plot(mark.x, y, **style)
        return
    centres = [float(value) for value in (mark.x if mark.across else y)]
    down = [
        0.0 if low is None else max(0.0, middle - low)
        for low, middle in zip(mark.low, centres, strict=True)
    ]
    up = [
        0.0 if high is None else max(0.0, high - middle)
        for high, middle in zip(mark.high, centres, strict=True)
    ]
    ax.errorbar(mark.x, y, **{"xerr" if mark.across else "yerr": [down, up]}, capsize=2, **style)


def draw_heat(ax: Any, mark: Heat) -> None:
    z = [[float("nan") if value is None else value for value in row] for row in mark.z]
    ax.pcolormesh(range(len(mark.x)), range(len(mark.y)), z, cmap="viridis", shading="nearest")
    ax.set_xticks(range(len(mark.x)), [plain(name) for name in mark.x])
    ax.set_yticks(range(len(mark.y)), [plain(name) for name in mark.y])
    known = [value for row in mark.z for value in row if value is not None]
    half = (min(known) + max(known)) / 2
    for j, row in enumerate(mark.z):
        for i, value in enumerate(row):
            if value is not None:
                ax.text(
                    i,
                    j,
                    f"{value:.2f}",
                    ha="center",
                    va="center",
                    fontsize=8,
                    color="white" if value < half else "black",
                )


def plain(text: str) -> str:
    """No mathematics: a dollar sign is a dollar sign."""
    return text.replace("$", r"\$")
