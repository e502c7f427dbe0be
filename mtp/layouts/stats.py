"""What a layout key cost in a run: the `layouts` of metrics.json. Pure Python; a rate without a
denominator is None."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from statistics import fmean, median
from typing import Any

from mtp.executor import PhaseTimes
from mtp.layouts.layout import LayoutStats
from mtp.metrics import rate


def layout_stats(
    key: str, stats: LayoutStats, windows: Iterable[PhaseTimes], *, decode_s: float
) -> dict[str, Any]:
    """windows: of every window of the run; decode_s: seconds of those windows, planning and booking
    included.

    hit_rate: of hits and misses; capture_share: of decode_s. window_ms: what the executor needed
    for one window, medians by how it ran (`capturing`: the capture, successful or not, and the run
    after it), and `mean`, over all windows, captures included: the figure by which keys compare.
    Captures alone would make `rows` win by construction.
    """
    phases = list(windows)
    times = {
        path: [1000 * window.total for window in phases if window.path == path]
        for path in ("replayed", "eager", "capturing")
    }
    return {
        "key": key,
        **asdict(stats),
        "hit_rate": rate(stats.hits, stats.hits + stats.misses),
        "capture_share": rate(stats.capture_s, decode_s),
        "window_ms": {
            **{path: median(values) if values else None for path, values in times.items()},
            "mean": fmean(1000 * window.total for window in phases) if phases else None,
        },
    }
