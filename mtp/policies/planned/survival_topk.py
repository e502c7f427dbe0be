"""The rows most likely to be kept, over the whole batch, as many as pay by a step-time table (as
vLLM's adaptive verification)."""

from __future__ import annotations

from dataclasses import dataclass

from mtp.fields import Tupled
from mtp.policies.planned.candidate import Candidate
from mtp.policies.planned.cost_table import CostTable
from mtp.policies.planned.estimators import FromConfidence
from mtp.policies.planned.planned_policy import PlannedPolicy
from mtp.policies.planned.survival import PRIOR, Ewma


@dataclass(frozen=True)
class SurvivalTopk(PlannedPolicy):
    """The prefix of rows, by cumulative confidence, with the most expected tokens per second of
    this window alone: no price of a second is carried over. Groups are cut to the sizes; `rate`
    and `prior` as in `Confidence`."""

    rate: float = 0.1
    prior: Tupled[float] = Tupled(*PRIOR)

    def estimator(self) -> FromConfidence:
        return FromConfidence(Ewma(self.depth, rate=self.rate, prior=self.prior))

    def lengths(
        self, candidates: list[Candidate], table: CostTable, mu: float, rows: int
    ) -> dict[int, int]:
        ranked = sorted(
            (
                (-s, place, order)
                for order, candidate in enumerate(candidates)
                for place, s in enumerate((1.0, *candidate.survival))
                if place < candidate.most
            )
        )
        best, found = 0.0, {candidates[0].slot: 1} if candidates else {}
        given: dict[int, int] = {}
        for _, _, order in ranked[:rows]:
            given[order] = given.get(order, 0) + 1
            cut = {
                order: max(size for size in self.sizes if size <= count)
                for order, count in given.items()
            }
            tokens = sum(
                1 + sum(candidates[order].survival[: size - 1]) for order, size in cut.items()
            )
            rate = tokens / table.time(sum(cut.values()), len(cut))
            if rate > best:
                best, found = rate, {candidates[order].slot: size for order, size in cut.items()}
        return found
