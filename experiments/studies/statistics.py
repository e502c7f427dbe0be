"""Intervals of paired ratios, and what is left significant of many of them. Needs numpy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from experiments.bootstrap import Interval, ratio_draws


@dataclass(frozen=True)
class TrialRatio:
    """The mean speed of an arm over another's, on the same requests."""

    value: float
    low: float  # ends of the 95% interval
    high: float
    p_loss: float  # of the hypothesis that it is at least 1


@dataclass(frozen=True)
class Speed:
    """Tokens and seconds of the same requests, in the same order."""

    tokens: Sequence[float]
    seconds: Sequence[float]

    @property
    def mean(self) -> float:
        return sum(self.tokens) / sum(self.seconds)


def paired_ratio(arm: Speed, other: Speed, *, resamples: int = 10_000, seed: int = 0) -> TrialRatio:
    """Block bootstrap over requests: a request is a block, its windows stay together, and both
    arms are resampled alike. Percentile interval; p_loss is the share of resamples with a ratio
    of 1 or more, plus one."""
    # [4, requests, 1]
    cells = np.array([arm.tokens, arm.seconds, other.tokens, other.seconds], float)[..., None]
    ratios = ratio_draws(cells, resamples, seed)
    interval = Interval.of(ratios)
    p_loss = (1 + int((ratios >= 1).sum())) / (resamples + 1)
    return TrialRatio(arm.mean / other.mean, interval.low, interval.high, p_loss)


def holm(p_values: Mapping[str, float], level: float = 0.05) -> list[str]:
    """The names that stay significant when all are tested at once (Holm's step-down), smallest p
    first."""
    kept: list[str] = []
    for name, p in sorted(p_values.items(), key=lambda item: item[1]):
        if p > level / (len(p_values) - len(kept)):
            break
        kept.append(name)
    return kept
