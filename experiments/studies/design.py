"""The synthetic cells: a fraction of all combinations in which every pair of regime and slots
has three row prices, and every other level meets many of them; then one thing at a time put off."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from experiments.config.checks import integer
from experiments.studies.cell import Cell

REGIMES = ("code", "prose", "chat", "think", "mixed", "switch", "bursty", "agentic")
SLOTS = (1, 2, 4, 8, 16)
RATIOS = (0.01, 0.03, 0.1, 0.17, 0.25)
DRAFTS = (0.0, 0.035, 0.1)
SIZES = ((1, 2, 4), (1, 2, 3, 4))
LONG = "long"
GRADES = ("calibrated", "sharp")
OFF: dict[str, dict[str, Any]] = {
    "useless": {"confidence": "useless"},
    "unsure": {"confidence": "unsure"},
    "row_dear": {"belief": 1.4},
    "row_cheap": {"belief": 0.6},
    "draft_dear": {"draft": 0.2},
    "stairs": {"stairs": True},
}


@dataclass(frozen=True)
class SyntheticDesign:
    """Cells of synthetic texts."""

    seed: int = 1000  # of the first cell's texts; each next cell adds one. Below 1000: for tuning

    def __post_init__(self) -> None:
        integer("study.design.seed", self.seed, 0)

    def cells(self) -> list[Cell]:
        cells = [*_fraction(), *_put_off(), *_long()]
        return [replace(cell, seed=self.seed + place) for place, cell in enumerate(cells)]


def _fraction() -> Iterator[Cell]:
    for r, regime in enumerate(REGIMES):
        for s, slots in enumerate(SLOTS):
            for i, step in enumerate((0, 2)):
                ratio = RATIOS[(2 * r + s + step) % 5]
                # with one or two slots of at most four rows it makes no difference
                rows = 16 if slots >= 4 and (r + s + i) % 2 else 8
                sizes = SIZES[(r // 2 + s + i) % 2]
                stairs, confidence = (
                    (3 * r + 2 * s + i) % 4 == 0,
                    GRADES[((3 * r + s) // 2 + i) % 2],
                )
                cell = Cell(
                    "",
                    "design",
                    regime,
                    slots,
                    rows,
                    sizes,
                    ratio,
                    DRAFTS[(r + s + i) % 3],
                    stairs,
                    confidence=confidence,
                )
                yield replace(cell, name=_name(cell))


def _put_off() -> Iterator[Cell]:
    for kind, changes in OFF.items():
        for regime in ("code", "prose", "mixed", "switch"):
            for slots, ratio in ((2, 0.1), (8, 0.17)):
                cell = replace(
                    Cell("", kind, regime, slots, rows=8 if slots == 2 else 16, ratio=ratio),
                    **changes,
                )
                yield replace(cell, name=f"{kind}-{_name(cell)}")


def _long() -> Iterator[Cell]:
    """Captures come early in a run: what they cost later takes a longer one."""
    for regime in ("mixed", "switch"):
        for slots in (2, 8):
            cell = Cell("", LONG, regime, slots, rows=8 if slots == 2 else 16, length=8)
            yield replace(cell, name=f"{LONG}-{_name(cell)}")


def _name(cell: Cell) -> str:
    return (
        f"{cell.regime}-s{cell.slots}-w{cell.rows}-{''.join(map(str, cell.sizes))}"
        f"-b{cell.ratio:g}-d{cell.draft:g}"
        f"{'-stairs' if cell.stairs else ''}{'-sharp' if cell.confidence == 'sharp' else ''}"
    )
