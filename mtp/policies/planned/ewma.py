"""Per-request survival by an exponentially weighted mean of the drafts that were verified; the
exact plan.

Without shadow scoring a draft that gets no row teaches nothing, so a draft place without a
verdict for `explore` windows of its request is back at the prior (0: never, and the policy
keeps its old estimate)."""

from __future__ import annotations

from dataclasses import dataclass

from mtp.checks import check_integer
from mtp.fields import Tupled
from mtp.policies.planned.estimators import FromRates
from mtp.policies.planned.planned_policy import PlannedPolicy
from mtp.policies.planned.shadow import Verdict
from mtp.policies.planned.survival import PRIOR, Ewma
from mtp.policies.protocol import WindowResult


class _Verified(FromRates):
    def __init__(self, rates: Ewma, depth: int, explore: int) -> None:
        super().__init__(rates)
        self._ewma, self._depth, self._explore = rates, depth, explore
        self._since: dict[
            str, list[int]
        ] = {}  # windows of the request since its last verdict, by draft place

    def observe(self, result: WindowResult) -> None:
        for part in result.slots:
            since = self._since.setdefault(part.request, [0] * self._depth)
            for place in range(self._depth):
                since[place] += 1
                if self._explore and since[place] >= self._explore:
                    since[place] = 0
                    self._ewma.forget(part.request, place)
        super().observe(result)
        self.missed = False  # only a draft with a row is looked at

    def learn(self, verdict: Verdict) -> None:
        if verdict.verified:
            self._since[verdict.request][verdict.place] = 0
            super().learn(verdict)

    def release(self, request: str) -> None:
        self._since.pop(request, None)
        super().release(request)


@dataclass(frozen=True)
class EwmaPolicy(PlannedPolicy):
    rate: float = 0.1  # weight of a new verdict
    prior: Tupled[float] = Tupled(*PRIOR)  # conditional acceptance by draft place before any
    explore: int = 32  # windows; see above

    def estimator(self) -> _Verified:
        check_integer("policy.explore", self.explore, 0)
        return _Verified(
            Ewma(self.depth, rate=self.rate, prior=self.prior), self.depth, self.explore
        )
