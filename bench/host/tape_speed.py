"""`python -m bench.host.tape_speed`: windows per second of the engine on tapes, by slots, and where
the time goes. Pure Python, one core.

Measured once all slots decode: medians of batches of windows, in CPU seconds of this process, so
that other work on the machine counts less. Prints Markdown; `--profile` adds the top lines of
cProfile at 8 slots.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import time
from statistics import median

from mtp.engine import Engine
from mtp.execution.tape import TapeExecutor
from mtp.executor import Limits
from mtp.policies import RotateGrow
from mtp.request import Request
from mtp.tape import Tape
from mtp.tape.synthesis import Synthesis

SLOTS = (1, 8, 64, 256, 1024)
NEW = 12_000  # tokens of a request: none ends while it is measured


def decoding(slots: int, rows: int) -> Engine:
    """An engine whose slots are all past their prompts."""
    tape = Tape.drawn(Synthesis("mixed"), NEW, seed=0)
    executor = TapeExecutor(
        {f"r{n}": tape for n in range(slots)}, limits=Limits(32_000, 2 * NEW, frozenset())
    )
    engine = Engine(executor, slots=slots, rows=rows, policy=RotateGrow())
    for n in range(slots):
        engine.submit(Request(f"r{n}", (1, 2, 3), NEW))
    while len(engine.streams) < slots or any(
        stream.prefilling for stream in engine.streams.values()
    ):
        engine.step()
    return engine


def window_s(slots: int, rows: int, *, batches: int, windows: int) -> float:
    """Median seconds of a window."""
    engine = decoding(slots, rows)
    times = []
    for _ in range(batches):
        began = time.process_time()
        for _ in range(windows):
            engine.step()
        times.append((time.process_time() - began) / windows)
    return median(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batches", type=int, default=15)
    parser.add_argument("--profile", action="store_true")
    arguments = parser.parse_args()
    print(
        "| slots | 8 rows: windows/s | us a window | us a slot | rows = slots: windows/s | us a "
        "window | us a row |"
    )
    print("|---|---|---|---|---|---|---|")
    for slots in SLOTS:
        windows = max(10, 200 // slots)
        narrow, wide = (
            1e6 * window_s(slots, rows, batches=arguments.batches, windows=windows)
            for rows in (8, max(8, slots))
        )
        figures = (
            f"{1e6 / narrow:,.0f}",
            f"{narrow:.0f}",
            f"{narrow / slots:.1f}",
            f"{1e6 / wide:,.0f}",
            f"{wide:.0f}",
        )
        print(f"| {slots} | {' | '.join(figures)} | {wide / max(8, slots):.1f} |")
    if arguments.profile:
        engine, profile = decoding(8, 8), cProfile.Profile()
        profile.runcall(lambda: [engine.step() for _ in range(2000)])
        pstats.Stats(profile).sort_stats("tottime").print_stats(14)


if __name__ == "__main__":
    main()
