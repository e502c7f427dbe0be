"""Rows of results: bench/results/<machine>-<date>.jsonl, one a case and mode. Every row names
its machine, versions and commit."""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from mtp.machine import processor

RESULTS = Path(__file__).parent / "results"
OUT = "MTPLAB_BENCH_ROWS"  # the file that a run's rows go to
Row = dict[str, Any]


@cache
def device_name() -> str:
    """The GPU's name or the processor's."""
    if torch.cuda.is_available():
        return torch.cuda.get_device_name()
    return processor()


@cache
def commit() -> str:
    git = ["git", "-C", str(RESULTS.parent), "describe", "--always", "--dirty", "--abbrev=12"]
    return subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip()


@cache
def about() -> Row:
    """What all rows of a run share. evidence: a CPU's row says nothing about a GPU."""
    versions = {"python": platform.python_version(), "torch": torch.__version__}
    if torch.cuda.is_available():
        import triton

        versions |= {"cuda": str(torch.version.cuda), "triton": triton.__version__}
    evidence = "gpu" if torch.cuda.is_available() else "cpu"
    return {
        "evidence": evidence,
        "device": device_name(),
        "threads": torch.get_num_threads(),
        "versions": versions,
        "commit": commit(),
    }


def default_stem() -> str:
    slug = re.sub(r"[^a-z0-9]+", "-", re.sub(r"\((r|tm)\)", "", device_name().lower())).strip("-")
    return f"{slug}-{time.strftime('%Y%m%d-%H%M%S')}"


def row_of(info: Mapping[str, Any], seconds: Sequence[float]) -> Row:
    """info: operation, implementation, shape, mode, bytes, per; seconds: of single calls. Times
    are microseconds per unit."""
    low, middle, high = np.quantile(np.array(seconds) * 1e6 / info["per"], [0.2, 0.5, 0.8]).tolist()
    names = ("operation", "implementation", "shape", "mode", "bytes")
    times = {"p20_us": low, "p50_us": middle, "p80_us": high}
    return {
        "kind": "timing",
        **{name: info[name] for name in names},
        **{name: round(us, 3) for name, us in times.items()},
        "samples": len(seconds),
        **about(),
    }


def write_rows(rows: Iterable[Row]) -> None:
    """To the file of the run that this process belongs to, if any."""
    if path := os.environ.get(OUT):
        write_rows_to(Path(path), rows)


def write_rows_to(path: Path, rows: Iterable[Row]) -> None:
    """Adds them to what is there."""
    with path.open("a", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)


def read_rows(path: str | Path) -> list[Row]:
    """Raises ValueError, one line, where the file is not one of rows."""
    try:
        return [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]
    except (OSError, ValueError) as wrong:
        raise ValueError(f"file is {path}, expected rows of `make bench`: {wrong}") from wrong


def of_kind(rows: Iterable[Row], kind: str) -> list[Row]:
    """kind: `timing` (a row that names none), `compiled` (figures of binaries) or `window` (what
    a window costs, by layout key)."""
    return [row for row in rows if row.get("kind", "timing") == kind]


def name_of(row: Row) -> tuple[str, str, str]:
    """(operation, shape, mode): what rows of different implementations, or runs, have in common."""
    return (
        row["operation"],
        " ".join(f"{name}={value}" for name, value in row["shape"].items()),
        row["mode"],
    )


def table(rows: Sequence[Row]) -> list[str]:
    """Markdown: a line a case, with its median relative to the first implementation of the same
    shape and mode."""
    head = (
        "| operation | shape | mode | implementation | p20 us | p50 us | p80 us | to first | share "
        "of a copy's bandwidth |"
    )
    lines = [head, "|---" * 9 + "|"]
    first: dict[tuple[str, str, str], float] = {}
    for row in rows:
        base = first.setdefault(name_of(row), row["p50_us"])
        times = " | ".join(f"{row[name]:.2f}" for name in ("p20_us", "p50_us", "p80_us"))
        share = f"{row['share']:.3f}" if row.get("share") else ""
        lines.append(
            f"| {' | '.join(name_of(row))} | {row['implementation']} | {times} | "
            f"{row['p50_us'] / base:.2f} | {share} |"
        )
    return lines


def compiled_table(rows: Sequence[Row]) -> list[str]:
    """Markdown: a line a form and architecture. Registers and shared memory are the most of any
    launch, the rest are sums."""
    head = (
        "| operation | implementation | architecture | launches | torch operations | registers | "
        "instructions | spills | shared bytes |"
    )
    lines = [head, "|---" * 9 + "|"]
    by_form: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows:
        by_form.setdefault(
            (row["operation"], row["architecture"], row["implementation"]), []
        ).append(row)
    order = {
        name: place
        for place, name in enumerate(dict.fromkeys(name for key in by_form for name in key[:2]))
    }
    for (operation, architecture, name), launches in sorted(
        by_form.items(), key=lambda item: [order[part] for part in item[0][:2]]
    ):
        registers, shared = (max(row[of] for row in launches) for of in ("registers", "shared"))
        instructions, spills = (
            sum(row[of] for row in launches) for of in ("instructions", "spills")
        )
        counts = f"{len(launches)} | {len(launches[0]['operations'])}"
        lines.append(
            f"| {operation} | {name} | {architecture} | {counts} | {registers} | {instructions} | "
            f"{spills} | {shared} |"
        )
    return lines


WINDOW = {
    "window_us": "window us",
    "host_us": "host us",
    "ms_per_pair": "capture ms/pair",
    "megabytes_per_pair": "MB/pair",
    "launches": "launches",
    "seam_launches": "the seam's",
    "work_us": "work us",
    "seam_us": "the seam's",
    "seam_share": "share",
}


def window_table(rows: Sequence[Row]) -> list[str]:
    """Markdown: a line a layout key."""
    lines = [
        "| model | key | " + " | ".join(WINDOW.values()) + " |",
        "|---" * (2 + len(WINDOW)) + "|",
    ]
    for row in rows:
        figures = ("" if row.get(name) is None else f"{row[name]:g}" for name in WINDOW)
        lines.append(f"| {row['model']} | {row['implementation']} | {' | '.join(figures)} |")
    return lines
