"""What a window took, for policies that compare ways to run the batch."""

from __future__ import annotations

from mtp.costs import Cost
from mtp.policies.protocol import WindowResult


def seconds_of(result: WindowResult, cost: Cost | None) -> float:
    """By the engine's clock, which on a model is the wall's; by a cost model where there is one."""
    if cost is None:
        return result.seconds
    context = sum(part.position for part in result.slots)
    return cost.window(result.rows, len(result.slots), result.depth, context)
