"""Which dtype a model runs in: the requested one, the stored one, or the faster one on this CPU."""

from __future__ import annotations

import hashlib
import json
import platform
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import NamedTuple

import torch

from mtp.files import code_digest, remembered
from mtp.machine import processor
from mtp.targets.loading.checkpoint import Checkpoint
from triton_kernels import product
from triton_kernels.product import Matrix, packs

NAMES = {"fp32": torch.float32, "bf16": torch.bfloat16}
ASKED = ("auto", "stored", *NAMES)
GAIN = 1.1  # fp32 takes twice the memory: only where it is at least so much faster
BUDGET_S, FEWEST, MOST_SAMPLES = 0.35, 3, 15
LARGEST = 1 << 22  # elements of a matrix that is timed; a larger one is cut, and its time scaled


class Choice(NamedTuple):
    dtype: torch.dtype
    reason: str  # one line, empty where nothing was measured


class Timed(NamedTuple):
    """Milliseconds that a window's products with all of a model's matrices take."""

    bf16: float
    fp32: float


def check_dtype(asked: torch.dtype | str) -> None:
    if not isinstance(asked, torch.dtype) and asked not in ASKED:
        raise ValueError(f"dtype is {asked!r}, expected {', '.join(ASKED[:-1])} or {ASKED[-1]}")


def choose_dtype(
    checkpoint: Checkpoint,
    asked: torch.dtype | str,
    *,
    device: torch.device,
    rows: int,
    cache: Path | None = None,
) -> Choice:
    """stored, and auto on a GPU: fp32 where the checkpoint is, else bf16.

    auto on a CPU: what a short probe of this model's matrix shapes at `rows` rows finds faster.

    cache: a folder that keeps the probe's result, by machine, threads and shapes, so that every run
    here takes the same

    Raises ValueError, one line, for another name.
    """
    check_dtype(asked)
    if isinstance(asked, torch.dtype):
        return Choice(asked, "")
    if asked in NAMES:
        return Choice(NAMES[asked], "")
    if asked == "stored" or device.type != "cpu":
        return Choice(
            torch.float32 if checkpoint.stored_as() == torch.float32 else torch.bfloat16, ""
        )
    shapes = checkpoint.matrices()
    timed = time_products(shapes, rows) if cache is None else _remembered(shapes, rows, cache)
    dtype = faster(timed)
    found = (
        f"this model's products with {rows} rows take {timed.bf16:.1f} ms in bf16 "
        f"and {timed.fp32:.1f} ms in fp32 here"
    )
    return Choice(
        dtype, f"{found}, so {'fp32' if dtype == torch.float32 else 'bf16'} (target.dtype=auto)"
    )


def faster(timed: Timed) -> torch.dtype:
    return torch.float32 if timed.fp32 * GAIN <= timed.bf16 else torch.bfloat16


@torch.inference_mode()
def time_products(shapes: Mapping[tuple[int, int], int], rows: int) -> Timed:
    """Both dtypes in turns, medians, within half a second.

    shapes: [out, in] -> how many such matrices
    """
    began = time.perf_counter()
    pairs = []
    for (out, width), count in shapes.items():
        lines = min(out, max(1, LARGEST // width))
        both = [
            (Matrix(torch.ones(lines, width, dtype=dtype)), torch.ones(rows, width, dtype=dtype))
            for dtype in NAMES.values()
        ]
        pairs.append((count * out / lines, both))
    samples: list[list[list[float]]] = [[[] for _ in NAMES] for _ in pairs]
    for turn in range(MOST_SAMPLES + 1):
        for place, (_, both) in enumerate(pairs):
            for which in (0, 1) if turn % 2 else (1, 0):
                started = time.perf_counter()
                matrix, x = both[which]
                matrix(x)
                if turn:  # the first one warms up
                    samples[place][which].append(time.perf_counter() - started)
        if turn >= FEWEST and time.perf_counter() - began > BUDGET_S:
            break
    totals = [
        sum(scale * median(each[which]) for (scale, _), each in zip(pairs, samples, strict=True))
        for which in (0, 1)
    ]
    return Timed(bf16=1e3 * totals[1], fp32=1e3 * totals[0])


def _remembered(shapes: Counter[tuple[int, int]], rows: int, cache: Path) -> Timed:
    machine = [
        platform.node(),
        platform.machine(),
        processor(),
        torch.backends.cpu.get_cpu_capability(),
        torch.get_num_threads(),
        torch.__version__,
        code_digest(Path(__file__), Path(product.__file__)),
        *(packs(dtype) for dtype in NAMES.values()),
    ]
    content = json.dumps([machine, rows, sorted(shapes.items())])
    key = hashlib.sha256(content.encode()).hexdigest()[:16]
    return remembered(
        cache / "dtype" / f"{key}.json",
        lambda: time_products(shapes, rows)._asdict(),
        lambda kept: Timed(bf16=float(kept["bf16"]), fp32=float(kept["fp32"])),
    )
