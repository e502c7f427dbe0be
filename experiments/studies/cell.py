"""One cell of the judgement: a text, a batch and what a window costs. Pure data: it goes to
another process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

BASE = 0.0226  # seconds: `a` of T = a + b * rows + d * depth; only ratios to it matter
HEAD = 0.035  # `d` of an MTP head, over `a`, as in cost=linear
CONFIDENCE = {  # recorded ones have an AUC of 0.64 to 0.80, and are far too unsure
    "calibrated": {"auc": 0.7},
    "sharp": {"auc": 0.8},
    "useless": {"auc": 0.5},
    "unsure": {"auc": 0.7, "offset": -1.5, "slope": 0.5},
}


@dataclass(frozen=True)
class Cell:
    """One setting of a study."""

    name: str
    family: str  # what the cell is there for
    regime: str  # of `mtp.tape.synthesis`, or the folder of a recording
    slots: int
    rows: int = 8
    sizes: tuple[int, ...] = (1, 2, 4)
    ratio: float = 0.1  # b / a
    draft: float = HEAD  # d / a
    stairs: bool = False  # windows are padded to buckets
    belief: float = 1.0  # the policies' estimate of b, over the true one
    confidence: str = "calibrated"  # of `CONFIDENCE`
    length: int = 1  # times the usual tokens of a request
    seed: int = 0

    @property
    def buckets(self) -> tuple[int, ...]:
        return ((4, 8) if self.rows == 8 else (4, 8, 16)) if self.stairs else ()

    def cost(self, row_factor: float = 1.0) -> dict[str, Any]:
        """The fields of `LinearCost`."""
        return {
            "base": BASE,
            "row": row_factor * self.ratio * BASE,
            "draft": self.draft * BASE,
            "capture_s": 0.02,
        }
