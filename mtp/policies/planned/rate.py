"""The price of a second: tokens per second of the plans themselves."""

from __future__ import annotations

from dataclasses import dataclass

from mtp.policies.planned.cost_table import CostTable


@dataclass
class PlannedRate:
    """mu = expected tokens / planned seconds of past windows, older ones fading
    (renewal-reward). It never reads a clock: with a wrong cost model the wall-clock rate
    misprices rows, the planned one is off by the same factor as the plan's own costs."""

    tokens: float = 0.0
    seconds: float = 0.0
    windows: int = 0

    @property
    def mu(self) -> float | None:
        return self.tokens / self.seconds if self.seconds else None

    def of(self, table: CostTable, slots: int) -> float:
        """Before the first window: that of plain decoding."""
        if self.seconds:
            return self.tokens / self.seconds
        rows = min(max(slots, 1), len(table.by_rows) - 1)
        return rows / table.time(rows, rows)

    def add(self, tokens: float, seconds: float) -> None:
        keep = 0.98 if self.windows > 50 else 0.9  # the first windows are the least typical
        self.windows += 1
        self.tokens = keep * self.tokens + tokens
        self.seconds = keep * self.seconds + seconds
