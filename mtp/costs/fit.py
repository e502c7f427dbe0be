"""A linear cost model through measured windows. Needs numpy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mtp.costs.models import LinearCost


@dataclass(frozen=True)
class Measured:
    """A window's median time in seconds; rows: with padding."""

    rows: int
    slots: int
    depth: int
    seconds: float


def fit_cost(cells: Sequence[Measured]) -> tuple[LinearCost, dict[str, float]]:
    """Least squares of relative errors over base, row, slot and draft, none below 0; and the
    residuals, relative: max and rms.

    A price that comes out negative is taken as 0 and the others are fitted again. Raises ValueError
    for fewer cells than prices.
    """
    names = ["base", "row", "slot", "draft"]
    if len(cells) < len(names):
        raise ValueError(f"{len(cells)} cells were measured, expected at least {len(names)}")
    seconds = np.array([cell.seconds for cell in cells])
    columns = {"base": [1.0] * len(cells)} | {
        name: [float(getattr(cell, field)) for cell in cells]
        for name, field in (("row", "rows"), ("slot", "slots"), ("draft", "depth"))
    }
    prices = dict.fromkeys(names, 0.0)
    while names:
        features = np.array([columns[name] for name in names]).T / seconds[:, None]
        found, *_ = np.linalg.lstsq(features, np.ones(len(cells)), rcond=None)
        if (found >= 0).all():
            prices |= dict(zip(names, found.tolist(), strict=True))
            break
        names.pop(int(found.argmin()))
    model = LinearCost(**prices, prompt_token=0.0)
    relative = (
        np.array([model.window(cell.rows, cell.slots, cell.depth) for cell in cells]) / seconds - 1
    )
    return model, {
        "max": float(np.abs(relative).max()),
        "rms": float(np.sqrt((relative**2).mean())),
    }
