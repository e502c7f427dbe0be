"""One case under pytest-benchmark: the host's time of a call and, on a GPU, the device's, by
replays of a graph."""

from __future__ import annotations

from typing import Any

import torch

from bench.ops.device_time import replay_seconds
from bench.ops.registry import Case, Work

MOST_COPIES, LEAST_CALLS = 64, 8


def measure(benchmark: Any, case: Case) -> None:
    """Checks the case, then times it. mode: `python` for host work, `call` for operations, with
    the device idle before each round."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    work = case.checked(device)
    mode = "python" if case.mode == "host" else "call"
    names = {
        "operation": case.operation,
        "implementation": case.implementation,
        "shape": dict(case.shape),
    }
    benchmark.extra_info.update(names | {"mode": mode, "bytes": work.bytes, "per": work.per})
    if device.type == "cuda":
        torch.cuda.synchronize()
        if case.mode == "seam" and work.replays:
            benchmark.extra_info["graph_s"] = graph_seconds(case, work, device)
    benchmark(work.call)


def rotation(each: int, cache: int) -> tuple[int, int]:
    """(copies of a call's inputs, calls in a graph): copies of `each` bytes that together exceed
    what the cache holds twice over, where MOST_COPIES of them do; every copy equally often,
    LEAST_CALLS calls or more, so that what a launch alone costs is a small part."""
    copies = min(MOST_COPIES, max(2, -(-2 * cache // max(1, each))))
    return copies, copies * -(-LEAST_CALLS // copies)


def graph_seconds(case: Case, work: Work, device: torch.device) -> list[float]:
    """Seconds of a call, by CUDA events around replays of one graph of many calls that take
    turns on inputs of their own."""
    copies, calls = rotation(
        work.bytes or 1, torch.cuda.get_device_properties(device).L2_cache_size
    )
    works = [work, *(case.make(case.shape, device) for _ in range(copies - 1))]
    return replay_seconds([works[turn % copies].call for turn in range(calls)])
