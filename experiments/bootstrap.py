"""Paired ratios of speed with intervals by bootstrap: of reports, studies and benchmarks. Needs
numpy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

CHUNK = 100  # resamples at a time


@dataclass(frozen=True)
class Interval:
    """The ends of a 95% percentile interval."""

    low: float
    high: float

    @classmethod
    def of(cls, draws: np.ndarray) -> Interval:
        low, high = np.quantile(draws, (0.025, 0.975))
        return cls(float(low), float(high))


def ratio_draws(cells: np.ndarray, resamples: int, seed: int = 0) -> np.ndarray:
    """One ratio of speeds per resample, from cells [4, blocks, pairs]: tokens and seconds of an
    arm, tokens and seconds of its base.

    Blocks (prompts, requests) and pairs of runs are drawn with replacement, each on its own; a cell
    weighs the product of its two counts (the "pigeonhole" bootstrap, Owen 2007, doi
    10.1214/07-AOAS122): blocks stay whole, and drift between runs is not forgotten. Draws that
    leave nothing of a rate are left out.
    """
    random = np.random.default_rng(seed)
    _, blocks, pairs = cells.shape
    found = []
    for start in range(0, resamples, CHUNK):
        count = min(CHUNK, resamples - start)
        # [count, blocks] and [count, pairs]
        of_blocks = random.multinomial(blocks, np.full(blocks, 1 / blocks), size=count)
        of_pairs = random.multinomial(pairs, np.full(pairs, 1 / pairs), size=count)
        tokens, seconds, base_tokens, base_seconds = (
            (of_blocks.astype(float) @ cell * of_pairs).sum(-1) for cell in cells
        )
        kept = (seconds > 0) & (base_tokens > 0) & (base_seconds > 0)
        found.append(tokens[kept] * base_seconds[kept] / (seconds[kept] * base_tokens[kept]))
    return np.concatenate(found)


def median_draws(values: np.ndarray, resamples: int, random: np.random.Generator) -> np.ndarray:
    """One median per resample of the values."""
    return np.median(random.choice(values, (resamples, len(values))), axis=1)
