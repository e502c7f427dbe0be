"""Capture and replay: the device's own graphs, and a wrapper that fails on demand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import torch

from mtp.graphs.capture import DryRun, Work
from mtp.graphs.cpu import CpuGraphs
from mtp.graphs.cuda import CudaGraphs
from mtp.layouts.cache import Graph, GraphBackend


class FailingGraphs:
    """Another backend that raises at chosen calls. `instantiate` fails after the capture went well.

    plan: {("warm" | "capture" | "instantiate", n-th call): exception}.
    """

    def __init__(self, inner: GraphBackend, plan: Mapping[tuple[str, int], Exception]) -> None:
        self._inner, self._plan = inner, plan
        self._calls: Counter[str] = Counter()

    def warm(self, work: Work) -> None:
        self._count("warm")
        self._inner.warm(work)

    def capture(self, work: Work) -> Graph:
        self._count("capture")
        graph = self._inner.capture(work)
        try:
            self._count("instantiate")
        except Exception:
            graph.reset()
            raise
        return graph

    def pool_bytes(self) -> int:
        return self._inner.pool_bytes()

    def _count(self, call: str) -> None:
        self._calls[call] += 1
        if fault := self._plan.get((call, self._calls[call])):
            raise fault


def graphs_for(device: torch.device, dry_run: DryRun) -> GraphBackend:
    """The device's own backend."""
    return CudaGraphs(device, dry_run) if device.type == "cuda" else CpuGraphs(dry_run)
