"""The drafter's own probabilities, believed as they are; the exact plan."""

from __future__ import annotations

from dataclasses import dataclass

from mtp.fields import Tupled
from mtp.policies.planned.estimators import FromConfidence
from mtp.policies.planned.planned_policy import PlannedPolicy
from mtp.policies.planned.survival import PRIOR, Ewma


@dataclass(frozen=True)
class Confidence(PlannedPolicy):
    # of the running mean of a request's confidences, which the draft depth is chosen by
    rate: float = 0.1
    prior: Tupled[float] = Tupled(*PRIOR)  # that mean before any

    def estimator(self) -> FromConfidence:
        return FromConfidence(Ewma(self.depth, rate=self.rate, prior=self.prior))
