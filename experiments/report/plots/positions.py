"""Acceptance by position."""

from __future__ import annotations

from experiments.report.panel import Line, Mark, Panel, Plot, View, most, shown

MOST = 8


def draw(view: View) -> list[Panel] | str:
    panels = []
    for rows in view.by_evidence():
        known = [row for row in rows if row.acceptance.positions]
        kept = most(known, MOST)
        for kind, says in (
            ("conditional", "given that all before it were accepted"),
            ("cumulative", "of all drafts there"),
        ):
            marks: list[Mark] = []
            for colour, row in enumerate(kept):
                positions = row.acceptance.positions
                counts = [
                    place.judged if kind == "conditional" else place.offered for place in positions
                ]
                shares = [getattr(place, kind) for place in positions]
                hover = [
                    f"{row.arm.label}: {place.accepted} accepted of n = {n}"
                    for place, n in zip(positions, counts, strict=True)
                ]
                name = f"{row.arm.label} (n = {', '.join(map(str, counts))})"
                marks.append(
                    Line(
                        name,
                        [place.position + 1 for place in positions],
                        shares,
                        colour,
                        arm=row.arm.label,
                        hover=hover,
                    )
                )
            if marks:
                title = f"{kind}: {says}{shown(known, kept, 'results.parquet')}"
                runs = [run for row in kept for run in row.arm.runs]
                panels.append(
                    Panel(
                        title,
                        "draft",
                        "accepted",
                        marks,
                        runs,
                        y_range=(0.0, 1.05),
                        height=340,
                        whole_x=True,
                    )
                )
    return panels or "no draft was verified"


PLOT = Plot(
    "acceptance_by_position",
    "Acceptance by position",
    "Shares of drafts accepted at each place of a group, with n; text after its first repeated "
    "16-gram is left out.",
    draw,
)
