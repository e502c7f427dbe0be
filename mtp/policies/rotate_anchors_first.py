"""The published policy with real rows first: an anchor is worth a whole token, a draft at most its survival."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mtp.policies.checks import check_depth
from mtp.policies.protocol import Decision
from mtp.windows import SlotView, rotate_anchors_first


@dataclass(frozen=True)
class RotateAnchorsFirst:
    """sizes: those of the published policy; depth: drafts made after every commit."""

    sizes: tuple[int, ...] = (1, 2, 4)
    depth: int = 3

    def __post_init__(self) -> None:
        object.__setattr__(self, "sizes", tuple(self.sizes))
        if self.sizes != (1, 2, 4):
            raise ValueError(
                f"sizes is {list(self.sizes)}, expected [1, 2, 4]: the published policy knows no others"
            )
        check_depth(self.depth)

    def decide(self, slots: Sequence[SlotView], *, rows: int, start: int) -> Decision:
        return Decision(rotate_anchors_first(slots, rows=rows, start=start), self.depth)
