"""`python -m bench.report [ROWS]`: table and bars by implementation, next to the file of rows. Default: the newest in bench/results."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from bench.pictures import rows_to_time
from bench.rows import RESULTS, Row, name_of, read_rows, table

COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#999999")


def draw(rows: Sequence[Row], path: Path) -> None:
    """SVG: a panel an operation and mode; per shape, a bar an implementation (median, whiskers from 20 to 80%)."""
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    def panel_of(row: Row) -> tuple[str, str]:
        return row["operation"], row["mode"]

    panels = [(name, list(group)) for name, group in groupby(sorted(rows, key=panel_of), panel_of)]
    heights = [1.0 + 0.14 * len(group) for _, group in panels]
    style: Any = {"svg.fonttype": "none", "svg.hashsalt": "mtplab", "font.size": 8}
    with rc_context(style):
        figure = Figure(figsize=(9, sum(heights)), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.subplots(len(panels), squeeze=False, height_ratios=heights)[:, 0]
        for ax, ((operation, mode), group) in zip(axes, panels, strict=True):
            _bars(ax, group)
            ax.set_title(f"{operation}, {mode}  [{group[0]['evidence']}: {group[0]['device']}]", loc="left", fontsize=9)
        figure.savefig(path, metadata={"Date": None})


def _bars(ax: Any, rows: Sequence[Row]) -> None:
    shapes = list(dict.fromkeys(name_of(row)[1] for row in rows))
    names = list(dict.fromkeys(row["implementation"] for row in rows))
    thick = 0.8 / len(names)
    for place, name in enumerate(names):
        mine = [row for row in rows if row["implementation"] == name]
        at = [len(shapes) - 1 - shapes.index(name_of(row)[1]) + 0.4 - thick * (place + 0.5) for row in mine]
        middle = [row["p50_us"] for row in mine]
        spread = [[row["p50_us"] - row["p20_us"] for row in mine], [row["p80_us"] - row["p50_us"] for row in mine]]
        ax.barh(at, middle, thick, xerr=spread, color=COLOURS[place % len(COLOURS)], label=name, error_kw={"lw": 0.6})
    ax.set_yticks(range(len(shapes)), shapes[::-1])
    ax.set_xscale("log")
    ax.set_xlabel("microseconds" + (" a window" if rows[0]["operation"] == "engine" else ""))
    ax.legend(fontsize=7, loc="lower left", bbox_to_anchor=(1, 0))


def main() -> int:
    try:
        found = [Path(argument) for argument in sys.argv[1:2]] or sorted(RESULTS.glob("*.jsonl"), key=lambda path: path.stat().st_mtime)[
            -1:
        ]
        if not found:
            raise ValueError("there are no rows in bench/results, expected those of `make bench`")
        rows = read_rows(found[0])
        if not rows:
            raise ValueError(f"file is {found[0]}, expected rows of `make bench`: it is empty")
    except ValueError as wrong:
        print(f"error: {wrong}", file=sys.stderr)
        return 2
    picture = found[0].with_suffix(".svg")
    draw(rows, picture)
    print(*table(rows), f"\nbars: {picture}", sep="\n")
    curve = picture.with_name(f"{picture.stem}-rows.svg")
    if rows_to_time.draw(rows, curve):
        print(*rows_to_time.lines(rows), f"rows to time: {curve}", sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
