"""Per-request survival by Beta counts with forgetting, learnt from every draft that was held;
the exact plan."""

from __future__ import annotations

from dataclasses import dataclass

from mtp.fields import Tupled
from mtp.policies.planned.estimators import FromRates
from mtp.policies.planned.planned_policy import PlannedPolicy
from mtp.policies.planned.survival import PRIOR, BetaCounts


@dataclass(frozen=True)
class ShadowBeta(PlannedPolicy):
    """forget, prior, weight: see `BetaCounts`."""

    forget: float = 0.97
    prior: Tupled[float] = Tupled(*PRIOR)
    weight: float = 4.0

    def estimator(self) -> FromRates:
        return FromRates(
            BetaCounts(self.depth, forget=self.forget, prior=self.prior, weight=self.weight)
        )
