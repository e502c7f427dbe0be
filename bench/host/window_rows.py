"""`python -m bench.host.window_rows`: what a window of 8 rows costs next to one of 1 row, on a CPU,
in bf16.

A random dense model of 135 million parameters (30 layers, 9 heads of 64 over 3), tight rows,
interleaved samples, ratios of medians. Prints a Markdown table and writes
bench/results/window_rows_cpu.json. `--profile 128` shows where a window's time goes.
"""

from __future__ import annotations

import argparse
import json
import platform
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import torch
from safetensors.torch import save_file

from bench.rows import RESULTS
from mtp.files import whole
from mtp.targets import load_target
from mtp.targets.decoder import DecoderTarget
from mtp.targets.qwen.config import QwenConfig
from mtp.targets.qwen.family import model_shapes
from triton_kernels import Packed, pack_window

MODEL = {
    "model_type": "qwen3",
    "vocab_size": 49_152,
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "head_dim": 64,
    "tie_word_embeddings": True,
    "max_position_embeddings": 8192,
}
# tokens of context -> the most that 8 rows of one slot may cost, in windows of 1 row
GOALS = {
    128: 1.3,
    4096: 1.6,
}
WINDOWS = {"1 row": (1,), "8 rows of 1 slot": (8,), "4 rows of 2 slots": (4, 4)}


def random_target(
    context: int, slots: int = 2, model: dict[str, Any] = MODEL, dtype: str = "bf16"
) -> DecoderTarget:
    """Random weights, and caches full of random keys and values."""
    torch.manual_seed(0)
    shapes = model_shapes(QwenConfig.read(model))
    with tempfile.TemporaryDirectory() as folder:
        weights = {
            name: 0.02 * torch.randn(shape)
            for name, shape in shapes.items()
            if name != "lm_head.weight"
        }
        save_file(
            {name: weight.bfloat16() for name, weight in weights.items()},
            Path(folder) / "model.safetensors",
        )
        (Path(folder) / "config.json").write_text(json.dumps(model))
        target = load_target(folder, slots=slots, context=context, dtype=dtype, rows=8)
    for cache in target.caches:
        cache.keys.normal_()
        cache.values.normal_()
    return target


def window(target: DecoderTarget, sizes: tuple[int, ...], length: int) -> Packed:
    groups = torch.tensor([*sizes, *[0] * (target.slots - len(sizes))], dtype=torch.int32)
    zero = torch.zeros(target.slots, dtype=torch.int32)
    return pack_window(
        zero + 5,
        torch.full((target.slots, 7), 6, dtype=torch.int32),
        zero + length,
        groups,
        bucket=sum(sizes),
    )


def measure(target: DecoderTarget, length: int, samples: int) -> dict[str, float]:
    """Median milliseconds of a verify, by window."""
    windows = {name: window(target, sizes, length) for name, sizes in WINDOWS.items()}
    times: dict[str, list[float]] = {name: [] for name in windows}
    for sample in range(samples + 2):
        for name in windows if sample % 2 else reversed(windows):
            began = time.perf_counter()
            target.verify(windows[name])
            if sample > 1:  # the first ones warm up
                times[name].append(1e3 * (time.perf_counter() - began))
    return {name: median(each) for name, each in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=21)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument(
        "--profile",
        type=int,
        metavar="CONTEXT",
        help="print torch's profile of the windows at this context instead",
    )
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    target = random_target(max(GOALS) + 8)
    if options.profile:
        for name, sizes in WINDOWS.items():
            made = window(target, sizes, options.profile)
            target.verify(made)
            with torch.profiler.profile() as profile:
                target.verify(made)
            print(
                name,
                profile.key_averages().table(
                    sort_by="self_cpu_time_total", row_limit=12, max_name_column_width=40
                ),
                sep="\n",
            )
        return
    rows = []
    print(
        "| context | "
        + " | ".join(f"{name}, ms" for name in WINDOWS)
        + " | 8 rows of 1 slot / 1 row | goal |"
    )
    print("|---" * (len(WINDOWS) + 3) + "|")
    for length, goal in GOALS.items():
        found = measure(target, length, options.samples)
        ratio = found["8 rows of 1 slot"] / found["1 row"]
        rows.append({"context": length, "ms": found, "ratio": ratio, "goal": goal})
        print(
            f"| {length} | "
            + " | ".join(f"{ms:.1f}" for ms in found.values())
            + f" | {ratio:.2f} | {goal} |",
            flush=True,
        )
    machine = {
        "machine": platform.machine(),
        "torch": torch.__version__,
        "threads": options.threads,
        "samples": options.samples,
    }
    with whole(RESULTS / "window_rows_cpu.json") as aside:
        aside.write_text(json.dumps(machine | {"dtype": "bf16", "windows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
