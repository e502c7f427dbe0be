"""Ours: the drafter's confidence and the request's own acceptance, weighed against each other online; the exact plan; a cost model
that follows the machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from mtp.costs import Cost
from mtp.policies.calibration import Logistic, logit
from mtp.policies.estimators import FromRates
from mtp.policies.planned import Planned
from mtp.policies.protocol import Seen
from mtp.policies.shadow import Verdict
from mtp.policies.survival import PRIOR, BetaCounts, Rates, cumulated
from mtp.refit import Refit
from mtp.windows import SlotView


def features(confidence: float, rate: float) -> tuple[float, float, float]:
    own = logit(rate, 0.02)
    return 1.0, logit(confidence) - own, own


class _Weighed(FromRates):
    """q = sigmoid(t0 + t1 * (logit confidence - logit p) + t2 * logit p), per draft place; p: shadow-Beta of the request. With
    t = (0, 0, 1) it is the request's acceptance, with (0, 1, 1) the drafter's own word; useless confidence drives t1 to 0."""

    def __init__(self, rates: Rates, depth: int, step: float) -> None:
        super().__init__(rates)
        self.fit = Logistic(depth, (0.0, 0.4, 1.0), step=step)

    def survival(self, view: SlotView) -> Sequence[float]:
        if len(view.confidence) < view.held:
            return super().survival(view)
        rates = self.rates.of(view.request)
        return cumulated([self.fit(place, features(said, rates[place])) for place, said in enumerate(view.confidence)])

    def hold(self, request: str, drafts: tuple[int, ...], confidence: tuple[float, ...]) -> None:
        rates = self.rates.of(request)
        self.spread.learn([self.fit(place, features(said, rates[place])) for place, said in enumerate(confidence)], rates)
        super().hold(request, drafts, confidence)

    def learn(self, verdict: Verdict) -> None:
        super().learn(verdict)
        if verdict.confidence is not None:
            self.fit.learn(verdict.place, features(verdict.confidence, verdict.expected), verdict.hit)

    def report(self) -> dict[str, Any]:
        return super().report() | {"weights": self.fit.weights}


@dataclass(frozen=True)
class Adaptive(Planned):
    """forget, prior, weight: see `BetaCounts`; step: AdaGrad's learning rate; refit: correct the cost model by measured windows (off:
    the believed cost is fixed); cost_forget: how fast older windows count less there."""

    forget: float = 0.97
    prior: tuple[float, ...] = PRIOR
    weight: float = 4.0
    step: float = 0.25
    refit: bool = True
    cost_forget: float = 0.995
    _refit: Refit = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "_refit", Refit(self.cost, forget=self.cost_forget))

    def estimator(self) -> _Weighed:
        rates = BetaCounts(self.depth, forget=self.forget, prior=self.prior, weight=self.weight)
        return _Weighed(rates, self.depth, self.step)

    def believed(self) -> Cost:
        return self._refit.cost

    def saw(self, seen: Seen) -> None:
        super().saw(seen)
        if self.refit and seen.parts[0].rows:
            context = sum(part.position for part in seen.parts)
            self._refit.saw(seen.rows, seen.padded, len(seen.parts), seen.depth, context, seen.seconds)

    def report(self) -> dict[str, Any]:
        cost = self.believed()
        times = {str(rows): cost.window(rows, 1, 0) for rows in (1, 2, 4, 8)}
        return super().report() | {"cost": {"windows": self._refit.windows, "seconds_by_rows": times}}
