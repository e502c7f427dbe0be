"""What a window costs: models, their fit to measurements, their correction online."""

from mtp.costs.models import (
    Cost,
    FreeDrafts,
    LinearCost,
    PathCost,
    ScaledCost,
    StaircaseCost,
    TableCost,
    load_cost,
    planning_cost,
    save_cost,
)

__all__ = [
    "Cost",
    "FreeDrafts",
    "LinearCost",
    "PathCost",
    "ScaledCost",
    "StaircaseCost",
    "TableCost",
    "load_cost",
    "planning_cost",
    "save_cost",
]
