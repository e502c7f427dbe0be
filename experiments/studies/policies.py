"""`experiment=policies`: every policy on the same tapes, cell by cell, against bars that were
set before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from rich.console import Console

from experiments.config.checks import BadInput, choice, integer
from experiments.config.own import own_policy
from experiments.io import PROJECT, write_whole
from experiments.studies.bars import bars_of, judge
from experiments.studies.cell import Cell
from experiments.studies.policy_page import page
from experiments.studies.policy_tables import cells_table
from experiments.studies.study import Found, names_of
from experiments.studies.study import Trial as Job
from experiments.studies.trial import Trial, policy_of, run_trial
from mtp.fields import Tupled
from mtp.layouts import KEYS, LayoutKey

NEEDED = ("static_0", "static_1", "static_3")


class Design(Protocol):
    def cells(self) -> list[Cell]: ...


@dataclass(frozen=True)
class PolicyStudy:
    """Arms on the cells of a design, held against the bars."""

    design: Design  # which cells
    # names in configs/policy; `static_K`: static_k with k = K
    arms: Tupled[str] = Tupled(*NEEDED, "rotate_grow", "adaptive", "oracle_p")
    judged: str = "adaptive"  # the arm that the bars judge
    requests: int = 24  # of a synthetic cell, see `Trial`
    tokens: int = 128  # the same
    resamples: int = 10_000  # of the bootstrap
    layout: LayoutKey = "rows"  # the key whose captures are counted
    workers: int | None = None  # see `Study`

    def __post_init__(self) -> None:
        known = {file.stem for file in (PROJECT / "configs" / "policy").glob("[!_]*.yaml")}
        if missing := [arm for arm in (*NEEDED, self.judged) if arm not in self.arms]:
            raise BadInput(
                f"study.arms lacks {missing[0]}, expected at least "
                f"{', '.join((*NEEDED, self.judged))}"
            )
        for arm in self.arms:
            if not arm.startswith("static_"):
                choice("study.arms", arm, sorted(known))
        for name, least in (("requests", 2), ("tokens", 2), ("resamples", 100)):
            integer(f"study.{name}", getattr(self, name), least)
        if self.workers is not None:
            integer("study.workers", self.workers, 0)
        choice("study.layout", self.layout, KEYS)
        cells = self.design.cells()
        names_of(cells)
        if "own" in self.arms:  # what is wrong with it is said before anything runs
            policy_of("own", cells[0], {})

    def jobs(self) -> Mapping[str, tuple[Job, Any]]:
        return {cell.name: (run_trial, self._trial(cell)) for cell in self.design.cells()}

    def _trial(self, cell: Cell) -> Trial:
        """A long cell has the arms it needs only."""
        arms = self.arms if cell.length == 1 else (*NEEDED, "rotate_grow", self.judged, "oracle_p")
        return Trial(
            cell,
            tuple(arm for arm in self.arms if arm in arms),
            self.requests,
            self.tokens,
            self.layout,
            own_policy() if "own" in self.arms else "",
        )

    def conclude(self, found: Mapping[str, Found], folder: Path, console: Console) -> Found:
        cells = {cell.name: cell for cell in self.design.cells()}
        judged = [
            judge(cells[name], one["arms"], self.judged, resamples=self.resamples)
            for name, one in found.items()
        ]
        bars, losses = bars_of(judged)
        cells_table(cells, found).write_parquet(folder / "cells.parquet")
        text = page(
            self.judged, judged, bars, losses, {name: one["arms"] for name, one in found.items()}
        )
        write_whole(folder / "bars.md", text.encode())
        self._plots(judged, folder, console)
        for bar in bars:
            console.print(
                f"{bar.name}: {bar.reached} of {bar.of} cells; worst {bar.worst}", soft_wrap=True
            )
        console.print(
            f"cells with a significant loss (Holm): {', '.join(losses) or 'none'}", soft_wrap=True
        )
        console.print(f"tables: {folder / 'bars.md'}", soft_wrap=True)
        evidence = "tape" if all(cell.family == "tape" for cell in cells.values()) else "synthetic"
        return {
            "evidence": evidence,
            "judged": self.judged,
            "bars": [vars(bar) for bar in bars],
            "significant_losses": losses,
        }

    def _plots(self, judged: Sequence[Any], folder: Path, console: Console) -> None:
        try:
            from experiments.studies.plots import regime_map, sensitivity
        except ImportError:
            console.print("no plots: matplotlib is not installed (pip install mtplab[report])")
            return
        regime_map(judged, folder / "regime_map.svg")
        if any(one.cell.family not in ("design", "tape") for one in judged):
            sensitivity(judged, folder / "sensitivity.svg")
