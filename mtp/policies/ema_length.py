"""One draft length for the whole batch, by a running mean of accepted lengths (as SGLang's
adaptive speculation)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mtp.checks import check_integer, check_number
from mtp.fields import Tupled
from mtp.policies.checks import check_sizes
from mtp.policies.protocol import Decision, WindowResult
from mtp.windows import SlotView, static_k


@dataclass(frozen=True)
class EmaLength:
    """Up from k drafts when the mean accepted length is above k - `rise`; down when it is at most
    the level below less `fall`. At the lowest level it still drafts, so it always sees."""

    sizes: Tupled[int] = Tupled(1, 2, 4)
    levels: Tupled[int] = Tupled(1, 3)  # drafts per group, ascending, each one less than a size
    rise: float = 0.5
    fall: float = 0.75
    rate: float = 0.2  # weight of a new window in the mean
    settle: int = 10  # windows before the first move
    every: int = 5  # windows between two looks (hysteresis)

    def __post_init__(self) -> None:
        check_sizes(self.sizes)
        allowed = [size - 1 for size in self.sizes if size > 1]
        if (
            not self.levels
            or list(self.levels) != sorted(set(self.levels))
            or not set(self.levels) <= set(allowed)
        ):
            raise ValueError(
                f"policy.levels is {list(self.levels)}, expected ascending draft counts among "
                f"{allowed}"
            )
        check_number("policy.rise", self.rise, 0)
        check_number("policy.fall", self.fall, 0)
        check_number("policy.rate", self.rate, 1e-6, 1)
        check_integer("policy.settle", self.settle, 0)
        check_integer("policy.every", self.every, 1)

    @property
    def depth(self) -> int:
        return self.levels[-1]

    def open(self) -> LiveEmaLength:
        return LiveEmaLength(self)


class LiveEmaLength:
    def __init__(self, settings: EmaLength) -> None:
        self.settings, self.sizes, self.depth = settings, settings.sizes, settings.depth
        self.level = len(settings.levels) - 1  # place among the levels
        self.mean = float(settings.levels[-1]) - 1
        self.windows = 0
        self.moves = 0

    def decide(self, slots: Sequence[SlotView], *, rows: int, start: int) -> Decision:
        k = self.settings.levels[self.level]
        return Decision(static_k(slots, k=k, rows=rows, start=start, sizes=self.sizes), k)

    def observe(self, result: WindowResult) -> None:
        """Windows in which a request ends are clipped and left out."""
        settings = self.settings
        whole = [
            part
            for part in result.slots
            if part.rows > 1 and not part.committed.finish and part.committed.tokens
        ]
        if not whole:
            return
        accepted = sum(part.committed.accepted for part in whole) / len(whole)
        self.mean += settings.rate * (accepted - self.mean)
        self.windows += 1
        if self.windows < settings.settle or (self.windows - settings.settle) % settings.every:
            return
        k = settings.levels[self.level]
        below = settings.levels[self.level - 1] if self.level else None
        if below is not None and self.mean <= below - settings.fall:
            self.level, self.moves = self.level - 1, self.moves + 1
        elif self.level + 1 < len(settings.levels) and self.mean > k - settings.rise:
            self.level, self.moves = self.level + 1, self.moves + 1

    def release(self, request: str) -> None:
        """Nothing is kept of a single request."""

    def report(self) -> dict[str, Any]:
        k = self.settings.levels[self.level]
        return {
            "state": f"{k} drafts",
            "reason": f"mean accepted length {self.mean:.2f} after {self.windows} windows, "
            f"{self.moves} moves",
            "level": k,
            "mean_accepted": self.mean,
        }
