"""`python -m bench.host.recorder_cost`: what the CPU recorder itself costs, with the shipped model
on one thread.

Eager and replayed runs of the same requests alternate (ABBA) in one process; every layout was
captured before, tokens are compared. Times are the thread's own, so that other work on the machine
counts little. Prints one line per cell and writes bench/results/recorder_cpu.json.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from statistics import median
from typing import Any

import torch

from bench.decoding.alternating import Tokens
from bench.decoding.runs import prompts
from bench.rows import RESULTS
from experiments.assets import MODELS
from experiments.workloads.tokenizer import load_tokenizer
from mtp.buckets import Buckets
from mtp.drafters import load_qwen_mtp
from mtp.engine import Engine
from mtp.execution.model import ModelExecutor
from mtp.executor import PhaseTimes
from mtp.files import whole
from mtp.graphs.backends import CpuGraphs
from mtp.layouts import Eager, Keyed, Layout, LayoutCache
from mtp.policies import RotateGrow
from mtp.request import Request
from mtp.targets import load_target

MODEL = MODELS / "tiny_qwen"
FILE = RESULTS / "recorder_cpu.json"
CPU = torch.device("cpu")


def decode(
    executor: ModelExecutor, layout: Layout, texts: list[tuple[int, ...]], new: int
) -> tuple[list[PhaseTimes], Tokens]:
    """The phases of every window, and the tokens."""
    engine = Engine(executor, slots=len(texts), policy=RotateGrow(), layout=layout)
    for number, text in enumerate(texts):
        engine.submit(Request(str(number), text, new, ignore_stop=True))
    tokens = {done.id: done.tokens for done in engine.run()}
    return [step.phases for step in engine.steps if step.kind == "window"], tokens


def measure(slots: int, context: int, new: int, pairs: int) -> dict[str, Any]:
    """capture_ms: of one pair, its warm-up included, median over pairs captured; ratio: replayed
    / eager, milliseconds of a window, median over alternating pairs of runs."""
    buckets = Buckets((4, 8))
    target = load_target(MODEL, slots=slots, context=context, device=CPU)
    executor = ModelExecutor(
        target,
        load_qwen_mtp(MODEL, target, buckets=buckets),
        slots=slots,
        largest_group=4,
        depth=3,
        buckets=buckets,
        device=CPU,
    )
    texts = prompts(load_tokenizer(MODEL / "tokenizer.json"), "code", 32)[:slots]
    cache = LayoutCache(64, CpuGraphs(executor.dry_run), clock=time.thread_time)
    layouts: tuple[Layout, Layout] = (Eager(time.thread_time), Keyed("slots", cache))
    decode(executor, layouts[0], texts, new)  # first calls pay for what they load
    filling, expected = decode(executor, layouts[1], texts, new)
    captures = [1000 * phases.capture for phases in filling if phases.path == "capturing"]
    times: list[tuple[float, float]] = []
    for pair in range(pairs):
        ms = [0.0, 0.0]
        for which in (0, 1) if pair % 2 == 0 else (1, 0):
            windows, tokens = decode(executor, layouts[which], texts, new)
            if tokens != expected:
                raise RuntimeError(f"tokens of the {('eager', 'replayed')[which]} run differ")
            ms[which] = median(1000 * phases.total for phases in windows)
        times.append((ms[0], ms[1]))
    stats = cache.stats()
    return {
        "slots": slots,
        "context": context,
        "pairs_captured": len(captures),
        "capture_ms": median(captures),
        "megabytes_per_pair": stats.bytes / len(cache) / 1e6,
        "eager_ms": median(eager for eager, _ in times),
        "replayed_ms": median(replayed for _, replayed in times),
        "ratio": median(replayed / eager for eager, replayed in times),
        "ratios": [
            min(replayed / eager for eager, replayed in times),
            max(replayed / eager for eager, replayed in times),
        ],
        "runs": pairs,
        "tokens": "equal",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=96, help="new tokens of each request")
    parser.add_argument("--pairs", type=int, default=8, help="alternating pairs of runs")
    options = parser.parse_args()
    torch.set_num_threads(1)
    found = []
    for slots, context in ((1, 1024), (4, 1024), (4, 256)):
        found.append(measure(slots, context, options.tokens, options.pairs))
        cell = found[-1]
        print(
            f"{slots} slots of {context}: {cell['pairs_captured']} pairs, {cell['capture_ms']:.1f} "
            "ms and "
            f"{cell['megabytes_per_pair']:.2f} MB each; a window eager {cell['eager_ms']:.2f} ms, "
            f"replayed {cell['replayed_ms']:.2f} ms, ratio {cell['ratio']:.2f} "
            f"({cell['ratios'][0]:.2f} to {cell['ratios'][1]:.2f})",
            flush=True,
        )
    machine = {
        "evidence": "cpu",
        "machine": platform.machine(),
        "torch": torch.__version__,
        "threads": 1,
    }
    with whole(FILE) as aside:
        aside.write_text(json.dumps({**machine, "cells": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
