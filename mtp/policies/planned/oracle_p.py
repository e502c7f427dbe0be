"""The true acceptance probabilities (synthetic tapes): what perfect calibration would reach."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mtp.policies.planned.oracle import Oracle, OracleEstimator, OraclePolicy


class _Probabilities(OracleEstimator):
    def __init__(self, oracle: Oracle, depth: int) -> None:
        super().__init__(oracle)
        self._depth = depth

    def known(self, request: str, index: int) -> Sequence[float]:
        return self.oracle.survival(request, index)[: self._depth]


@dataclass(frozen=True)
class OracleP(OraclePolicy):
    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.oracle.probabilities:
            raise ValueError(
                "policy.oracle is recorded tapes, expected synthetic ones: only these know the "
                "true probabilities"
            )

    def estimator(self) -> OracleEstimator:
        return _Probabilities(self.oracle, self.depth)
