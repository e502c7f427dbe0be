"""How deep to draft after a window: what the next one is expected to gain, less the drafter's time."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from mtp.costs import Cost
from mtp.policies.planner import Shape

Scenarios = Sequence[Sequence[float]]


def best_depth(
    ahead: Sequence[Scenarios], cost: Cost, shape: Shape, mu: float, *, rows: int, entered: int, sizes: Sequence[int], most: int
) -> int:
    """The depth with the largest expected surplus over the price of its rows, less mu * the drafter's time.

    ahead: one entry a slot that may use drafts: equally likely survivals of the drafts to be made, of the same number for all
    slots. Neighbours are taken at different ones: drafts compete, and a plan will pick whichever turn out well. Anchors come
    first, so they compete for the rows that `entered` slots leave. Only depths that fill a group size are worth drafting.
    """
    free = rows - min(entered, rows)
    if not free or not ahead:
        return 0
    anchors = rows - free
    price = mu * (shape.time(rows, anchors) - shape.time(anchors, anchors)) / free
    best, chosen = 0.0, 0
    start = cost.window(anchors, anchors, 0)
    count = len(ahead[0])
    steps: list[list[tuple[float, int]]] = [[] for _ in range(count)]  # (surplus, rows) of growing a group by one size
    for before, size in pairwise(size for size in sizes if size <= most + 1):
        for place, scenarios in enumerate(ahead):
            for number in range(count):
                survival = scenarios[(number + place) % count]
                if len(survival) >= size - 1:
                    surplus = sum(survival[before - 1 : size - 1]) - price * (size - before)
                    if surplus > 0:
                        steps[number].append((surplus, size - before))
        depth = size - 1
        worth = sum(_filled(found, free) for found in steps) / count - mu * (cost.window(anchors, anchors, depth) - start)
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
