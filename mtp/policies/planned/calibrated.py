"""The drafter's own probabilities, calibrated online by logistic regression from every draft
that was held; the exact plan."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mtp.fields import Tupled
from mtp.policies.planned.calibration import Logistic, logit
from mtp.policies.planned.estimators import FromConfidence
from mtp.policies.planned.planned_policy import PlannedPolicy
from mtp.policies.planned.shadow import Verdict
from mtp.policies.planned.survival import PRIOR, Ewma, Rates


class _Calibrated(FromConfidence):
    """P(right) = sigmoid(t0 + t1 * logit confidence), per draft place."""

    def __init__(self, rates: Rates, depth: int, step: float) -> None:
        super().__init__(rates)
        self.fit = Logistic(depth, (0.0, 1.0), step=step)

    def judge(self, place: int, confidence: float) -> float:
        return self.fit(place, (1.0, logit(confidence)))

    def learn(self, verdict: Verdict) -> None:
        super().learn(verdict)
        if verdict.confidence is not None:
            self.fit.learn(verdict.place, (1.0, logit(verdict.confidence)), verdict.hit)

    def report(self) -> dict[str, Any]:
        return super().report() | {"weights": self.fit.weights}


@dataclass(frozen=True)
class Calibrated(PlannedPolicy):
    rate: float = 0.1  # as in `Confidence`, also prior
    prior: Tupled[float] = Tupled(*PRIOR)
    step: float = 0.25  # AdaGrad's learning rate

    def estimator(self) -> _Calibrated:
        return _Calibrated(
            Ewma(self.depth, rate=self.rate, prior=self.prior), self.depth, self.step
        )
