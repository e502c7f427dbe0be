"""CUDA graphs in one shared pool, captured so that a failed capture leaves nothing behind."""

from __future__ import annotations

import contextlib
import weakref
from functools import partial

import torch

from mtp.graphs.capture import DryRun, Work, under_way
from mtp.layouts.cache import Graph


class CudaGraphs:
    """A backend of CUDA graphs. dry_run: a context in which a commit changes nothing, for warm-ups.

    torch.cuda.graph is not used: when capture_end raises it leaves the side stream current.
    Compiled kernels are held by Triton's own caches for the life of the process.
    """

    def __init__(self, device: torch.device, dry_run: DryRun) -> None:
        self._device, self._dry_run = device, dry_run
        self._stream = torch.cuda.Stream(device)
        # a pool lives as long as a graph in it
        self._pools: weakref.WeakSet[Pool] = weakref.WeakSet()
        with self._side_stream():  # its matmul workspace must not belong to the first graph's pool
            square = torch.ones(16, 16, device=device)
            torch.mm(square, square)
        self._pool = self._fresh_pool()

    def warm(self, work: Work) -> None:
        with self._dry_run(), under_way(), self._side_stream(), _memory_errors():
            work()

    def capture(self, work: Work) -> Graph:
        if self._pool.broken:
            self._pool = self._fresh_pool()
        torch.cuda.synchronize(self._device)
        with under_way(), _memory_errors():
            return CudaGraph(self._pool.capture(work), self._pool)

    def pool_bytes(self) -> int:
        return sum(pool.bytes() for pool in self._pools)

    def _fresh_pool(self) -> Pool:
        pool = Pool(self._device, self._stream)
        self._pools.add(pool)
        return pool

    @contextlib.contextmanager
    def _side_stream(self):
        current = torch.cuda.current_stream(self._device)
        self._stream.wait_stream(current)
        try:
            with torch.cuda.stream(self._stream):
                yield
        finally:
            current.wait_stream(self._stream)


class Pool:
    """Memory that graphs share."""

    def __init__(self, device: torch.device, stream: torch.cuda.Stream) -> None:
        self.broken = False  # a capture did not end well: the driver takes no more into this pool
        self._handle, self._stream = torch.cuda.graph_pool_handle(), stream
        place = torch.zeros(1, device=device)
        torch.cuda.synchronize(device)
        # torch refuses a pool that has lost its last graph, as an empty cache's has: this one stays
        self._keeper = place, self.capture(partial(_touch, place))

    def capture(self, work: Work) -> torch.cuda.CUDAGraph:
        """The graph, captured and instantiated; else the work's own error, the stream back to
        normal.
        """
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.stream(self._stream):
                self.broken = True
                graph.capture_begin(pool=self._handle, capture_error_mode="thread_local")
                try:
                    work()
                except BaseException:
                    with contextlib.suppress(Exception):  # only that the capture is broken
                        self._end(graph)
                    raise
                self._end(graph)
        except BaseException:
            with contextlib.suppress(Exception):
                graph.reset()
            raise
        return graph

    def bytes(self) -> int:
        return sum(segment["total_size"] for segment in torch.cuda.memory_snapshot(self._handle))

    def _end(self, graph: torch.cuda.CUDAGraph) -> None:
        graph.capture_end()
        self.broken = False


class CudaGraph:
    def __init__(self, graph: torch.cuda.CUDAGraph, pool: Pool) -> None:
        self.replay = graph.replay
        self.reset = graph.reset
        self._pool = pool


@contextlib.contextmanager
def _memory_errors():
    """Full memory is a MemoryError, whether torch or the driver says so."""
    try:
        yield
    except RuntimeError as fault:
        if "out of memory" in str(fault):
            raise MemoryError(str(fault)) from fault
        raise


def _touch(place: torch.Tensor) -> None:
    place.zero_()
