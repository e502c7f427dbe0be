"""What a window costs by its rows: measured points, the fitted line, its residuals. A panel a
model and context."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from bench.rows import Row
from mtp.costs import LinearCost
from mtp.costs.fit import Measured, fit_cost

COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7")
OPERATION = "window"


def line_of(rows: Sequence[Row]) -> tuple[LinearCost, float, float]:
    """The line through the medians, its R2 and the largest relative residual."""
    cells = [
        Measured(
            row["shape"]["rows"], row["shape"]["slots"], row["shape"]["depth"], row["p50_us"] / 1e6
        )
        for row in rows
    ]
    model, residuals = fit_cost(cells)
    seconds = np.array([cell.seconds for cell in cells])
    missed = seconds - np.array([model.window(cell.rows, cell.slots, cell.depth) for cell in cells])
    return (
        model,
        float(1 - (missed**2).sum() / ((seconds - seconds.mean()) ** 2).sum()),
        residuals["max"],
    )


def formula(rows: Sequence[Row]) -> str:
    model, r2, worst = line_of(rows)
    prices = ((model.row, "rows"), (model.slot, "slots"), (model.draft, "drafts"))
    terms = "".join(f" + {1e3 * price:.3f} {name}" for price, name in prices if price)
    return f"{1e3 * model.base:.2f}{terms} ms; R2 {r2:.3f}, largest residual {100 * worst:.0f}%"


def lines(rows: Sequence[Row]) -> list[str]:
    """The line of every panel, in words."""
    return [
        f"a window of {target} at {context} tokens of context: {formula(group)}"
        for (target, context), group in panels(rows)
    ]


def panels(rows: Sequence[Row]) -> list[tuple[tuple[str, int], list[Row]]]:
    """Windows only, by model and context."""

    def panel(row: Row) -> tuple[str, int]:
        return row["shape"]["target"], row["shape"]["context"]

    return [
        (name, list(group))
        for name, group in groupby(
            sorted((r for r in rows if r["operation"] == OPERATION), key=panel), panel
        )
    ]


def draw(rows: Sequence[Row], path: Path) -> bool:
    """Writes an SVG; False where there are no windows among the rows."""
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    found = panels(rows)
    if not found:
        return False
    style: Any = {"svg.fonttype": "none", "svg.hashsalt": "mtplab", "font.size": 8}
    with rc_context(style):
        figure = Figure(figsize=(4.5 * len(found), 3.6), layout="constrained")
        FigureCanvasAgg(figure)
        for ax, ((target, context), group) in zip(
            figure.subplots(1, len(found), squeeze=False)[0], found, strict=True
        ):
            _panel(ax, group)
            first = group[0]
            threads = f"{first['threads']} thread{'s' * (first['threads'] > 1)}"
            ax.set_title(
                f"{target}, {context} tokens of context\n[{first['evidence']}: {first['device']}, "
                f"{threads}]",
                fontsize=8,
            )
        figure.savefig(path, metadata={"Date": None})
    return True


def _panel(ax: Any, rows: Sequence[Row]) -> None:
    model, _, _ = line_of(rows)
    slots = sorted({row["shape"]["slots"] for row in rows})
    depths = sorted({row["shape"]["depth"] for row in rows})
    for colour, count in zip(COLOURS, slots, strict=False):
        for depth, marker in ((depths[0], "o"), (depths[-1], "^"))[: len(depths)]:
            mine = sorted(
                (
                    row
                    for row in rows
                    if (row["shape"]["slots"], row["shape"]["depth"]) == (count, depth)
                ),
                key=_rows,
            )
            if not mine:
                continue
            at, middle = (
                [_rows(row) for row in mine],
                np.array([row["p50_us"] for row in mine]) / 1e3,
            )
            spread = [
                middle - [row["p20_us"] / 1e3 for row in mine],
                [row["p80_us"] / 1e3 for row in mine] - middle,
            ]
            label = f"{count} slots, {depth} drafts" if count > 1 else f"1 slot, {depth} drafts"
            ax.errorbar(at, middle, spread, fmt=marker, color=colour, ms=4, lw=0.8, label=label)
            ax.plot(
                at,
                [1e3 * model.window(n, count, depth) for n in at],
                color=colour,
                lw=0.8,
                ls="-" if depth == depths[0] else ":",
            )
    ax.set_ylim(bottom=0)
    ax.set_xticks(sorted({_rows(row) for row in rows}))
    ax.set_xlabel("rows of a window\n" + formula(rows).replace("; ", "\n"))
    ax.set_ylabel("milliseconds (median, 20 to 80%)")
    ax.legend(fontsize=6)


def _rows(row: Row) -> int:
    return row["shape"]["rows"]
