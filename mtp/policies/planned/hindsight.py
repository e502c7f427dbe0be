"""The true outcomes: what a policy could reach that knew the text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mtp.policies.planned.oracle import Oracle, OracleEstimator, OraclePolicy


class _Outcomes(OracleEstimator):
    def __init__(self, oracle: Oracle, depth: int) -> None:
        super().__init__(oracle)
        self._depth = depth

    def known(self, request: str, index: int) -> Sequence[float]:
        right = self.oracle.matches(request, index)
        return tuple(float(place < right) for place in range(self._depth))


@dataclass(frozen=True)
class Hindsight(OraclePolicy):
    def estimator(self) -> OracleEstimator:
        return _Outcomes(self.oracle, self.depth)
