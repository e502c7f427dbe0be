"""Two ways to the same tokens, timed in turns in one process, and how many times as fast one is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from experiments.bootstrap import Interval, median_draws

Tokens = dict[str, tuple[int, ...]]  # by request
Timed = Callable[[], tuple[float, Tokens]]  # seconds per token, and the tokens
DRAWS = 4000  # of a bootstrap


@dataclass(frozen=True)
class Pairs:
    """Seconds per token of both ways, pair by pair, and what each gave, which was the same every
    time."""

    first_s: tuple[float, ...]
    second_s: tuple[float, ...]
    first: Tokens
    second: Tokens

    @property
    def ratios(self) -> np.ndarray:
        """How many times as fast the second way is, by pair."""
        return np.array(self.first_s) / np.array(self.second_s)


def differences(first: Tokens, second: Tokens) -> list[tuple[str, int]]:
    """The requests whose tokens differ, and where first: at the end of the shorter where one goes
    on."""
    found = []
    for name, one in first.items():
        other = second.get(name, ())
        if one != other:
            same = (place for place, (a, b) in enumerate(zip(one, other, strict=False)) if a != b)
            found.append((name, next(same, min(len(one), len(other)))))
    return found


@dataclass(frozen=True)
class MedianRatio:
    """A median and its 95% interval."""

    middle: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.middle:.2f} ({self.low:.2f} to {self.high:.2f})"


def alternate(
    first: Timed,
    second: Timed,
    pairs: int,
    comparable: Callable[[Tokens, Tokens], bool] = lambda first, second: True,
) -> Pairs:
    """In the order ABBA, after one warm-up each; of what is not comparable, one pair only.

    Raises RuntimeError where one way does not repeat its own tokens."""
    held = {first: first()[1], second: second()[1]}
    if not comparable(held[first], held[second]):
        pairs = 1
    times: dict[Timed, list[float]] = {first: [], second: []}
    for pair in range(pairs):
        for way in (first, second) if pair % 2 == 0 else (second, first):
            seconds, tokens = way()
            times[way].append(seconds)
            if tokens != held[way]:
                raise RuntimeError("the same way gave other tokens the second time")
    return Pairs(tuple(times[first]), tuple(times[second]), held[first], held[second])


def product(*factors: Sequence[float] | np.ndarray) -> MedianRatio:
    """The product of the factors' medians; its interval by bootstrap over the pairs of each
    factor, drawn independently."""
    draw = np.random.default_rng(0)
    middle, drawn = 1.0, np.ones(DRAWS)
    for factor in map(np.asarray, factors):
        middle *= float(np.median(factor))
        drawn = drawn * median_draws(factor, DRAWS, draw)
    interval = Interval.of(drawn)
    return MedianRatio(middle, interval.low, interval.high)
