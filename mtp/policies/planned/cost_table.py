"""What windows cost, as tables that a plan reads. Pure Python."""

from __future__ import annotations

from dataclasses import dataclass

from mtp.costs import Cost


@dataclass(frozen=True)
class CostTable:
    """T(rows, slots) in seconds, of one draft depth, as tables. `by_rows`, `slot` and `token` are a
    sum; the other two are there where T is no such sum."""

    by_rows: tuple[float, ...]  # [r]: of r rows, without the slots
    slot: float  # of each slot in the window
    token: float = 0.0  # of each committed token of theirs
    alone: tuple[float, ...] | None = None  # [r]: all of T of one slot, where less than the sum
    by_both: tuple[tuple[float, ...], ...] | None = None  # [r][s]: all of T

    def time(self, rows: int, slots: int) -> float:
        if self.by_both:
            return self.by_both[rows][slots]
        return (
            self.alone[rows]
            if self.alone and slots == 1
            else self.by_rows[rows] + self.slot * slots
        )

    @classmethod
    def of(cls, cost: Cost, rows: int, depth: int) -> CostTable:
        table = [tuple(cost.window(r, s, depth) for s in range(r + 1)) for r in range(rows + 1)]
        slot = table[rows][rows] - table[rows][rows - 1] if rows > 1 else 0.0
        by_rows = tuple(row[min(2, r)] - slot * min(2, r) for r, row in enumerate(table))
        token = (cost.window(1, 1, depth, 1024) - cost.window(1, 1, depth)) / 1024

        def less(r: int, s: int) -> float:
            """How much less T is than the sum."""
            gap = by_rows[r] + slot * s - table[r][s]
            return gap if abs(gap) > 1e-9 * max(1e-9, abs(table[r][s])) else 0.0

        if any(less(r, s) for r in range(2, rows + 1) for s in range(2, r + 1)) or any(
            less(r, 1) < 0 for r in range(1, rows + 1)
        ):
            return cls(by_rows, slot, token, by_both=tuple(table))
        alone = tuple(row[min(1, r)] for r, row in enumerate(table))
        return cls(
            by_rows,
            slot,
            token,
            alone=alone if any(less(r, 1) for r in range(1, rows + 1)) else None,
        )
