"""Throughput against per-request speed."""

from __future__ import annotations

from collections import defaultdict
from statistics import median

from experiments.report.headline import ReportRow
from experiments.report.knobs import policy_of
from experiments.report.panel import Line, Mark, Panel, Plot, Points, View, left_out

MOST = 6


def draw(view: View) -> list[Panel] | str:
    panels = []
    colours = {
        name: place for place, name in enumerate(dict.fromkeys(policy_of(row) for row in view.rows))
    }
    for rows in view.by_evidence():
        # only what has the same baseline is comparable
        fronts: dict[str | None, list[tuple[float, float, ReportRow]]] = defaultdict(list)
        for row in rows:
            if row.rank and row.tokens_per_s and (x := request_speed(row)):
                fronts[row.against].append((x, row.tokens_per_s, row))
        whole = {base: ranked for base, ranked in fronts.items() if len(ranked) > 1}
        where = "each run's metrics.json"
        missing = left_out(f"{MOST} of {len(whole)} baselines", len(whole) > MOST, where)
        panels += [
            panel(f"beside {base}{missing}", ranked, colours)
            for base, ranked in list(whole.items())[:MOST]
        ]
    return panels or "fewer than two arms that rank have both figures"


def panel(
    title: str, ranked: list[tuple[float, float, ReportRow]], colours: dict[str, int]
) -> Panel:
    marks: list[Mark] = []
    for name in dict.fromkeys(policy_of(row) for _, _, row in ranked):
        own = [(x, y, row) for x, y, row in ranked if policy_of(row) == name]
        hover = [f"{row.arm.label}: {y:.1f} tokens/s, a request {x:.1f}" for x, y, row in own]
        marks.append(
            Points(name, [x for x, _, _ in own], [y for _, y, _ in own], colours[name], hover=hover)
        )
    front = pareto([(x, y) for x, y, _ in ranked])
    marks.append(
        Line(
            "Pareto front", [x for x, _ in front], [y for _, y in front], 6, dashed=True, dots=False
        )
    )
    runs = [run for _, _, row in ranked for run in row.arm.runs]
    return Panel(title, "tokens/s of a request (median)", "tokens/s of all", marks, runs)


def request_speed(row: ReportRow) -> float | None:
    speeds = [
        each["tokens_per_s"]
        for run in row.arm.runs
        for each in run.metrics.get("requests") or ()
        if each.get("tokens_per_s")
    ]
    return median(speeds) if speeds else None


def pareto(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Those that no other beats in both, by x."""
    front: list[tuple[float, float]] = []
    for x, y in sorted(set(points), reverse=True):
        if not front or y > front[-1][1]:
            front.append((x, y))
    return front[::-1]


PLOT = Plot(
    "pareto",
    "Throughput against per-request speed",
    "Up: more tokens in all. Right: each request faster. Arms that do not rank are left out.",
    draw,
)
