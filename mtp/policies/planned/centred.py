"""A drafter's word as distance from its usual word, so that neither an offset nor a slope of it
matters."""

from __future__ import annotations

from math import sqrt

from mtp.policies.planned.calibration import logit

MOST = 3.0  # deviations a word may be away


class Centred:
    """Logit confidence less the request's running mean, in running standard deviations of all
    requests, by draft place. It learns from every draft that is made, verified or not: it needs no
    verdicts."""

    def __init__(
        self,
        depth: int,
        *,
        forget: float = 0.97,  # of a request's older words
        weight: float = 8.0,  # words the mean of all requests counts for in a request's own
        pool_forget: float = 0.998,  # of all requests' older words
    ) -> None:
        self._forget, self._weight, self._pool_forget = forget, weight, pool_forget
        self._all = [[0.0, 0.0] for _ in range(depth)]  # words, their sum
        # deviations, the sum of their squares: four of 1 to begin with
        self._square = [[4.0, 4.0] for _ in range(depth)]
        self._own: dict[str, list[list[float]]] = {}

    def of(self, request: str, place: int, confidence: float) -> float:
        count, square = self._square[place]
        away = (
            (logit(confidence) - self._mean(request, place)) / max(sqrt(square / count), 1e-3)
            if self._all[place][0]
            else 0.0
        )
        return max(-MOST, min(MOST, away))

    def learn(self, request: str, place: int, confidence: float) -> None:
        said = logit(confidence)
        if self._all[place][0]:
            pair = self._square[place]
            pair[0] = self._pool_forget * pair[0] + 1
            pair[1] = self._pool_forget * pair[1] + (said - self._mean(request, place)) ** 2
        if request not in self._own:
            self._own[request] = [[0.0, 0.0] for _ in self._all]
        for pair, forget in (
            (self._own[request][place], self._forget),
            (self._all[place], self._pool_forget),
        ):
            pair[0] = forget * pair[0] + 1
            pair[1] = forget * pair[1] + said

    def release(self, request: str) -> None:
        self._own.pop(request, None)

    def _mean(self, request: str, place: int) -> float:
        count, total = self._all[place]
        usual = total / count
        own = self._own.get(request)
        return (
            usual
            if own is None
            else (own[place][1] + self._weight * usual) / (own[place][0] + self._weight)
        )
