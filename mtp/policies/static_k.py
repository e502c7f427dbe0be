"""A fixed number of drafts for everyone; k = 0 is plain decoding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mtp.checks import is_integer
from mtp.fields import Tupled
from mtp.policies.protocol import Decision
from mtp.windows import SlotView, static_k


@dataclass(frozen=True)
class StaticK:
    k: int = 0  # drafts of a group, and of every chain
    sizes: Tupled[int] = Tupled(1, 2, 4)

    def __post_init__(self) -> None:
        if not is_integer(self.k) or self.k + 1 not in self.sizes:
            allowed = ", ".join(str(size - 1) for size in sorted(self.sizes))
            raise ValueError(
                f"policy.k is {self.k}, expected one less than a group size: {allowed}"
            )

    @property
    def depth(self) -> int:
        return self.k

    def decide(self, slots: Sequence[SlotView], *, rows: int, start: int) -> Decision:
        return Decision(static_k(slots, k=self.k, rows=rows, start=start, sizes=self.sizes), self.k)
