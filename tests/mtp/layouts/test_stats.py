"""Figures of a layout key, from hand-made windows."""

from __future__ import annotations

import pytest

from mtp.executor import PhaseTimes
from mtp.layouts.layout import LayoutStats
from mtp.layouts.stats import layout_stats


def test_rates_and_costs_by_path():
    windows = [
        PhaseTimes(0.001, 0.002),
        PhaseTimes(0.001, 0.004),
        PhaseTimes(0.001, 0.001, capture=0.010, path="capturing"),
        *(PhaseTimes(0.001, tail, path="replayed") for tail in (0.000, 0.001, 0.009)),
    ]
    stats = LayoutStats(hits=3, misses=3, captures=1, capture_s=0.010, bytes=7)
    figures = layout_stats("rows", stats, windows, decode_s=0.040)
    assert {
        name: figures[name]
        for name in ("key", "hits", "captures", "evictions", "bytes", "given_up")
    } == {
        "key": "rows",
        "hits": 3,
        "captures": 1,
        "evictions": 0,
        "bytes": 7,
        "given_up": False,
    }
    assert figures["hit_rate"] == 0.5
    assert figures["capture_share"] == pytest.approx(0.25)
    assert figures["window_ms"] == pytest.approx(
        {"replayed": 2.0, "eager": 4.0, "capturing": 12.0, "mean": 33 / 6}
    )


def test_what_never_happened_is_none():
    figures = layout_stats("off", LayoutStats(), [], decode_s=0.0)
    assert (figures["hit_rate"], figures["capture_share"]) == (None, None)
    assert figures["window_ms"] == {
        "replayed": None,
        "eager": None,
        "capturing": None,
        "mean": None,
    }
