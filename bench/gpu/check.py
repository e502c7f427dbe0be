"""Kernels and graphs on one GPU: every kernel against its twin, captured and replayed, and what the
seam costs.

`python -m bench.gpu.check` prints one line and exits 0 where there is no GPU. Otherwise: random
windows with poisoned outputs, the same again by graph replay on new data, then medians; graph pairs
through the layout cache (`bench.gpu.graphs`); and a JSON file in bench/results/. Exit code 1 if
anything differs.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

import triton_kernels as ops
from bench.gpu import graphs as gpu_graphs
from bench.gpu import mixers as gpu_mixers
from bench.inputs.windows import WindowData, moved, random_window
from bench.ops.device_time import median_us
from bench.rows import RESULTS
from mtp.files import whole
from triton_kernels.launch import jit, tl

STAGES = ("all", "accept", "plan")
SEEDS, GOAL = 60, 1.3
# (data, use the twin) -> results; what changes in place comes last
Call = Callable[[WindowData, bool], list[Tensor]]


def _simple(name: str, arguments: str) -> Call:
    def call(data: WindowData, twin: bool) -> list[Tensor]:
        return list(getattr(ops, name + "_torch" * twin)(**getattr(data, arguments)()))

    return call


def _advance(stage: str) -> Call:
    def call(data: WindowData, twin: bool) -> list[Tensor]:
        advance = ops.advance_window_torch if twin else ops.advance_window
        given = data.advance_arguments(stage)
        return [*advance(stage, data.state, window=data.window, **given), *data.state, *data.window]  # type: ignore[arg-type]

    return call


CALLS: dict[str, Call] = {
    "row_argmax": _simple("row_argmax", "argmax_arguments"),
    "pack_window": _simple("pack_window", "pack_arguments"),
    "accept_prefix": _simple("accept_prefix", "accept_arguments"),
    **{f"advance_window {stage}": _advance(stage) for stage in STAGES},
}


def differences(name: str, data: WindowData, got: list[Tensor]) -> list[str]:
    """What differs from the twin on the CPU, given the data as it was before the kernel ran."""
    want = CALLS[name](data, True)
    return [
        f"{name}: result {i} differs"
        for i, (a, b) in enumerate(zip(got, want, strict=True))
        if not torch.equal(a.cpu(), b)
    ]


def check_eager(name: str, seed: int, device: torch.device, **sizes: Any) -> list[str]:
    data = random_window(seed, **sizes)
    poison_free_memory(device)
    return differences(name, data, CALLS[name](moved(data, device), False))


def poison_free_memory(device: torch.device) -> None:
    """The next small allocations find rubbish, which no kernel may leave in a result."""
    for _ in range(2):
        rubbish = [
            torch.full((n,), -77, dtype=torch.int32, device=device)
            for n in (16, 64, 256, 1024)
            for _ in range(8)
        ]
        del rubbish


def check_replay(name: str, seed: int, device: torch.device, **sizes: Any) -> list[str]:
    """One capture on one window's data, replayed on the data of others of the same shape."""
    first = random_window(seed, **sizes)
    static = moved(first, device)
    CALLS[name](moved(first, device), False)  # compiles, and makes the scratch
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        results = CALLS[name](static, False)
    fresh = [
        tensor
        for tensor in results
        if not any(tensor is table for table in (*static.state, *static.window))
    ]
    found = []
    for again in range(4):
        data = same_shape(first, seed + 1000 * again)
        for place, value in zip(tensors_of(static), tensors_of(data), strict=True):
            place.copy_(value)
        for tensor in fresh:
            tensor.fill_(True if tensor.dtype == torch.bool else -77)
        graph.replay()
        torch.cuda.synchronize()
        found += [
            f"{line} in replay {again}"
            for line in differences(name, data, [tensor.clone() for tensor in results])
        ]
    return found


def same_shape(first: WindowData, seed: int) -> WindowData:
    """Another window that fits the buffers and options of `first`."""
    depth, dtype = first.state.drafts.shape[1], first.logits.dtype
    sizes = {
        "slots": len(first.state.anchors),
        "bucket": len(first.window.ids),
        "depth": depth,
        "vocab": first.vocab,
        "dtype": dtype,
    }
    shapes = [tensor.shape for tensor in tensors_of(first)]
    for attempt in range(10_000):
        data = random_window(seed + attempt, **sizes)  # type: ignore[arg-type]
        same = (data.rows, data.policy, data.k) == (first.rows, first.policy, first.k)
        if same and [tensor.shape for tensor in tensors_of(data)] == shapes:
            return data
    raise RuntimeError(f"no window of the shape of seed {seed}")


def tensors_of(data: WindowData) -> list[Tensor]:
    return [*data.state, *data.limits, *data.window, data.logits, data.proposals]


# ---- time


@jit
def fold(x, y):
    return x ^ y


