"""Every picture of the report, in its order on the page. A new one is a module here and a name in this list."""

from experiments.report.panel import Picture
from experiments.report.plots import calibration, gantt, heat, layouts, pareto, positions, speed, split, tapes, timeline, window_time

PICTURES: tuple[Picture, ...] = (
    speed.PICTURE,
    timeline.PICTURE,
    positions.PICTURE,
    pareto.PICTURE,
    split.PICTURE,
    window_time.PICTURE,
    heat.PICTURE,
    layouts.PICTURE,
    gantt.PICTURE,
    tapes.REGRET,
    tapes.REGIME_MAP,
    calibration.PICTURE,
)
