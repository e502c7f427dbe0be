"""`experiment=published`: the published cells beside the model calibrated on them, and where
time sharing would beat window sharing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from experiments.config.checks import BadInput, integer
from experiments.io import write_whole
from experiments.studies.calibrated import (
    BASE,
    CONDITIONAL,
    ROW,
    closed_form,
    coin_tape,
    cost_of,
    published,
)
from experiments.studies.measure import full_batch
from experiments.studies.published_page import page
from experiments.studies.study import Found
from experiments.studies.study import Trial as Job
from mtp.costs import Cost, LinearCost
from mtp.engine import Engine
from mtp.execution.tape import TapeExecutor
from mtp.executor import Limits
from mtp.grants import Discipline, Rotate
from mtp.policies import Policy, RotateGrow, StaticK
from mtp.request import Request

CELLS: dict[str, Policy] = {
    "code-1": StaticK(1),
    "code-3": RotateGrow(),
    "prose-1": StaticK(1),
    "prose-3": RotateGrow(),
}

POLICIES: dict[str, Policy] = {
    "static_0": StaticK(0),
    "static_1": StaticK(1),
    "static_3": StaticK(3),
    "rotate_grow": RotateGrow(),
}


@dataclass(frozen=True)
class Sharing:
    """One point of the surface."""

    acceptance: float  # of every draft, given those before it
    slots: int
    tokens: int


@dataclass(frozen=True)
class Published:
    """The two published systems on the calibrated model."""

    # of the break-even surface
    acceptances: Sequence[float] = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
    slots: Sequence[int] = (2, 4, 8)  # of the break-even surface
    tokens: int = 96  # of a request there; 512 in the cells
    requests: int = 40  # of a cell
    workers: int | None = None

    def __post_init__(self) -> None:
        for acceptance in self.acceptances:
            if not 0 < acceptance < 1:
                raise BadInput(
                    f"study.acceptances holds {acceptance}, expected probabilities between 0 and 1"
                )
        for slots in self.slots:
            integer("study.slots", slots, 2, 8)
        integer("study.tokens", self.tokens, 2)
        integer("study.requests", self.requests, 2)
        if self.workers is not None:
            integer("study.workers", self.workers, 0)

    def jobs(self) -> Mapping[str, tuple[Job, Any]]:
        cells = {name: (run_cell, (name, self.requests)) for name in CELLS}
        return {
            **cells,
            **{
                _name(p, s): (run_sharing, Sharing(p, s, self.tokens))
                for p in self.acceptances
                for s in self.slots
            },
        }

    def conclude(self, found: Mapping[str, Found], folder: Path, console: Console) -> Found:
        figures = published()
        cells = {
            name: {
                "published": figures[name].tokens_per_s,
                "closed_form": closed_form(name.split("-")[0], 2, figures[name].drafts),
                "calibrated": found[name]["tokens_per_s"],
            }
            for name in CELLS
        }
        surface = {
            slots: {p: found[_name(p, slots)]["ratio"] for p in self.acceptances}
            for slots in self.slots
        }
        write_whole(
            folder / "published.md",
            page(
                cells, figures, surface, {name: found[name] for name in found if name not in CELLS}
            ).encode(),
        )
        try:
            from experiments.studies.plots import break_even
        except ImportError:
            console.print("no plots: matplotlib is not installed (pip install mtplab[report])")
        else:
            break_even(surface, folder / "break_even.svg")
        for name, cell in cells.items():
            console.print(
                f"{name}: calibrated {cell['calibrated']:.1f} tok/s, published "
                f"{cell['published']:.1f}"
            )
        console.print(f"tables: {folder / 'published.md'}", soft_wrap=True)
        return {"evidence": "synthetic", "label": "calibrated", "cells_published": cells}


def run_cell(argument: tuple[str, int]) -> Found:
    name, requests = argument
    text = name.split("-")[0]
    return {
        "tokens_per_s": _speed(
            CELLS[name],
            cost=cost_of(text),
            conditional=CONDITIONAL[text],
            slots=2,
            requests=requests,
            tokens=512,
        )
    }


def run_sharing(point: Sharing) -> Found:
    """ratio: of alone to batched cost at which both ways are as fast: alone windows that cost
    less make time sharing the faster one."""
    cost = LinearCost(base=BASE, row=ROW, draft=0.0)
    conditional = (point.acceptance,) * 3
    run = partial(
        _speed,
        cost=cost,
        conditional=conditional,
        slots=point.slots,
        requests=4 * point.slots,
        tokens=point.tokens,
    )
    turns = Rotate(share="tick", backlog=point.slots - 1)  # everyone takes turns
    window = {name: run(policy) for name, policy in POLICIES.items()}
    tick = {name: run(policy, grants=turns) for name, policy in POLICIES.items()}
    best_window, best_tick = (
        max(window, key=lambda name: window[name]),
        max(tick, key=lambda name: tick[name]),
    )
    return {
        "window": best_window,
        "tick": best_tick,
        "ratio": tick[best_tick] / window[best_window],
    }


def _speed(
    policy: Policy,
    *,
    cost: Cost,
    conditional: tuple[float, ...],
    slots: int,
    requests: int,
    tokens: int,
    grants: Discipline | None = None,
) -> float:
    """Tokens per virtual second of full batches."""
    tapes = {f"r{n}": coin_tape(conditional, tokens, (slots, n)) for n in range(requests)}
    executor = TapeExecutor(tapes, limits=Limits(32_001, 1 << 20, frozenset()), cost=cost)
    engine = Engine(executor, slots=slots, policy=policy, grants=grants)
    for name in tapes:
        engine.submit(Request(name, (0,), tokens, ignore_stop=True))
    engine.run()
    measured = full_batch(engine, list(tapes), slots)
    return sum(measured["tokens"]) / sum(measured["seconds"])


def _name(acceptance: float, slots: int) -> str:
    return f"sharing-p{acceptance:g}-s{slots}"
