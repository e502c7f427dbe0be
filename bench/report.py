"""`python -m bench.report [ROWS]`: tables, and next to the file of rows the bars by
implementation and the roofline. Default: the newest file in bench/results."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from bench.decoding import rows_to_time
from bench.rows import (
    RESULTS,
    Row,
    compiled_table,
    name_of,
    of_kind,
    read_rows,
    table,
    window_table,
)

STYLE: Any = {"svg.fonttype": "none", "svg.hashsalt": "mtplab", "font.size": 8}
MARKERS = "osD^v<>Pp*Xhd"
COLOURS = (
    "#0072b2",
    "#e69f00",
    "#009e73",
    "#cc79a7",
    "#56b4e9",
    "#d55e00",
    "#999999",
    "#332288",
    "#882255",
)


def draw(rows: Sequence[Row], path: Path) -> None:
    """SVG: a panel an operation and mode; per shape, a bar an implementation (median, whiskers
    from 20 to 80%)."""
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    def panel_of(row: Row) -> tuple[str, str]:
        return row["operation"], row["mode"]

    panels = [(name, list(group)) for name, group in groupby(sorted(rows, key=panel_of), panel_of)]
    heights = [1.0 + 0.14 * len(group) for _, group in panels]
    with rc_context(STYLE):
        figure = Figure(figsize=(9, sum(heights)), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.subplots(len(panels), squeeze=False, height_ratios=heights)[:, 0]
        for ax, ((operation, mode), group) in zip(axes, panels, strict=True):
            _bars(ax, group)
            ax.set_title(
                f"{operation}, {mode}  [{group[0]['evidence']}: {group[0]['device']}]",
                loc="left",
                fontsize=9,
            )
        figure.savefig(path, metadata={"Date": None})


def _bars(ax: Any, rows: Sequence[Row]) -> None:
    shapes = list(dict.fromkeys(name_of(row)[1] for row in rows))
    names = list(dict.fromkeys(row["implementation"] for row in rows))
    thick = 0.8 / len(names)
    for place, name in enumerate(names):
        mine = [row for row in rows if row["implementation"] == name]
        at = [
            len(shapes) - 1 - shapes.index(name_of(row)[1]) + 0.4 - thick * (place + 0.5)
            for row in mine
        ]
        middle = [row["p50_us"] for row in mine]
        spread = [
            [row["p50_us"] - row["p20_us"] for row in mine],
            [row["p80_us"] - row["p50_us"] for row in mine],
        ]
        ax.barh(
            at,
            middle,
            thick,
            xerr=spread,
            color=COLOURS[place % len(COLOURS)],
            label=name,
            error_kw={"lw": 0.6},
        )
    ax.set_yticks(range(len(shapes)), shapes[::-1])
    ax.set_xscale("log")
    ax.set_xlabel("microseconds" + (" a window" if rows[0]["operation"] == "engine" else ""))
    ax.legend(fontsize=7, loc="lower left", bbox_to_anchor=(1, 0))


def draw_roofline(rows: Sequence[Row], path: Path) -> bool:
    """SVG: median over the bytes that a call must at least move, a marker a case, and the line of a
    copy measured on the same machine.

    False, and nothing drawn, where no row has both."""
    rows = [row for row in rows if row.get("share")]
    if not rows:
        return False
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    names = list(dict.fromkeys(row["implementation"] for row in rows))
    operations = list(dict.fromkeys(row["operation"] for row in rows))
    with rc_context(STYLE):
        figure = Figure(figsize=(8, 6), layout="constrained")
        FigureCanvasAgg(figure)
        ax = figure.subplots()
        for place, name in enumerate(names):
            for operation in operations:
                mine = [
                    row
                    for row in rows
                    if (row["implementation"], row["operation"]) == (name, operation)
                ]
                at = [[row[of] for row in mine] for of in ("bytes", "p50_us")]
                marker = MARKERS[operations.index(operation) % len(MARKERS)]
                ax.plot(*at, marker, color=COLOURS[place % len(COLOURS)], markersize=4, alpha=0.8)
        reach = [min(row["bytes"] for row in rows), max(row["bytes"] for row in rows)]
        copied = rows[0]["copy_bytes_per_us"]
        ax.plot(reach, [size / copied for size in reach], "k-", lw=0.8)
        for place, name in enumerate(names):
            ax.plot([], [], "s", color=COLOURS[place % len(COLOURS)], label=name)
        for place, operation in enumerate(operations):
            ax.plot([], [], MARKERS[place % len(MARKERS)], color="#444444", label=operation)
        ax.plot([], [], "k-", lw=0.8, label=f"a copy, {copied / 1e3:.1f} GB/s measured")
        ax.set(
            xscale="log",
            yscale="log",
            xlabel="bytes a call must at least move",
            ylabel="microseconds, median",
        )
        ax.set_title(
            f"time over bytes  [{rows[0]['evidence']}: {rows[0]['device']}, threads: "
            f"{rows[0]['threads']}]",
            loc="left",
            fontsize=9,
        )
        ax.legend(fontsize=7, loc="upper left", bbox_to_anchor=(1, 1))
        figure.savefig(path, metadata={"Date": None})
    return True


def main() -> int:
    try:
        found = [Path(argument) for argument in sys.argv[1:2]] or sorted(
            RESULTS.glob("*.jsonl"), key=lambda path: path.stat().st_mtime
        )[-1:]
        if not found:
            raise ValueError("there are no rows in bench/results, expected those of `make bench`")
        rows = read_rows(found[0])
        if not rows:
            raise ValueError(f"file is {found[0]}, expected rows of `make bench`: it is empty")
    except ValueError as wrong:
        print(f"error: {wrong}", file=sys.stderr)
        return 2
    timings, windows, compiled = (of_kind(rows, kind) for kind in ("timing", "window", "compiled"))
    tables = [
        make(of)
        for make, of in ((table, timings), (window_table, windows), (compiled_table, compiled))
        if of
    ]
    print("\n\n".join("\n".join(lines) for lines in tables))
    bars, roofline, curve = (
        found[0].with_suffix(end) for end in (".svg", ".roofline.svg", ".rows.svg")
    )
    if timings:
        draw(timings, bars)
        print(f"\nbars: {bars}")
    if draw_roofline(timings, roofline):
        print(f"roofline: {roofline}")
    if rows_to_time.draw(timings, curve):
        print(*rows_to_time.lines(timings), f"rows to time: {curve}", sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
