"""Where the time goes."""

from __future__ import annotations

from experiments.report.panel import Bars, Panel, Plot, View, most, shown

MOST = 24
PARTS = {
    "verify": "verify",
    "commit_and_draft": "commit and draft",
    "host": "host",
    "capture": "capture",
}


def draw(view: View) -> list[Panel] | str:
    panels = []
    for rows in view.by_evidence():
        known = [
            row
            for row in rows
            if all(
                run.metrics.get("split_s") and run.metrics.get("tokens_committed")
                for run in row.arm.runs
            )
        ]
        kept = most(known, MOST)
        if not kept:
            continue
        tokens = [sum(run.metrics["tokens_committed"] for run in row.arm.runs) for row in kept]
        base = [0.0] * len(kept)
        marks = []
        for colour, (part, name) in enumerate(PARTS.items()):
            length = [
                1000 * sum(run.metrics["split_s"][part] for run in row.arm.runs) / n
                for row, n in zip(kept, tokens, strict=True)
            ]
            hover = [
                f"{row.arm.label}, {name}: {ms:.3f} ms a token"
                for row, ms in zip(kept, length, strict=True)
            ]
            marks.append(
                Bars(
                    name,
                    [row.arm.label for row in kept],
                    length,
                    list(base),
                    colour,
                    across=True,
                    hover=hover,
                )
            )
            base = [start + ms for start, ms in zip(base, length, strict=True)]
        runs = [run for row in kept for run in row.arm.runs]
        panels.append(
            Panel(
                "Time of a token" + shown(known, kept, "results.parquet"),
                "ms per token committed",
                "",
                marks,
                runs,
                wide=True,
                height=130 + 24 * len(kept),
            )
        )
    return panels or "no run has a split of its time"


PLOT = Plot(
    "split",
    "Split of the time",
    "Decode time per committed token. Host: planning, booking and waiting. Shorter is faster.",
    draw,
)
