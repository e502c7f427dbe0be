"""Every plot of the report, in its order on the page. A new one is a module here and a name in
this list."""

from experiments.report.panel import Plot
from experiments.report.plots import (
    calibration,
    gantt,
    heat,
    layouts,
    pareto,
    positions,
    speed,
    split,
    tapes,
    timeline,
    window_time,
)

PICTURES: tuple[Plot, ...] = (
    speed.PLOT,
    timeline.PLOT,
    positions.PLOT,
    pareto.PLOT,
    split.PLOT,
    window_time.PLOT,
    heat.PLOT,
    layouts.PLOT,
    gantt.PLOT,
    tapes.REGRET,
    tapes.REGIME_MAP,
    calibration.PLOT,
)
