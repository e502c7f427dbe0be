"""A known anti-pattern, kept as an arm: spare rows go to the request whose drafts are least
likely to be right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from mtp.fields import Tupled
from mtp.policies.checks import check_depth, check_sizes
from mtp.policies.protocol import Decision
from mtp.windows import SlotView, WindowPlan, groups_of, next_start, rotation


@dataclass(frozen=True)
class LeastConfidentFirst:
    """Anchors first; then groups grow to as many rows as fit, the least confident request first
    (by the product of its drafts' confidences), ties in rotation."""

    sizes: Tupled[int] = Tupled(1, 2, 4)
    depth: int = 3  # drafts made after every commit

    def __post_init__(self) -> None:
        check_sizes(self.sizes)
        check_depth(self.depth)

    def decide(self, slots: Sequence[SlotView], *, rows: int, start: int) -> Decision:
        walk = rotation(slots, start)
        entered = walk[:rows]
        lengths = {view.slot: 1 for view in entered}
        left = rows - len(entered)
        for view in sorted(entered, key=lambda view: prod(view.confidence)):
            most = min(left, view.usable(self.depth)) + 1
            size = max(size for size in self.sizes if size <= most)
            lengths[view.slot] = size
            left -= size - 1
        start = next_start(walk, len(entered), start)
        return Decision(WindowPlan(groups_of(lengths), start), self.depth)
