"""The model that is calibrated on the four published two-request cells: nine numbers for four
cells. docs/costs.md has the derivation."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from itertools import accumulate
from operator import mul
from pathlib import Path

import numpy as np

from mtp.costs import LinearCost
from mtp.tape import Tape

# of a draft, given that those before it are right
CONDITIONAL = {
    "code": (0.90, 0.91, 0.88),
    "prose": (0.69, 0.62, 0.57),
}
FACTOR = {"code": 1.22, "prose": 1.0}  # what stands for all that was not published
BASE, ROW = 0.0226, 0.00546  # seconds


@dataclass(frozen=True)
class Figure:
    """One published number."""

    key: str
    work: str
    slots: int
    drafts: int  # at most, for each request
    tokens_per_s: float
    note: str
    source: str


def published() -> dict[str, Figure]:
    with (Path(__file__).with_name("published.csv")).open(newline="") as file:
        rows = list(csv.DictReader(file))
    return {
        row["key"]: Figure(
            row["key"],
            row["work"],
            int(row["slots"]),
            int(row["drafts"]),
            float(row["tokens_per_s"]),
            row["note"],
            row["source"],
        )
        for row in rows
    }


def cost_of(text: str, scale: float = 1.0) -> LinearCost:
    factor = FACTOR[text] * scale
    return LinearCost(base=factor * BASE, row=factor * ROW, draft=0.0)


def closed_form(text: str, slots: int, drafts: int) -> float:
    """Tokens per second of whole groups of `drafts` + 1 rows."""
    tokens = 1 + sum(accumulate(CONDITIONAL[text][:drafts], mul))
    return slots * tokens / cost_of(text).window(slots * (drafts + 1), slots, 0)


def coin_tape(conditional: tuple[float, ...], length: int, seed: int | tuple[int, ...]) -> Tape:
    """Every draft is right with its own probability, whatever else happened."""
    draw = np.random.default_rng(seed)
    right = np.minimum.accumulate(
        draw.random((length, len(conditional))) < np.array(conditional), axis=1
    )
    matches = np.minimum(right.sum(1), np.arange(length - 1, -1, -1))
    tokens = tuple(draw.integers(0, 32_000, length).tolist())
    return Tape(tokens, tuple(matches.tolist()), tuple((0.5,) * len(conditional) for _ in tokens))
