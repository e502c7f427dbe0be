"""How deep to draft after a window: what the next one is expected to gain, less the drafter's
time."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from mtp.costs import Cost
from mtp.policies.planned.cost_table import CostTable

Scenarios = Sequence[Sequence[float]]


def best_depth(
    ahead: Sequence[Scenarios],
    cost: Cost,
    table: CostTable,
    mu: float,
    *,
    rows: int,
    entered: int,
    sizes: Sequence[int],
    most: int,
) -> int:
    """The depth with the largest expected surplus over the price of its rows, less mu * the
    drafter's time.

    ahead: one entry a slot that may use drafts: equally likely survivals of the drafts to be made,
    of the same number for all slots. Neighbours are taken at different ones: drafts compete, and a
    plan will pick whichever turn out well. Anchors come first, so they compete for the rows that
    `entered` slots leave. Only depths that fill a group size are worth drafting.
    """
    anchors = min(entered, rows)
    if anchors == rows or not ahead:
        return 0
    prices = [
        mu * (table.time(taken, anchors) - table.time(anchors, anchors))
        for taken in range(anchors, rows + 1)
    ]
    best, chosen = 0.0, 0
    start = cost.window(anchors, anchors, 0)
    count = len(ahead[0])
    # (tokens per row, rows) of growing a group by one size
    steps: list[list[tuple[float, int]]] = [[] for _ in range(count)]
    for before, size in pairwise(size for size in sizes if size <= most + 1):
        for place, scenarios in enumerate(ahead):
            for number in range(count):
                survival = scenarios[(number + place) % count]
                if len(survival) >= size - 1:
                    steps[number].append(
                        (sum(survival[before - 1 : size - 1]) / (size - before), size - before)
                    )
        depth = size - 1
        worth = sum(_filled(found, prices) for found in steps) / count - mu * (
            cost.window(anchors, anchors, depth) - start
        )
        if worth > best:
            best, chosen = worth, depth
    return chosen


def _filled(steps: list[tuple[float, int]], prices: Sequence[float]) -> float:
    """What the best of the steps are worth, as many as pay: the best prefix of them by tokens
    per row. prices[n]: of n rows beyond the anchors, so that a staircase is seen as it is."""
    worth = best = 0.0
    taken, free = 0, len(prices) - 1
    for density, width in sorted(steps, reverse=True):
        if taken + width <= free:
            worth, taken = worth + density * width, taken + width
            best = max(best, worth - prices[taken])
    return best
