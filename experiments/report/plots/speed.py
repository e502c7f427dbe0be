"""Speed: the ratio to the baseline, with its interval."""

from __future__ import annotations

from experiments.report.panel import Panel, Plot, Points, View, most, shown

MOST = 24


def draw(view: View) -> list[Panel] | str:
    panels = []
    for rows in view.by_evidence():
        known = [row for row in rows if row.ratio and row.arm.parity != "invalid"]
        kept = most(known, MOST)
        if not kept:
            continue
        marks = [
            Points(
                name,
                [row.ratio.value for row in some if row.ratio],
                [row.arm.label for row in some],
                colour,
                symbol,
                [row.ratio.low for row in some if row.ratio],
                [row.ratio.high for row in some if row.ratio],
                across=True,
                hover=[
                    f"{row.tokens_per_s:.1f} tokens/s, against {row.against}, parity "
                    f"{row.arm.parity}"
                    for row in some
                ],
            )
            for name, colour, symbol, some in (
                ("baseline", 3, "diamond", [row for row in kept if row.is_baseline]),
                ("arm", 0, "circle", [row for row in kept if not row.is_baseline]),
            )
            if some
        ]
        title = "Speed against the baseline" + shown(known, kept, "results.parquet")
        panels.append(
            Panel(
                title,
                "ratio of tokens/s, 95% interval",
                "",
                marks,
                [run for row in kept for run in row.arm.runs],
                wide=True,
                height=130 + 24 * len(kept),
                line_at=1.0,
                order=[row.arm.label for row in kept],
            )
        )
    return panels or "no arm has prompts in common with a baseline"


PLOT = Plot(
    "speed",
    "Speed",
    "Right of the line is faster. Intervals: block bootstrap over prompts, paired on prompts and "
    "seeds. Of more arms than there are places the fastest and the slowest of each baseline are "
    "drawn first.",
    draw,
)
