"""Ours: the request's own acceptance, and how much surer than usual the drafter is of a draft,
weighed online; the exact plan; a cost model that follows the machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mtp.costs import Cost
from mtp.costs.refit import Refit
from mtp.fields import Tupled
from mtp.policies.planned.calibration import Logistic, logit
from mtp.policies.planned.centred import Centred
from mtp.policies.planned.estimators import FromRates
from mtp.policies.planned.planned_policy import LivePlanned, PlannedPolicy
from mtp.policies.planned.shadow import Verdict
from mtp.policies.planned.survival import PRIOR, BetaCounts, Rates, cumulated
from mtp.policies.protocol import WindowResult
from mtp.windows import SlotView


class _Weighed(FromRates):
    """q = sigmoid(t0 + t1 * z + t2 * logit p), per draft place; z: how much surer than usual the
    drafter is, p: shadow-Beta of the request. With t = (0, 0, 1) it is the request's acceptance;
    useless confidence drives t1 to 0."""

    def __init__(self, rates: Rates, depth: int, step: float, trust: float) -> None:
        super().__init__(rates)
        self.fit = Logistic(depth, (0.0, trust, 1.0), step=step)
        self.centred = Centred(depth)

    def survival(self, view: SlotView) -> Sequence[float]:
        if len(view.confidence) < view.held:
            return super().survival(view)
        return cumulated(self._judged(view.request, view.confidence))

    def _judged(self, request: str, confidence: Sequence[float]) -> list[float]:
        rates = self.rates.of(request)
        return [
            self.fit(place, self._features(request, place, said, rates[place]))
            for place, said in enumerate(confidence)
        ]

    def _features(
        self, request: str, place: int, confidence: float, rate: float
    ) -> tuple[float, float, float]:
        return 1.0, self.centred.of(request, place, confidence), logit(rate, 0.02)

    def hold(self, request: str, drafts: tuple[int, ...], confidence: tuple[float, ...]) -> None:
        self.spread.learn(self._judged(request, confidence), self.rates.of(request))
        for place, said in enumerate(confidence):
            self.centred.learn(request, place, said)
        super().hold(request, drafts, confidence)

    def learn(self, verdict: Verdict) -> None:
        super().learn(verdict)
        if verdict.confidence is not None:
            features = self._features(
                verdict.request, verdict.place, verdict.confidence, verdict.expected
            )
            self.fit.learn(verdict.place, features, verdict.hit)

    def release(self, request: str) -> None:
        super().release(request)
        self.centred.release(request)

    def report(self) -> dict[str, Any]:
        return super().report() | {"weights": self.fit.weights}


@dataclass(frozen=True)
class Adaptive(PlannedPolicy):
    forget: float = 0.97  # see `BetaCounts`, also prior and weight
    prior: Tupled[float] = Tupled(*PRIOR)
    weight: float = 8.0
    step: float = 0.25  # AdaGrad's learning rate
    # weight of the confidence before any verdict, in logits per standard deviation
    trust: float = 0.3
    refit: bool = False  # correct the cost model by measured windows: two runs then plan apart
    cost_forget: float = 0.995  # how fast older windows count less there

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.trust >= 0:
            raise ValueError(
                f"policy.trust is {self.trust}, expected logits per standard deviation, at least 0"
            )
        Refit(self.cost, forget=self.cost_forget)  # what it refuses is refused here

    def estimator(self) -> _Weighed:
        rates = BetaCounts(self.depth, forget=self.forget, prior=self.prior, weight=self.weight)
        return _Weighed(rates, self.depth, self.step, self.trust)

    def open(self) -> LiveAdaptive:
        return LiveAdaptive(self)


class LiveAdaptive(LivePlanned):
    def __init__(self, settings: Adaptive) -> None:
        super().__init__(settings)
        self._refit = Refit(settings.cost, forget=settings.cost_forget)
        self._refits = settings.refit

    def cost_model(self) -> Cost:
        return self._refit.cost

    def observe(self, result: WindowResult) -> None:
        super().observe(result)
        if self._refits and result.slots[0].rows:
            context = sum(slot.position for slot in result.slots)
            slots, depth = len(result.slots), result.depth
            self._refit.observe(result.rows, result.padded, slots, depth, context, result.seconds)

    def report(self) -> dict[str, Any]:
        cost = self.cost_model()
        times = {str(rows): cost.window(rows, 1, 0) for rows in (1, 2, 4, 8)}
        return super().report() | {
            "cost": {"windows": self._refit.windows, "seconds_by_rows": times}
        }
