"""Per-request survival by an exponentially weighted mean of the drafts that were verified; the exact plan.

Without shadow scoring a draft that gets no row teaches nothing, so a request that has gone `explore` windows without a verdict is
taken at the prior again (0: never, and the policy sticks at what it once believed)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mtp.policies.checks import check_count
from mtp.policies.estimators import FromRates
from mtp.policies.planned import Planned
from mtp.policies.protocol import Seen
from mtp.policies.shadow import Verdict
from mtp.policies.survival import PRIOR, Ewma, cumulated
from mtp.windows import SlotView


class _Verified(FromRates):
    def __init__(self, rates: Ewma, prior: Sequence[float], explore: int) -> None:
        super().__init__(rates)
        self._prior, self._explore = tuple(prior), explore
        self._since: dict[str, int] = {}  # windows of the request since its last verdict

    def ahead(self, request: str) -> Sequence[float]:
        if self._explore and self._since.get(request, 0) >= self._explore:
            return cumulated(self._prior)
        return super().ahead(request)

    def survival(self, view: SlotView) -> Sequence[float]:
        return self.ahead(view.request)[: view.held]

    def saw(self, seen: Seen) -> None:
        for part in seen.parts:
            self._since[part.request] = self._since.get(part.request, 0) + 1
        super().saw(seen)

    def learn(self, verdict: Verdict) -> None:
        if verdict.verified:
            self._since[verdict.request] = 0
            super().learn(verdict)

    def left(self, request: str) -> None:
        self._since.pop(request, None)
        super().left(request)


@dataclass(frozen=True)
class EwmaPolicy(Planned):
    """rate: weight of a new verdict; prior: conditional acceptance by draft place before any; explore: see above, in windows."""

    rate: float = 0.1
    prior: tuple[float, ...] = PRIOR
    explore: int = 32

    def estimator(self) -> _Verified:
        check_count("explore", self.explore)
        rates = Ewma(self.depth, rate=self.rate, prior=self.prior)
        return _Verified(rates, rates.of(""), self.explore)
