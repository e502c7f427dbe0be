"""What is known of a request's acceptance: per draft place, the probability that it is right
given that those before it are."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from operator import mul
from typing import Protocol

PRIOR = (0.75, 0.65, 0.60)


def cumulated(conditional: Sequence[float]) -> tuple[float, ...]:
    """Survival: probability that the first j + 1 are all right."""
    return tuple(accumulate(conditional, mul))


class Rates(Protocol):
    """Conditional acceptance by request and draft place."""

    def of(self, request: str) -> Sequence[float]: ...

    def learn(self, request: str, place: int, hit: float) -> None: ...

    def release(self, request: str) -> None: ...

    def __len__(self) -> int: ...


def prior_of(prior: Sequence[float], depth: int) -> tuple[float, ...]:
    """A prior for every place; the last value goes on. Raises ValueError."""
    if not prior or not all(0 < value < 1 for value in prior):
        raise ValueError(
            f"policy.prior is {list(prior)}, expected probabilities between 0 and 1, one per draft "
            "place"
        )
    return tuple(prior[min(place, len(prior) - 1)] for place in range(depth))


class BetaCounts:
    """Mean of a Beta posterior with forgetting: hits and misses decay by `forget` with every
    verdict of their place, the prior's `weight` observations too.

    A new request starts from the mean over all requests so far, by the same counts that forget
    `pool_forget`; that mean starts from `prior` with ten times its weight."""

    def __init__(
        self,
        depth: int,
        *,
        forget: float = 0.97,
        prior: Sequence[float] = PRIOR,
        weight: float = 4.0,
        pool_forget: float = 0.998,
    ) -> None:
        for name, value in (("forget", forget), ("pool_forget", pool_forget)):
            if not 0 < value <= 1:
                raise ValueError(f"policy.{name} is {value}, expected above 0, at most 1")
        if not weight > 0:
            raise ValueError(f"policy.weight is {weight}, expected observations, above 0")
        self._forget, self._pool_forget, self._weight = forget, pool_forget, weight
        self._pool = [[10 * weight * p, 10 * weight * (1 - p)] for p in prior_of(prior, depth)]
        self._counts: dict[str, list[list[float]]] = {}  # request: [hits, misses] by place
        self._means: dict[str, tuple[float, ...]] = {}

    def __len__(self) -> int:
        return len(self._counts)

    def of(self, request: str) -> Sequence[float]:
        means = self._means.get(request)
        if means is None:
            counts = self._counts.get(request)
            if counts is None:
                return means_of(self._pool)
            means = self._means[request] = means_of(counts)
        return means

    def learn(self, request: str, place: int, hit: float) -> None:
        counts = self._counts.get(request)
        if counts is None:
            counts = self._counts[request] = [
                [self._weight * p, self._weight * (1 - p)] for p in means_of(self._pool)
            ]
        for pair, forget in ((counts[place], self._forget), (self._pool[place], self._pool_forget)):
            pair[0] = forget * pair[0] + hit
            pair[1] = forget * pair[1] + 1 - hit
        self._means.pop(request, None)

    def release(self, request: str) -> None:
        self._counts.pop(request, None)
        self._means.pop(request, None)


def means_of(counts: Sequence[Sequence[float]]) -> tuple[float, ...]:
    return tuple(hits / (hits + misses) for hits, misses in counts)


class Ewma:
    """An exponentially weighted mean; `rate` is the weight of a new verdict."""

    def __init__(self, depth: int, *, rate: float = 0.1, prior: Sequence[float] = PRIOR) -> None:
        if not 0 < rate <= 1:
            raise ValueError(f"policy.rate is {rate}, expected above 0, at most 1")
        self._prior, self._rate = prior_of(prior, depth), rate
        self._means: dict[str, list[float]] = {}

    def __len__(self) -> int:
        return len(self._means)

    def of(self, request: str) -> Sequence[float]:
        return self._means.get(request, self._prior)

    def learn(self, request: str, place: int, hit: float) -> None:
        means = self._means.setdefault(request, list(self._prior))
        means[place] += self._rate * (hit - means[place])

    def release(self, request: str) -> None:
        self._means.pop(request, None)

    def forget(self, request: str, place: int) -> None:
        """Back to the prior."""
        if request in self._means:
            self._means[request][place] = self._prior[place]
