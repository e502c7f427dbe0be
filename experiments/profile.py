"""`python -m experiments.profile target=NAME`: what a window costs on this machine, fitted and
saved for `cost=file`.

Plain decoding windows of the model executor (tight rows, no graphs) for rows x slots x depth, in
alternating order; medians. A window's time is that of staging, verify, commit, drafts and the copy
to the host: the engine's own work is left out.
"""

from __future__ import annotations

import platform
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import torch
from hydra import compose, initialize_config_dir

from experiments.config import resolvers
from experiments.config.command import Command
from experiments.runs.entry import CONFIGS, carried_out
from experiments.runs.setup import Setup, setup
from experiments.runs.spec import run_spec
from experiments.runs.validate import validate
from mtp.costs import LinearCost, save_cost
from mtp.costs.fit import Measured, fit_cost
from mtp.execution.model import ModelExecutor
from mtp.request import Request
from mtp.windows import Group

FEWEST = 3  # windows of a cell, whatever they take
SPARE = 16  # positions a slot must have left
Cell = tuple[int, int, int]  # rows, slots, depth


def cells_of(rows: int, slots: int, largest: int, depths: Sequence[int]) -> list[Cell]:
    """Spread over all that a window can be."""
    counts = [
        (r, s)
        for s in (1, 2, 4, 8)
        if s <= slots
        for r in (1, 2, 3, 4, 6, 8, 12, 16)
        if s <= r <= min(rows, s * largest)
    ]
    return [(r, s, depth) for r, s in counts for depth in depths]


class Measurement:
    """Windows on prompts, all slots filled once and again where a text is at its end.

    prompts: None = the workload's; most: tokens of a text, None = as many as a slot has room
    for."""

    def __init__(
        self,
        made: Setup,
        depth: int,
        prompts: Sequence[tuple[int, ...]] | None = None,
        most: int | None = None,
    ) -> None:
        settings = made.spec.settings
        self.executor = ModelExecutor(
            made.target,
            made.drafter,
            slots=settings.slots,
            rows=settings.rows,
            largest_group=max(settings.sizes),
            depth=depth,
            buckets=settings.buckets,
            device=made.device,
        )
        self.most = most or self.executor.limits.context
        self.prompts = prompts or [request.prompt[: self.most // 2] for request in made.requests]
        self.depth = depth
        self.ends: dict[int, int] = {}  # by slot: its position
        self.prefills: list[tuple[int, float]] = []

    def fill(self, slot: int) -> None:
        prompt = self.prompts[slot % len(self.prompts)]
        room = self.executor.limits.context - len(prompt)
        self.executor.admit(slot, Request(f"profile-{slot}", prompt, room, ignore_stop=True))
        began = self.executor.now()
        self.executor.prefill(slot, 0, len(prompt), self.depth)
        self.prefills.append((len(prompt), self.executor.now() - began))
        self.ends[slot] = len(prompt)

    def window(self, cell: Cell) -> float:
        """Seconds of one."""
        rows, slots, depth = cell
        for slot in range(slots):
            if self.ends.get(slot, self.most) + SPARE > self.most:
                self.fill(slot)
        groups = [Group(slot, rows // slots + (slot < rows % slots)) for slot in range(slots)]
        began = self.executor.now()
        work = self.executor.window(groups, depth)
        work.verify()
        work.commit()
        outcomes = work.outcomes()
        seconds = self.executor.now() - began
        for outcome in outcomes:
            self.ends[outcome.slot] += outcome.committed.kept
        return seconds


def measure(
    profile: Measurement, cells: Sequence[Cell], *, seconds: float, passes: int
) -> dict[Cell, list[float]]:
    """Seconds of windows, one a pass, every second pass in reverse order; the first is warm-up."""
    times: dict[Cell, list[float]] = {cell: [] for cell in cells}
    began = time.perf_counter()
    for number in range(passes + 1):
        for cell in cells if number % 2 else reversed(cells):
            taken = profile.window(cell)
            if number:
                times[cell].append(taken)
        if number >= FEWEST and time.perf_counter() - began > seconds:
            break
    return times


def medians(times: Mapping[Cell, Sequence[float]]) -> list[Measured]:
    return [Measured(*cell, median(taken)) for cell, taken in times.items()]


def profile_of(
    overrides: Sequence[str], *, seconds: float, passes: int
) -> tuple[LinearCost, dict[str, Any]]:
    """The fitted model and what is worth knowing of it."""
    with initialize_config_dir(CONFIGS, version_base="1.3"):
        config = compose("run", overrides=["policy=rotate_grow", "buckets=tight", *overrides])
    spec = run_spec(config)
    made = setup(spec, config)
    depth = min(3, made.drafter.max_depth) if made.drafter is not None else 0
    settings = spec.settings
    profile = Measurement(made, depth)
    cells = cells_of(
        settings.rows, settings.slots, max(settings.sizes), sorted({0, min(1, depth), depth})
    )
    measured = medians(measure(profile, cells, seconds=seconds, passes=passes))
    model, residuals = fit_cost(measured)
    per_token = median(max(0.0, taken - model.base) / tokens for tokens, taken in profile.prefills)
    model = replace(model, prompt_token=per_token)
    machine = (
        torch.cuda.get_device_name()
        if made.device.type == "cuda"
        else f"cpu, {torch.get_num_threads()} threads, {platform.machine()}"
    )
    about = {
        "target": Path(str(config.target.path)).name,
        "device": machine,
        "torch": str(torch.__version__),
        "dtype": str(made.target.dtype).removeprefix("torch."),
        "windows_per_cell": f"at most {passes}",
        "residual_relative": residuals,
        "not_measured": "context (one length), capture_s",
        "cells": [
            {
                "rows": cell.rows,
                "slots": cell.slots,
                "depth": cell.depth,
                "ms": round(1e3 * cell.seconds, 4),
            }
            for cell in measured
        ],
    }
    return model, about


def main() -> None:
    sys.exit(carried_out(_command))


def _command() -> int:
    parser = Command(description=__doc__)
    parser.add_argument("--seconds", type=float, default=45.0, help="of measuring, at most")
    parser.add_argument("--passes", type=int, default=60, help="windows per cell, at most")
    parser.add_argument("--out", help="the YAML file to write; default outputs/profile/TARGET.yaml")
    options, overrides = parser.parse_known_args()
    resolvers.register()
    validate(["policy=rotate_grow", "buckets=tight", *overrides], CONFIGS, "run")
    model, about = profile_of(overrides, seconds=options.seconds, passes=options.passes)
    name = next(
        (value.split("=", 1)[1] for value in overrides if value.startswith("target=")), "tiny_qwen"
    )
    path = Path(options.out or f"outputs/profile/{name}.yaml")
    path.parent.mkdir(parents=True, exist_ok=True)
    save_cost(path, model, about)
    residual = about["residual_relative"]
    print(
        f"T = {1e3 * model.base:.3f} + {1e3 * model.row:.4f} * rows + {1e3 * model.slot:.4f} * "
        f"slots + {1e3 * model.draft:.4f} * depth ms; "
        f"residuals: rms {100 * residual['rms']:.1f}%, max {100 * residual['max']:.1f}%"
    )
    print(f"saved: {path} (use it with cost=file cost.path={path})")
    return 0


if __name__ == "__main__":
    main()
