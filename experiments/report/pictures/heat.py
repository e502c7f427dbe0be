"""Heat maps of two-knob sweeps."""

from __future__ import annotations

from collections import defaultdict

from experiments.report.headline import Row
from experiments.report.knobs import knobs_of
from experiments.report.panel import Heat, Panel, Picture, View

MOST = 6


def draw(view: View) -> list[Panel] | str:
    panels = []
    for rows in view.by_evidence():
        known = [row for row in rows if row.ratio and row.arm.parity != "invalid"]
        knobs = {row.arm.label: knobs_of(row) for row in known}
        names = list(dict.fromkeys(name for own in knobs.values() for name in own))
        values = {name: list(dict.fromkeys(own[name] for own in knobs.values() if name in own)) for name in names}
        several = sorted((name for name in names if len(values[name]) > 1), key=lambda name: -len(values[name]))
        if len(several) < 2:
            continue
        across, up = several[:2]
        rest: dict[str, list[Row]] = defaultdict(list)
        for row in known:
            rest[context_of(knobs[row.arm.label], several[2:])].append(row)
        for context, own in list(rest.items())[:MOST]:
            cells = {(knobs[row.arm.label].get(across), knobs[row.arm.label].get(up)): row.ratio.value for row in own if row.ratio}
            z = [[cells.get((x, y)) for x in values[across]] for y in values[up]]
            if len(cells) >= 4:
                title = f"ratio to the baseline{', ' + context if context else ''}"
                runs = [run for row in own for run in row.arm.runs]
                panels.append(Panel(title, across, up, [Heat(values[across], values[up], z, "ratio")], runs))
    return panels or "fewer than two knobs were turned together"


def context_of(knobs: dict[str, str], names: list[str]) -> str:
    return ", ".join(f"{name.rpartition('.')[2]} {knobs[name]}" for name in names if name in knobs)


PICTURE = Picture("heat_maps", "Heat maps", "The two knobs with most values; a panel for each setting of the others.", draw)
