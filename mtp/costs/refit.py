"""A cost model corrected online by the windows that were measured. Pure Python."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mtp.costs.models import Cost


@dataclass(frozen=True)
class CorrectedCost:
    """T of `of` plus a line: base + row * rows + slot * slots + draft * depth, rows as they are
    padded: padded[r - 1]. A window costs at least a tenth of what `of` says, however wrong the
    line is where nothing has been measured."""

    of: Cost
    base: float
    row: float
    slot: float
    draft: float
    padded: tuple[int, ...] = ()

    @property
    def capture_s(self) -> float:
        return self.of.capture_s

    def window(self, rows: int, slots: int, depth: int, context: int = 0) -> float:
        padded = self.padded[rows - 1] if 0 < rows <= len(self.padded) else rows
        cost_model = self.of.window(padded, slots, depth, context)
        return max(
            0.1 * cost_model,
            cost_model + self.base + self.row * padded + self.slot * slots + self.draft * depth,
        )

    def prefill(self, tokens: int) -> float:
        return self.of.prefill(tokens)


class Refit:
    """Least squares of (measured - believed) on (1, rows, slots, depth) with forgetting and a pull
    to no correction at all, so that a direction in which windows never vary stays as it was
    believed."""

    def __init__(
        self,
        cost_model: Cost,
        *,
        forget: float = 0.995,  # of every window
        pull: float = 0.02,  # of the prior, in windows
        every: int = 16,  # windows between two solutions: a new model means new tables
        # a residual further from the line than this many running mean deviations counts as that
        # far (outliers, first calls)
        clip: float = 4.0,
    ) -> None:
        if not 0 < forget <= 1:
            raise ValueError(f"policy.cost_forget is {forget}, expected above 0, at most 1")
        self.cost_model = cost_model
        self.cost: Cost = cost_model
        self.windows = 0
        self._forget, self._pull, self._every, self._clip = forget, pull, every, clip
        self._products = [[0.0] * 4 for _ in range(4)]
        self._targets = [0.0] * 4
        self._line = [0.0] * 4
        self._deviation: float | None = None
        self._padded: dict[int, int] = {}

    def observe(
        self, rows: int, padded: int, slots: int, depth: int, context: int, seconds: float
    ) -> None:
        """One window: rows before padding, rows of padding."""
        self._padded[rows] = rows + padded
        features = (1.0, float(rows + padded), float(slots), float(depth))
        residual = seconds - self.cost_model.window(rows + padded, slots, depth, context)
        off = residual - sum(
            weight * feature for weight, feature in zip(self._line, features, strict=True)
        )
        if self._deviation is None:
            self._deviation = abs(off)
        limit = self._clip * self._deviation
        self._deviation += 0.05 * (min(abs(off), 2 * limit) - self._deviation)
        if abs(off) > limit and self.windows >= self._every:
            residual += (limit if off > 0 else -limit) - off
        for i, left in enumerate(features):
            self._targets[i] = self._forget * self._targets[i] + left * residual
            for j, right in enumerate(features):
                self._products[i][j] = self._forget * self._products[i][j] + left * right
        self.windows += 1
        if self.windows % self._every == 0:
            self._line = solve(
                [
                    [value + self._pull * (i == j) for j, value in enumerate(row)]
                    for i, row in enumerate(self._products)
                ],
                self._targets,
            )
            base, row, slot, draft = self._line
            self.cost = CorrectedCost(self.cost_model, base, row, slot, draft, self._steps())

    def _steps(self) -> tuple[int, ...]:
        """Rows as padded; a count not seen yet is padded to the next that was, if that was
        padded to more."""
        most = max(self._padded)
        steps: list[int] = []
        for rows in range(most, 0, -1):
            known = self._padded.get(rows)
            above = steps[-1] if steps else rows
            steps.append(
                known if known is not None else (above if self._covers(rows, above) else rows)
            )
        return tuple(reversed(steps))

    def _covers(self, rows: int, bucket: int) -> bool:
        """Whether some count below `rows` was padded to the same bucket: then `rows` is too."""
        return any(seen < rows and padded == bucket for seen, padded in self._padded.items())


def solve(matrix: Sequence[Sequence[float]], right: Sequence[float]) -> list[float]:
    """Gauss elimination for a small symmetric positive definite system."""
    size = len(right)
    rows = [[*line, value] for line, value in zip(matrix, right, strict=True)]
    for pivot in range(size):
        for other in range(pivot + 1, size):
            factor = rows[other][pivot] / rows[pivot][pivot]
            rows[other] = [
                value - factor * above
                for value, above in zip(rows[other], rows[pivot], strict=True)
            ]
    found = [0.0] * size
    for pivot in reversed(range(size)):
        found[pivot] = (
            rows[pivot][size] - sum(rows[pivot][j] * found[j] for j in range(pivot + 1, size))
        ) / rows[pivot][pivot]
    return found
