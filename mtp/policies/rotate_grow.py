"""The published window-sharing policy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mtp.policies.protocol import Decision
from mtp.windows import SlotView, rotate_grow


@dataclass(frozen=True)
class RotateGrow:
    sizes: tuple[int, ...] = (1, 2, 4)
    depth: int = 3

    def __post_init__(self) -> None:
        object.__setattr__(self, "sizes", tuple(self.sizes))
        if self.sizes != (1, 2, 4):
            raise ValueError(
                f"sizes is {list(self.sizes)}, expected [1, 2, 4]: the published policy knows no others"
            )
        if (
            isinstance(self.depth, bool)
            or not isinstance(self.depth, int)
            or not 0 <= self.depth <= 7
        ):
            raise ValueError(f"policy.depth is {self.depth}, expected an integer, 0 to 7")

    def decide(self, slots: Sequence[SlotView], *, rows: int, start: int) -> Decision:
        return Decision(rotate_grow(slots, rows=rows, start=start), self.depth)
