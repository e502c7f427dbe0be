"""bars.md: reached or not, cell by cell, and every arm beside the judged one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean, median
from typing import Any

from experiments.studies.bars import Bar, Judged, best_static, percent, speed
from experiments.studies.statistics import TrialRatio


def page(
    name: str,
    judged: Sequence[Judged],
    bars: Sequence[Bar],
    losses: Sequence[str],
    arms: Mapping[str, Mapping[str, Any]],
) -> str:
    """arms: of every cell."""
    kind = (
        "tape (recorded; times virtual)"
        if judged[0].cell.family == "tape"
        else "synthetic (tapes and times)"
    )
    lines = [
        f"# {name} against its bars",
        "",
        f"Evidence: {kind}. {len(judged)} cells, every arm on the same texts.",
        "",
    ]
    lines += ["| bar | cells reached | worst cell |", "|---|---|---|"]
    lines += [f"| {bar.name} | {bar.reached} of {bar.of} | {bar.worst} |" for bar in bars]
    lines += [
        "",
        "Significant loss to the best static k after Holm's correction: "
        f"{', '.join(losses) or 'none'}.",
        "",
    ]
    lines += ["## Arms", "", *arms_table(arms), "", "## Cells", "", *cells_table(judged)]
    return "\n".join(lines) + "\n"


def arms_table(cells: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Each arm over all cells it is in, against the best static k in hindsight of each."""
    ratios: dict[str, list[float]] = {}
    regrets: dict[str, list[float]] = {}
    for arms in cells.values():
        best = speed(arms[best_static(arms)])
        bound = arms.get("oracle_p") or arms.get("hindsight")
        for name, arm in arms.items():
            ratios.setdefault(name, []).append(speed(arm) / best - 1)
            if bound:
                regrets.setdefault(name, []).append(1 - speed(arm) / speed(bound))
    lines = [
        "| arm | cells | mean | worst | best | behind the oracle: median | worst |",
        "|---|---|---|---|---|---|---|",
    ]
    for name in sorted(ratios, key=lambda name: -fmean(ratios[name])):
        some = ratios[name]
        behind = regrets.get(name)
        bound_text = f"{median(behind):.1%} | {max(behind):.1%}" if behind else " | "
        lines.append(
            f"| {name} | {len(some)} | {percent(fmean(some))} | {percent(min(some))} | "
            f"{percent(max(some))} | {bound_text} |"
        )
    return lines


def cells_table(judged: Sequence[Judged]) -> list[str]:
    lines = [
        "| cell | best static | against it (95%) | floor | against rotate_grow (95%) | gain | "
        "behind the oracle |",
        "|---|---|---|---|---|---|---|",
    ]
    for one in judged:
        regret = (
            one.to_hindsight if one.regret is None and one.cell.family == "tape" else one.regret
        )
        lines.append(
            f"| {one.cell.name} | {one.best} | {_ratio(one.floor)} | {_yes(one.floor_reached)} | "
            f"{_ratio(one.gain)} "
            f"| {_yes(one.gain_reached)} | {'' if regret is None else f'{regret:.1%}'} |"
        )
    return lines


def _ratio(ratio: TrialRatio | None) -> str:
    return (
        ""
        if ratio is None
        else f"{percent(ratio.value - 1)} ({percent(ratio.low - 1)} to {percent(ratio.high - 1)})"
    )


def _yes(reached: bool | None) -> str:
    return "" if reached is None else "reached" if reached else "NOT reached"
