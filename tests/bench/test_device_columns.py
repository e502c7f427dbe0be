"""What a GPU's rows have beside their times, with a fake device or fake events in its place."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace
from typing import ClassVar

import pytest
import torch
from torch.autograd import DeviceType

from bench.gpu import window_cost
from bench.ops import timing
from bench.ops.bandwidth import copy_bytes_per_us, with_share
from bench.ops.device_time import REPLAYS, replay_seconds
from bench.ops.registry import Case, Work

CPU = torch.device("cpu")


class FakeDevice:
    """A clock that goes on by 5 us with every call that a replay repeats."""

    def __init__(self, monkeypatch) -> None:
        self.clock, self.recorded = 0.0, None
        device = self

        class Graph:
            def replay(self) -> None:
                device.clock += 5e-3 * len(self.calls)  # ms

        class Event:
            def record(self) -> None:
                self.at = device.clock

            def synchronize(self) -> None: ...

            def elapsed_time(self, other) -> float:
                return other.at - self.at

        @contextlib.contextmanager
        def capture(graph):
            device.recorded = graph.calls = []
            yield
            device.recorded = None

        fakes = {
            "CUDAGraph": Graph,
            "Event": lambda enable_timing: Event(),
            "graph": capture,
            "synchronize": lambda: None,
        }
        properties = SimpleNamespace(L2_cache_size=1000)
        for name, fake in {**fakes, "get_device_properties": lambda device: properties}.items():
            monkeypatch.setattr(torch.cuda, name, fake)

    def call(self, name: str):
        return lambda: self.recorded.append(name) if self.recorded is not None else None


def test_replays_are_timed_per_call(monkeypatch):
    device = FakeDevice(monkeypatch)
    seconds = replay_seconds([device.call("a"), device.call("b")])
    assert seconds == pytest.approx([5e-6] * REPLAYS)


@pytest.mark.parametrize(
    ("each", "cache", "expected"),
    [
        (1, 10**6, (64, 64)),
        (100, 1000, (20, 20)),
        (1000, 1000, (2, 8)),
        (700, 1000, (3, 9)),
        (10**9, 1000, (2, 8)),
    ],
)
def test_inputs_take_turns_until_they_exceed_the_cache_twice(each, cache, expected):
    copies, calls = timing.rotation(each, cache)
    assert (copies, calls) == expected
    assert calls % copies == 0


def test_a_graph_takes_turns_on_inputs_of_its_own(monkeypatch):
    device, made, captured = FakeDevice(monkeypatch), [], []

    def make(shape, where):
        made.append(len(made))
        return Work(device.call(f"input {len(made)}"), None, bytes=700)

    def replayed(calls):
        with torch.cuda.graph(graph := torch.cuda.CUDAGraph()):
            for call in calls:
                call()
        captured.extend(graph.calls)
        return [1.0]

    monkeypatch.setattr(timing, "replay_seconds", replayed)
    case = Case("sum", "own", {}, "seam", make)
    assert timing.graph_seconds(case, make({}, CPU), CPU) == [1.0]
    assert captured == ["input 1", "input 2", "input 3"] * 3


def test_a_share_is_of_the_copy_and_only_where_time_is_the_works_own():
    row = {"mode": "graph", "evidence": "gpu", "bytes": 8_000_000, "p50_us": 4.0}
    assert with_share(row, 4_000_000.0) == row | {"copy_bytes_per_us": 4_000_000, "share": 0.5}
    for other in ({"mode": "call"}, {"mode": "python", "evidence": "cpu"}, {"bytes": None}):
        assert with_share(row | other, 4_000_000.0) == row | other
    assert with_share(row | {"mode": "call", "evidence": "cpu"}, 4_000_000.0)["share"] == 0.5


def test_a_copy_is_measured_once(monkeypatch):
    monkeypatch.setattr("bench.ops.bandwidth.CPU_BYTES", 1 << 22)
    copy_bytes_per_us.cache_clear()
    first = copy_bytes_per_us(CPU)
    assert 10 < first == copy_bytes_per_us(CPU)
    copy_bytes_per_us.cache_clear()


def test_launches_are_what_the_device_ran():
    def event(name, us, kind=DeviceType.CUDA, annotation=False):
        taken = SimpleNamespace(elapsed_us=lambda: us)
        return SimpleNamespace(
            name=name, time_range=taken, device_type=kind, is_user_annotation=annotation
        )

    events = [
        event("row_argmax_kernel", 4.0),
        event("gemm", 30.0),
        event("Memcpy DtoH", 2.0),
        event("pack_window_kernel", 4.0),
    ]
    noise = [event("aten::mm", 99.0, DeviceType.CPU), event("verify", 50.0, annotation=True)]
    assert window_cost.summary(events + noise, 2, gpu=True) == {
        "launches": 2.0,
        "seam_launches": 1.0,
        "work_us": 20.0,
        "seam_us": 4.0,
        "seam_share": 0.2,
    }


def test_a_window_by_layout_key_has_times_pairs_and_launches():
    off, rows = window_cost.rows(CPU, keys=(None, "rows"), tokens=24, tiny=False)
    assert [off["implementation"], rows["implementation"]] == ["off", "rows"]
    assert "ms_per_pair" not in off
    assert rows["pairs"] > 0 < rows["megabytes_per_pair"]
    for row in (off, rows):
        assert row["kind"] == "window"
        assert row["window_us"] > 0 < row["work_us"]
        assert row["seam_launches"] == 6  # picks of the target and of three drafts, accept, pack
        assert row["launches"] > 6
        assert 0 < row["seam_share"] < 1


@pytest.mark.parametrize("replays", [True, False])
def test_what_reads_the_host_is_not_replayed(monkeypatch, replays):
    device = FakeDevice(monkeypatch)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    work = Work(device.call("a"), None, bytes=700, replays=replays)

    class Benchmark:
        extra_info: ClassVar[dict] = {}

        def __call__(self, call):
            call()

    timing.measure(Benchmark(), Case("sum", "own", {}, "seam", lambda shape, where: work))
    assert ("graph_s" in Benchmark.extra_info) == replays
    assert Benchmark.extra_info["mode"] == "call"
    Benchmark.extra_info.clear()
