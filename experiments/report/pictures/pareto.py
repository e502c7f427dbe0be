"""Throughput against per-request speed."""

from __future__ import annotations

from statistics import median

from experiments.report.headline import Row
from experiments.report.knobs import policy_of
from experiments.report.panel import Line, Mark, Panel, Picture, Points, View


def draw(view: View) -> list[Panel] | str:
    panels = []
    for rows in view.by_evidence():
        ranked = [(own, row.tokens_per_s, row) for row in rows if row.arm.ranks and row.tokens_per_s and (own := request_speed(row))]
        if len(ranked) < 2:
            continue
        marks: list[Mark] = []
        for colour, name in enumerate(dict.fromkeys(policy_of(row) for _, _, row in ranked)):
            of_policy = [(x, y, row) for x, y, row in ranked if policy_of(row) == name]
            hover = [f"{row.arm.label}: {y:.1f} tokens/s, a request {x:.1f}" for x, y, row in of_policy]
            marks.append(Points(name, [x for x, _, _ in of_policy], [y for _, y, _ in of_policy], colour, hover=hover))
        front = pareto([(x, y) for x, y, _ in ranked])
        marks.append(Line("Pareto front", [x for x, _ in front], [y for _, y in front], 6, dashed=True, dots=False))
        runs = [run for _, _, row in ranked for run in row.arm.runs]
        panels.append(
            Panel(
                "Throughput and per-request speed", "tokens/s of a request (median)", "tokens/s of all", marks, runs, wide=True, height=380
            )
        )
    return panels or "fewer than two arms that rank have both figures"


def request_speed(row: Row) -> float | None:
    speeds = [each["tokens_per_s"] for run in row.arm.runs for each in run.metrics.get("requests") or () if each.get("tokens_per_s")]
    return median(speeds) if speeds else None


def pareto(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Those that no other beats in both, by x."""
    front: list[tuple[float, float]] = []
    for x, y in sorted(set(points), reverse=True):
        if not front or y > front[-1][1]:
            front.append((x, y))
    return front[::-1]


PICTURE = Picture(
    "pareto",
    "Throughput against per-request speed",
    "Up: more tokens in all. Right: each request faster. Unchecked and invalid arms are left out.",
    draw,
)
