"""What a large copy moves: measured once in a process, the line that other rows are held
against."""

from __future__ import annotations

import statistics
import time
from functools import cache
from typing import Any

import torch

from bench.ops.device_time import median_us
from bench.rows import Row

GPU_BYTES, CPU_BYTES, CPU_TIMES = 1 << 30, 1 << 28, 7


@cache
def copy_bytes_per_us(device: torch.device) -> float:
    """Bytes a microsecond, read and written, of a copy larger than the caches. On a CPU: in the
    thread's own time."""
    size = GPU_BYTES if device.type == "cuda" else CPU_BYTES
    source, target = torch.zeros(2, size, dtype=torch.uint8, device=device).unbind()
    if device.type == "cuda":
        return 2 * size / median_us(lambda: target.copy_(source), launches=4)
    seconds = []
    for _ in range(CPU_TIMES):
        begin = time.thread_time()
        target.copy_(source)
        seconds.append(time.thread_time() - begin)
    return 2 * size / statistics.median(seconds) / 1e6


def with_share(row: Row, bytes_per_us: float) -> Row:
    """The row with the bandwidth of a copy and its own share of it: the bytes that a call must at
    least move, over its median.

    Not where a call's time is the host's: beside a `graph` row, or where nothing large moves."""
    times: dict[str, Any] = {"copy_bytes_per_us": round(bytes_per_us)}
    own = row["mode"] == ("graph" if row["evidence"] == "gpu" else "call")
    return (
        row | times | {"share": round(row["bytes"] / row["p50_us"] / bytes_per_us, 4)}
        if own and row["bytes"]
        else row
    )
