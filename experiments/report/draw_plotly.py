"""Panels as plotly figures: plain dictionaries, drawn by plotly.js in the page. Colours of text
and grid are the page's (page.js)."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from experiments.report.panel import COLOURS, Bars, Heat, Line, Mark, Panel, Points

THICK = 0.8  # of a bar, where neighbours are 1 apart


def figure(panel: Panel) -> dict[str, Any]:
    """Every text is escaped: plotly reads some HTML in its labels."""
    layout: dict[str, Any] = {
        "height": height(panel),
        "margin": {"l": 60, "r": 16, "t": 8, "b": 48},
        "barmode": "overlay",
        "hovermode": "closest",
        "legend": {"orientation": "h", "yanchor": "bottom", "y": 1.02, "x": 0},
        "xaxis": {"title": {"text": escape(panel.x)}, "automargin": True, "zeroline": False},
        "yaxis": {"title": {"text": escape(panel.y)}, "automargin": True, "zeroline": False},
    }
    if panel.x_range:
        layout["xaxis"]["range"] = list(panel.x_range)
    if panel.y_range:
        layout["yaxis"]["range"] = list(panel.y_range)
    if panel.whole_x:
        layout["xaxis"] |= {"dtick": 1}
    if panel.line_at is not None:
        layout["shapes"] = [
            {
                "type": "line",
                "x0": panel.line_at,
                "x1": panel.line_at,
                "yref": "paper",
                "y0": 0,
                "y1": 1,
                "line": {"width": 1.5, "dash": "dot", "color": "#888888"},
            }
        ]
    if names := categories(panel):
        layout["yaxis"] |= {"categoryorder": "array", "categoryarray": shown(names[::-1])}
    return {"data": [trace for mark in panel.marks for trace in [trace_of(mark)]], "layout": layout}


def height(panel: Panel) -> int:
    """Pixels, with room for the lines of the legend."""
    names = [mark.name for mark in panel.marks if not isinstance(mark, Heat) and mark.legend]
    lines = -(-sum(len(name) * 7 + 50 for name in names) // (1050 if panel.wide else 430))
    return panel.height + 40 + 20 * lines


def categories(panel: Panel) -> list[str]:
    """The names along y, first at the top."""
    bars = [mark.place for mark in panel.marks if isinstance(mark, Bars) and mark.across]
    points = [mark.y for mark in panel.marks if isinstance(mark, Points)]
    return list(
        dict.fromkeys(
            name
            for places in (panel.order, *bars, *points)
            for name in places
            if isinstance(name, str)
        )
    )


def shown(values: Sequence[Any]) -> list[Any]:
    return [escape(value) if isinstance(value, str) else value for value in values]


def trace_of(mark: Mark) -> dict[str, Any]:
    if isinstance(mark, Heat):
        return {
            "type": "heatmap",
            "x": shown(mark.x),
            "y": shown(mark.y),
            "z": [list(row) for row in mark.z],
            "colorscale": "Viridis",
            "xgap": 2,
            "ygap": 2,
            "texttemplate": "%{z:.2f}",
            "name": escape(mark.name),
            "hoverongaps": False,
        }
    colour = COLOURS[mark.colour % len(COLOURS)]
    base: dict[str, Any] = {
        "name": escape(mark.name),
        "legendgroup": escape(mark.name.removesuffix(", rejected")),
        "showlegend": mark.legend,
    }
    base["meta"] = {"arm": mark.arm}
    if mark.hover:
        base |= {"hovertext": shown(mark.hover), "hoverinfo": "text"}
    if isinstance(mark, Bars):
        along, other = ("x", "y") if mark.across else ("y", "x")
        pattern = (
            {
                "shape": "/",
                "fgcolor": colour,
                "bgcolor": "rgba(0,0,0,0)",
                "size": 5,
                "solidity": 0.35,
            }
            if mark.hatched
            else {}
        )
        marker = {"color": colour, "pattern": pattern, "line": {"width": 0.5, "color": colour}}
        bars = base | {
            "type": "bar",
            "orientation": "h" if mark.across else "v",
            along: list(mark.length),
            other: shown(mark.place),
        }
        return bars | {"base": list(mark.base) or None, "width": THICK, "marker": marker}
    if isinstance(mark, Line):
        style = {"color": colour, "width": 2, "dash": "dash" if mark.dashed else "solid"}
        mode = "lines+markers" if mark.dots else "lines"
        return base | {
            "type": "scatter",
            "mode": mode,
            "x": shown(mark.x),
            "y": list(mark.y),
            "line": style,
            "marker": {"size": 7},
        }
    points = base | {"type": "scatter", "mode": "markers", "x": shown(mark.x), "y": shown(mark.y)}
    points["marker"] = {"color": colour, "size": 9, "symbol": mark.symbol}
    if mark.low:
        points["error_x" if mark.across else "error_y"] = errors(mark, colour)
    return points


def errors(mark: Points, colour: str) -> dict[str, Any]:
    centres = mark.x if mark.across else mark.y
    up = [
        0.0 if high is None else high - float(middle)
        for high, middle in zip(mark.high, centres, strict=True)
    ]
    down = [
        0.0 if low is None else float(middle) - low
        for low, middle in zip(mark.low, centres, strict=True)
    ]
    return {
        "type": "data",
        "symmetric": False,
        "array": up,
        "arrayminus": down,
        "color": colour,
        "thickness": 1.5,
        "width": 4,
    }
