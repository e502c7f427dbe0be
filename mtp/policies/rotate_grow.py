"""The published window-sharing policy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mtp.fields import Tupled
from mtp.policies.checks import check_depth, check_published_sizes
from mtp.policies.protocol import Decision
from mtp.windows import SlotView, rotate_grow


@dataclass(frozen=True)
class RotateGrow:
    sizes: Tupled[int] = Tupled(1, 2, 4)
    depth: int = 3  # drafts made after every commit

    def __post_init__(self) -> None:
        check_published_sizes(self.sizes)
        check_depth(self.depth)

    def decide(self, slots: Sequence[SlotView], *, rows: int, start: int) -> Decision:
        return Decision(rotate_grow(slots, rows=rows, start=start), self.depth)
