"""A known anti-pattern, kept as an arm: spare rows go to the request whose drafts are least likely to be right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from mtp.policies.checks import check_depth, checked_sizes
from mtp.policies.protocol import Decision
from mtp.windows import SlotView, WindowPlan, groups_of, next_start, rotation


@dataclass(frozen=True)
class LeastConfidentFirst:
    """sizes: group sizes; depth: drafts made after every commit. Anchors first; then groups grow to as many rows as fit, the least
    confident request (product of its drafts' confidences) first, ties in rotation."""

    sizes: tuple[int, ...] = (1, 2, 4)
    depth: int = 3

    def __post_init__(self) -> None:
        object.__setattr__(self, "sizes", checked_sizes(self.sizes))
        check_depth(self.depth)

    def decide(self, slots: Sequence[SlotView], *, rows: int, start: int) -> Decision:
        walk = rotation(slots, start)
        entered = walk[:rows]
        lengths = {view.slot: 1 for view in entered}
        left = rows - len(entered)
        for view in sorted(entered, key=lambda view: prod(view.confidence)):
            size = max(
                size for size in self.sizes if size <= min(left, view.usable(self.depth)) + 1
            )
            lengths[view.slot] = size
            left -= size - 1
        return Decision(
            WindowPlan(groups_of(lengths), next_start(walk, len(entered), start)), self.depth
        )
