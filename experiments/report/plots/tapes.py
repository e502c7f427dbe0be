"""Plots of runs on tapes: regret to the oracle, and the regime map."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from experiments.report.headline import ReportRow
from experiments.report.knobs import others_of, policy_of
from experiments.report.panel import Bars, Line, Panel, Plot, View, left_out, most, shown

ORACLES = ("hindsight", "oracle_p")
ON_TAPES = ("tape", "synthetic")
MOST = 24


Context = tuple[tuple[str, str], ...]


def context(row: ReportRow, without: tuple[str, ...] = ()) -> Context:
    return tuple((key, value) for key, value in others_of(row).items() if key not in without)


def fastest(rows: Sequence[ReportRow]) -> dict[Context, float]:
    """Tokens per second of the best arm, by context."""
    best: dict[Context, float] = {}
    for row in rows:
        if row.rank and row.tokens_per_s:
            best[context(row)] = max(best.get(context(row), 0.0), row.tokens_per_s)
    return best


def regret(view: View) -> list[Panel] | str:
    panels = []
    for rows in view.by_evidence():
        if rows[0].arm.evidence not in ON_TAPES:
            continue
        best = fastest([row for row in rows if row.arm.values.get("policy") in ORACLES])
        known = [row for row in rows if context(row) in best and row.rank and row.tokens_per_s]
        kept = most(known, MOST)
        if kept:
            lost = [100 * (1 - (row.tokens_per_s or 0) / best[context(row)]) for row in kept]
            hover = [
                f"{row.arm.label}: {value:.2f}% below the oracle"
                for row, value in zip(kept, lost, strict=True)
            ]
            bars = Bars(
                "regret",
                [row.arm.label for row in kept],
                lost,
                across=True,
                hover=hover,
                legend=False,
            )
            runs = [run for row in kept for run in row.arm.runs]
            panels.append(
                Panel(
                    "Regret" + shown(known, kept, "results.parquet"),
                    "% below the oracle",
                    "",
                    [bars],
                    runs,
                    wide=True,
                    height=130 + 24 * len(kept),
                )
            )
    return panels or f"no run on tapes with an oracle beside it (policy={' or '.join(ORACLES)})"


def regime_map(view: View) -> list[Panel] | str:
    panels = []
    for rows in view.by_evidence():
        if rows[0].arm.evidence not in ON_TAPES:
            continue
        best = fastest([row for row in rows if row.arm.static])
        turned = {
            key
            for row in rows
            for key in others_of(row)
            if len({other.arm.values.get(key) for other in rows}) > 1
        }
        lines: dict[str, list[tuple[float, float, ReportRow]]] = defaultdict(list)
        for row in rows:
            config = row.arm.runs[0].config
            base, per_row = config.get("cost.base"), config.get("cost.row")
            if (
                not base
                or per_row is None
                or context(row) not in best
                or not (row.rank and row.tokens_per_s)
                or row.arm.static
            ):
                continue
            rest = " ".join(
                value for key, value in context(row, ("cost.base", "cost.row")) if key in turned
            )
            lines[f"{policy_of(row)} {rest}".strip()].append(
                (per_row / base, 100 * (row.tokens_per_s / best[context(row)] - 1), row)
            )
        lines = {
            name: sorted(points, key=lambda point: point[0])
            for name, points in lines.items()
            if len({x for x, _, _ in points}) > 1
        }
        if lines:
            marks = [
                Line(
                    name,
                    [x for x, _, _ in points],
                    [y for _, y, _ in points],
                    colour,
                    hover=[row.arm.label for _, _, row in points],
                )
                for colour, (name, points) in enumerate(list(lines.items())[:MOST])
            ]
            runs = [
                run for points in lines.values() for _, _, row in points for run in row.arm.runs
            ]
            panels.append(
                Panel(
                    "Gain over the best static k"
                    + left_out(
                        f"{MOST} of {len(lines)} lines", len(lines) > MOST, "results.parquet"
                    ),
                    "b/a: cost of a row over cost of a window",
                    "%",
                    marks,
                    runs,
                    wide=True,
                    height=380,
                )
            )
    return (
        panels
        or "no runs on tapes over several costs of a row (cost.row) with a static k beside them"
    )


REGRET = Plot(
    "regret",
    "Regret",
    "How far below the oracle of the same texts and costs; 0 is the best there is.",
    regret,
)
REGIME_MAP = Plot(
    "regime_map",
    "Regime map",
    "Gain over the best static k in hindsight, against how dear a row is.",
    regime_map,
)
