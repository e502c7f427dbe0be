"""The drafter's own probabilities, believed as they are; the exact plan."""

from __future__ import annotations

from dataclasses import dataclass

from mtp.policies.planned.estimators import FromConfidence
from mtp.policies.planned.planned_policy import PlannedPolicy
from mtp.policies.planned.survival import PRIOR, Ewma


@dataclass(frozen=True)
class Confidence(PlannedPolicy):
    """rate: of the running mean of a request's confidences, which the draft depth is chosen by; prior: that mean before any."""

    rate: float = 0.1
    prior: tuple[float, ...] = PRIOR

    def estimator(self) -> FromConfidence:
        return FromConfidence(Ewma(self.depth, rate=self.rate, prior=self.prior))
