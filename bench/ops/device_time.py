"""Time on a GPU, by graph replays."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import Any

import torch

REPLAYS, LAUNCHES = 50, 20


def replay_seconds(calls: Sequence[Callable[[], Any]]) -> list[float]:
    """Seconds of one call, of every one of 50 replays of a graph of all of them."""
    for call in calls:
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for call in calls:
            call()
    seconds = []
    for _ in range(REPLAYS):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        seconds.append(begin.elapsed_time(end) / 1e3 / len(calls))
    return seconds


def median_us(work: Callable[[], Any], *, launches: int = LAUNCHES) -> float:
    """Microseconds of one call: the median of 50 replays of a graph of `launches` calls."""
    return 1e6 * statistics.median(replay_seconds([work] * launches))
