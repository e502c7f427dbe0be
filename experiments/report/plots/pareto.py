"""Throughput against per-request speed."""

from __future__ import annotations

from statistics import median

from experiments.report.headline import ReportRow
from experiments.report.knobs import policy_of
from experiments.report.panel import Line, Mark, Panel, Plot, Points, View

MOST = 6


def draw(view: View) -> list[Panel] | str:
    panels = []
    colours = {
        name: place for place, name in enumerate(dict.fromkeys(policy_of(row) for row in view.rows))
    }
    for rows in view.by_evidence():
        # only what has the same baseline is comparable
        for base in list(dict.fromkeys(row.against for row in rows))[:MOST]:
            own = [row for row in rows if row.against == base and row.arm.ranks]
            ranked = [
                (x, row.tokens_per_s, row)
                for row in own
                if row.tokens_per_s and (x := request_speed(row))
            ]
            if len(ranked) > 1:
                panels.append(panel(base, ranked, colours))
    return panels or "fewer than two arms that rank have both figures"


def panel(
    base: str | None, ranked: list[tuple[float, float, ReportRow]], colours: dict[str, int]
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
    return Panel(f"beside {base}", "tokens/s of a request (median)", "tokens/s of all", marks, runs)


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
    "Up: more tokens in all. Right: each request faster. Unchecked and invalid arms are left out.",
    draw,
)
