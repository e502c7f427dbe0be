"""How deep to draft after a window: what the next one is expected to gain, less the drafter's time."""

from __future__ import annotations

from collections.abc import Sequence

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
    for depth in (size - 1 for size in sizes if 1 < size <= most + 1):
        surplus = sorted((s - price for survival in ahead for s in survival[:depth] if s > price), reverse=True)
        worth = sum(surplus[:free]) - mu * (cost.window(anchors, anchors, depth) - start)
        if worth > best:
            best, chosen = worth, depth
    return chosen
