"""`python -m bench.gpu.window_cost`: a window of the shipped model by layout key: its time, its
launches, and the seam's share of them.

Rows of kind `window` go to the run's file of rows, if any. Launches are counted by torch's
profiler: on a GPU every kernel and copy that the device ran, on a CPU every operation that the host
called; a share is that of their time, and a CPU's tells nothing of a GPU's.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from bench.gpu.graph_cases import SLOTS, engine_of
from bench.gpu.graphs import measure
from bench.rows import Row, about, window_table, write_rows
from mtp.engine import Engine
from mtp.layouts import KEYS, LayoutKey

# as the kernels and the operations are called
SEAM = (
    "row_argmax",
    "accept_prefix",
    "pack_window",
    "advance_window",
)
# output tokens of a request where time is measured, and where windows are profiled
TOKENS, PROFILED, WINDOWS = (
    32,
    100,
    8,
)


def steady(engine: Engine) -> None:
    """Steps until every slot decodes and a window was replayed, or is eager for good."""
    while len(engine.streams) < SLOTS or any(
        stream.prefilling for stream in engine.streams.values()
    ):
        engine.step()
    for _ in range(2 * WINDOWS):
        engine.step()


def profiled(engine: Engine, device: torch.device, windows: int = WINDOWS) -> dict[str, Any]:
    """`summary` of so many of the engine's next windows."""
    gpu = device.type == "cuda"
    with profile(activities=[ProfilerActivity.CUDA] if gpu else [ProfilerActivity.CPU]) as found:
        for _ in range(windows):
            engine.step()
        if gpu:
            torch.cuda.synchronize(device)
    return summary(found.events(), windows, gpu=gpu)


def summary(events: Iterable[Any], windows: int, *, gpu: bool) -> dict[str, Any]:
    """A window's launches and microseconds of work, in all and the seam's. events: torch's, of
    so many windows."""
    if gpu:
        counted = [
            event
            for event in events
            if event.device_type == DeviceType.CUDA and not event.is_user_annotation
        ]
    else:
        counted = [event for event in events if event.cpu_parent is None]
    work = [(event.name, event.time_range.elapsed_us()) for event in counted]
    seam = [(name, us) for name, us in work if any(part in name for part in SEAM)]
    total, own = (sum(us for _, us in each) / windows for each in (work, seam))
    counts = {
        "launches": round(len(work) / windows, 1),
        "seam_launches": round(len(seam) / windows, 1),
    }
    return {
        **counts,
        "work_us": round(total, 1),
        "seam_us": round(own, 1),
        "seam_share": round(own / total, 4) if total else None,
    }


def rows(
    device: torch.device,
    *,
    keys: Sequence[LayoutKey | None] = (None, *KEYS),
    tokens: int = TOKENS,
    tiny: bool = True,
) -> Iterator[Row]:
    """A row a layout key; `off`: eager. Windows, pairs and their bytes as
    `bench.gpu.graphs.measure` gives them."""
    clock = None if device.type == "cuda" else time.thread_time
    costs = {
        cost.pop("key"): cost for cost in measure(device, tokens, keys=keys, tiny=tiny, clock=clock)
    }
    for key in keys:
        _, engine = engine_of(device, key, capacity=64, tokens=PROFILED, tiny=tiny)
        steady(engine)
        name = key or "off"
        named = {
            "kind": "window",
            "operation": "window",
            "implementation": name,
            "shape": {"slots": SLOTS, "rows": 8},
        }
        yield {
            **named,
            "model": "tiny_qwen" if tiny else "sum",
            **costs[name],
            **profiled(engine, device),
            **about(),
        }


def main() -> int:
    torch.set_num_threads(1)
    found = list(rows(torch.device("cuda" if torch.cuda.is_available() else "cpu")))
    write_rows(found)
    print(*window_table(found), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
