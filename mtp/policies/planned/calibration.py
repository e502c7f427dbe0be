"""Online logistic regression, one per draft place, shared by all requests."""

from __future__ import annotations

import math
from collections.abc import Sequence


def logit(p: float, least: float = 0.005) -> float:
    """Clipped: a drafter that says 0 or 1 is not believed to the end."""
    p = min(max(p, least), 1 - least)
    return math.log(p / (1 - p))


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x > -30 else 0.0


class Logistic:
    """P(hit) = sigmoid(weights . features), fitted by AdaGrad on the log-loss.

    start: the weights before anything is known; step: the learning rate; floor: added to the sum of
    squared gradients, so that the first verdicts do not move the weights by whole steps.
    """

    def __init__(
        self, places: int, start: Sequence[float], *, step: float = 0.25, floor: float = 0.5
    ) -> None:
        if not step > 0:
            raise ValueError(f"policy.step is {step}, expected a learning rate above 0")
        self.weights = [list(start) for _ in range(places)]
        self._squares = [[floor] * len(start) for _ in range(places)]
        self._step = step

    def __call__(self, place: int, features: Sequence[float]) -> float:
        return sigmoid(sum(map(float.__mul__, self.weights[place], features)))

    def learn(self, place: int, features: Sequence[float], hit: bool) -> None:
        error = hit - self(place, features)
        weights, squares = self.weights[place], self._squares[place]
        for number, feature in enumerate(features):
            gradient = error * feature
            squares[number] += gradient * gradient
            weights[number] += self._step * gradient / math.sqrt(squares[number])
