"""Heat maps of two-knob sweeps."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import combinations

from experiments.report.headline import ReportRow
from experiments.report.knobs import knobs_of
from experiments.report.panel import Heat, Panel, Plot, View, left_out

MOST, FEWEST = 6, 4  # panels; cells that make a map


def draw(view: View) -> list[Panel] | str:
    panels = []
    for rows in view.by_evidence():
        known = [row for row in rows if row.ratio and row.arm.parity != "invalid"]
        names = list(dict.fromkeys(name for row in known for name in knobs_of(row)))
        turned = [name for name in names if len({knobs_of(row).get(name) for row in known}) > 1]
        if len(turned) > 1:
            across, up = max(
                combinations(turned, 2),
                key=lambda pair: max(map(len, contexts(known, turned, pair).values())),
            )
            maps = contexts(known, turned, (across, up))
            whole = {context: own for context, own in maps.items() if len(own) >= FEWEST}
            missing = left_out(f"{MOST} of {len(whole)} maps", len(whole) > MOST, "results.parquet")
            panels += [
                panel(context, across, up, own, missing)
                for context, own in list(whole.items())[:MOST]
            ]
    return panels or "fewer than two knobs were turned together"


def contexts(
    rows: Sequence[ReportRow], turned: Sequence[str], pair: tuple[str, str]
) -> dict[str, list[ReportRow]]:
    """Rows by the setting of all other knobs, in words."""
    found: dict[str, list[ReportRow]] = defaultdict(list)
    for row in rows:
        knobs = knobs_of(row)
        rest = ", ".join(
            f"{name.rpartition('.')[2]} {knobs[name]}"
            for name in turned
            if name in knobs and name not in pair
        )
        found[rest].append(row)
    return found


def panel(context: str, across: str, up: str, rows: Sequence[ReportRow], missing: str) -> Panel:
    cells = {
        (str(knobs_of(row).get(across)), str(knobs_of(row).get(up))): row.ratio.value
        for row in rows
        if row.ratio
    }
    xs, ys = (list(dict.fromkeys(cell[place] for cell in cells)) for place in (0, 1))
    heat = Heat(xs, ys, [[cells.get((x, y)) for x in xs] for y in ys], "ratio")
    title = f"ratio to the baseline{', ' + context if context else ''}{missing}"
    return Panel(title, across, up, [heat], [run for row in rows for run in row.arm.runs])


PLOT = Plot(
    "heat_maps",
    "Heat maps",
    "The two knobs with most combinations; a panel for each setting of the others.",
    draw,
)
