"""`grant=drr`: deficit round robin. Turns go around; what a turn uses beyond its quantum, the
next turns pay back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mtp.grants.entry import Entry
from mtp.grants.ring import RingDiscipline, Unit


@dataclass(frozen=True)
class Drr(RingDiscipline):
    """budget: the quantum, in tokens by default: a request with a good drafter gets no more
    tokens than one without."""

    unit: Unit = "tokens"

    def prefer(self, ring: Sequence[Entry]) -> int:
        """The first whose debt is below a quantum; a turn that is passed over pays a quantum."""
        quantum = max(1, self.budget)
        while True:
            for place, entry in enumerate(ring):
                if entry.overdrawn < quantum:
                    return place
                entry.overdrawn -= quantum

    def allowance(self, entry: Entry, budget: float) -> float:
        return max(1, budget - entry.overdrawn) if budget else 0
