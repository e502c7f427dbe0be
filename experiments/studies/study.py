"""What a study is, and how it runs: its cells in a process pool, each finished one a file of its
own, so that a killed study goes on."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from multiprocessing import active_children, get_context
from pathlib import Path
from signal import SIG_BLOCK, SIG_UNBLOCK, SIGINT, pthread_sigmask
from time import perf_counter
from typing import Any, Protocol, runtime_checkable

from rich.console import Console

from experiments.io import PROJECT, fingerprint, write_json
from mtp.errors import say
from mtp.files import code_digest

CODE = (PROJECT / "mtp", PROJECT / "experiments" / "studies")
POLL_S = 0.5

Found = dict[str, Any]
Trial = Callable[[Any], Found]


@runtime_checkable
class Study(Protocol):
    """The `study` of a config. workers: processes, None: one a core; 0: none, all in this one."""

    @property
    def workers(self) -> int | None: ...

    def jobs(self) -> Mapping[str, tuple[Trial, Any]]:
        """By the name of a cell: a function of a module and its argument (both go to another
        process), which gives JSON values."""
        ...

    def conclude(self, found: Mapping[str, Found], folder: Path, console: Console) -> Found:
        """Writes tables and plots; gives what metrics.json holds."""
        ...


def run_study(study: Study, folder: Path, run_id: str, console: Console) -> Found:
    """Runs what is missing of `folder`/cells and concludes.

    A cell's file counts only while its fingerprint is that of its function, its argument and the
    code: changed settings run again, and so does changed code."""
    began = perf_counter()
    jobs = study.jobs()
    cells = folder / "cells"
    cells.mkdir(parents=True, exist_ok=True)
    prints = {
        name: fingerprint([trial.__qualname__, repr(argument), code_digest(*CODE)])
        for name, (trial, argument) in jobs.items()
    }
    found = {
        name: known
        for name in jobs
        if (known := _read(cells / f"{name}.json", prints[name])) is not None
    }
    kept = len(found)
    todo = [name for name in jobs if name not in found]
    if found:
        console.print(f"{kept} of {len(jobs)} cells are there already")

    def keep(name: str, result: Found) -> None:
        write_json(cells / f"{name}.json", {"fingerprint": prints[name], "found": result})
        found[name] = result
        done = len(found) - kept
        left = (perf_counter() - began) / done * (len(todo) - done)
        if console.is_terminal:
            console.print(f"{len(found)}/{len(jobs)} cells, {left:.0f} s left  ", end="\r")
        elif done % 20 == 0:
            console.print(f"{len(found)}/{len(jobs)} cells, {left:.0f} s left")

    workers = (os.cpu_count() or 1) if study.workers is None else study.workers
    if workers == 0:
        for name in todo:
            trial, argument = jobs[name]
            keep(name, trial(argument))
    elif todo:
        _pooled({name: jobs[name] for name in todo}, min(workers, len(todo)), keep)
    metrics = study.conclude({name: found[name] for name in jobs}, folder, console)
    metrics = {
        "run_id": run_id,
        "cells": len(jobs),
        "cells_kept": kept,
        "study_s": perf_counter() - began,
        **metrics,
    }
    write_json(folder / "metrics.json", metrics)
    return metrics


def _pooled(
    jobs: Mapping[str, tuple[Trial, Any]], workers: int, keep: Callable[[str, Found], None]
) -> None:
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        # Ctrl-C reaches every process of a terminal: the workers leave it to this one
        pthread_sigmask(SIG_BLOCK, {SIGINT})
        try:
            running = {
                pool.submit(trial, argument): name for name, (trial, argument) in jobs.items()
            }
        finally:
            pthread_sigmask(SIG_UNBLOCK, {SIGINT})
        try:
            left = set(running)
            while left:  # a thread that waits for ever may not see Ctrl-C
                done, left = wait(left, timeout=POLL_S, return_when=FIRST_COMPLETED)
                for future in done:
                    keep(running[future], future.result())
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for worker in active_children():
                worker.terminate()
            raise


def _read(path: Path, expected: str) -> Found | None:
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
        return kept["found"] if kept["fingerprint"] == expected else None
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as wrong:
        why = " ".join(str(wrong).split())
        say(f"warning: {path} cannot be used ({why}), its cell runs again", sys.stderr)
        return None


def names_of(cells: Sequence[Any]) -> None:
    """Raises ValueError where two cells have one name."""
    names = [cell.name for cell in cells]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"study: two cells are named {twice[0]}, expected one")
