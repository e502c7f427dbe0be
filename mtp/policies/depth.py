"""How deep to draft after a window: what the next one is expected to gain, less the drafter's time."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from mtp.costs import Cost
from mtp.policies.planner import Shape


def best_depth(
    ahead: Sequence[Sequence[float]], cost: Cost, shape: Shape, mu: float, *, rows: int, entered: int, sizes: Sequence[int], most: int
) -> int:
    """The depth with the largest expected surplus over the price of its rows, less mu * the drafter's time.

    ahead: expected survival of the drafts to be made, one sequence a slot that may use them. Anchors come first, so drafts compete
    for the rows that `entered` slots leave. Only depths that fill a group size are worth drafting.
    """
    free = rows - min(entered, rows)
    if not free or not ahead:
        return 0
    anchors = rows - free
    price = mu * (shape.time(rows, anchors) - shape.time(anchors, anchors)) / free
    best, chosen = 0.0, 0
    start = cost.window(anchors, anchors, 0)
    steps: list[tuple[float, int]] = []  # (surplus, rows) of growing a group by one size, of all slots
    for before, size in pairwise(size for size in sizes if size <= most + 1):
        for survival in ahead:
            if len(survival) >= size - 1:
                surplus = sum(survival[before - 1 : size - 1]) - price * (size - before)
                if surplus > 0:
                    steps.append((surplus, size - before))
        depth = size - 1
        worth = _filled(steps, free) - mu * (cost.window(anchors, anchors, depth) - start)
        if worth > best:
            best, chosen = worth, depth
    return chosen


def _filled(steps: list[tuple[float, int]], free: int) -> float:
    """What the best of the steps are worth that fit."""
    worth = 0.0
    for surplus, width in sorted(steps, key=lambda step: -step[0] / step[1]):
        if width <= free:
            worth, free = worth + surplus, free - width
    return worth