@jit
def read_kernel(words_ptr, out_ptr, vectors, VECTORS: tl.constexpr):
    """Reads 16-byte vectors and gives one word a program: the least that any pick of these
    logits must do."""
    vector = tl.program_id(0) * VECTORS + tl.arange(0, VECTORS)[:, None]
    words = tl.load(words_ptr + vector * 4 + tl.arange(0, 4)[None], mask=vector < vectors, other=0)
    tl.store(out_ptr + tl.program_id(0), tl.reduce(tl.reduce(words, 1, fold), 0, fold))


def reader(logits: Tensor) -> Callable[[], Any]:
    words = logits.reshape(-1).view(torch.int32)  # the same bytes, contiguous
    programs = -(-words.numel() // 4096)
    out = torch.empty(programs, dtype=torch.int32, device=logits.device)
    return lambda: read_kernel[programs,](words, out, words.numel() // 4, VECTORS=1024, num_warps=8)


def busy_window(vocab: int, dtype: torch.dtype, device: torch.device) -> WindowData:
    """8 rows of 4 slots that never end and always hold 3 drafts: every window is full, however
    often it is advanced."""
    data = random_window(1, slots=4, bucket=8, depth=3, vocab=8)
    four = torch.ones(4, dtype=torch.int32)
    state = data.state._replace(
        positions=four,
        produced=0 * four,
        live=four,
        held=3 * four,
        start=torch.zeros(1, dtype=torch.int32),
    )
    limits = data.limits._replace(
        max_new=10**9 * four,
        context=10**9 * four,
        min_new=0 * four,
        allowed=3 * four,
        stop_counts=0 * four,
    )
    proposals = torch.ones(8, 3, dtype=torch.int32)
    data = replace(
        data,
        state=state,
        limits=limits,
        proposals=proposals,
        vocab=vocab,
        rows=8,
        policy="rotate_grow",
        k=0,
    )
    ops.advance_window("plan", data.state, data.limits, data.window, **data.plan)
    return moved(replace(data, logits=torch.randn(8, vocab).to(dtype)), device)


def seam(data: WindowData) -> dict[str, Callable[[], Any]]:
    """What is timed: each operation, the seam of a host that plans, and a read of the logits to
    compare with."""
    pack, accept = data.pack_arguments(), data.accept_arguments()
    work: dict[str, Callable[[], Any]] = {
        "read of the logits": reader(data.logits),
        "row_argmax": lambda: ops.row_argmax(data.logits),
        "accept_prefix": lambda: ops.accept_prefix(**accept),
        "pack_window": lambda: ops.pack_window(**pack),
        "the three": lambda: (
            ops.row_argmax(data.logits),
            ops.accept_prefix(**accept),
            ops.pack_window(**pack),
        ),
    }
    for stage in STAGES:
        work[f"advance_window {stage}"] = partial(CALLS[f"advance_window {stage}"], data, False)
    return work


def timings(device: torch.device) -> Iterator[dict[str, Any]]:
    for dtype in (torch.bfloat16, torch.float32):
        for vocab in (151_936, 262_144):
            us = {
                name: round(median_us(work), 2)
                for name, work in seam(busy_window(vocab, dtype, device)).items()
            }
            ratio = round(us["row_argmax"] / us["read of the logits"], 2)
            yield {
                "dtype": str(dtype).removeprefix("torch."),
                "vocab": vocab,
                "us": us,
                "picks_to_read": ratio,
            }


def main() -> int:
    if not torch.cuda.is_available():
        print(f"gpu-check: no GPU on this machine (torch {torch.__version__}); nothing was checked")
        return 0
    device, begin = torch.device("cuda"), time.perf_counter()
    found: list[str] = []
    for name in CALLS:
        before = len(found)
        for seed in range(SEEDS):
            found += check_eager(name, seed, device)
        found += check_eager(name, 1, device, slots=64, bucket=64, depth=3, vocab=151_936)
        for seed in range(8):
            found += check_replay(name, seed, device, slots=1 + seed, bucket=8, depth=3, vocab=4096)
        print(
            f"{name}: {'the same as its twin' if len(found) == before else 'DIFFERS'}", flush=True
        )
    table = []
    for row in timings(device):
        table.append(row)
        print(
            f"{row['dtype']}, vocabulary {row['vocab']}: "
            + ", ".join(f"{name} {us} us" for name, us in row["us"].items())
        )
        print(
            f"  picks take {row['picks_to_read']} times as long as a read of the logits (goal: at "
            f"most {GOAL})",
            flush=True,
        )
    wrong, mixers = gpu_mixers.check(device)
    found += wrong
    wrong, graphs = gpu_graphs.check(device)
    found += wrong
    name = torch.cuda.get_device_name(device)
    seconds = round(time.perf_counter() - begin, 1)
    versions = {"torch": torch.__version__, "cuda": torch.version.cuda}
    report = {
        "device": name,
        **versions,
        "differences": found,
        "timings": table,
        "mixers": mixers,
        "graphs": graphs,
        "seconds": seconds,
    }
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"gpu_check_{name.replace(' ', '_')}_{time.strftime('%Y%m%d_%H%M%S')}.json"
    with whole(path) as aside:
        aside.write_text(json.dumps(report, indent=2) + "\n")
    print(*found, f"written to {path}", sep="\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
