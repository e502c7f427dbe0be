"""Captured graphs on one GPU, through the engine and the layout cache: part of `make gpu-check`. On
a CPU the same code runs with the recorder, for the tests.

`python -m bench.gpu.graphs NAME [cpu]` runs one case of `CASES` and prints what is wrong as JSON:
every case has a process of its own, since a failed capture may leave a device unusable.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import torch

from bench.gpu.graph_cases import CASES, FEW, engine_run
from mtp.layouts import KEYS, LayoutKey

CASE_S, ALL_S = 75, 270  # seconds for one case, and after which no further one is started


def failures(device: str, names: tuple[str, ...] = tuple(CASES)) -> Iterator[tuple[str, list[str]]]:
    """Every case in a process of its own: its name and what is wrong."""
    began = time.monotonic()
    for name in names:
        if time.monotonic() - began > ALL_S:
            yield name, [f"graphs, {name}: not run, the cases before it took more than {ALL_S} s"]
            continue
        command = [sys.executable, "-m", "bench.gpu.graphs", name, device]
        try:
            done = subprocess.run(
                command,
                cwd=Path(__file__).parents[2],
                capture_output=True,
                text=True,
                timeout=CASE_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            yield name, [f"graphs, {name}: ran past {CASE_S} s"]
            continue
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["no message"])[-1]
            yield name, [f"graphs, {name}: exit code {done.returncode}, {last}"]
        else:
            yield (
                name,
                [f"graphs, {name}: {line}" for line in json.loads(done.stdout.splitlines()[-1])],
            )


def measure(
    device: torch.device,
    tokens: int = 200,
    *,
    keys: Sequence[LayoutKey | None] = (None, *KEYS),
    tiny: bool = False,
    clock: Callable[[], float] | None = None,
) -> list[dict[str, Any]]:
    """What pairs cost by key, and a window eager (`off`) and replayed, medians: window_us until
    the device is done, host_us until the host has issued it. megabytes: of the graphs' pool;
    driver_megabytes: what the device lost beside torch's own memory. tiny: of the shipped model;
    clock: for both, in seconds."""
    engine_run(device, None, tokens=FEW, tiny=tiny)  # compiles and loads
    table = []
    for key in keys:
        before = _outside(device)
        _, cache, engine = engine_run(
            device, key, capacity=64, tokens=tokens, tiny=tiny, clock=clock
        )
        driver, stats = before - _outside(device), engine.layout.stats()
        _, _, hosted = engine_run(
            device, key, capacity=64, tokens=tokens, clock=clock or time.perf_counter, tiny=tiny
        )
        path = "replayed" if key else "eager"
        row: dict[str, Any] = {
            "key": key or "off",
            "windows": engine.windows,
            "pairs": stats.captures,
            "failures": stats.failures,
        }
        for name, of in (("window_us", engine), ("host_us", hosted)):
            times = [
                1e6 * (step.phases.verify + step.phases.commit)
                for step in of.steps
                if step.phases.path == path and step.kind == "window"
            ]
            row[name] = round(median(times), 1) if times else None
        if cache is not None and stats.captures:
            row["ms_per_pair"] = round(1e3 * stats.capture_s / stats.captures, 2)
            row["megabytes_per_pair"] = round(stats.bytes / len(cache) / 1e6, 3)
            row["driver_megabytes_per_pair"] = round(driver / len(cache) / 1e6, 3)
        table.append(row)
    return table


def _outside(device: torch.device) -> int:
    """Bytes of the device that are free, torch's own counted as free."""
    if device.type != "cuda":
        return 0
    torch.cuda.synchronize(device)
    return torch.cuda.mem_get_info(device)[0] + torch.cuda.memory_reserved(device)


def check(device: torch.device) -> tuple[list[str], list[dict[str, Any]]]:
    """All of it, printed as it goes: what is wrong, and the costs by key."""
    found: list[str] = []
    for name, wrong in failures(device.type):
        found += wrong
        print(f"graphs, {name}: {'right' if not wrong else 'WRONG'}", flush=True)
    table = measure(device)
    for row in table:
        print(
            f"graphs by key {row['key']}: "
            + ", ".join(f"{name} {value}" for name, value in row.items() if name != "key"),
            flush=True,
        )
    return found, table


def main() -> int:
    name, kind = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "cuda"
    if name not in CASES or kind not in ("cuda", "cpu"):
        print(
            f"case is {name}, device {kind}; expected one of {', '.join(CASES)}, and cuda or cpu",
            file=sys.stderr,
        )
        return 2
    torch.set_num_threads(1)
    print(json.dumps(CASES[name](torch.device(kind))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
