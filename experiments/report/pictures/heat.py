"""Heat maps of two-knob sweeps."""

from __future__ import annotations

from collections import defaultdict

from experiments.report.headline import Row
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
            rest[" ".join(value for name, value in knobs[row.arm.label].items() if name not in (across, up) and name in several)].append(row)
        for context, own in list(rest.items())[:MOST]:
            cells = {(knobs[row.arm.label].get(across), knobs[row.arm.label].get(up)): row.ratio.value for row in own if row.ratio}
            z = [[cells.get((x, y)) for x in values[across]] for y in values[up]]
            if len(cells) >= 4:
                title = f"ratio to the baseline{', ' + context if context else ''}"
                runs = [run for row in own for run in row.arm.runs]
                panels.append(Panel(title, across, up, [Heat(values[across], values[up], z, "ratio")], runs))
    return panels or "fewer than two knobs were turned together"


def knobs_of(row: Row) -> dict[str, str]:
    """A policy and its own keys are one knob."""
    values = row.arm.values
    policy = " ".join(f"{key.rpartition('.')[2]}={value}" if "." in key else value for key, value in values.items() if key.startswith("policy"))
    return ({"policy": policy} if policy else {}) | {key: value for key, value in values.items() if not key.startswith("policy")}


PICTURE = Picture("heat_maps", "Heat maps", "The two knobs with most values; a panel for each setting of the others.", draw)
