"""A driver with the rules of CUDA captures that `CudaGraphs` must get right, in the place of
torch.cuda."""

from __future__ import annotations

import contextlib
from itertools import count

import torch


class FakeDriver:
    """invalidate(): what a forbidden call does to the capture under way; full(): an allocation
    finds no memory."""

    def __init__(self, monkeypatch) -> None:
        # graphs of a pool; pools that a capture was not ended in
        self.handles, self.uses, self.recording = (
            count(1),
            {},
            set(),
        )
        self.capturing = self.invalid = False
        self.current = self.main = FakeStream("main")
        for name, value in {
            "Stream": lambda device: FakeStream("side"),
            "stream": self.on_stream,
            "current_stream": lambda device: self.current,
            "synchronize": self.synchronize,
            "graph_pool_handle": lambda: (0, next(self.handles)),
            "memory_snapshot": lambda handle: [{"total_size": 2 * self.uses.get(handle, 0)}],
            "CUDAGraph": lambda: FakeCudaGraph(self),
        }.items():
            monkeypatch.setattr(torch.cuda, name, value)

    @contextlib.contextmanager
    def on_stream(self, stream):
        before, self.current = self.current, stream
        try:
            yield
        finally:
            self.current = before

    def synchronize(self, device=None):
        assert not self.capturing, "operation not permitted when stream is capturing"

    def invalidate(self):
        self.invalid = True
        raise RuntimeError("CUDA error: operation not permitted when stream is capturing")

    def full(self):
        raise torch.OutOfMemoryError("CUDA out of memory")


class FakeStream:
    def __init__(self, name):
        self.name = name

    def wait_stream(self, other):
        pass


class FakeCudaGraph:
    def __init__(self, driver: FakeDriver) -> None:
        self.driver, self.alive = driver, False

    def capture_begin(self, *, pool, capture_error_mode):
        d = self.driver
        assert not d.capturing, "the stream is capturing already"
        assert d.current.name == "side"
        assert pool not in d.recording, "already recording to mempool_id"
        assert d.uses.get(pool, 1) > 0, "use_count > 0 INTERNAL ASSERT FAILED"
        d.capturing, d.invalid, self.pool = True, False, pool
        d.uses[pool] = d.uses.get(pool, 0) + 1
        d.recording.add(pool)

    def capture_end(self):
        self.driver.capturing = False
        if self.driver.invalid:
            raise RuntimeError(
                "CUDA error: operation failed due to a previous error during capture"
            )
        self.driver.recording.remove(self.pool)
        self.alive = True

    def replay(self):
        assert self.alive

    def reset(self):
        if self.alive:
            self.driver.uses[self.pool] -= 1
        self.alive = False
