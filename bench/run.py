"""`python -m bench.run`: the microbenchmarks by pytest-benchmark, then peers, a window by layout
key, and the figures of compiled code. Its JSON and the rows are kept in bench/results; tables are
printed.

Further arguments are pytest's: `-k accept`, `--benchmark-max-time=1`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import torch

from bench.peers import run as peers
from bench.rows import OUT, RESULTS, default_stem, of_kind, read_rows, table

FILES = ("bench/ops/bench_seam.py", "bench/ops/bench_host.py")
# a case takes its 0.15 s and no more, so that all of them are minutes; a given option of the same
# name comes later and wins
OPTIONS = (
    "--benchmark-max-time=0.15",
    "--benchmark-min-rounds=20",
    "--benchmark-warmup=on",
    "--benchmark-disable-gc",
)
# a CPU's rows are of the thread's own time: other work on the machine then delays a call, but
# hardly lengthens its row
CLOCK = () if torch.cuda.is_available() else ("--benchmark-timer=time.thread_time",)


def main() -> int:
    RESULTS.mkdir(exist_ok=True)
    stem = RESULTS / default_stem()
    rows, whole = stem.with_suffix(".jsonl"), stem.with_suffix(".json")
    quiet = ("-q", "--benchmark-columns=median", "--benchmark-quiet", "-p", "no:cacheprovider")
    command = [
        sys.executable,
        "-m",
        "pytest",
        *FILES,
        *quiet,
        *OPTIONS,
        *CLOCK,
        f"--benchmark-json={whole}",
        *sys.argv[1:],
    ]
    place = {"cwd": Path(__file__).parents[1], "env": os.environ | {OUT: str(rows)}, "check": False}
    codes = [subprocess.run(command, **place).returncode]  # type: ignore[call-overload]
    for line in peers.run(rows):
        print(line)
    if rows.is_file():
        print(*table(of_kind(read_rows(rows), "timing")), sep="\n")
    for module in ("bench.gpu.window_cost", "bench.gpu.compiled"):
        codes.append(subprocess.run([sys.executable, "-m", module], **place).returncode)  # type: ignore[call-overload]
    print(f"written to {rows} and {whole.name}")
    print(
        "not run here, minutes: the engine against plain decoding and transformers, and a window's "
        "time by rows: make bench-engine"
    )
    return max(codes)


if __name__ == "__main__":
    sys.exit(main())
