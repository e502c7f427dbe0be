"""published.md: side by side, what is not reproduced and what it would need, and the break-even
table."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate
from operator import mul
from typing import Any

from experiments.studies.calibrated import CONDITIONAL, Figure, closed_form, cost_of

FULL_MS = 46.75  # published: a window of four requests


def page(
    cells: Mapping[str, Mapping[str, float]],
    figures: Mapping[str, Figure],
    surface: Mapping[int, Mapping[float, float]],
    points: Mapping[str, Any],
) -> str:
    lines = [
        "# Published cells, calibrated",
        "",
        "Evidence: synthetic; label: **calibrated** (nine numbers explain four cells).",
        "",
    ]
    lines += [
        "| two requests | published tok/s | calibrated: closed form | calibrated: engine on tapes "
        "| off |",
        "|---|---|---|---|---|",
    ]
    for name, cell in cells.items():
        off = cell["calibrated"] / cell["published"] - 1
        drafts = figures[name].drafts
        lines.append(
            f"| {figures[name].work}, up to {drafts} draft{'s' * (drafts > 1)} | "
            f"{cell['published']} | {cell['closed_form']:.1f} "
            f"| {cell['calibrated']:.1f} | {100 * off:+.1f}% |"
        )
    lines += [
        "",
        "## Not reproduced",
        "",
        *_not_reproduced(figures),
        "",
        "## Break-even of time sharing and window sharing",
        "",
    ]
    lines += [
        "Cost of a window alone / batched (same rows) below which time sharing is faster; by slots "
        "and conditional acceptance.",
        "",
    ]
    acceptances = list(next(iter(surface.values())))
    lines += [
        "| slots | " + " | ".join(f"{p:g}" for p in acceptances) + " |",
        "|---" * (len(acceptances) + 1) + "|",
    ]
    lines += [
        f"| {slots} | " + " | ".join(f"{ratios[p]:.2f}" for p in acceptances) + " |"
        for slots, ratios in surface.items()
    ]
    lines += [
        "",
        "Best policy of each side (window / time sharing):",
        "",
        "| slots | " + " | ".join(f"{p:g}" for p in acceptances) + " |",
    ]
    lines += ["|---" * (len(acceptances) + 1) + "|"]
    for slots in surface:
        found = [points[f"sharing-p{p:g}-s{slots}"] for p in acceptances]
        lines.append(
            f"| {slots} | " + " | ".join(f"{one['window']} / {one['tick']}" for one in found) + " |"
        )
    return "\n".join(lines) + "\n"


def implied_alone(figures: Mapping[str, Figure]) -> float:
    """Alone / batched cost that the published figure of one request alone would need, on code."""
    return closed_form("code", 1, 3) / figures["alone"].tokens_per_s


def _not_reproduced(figures: Mapping[str, Figure]) -> list[str]:
    alone, four = figures["alone"], figures["four"]
    tokens = 1 + sum(accumulate(CONDITIONAL["code"], mul))
    alone_ms = 1e3 * cost_of("code").window(4, 1, 0)
    full_ms, full_prose_ms = (1e3 * cost_of(text).window(8, 4, 0) for text in ("code", "prose"))
    needed = (
        f"{1e3 * tokens / alone.tokens_per_s:.1f} ms a window: alone / batched "
        f"{implied_alone(figures):.2f}"
    )
    context = (
        f"{FULL_MS / full_prose_ms:.2f} times prose's window: a price of context, which cells of "
        "one context length cannot tell"
    )
    return [
        "| | published | the calibrated model | what it would need |",
        "|---|---|---|---|",
        f"| one request alone, up to 3 drafts, context not stated | 124 to 135 tok/s "
        f"| {closed_form('code', 1, 3):.0f} tok/s: {alone_ms:.1f} ms a window of 4 rows | {needed} "
        "|",
        f"| four requests at 64K, 8 rows | {four.tokens_per_s} tok/s, {FULL_MS} ms a window "
        f"| {full_ms:.1f} ms a window with code's factor, {full_prose_ms:.1f} with prose's | "
        f"{context} |",
    ]
