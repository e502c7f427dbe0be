"""Time on a GPU, by graph replays."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

import torch

REPLAYS, LAUNCHES = 50, 20


def median_us(work: Callable[[], Any], *, launches: int = LAUNCHES) -> float:
    """Microseconds of one call: the median of 50 replays of a graph of `launches` calls."""
    work()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(launches):
            work()
    times = []
    for _ in range(REPLAYS):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1000 / launches)
    return statistics.median(times)
