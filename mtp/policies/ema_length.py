"""One draft length for the whole batch, by a running mean of accepted lengths (as SGLang's adaptive speculation)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

from mtp.policies.checks import check_count, check_number, checked_sizes
from mtp.policies.protocol import Decision, WindowResult
from mtp.windows import SlotView, static_k


@dataclass
class _State:
    level: int
    mean: float
    windows: int = 0
    moves: int = 0


@dataclass(frozen=True)
class EmaLength:
    """levels: drafts per group it moves between, ascending, each one less than a size; up from k when the mean is above k - `rise`;
    down from k when it is at most the level below less `fall`. At the lowest level it goes on drafting, so it always sees.

    rate: weight of a new window in the mean; settle, every: windows before the first move, and between two looks (hysteresis).
    Windows in which a request ends are clipped and left out.
    """

    sizes: tuple[int, ...] = (1, 2, 4)
    levels: tuple[int, ...] = (1, 3)
    rise: float = 0.5
    fall: float = 0.75
    rate: float = 0.2
    settle: int = 10
    every: int = 5
    state: _State = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "sizes", checked_sizes(self.sizes))
        object.__setattr__(self, "levels", tuple(self.levels))
        allowed = [size - 1 for size in self.sizes if size > 1]
        if (
            not self.levels
            or list(self.levels) != sorted(set(self.levels))
            or not set(self.levels) <= set(allowed)
        ):
            raise ValueError(
                f"policy.levels is {list(self.levels)}, expected ascending draft counts among {allowed}"
            )
        for name in ("rise", "fall"):
            check_number(name, getattr(self, name), 0)
        check_number("rate", self.rate, 1e-6, 1)
        check_count("settle", self.settle)
        check_count("every", self.every, 1)
        object.__setattr__(self, "state", _State(len(self.levels) - 1, float(self.levels[-1]) - 1))

    @property
    def depth(self) -> int:
        return self.levels[-1]

    def open(self) -> Self:
        return replace(self)

    def decide(self, slots: Sequence[SlotView], *, rows: int, start: int) -> Decision:
        k = self.levels[self.state.level]
        return Decision(static_k(slots, k=k, rows=rows, start=start, sizes=self.sizes), k)

    def observe(self, result: WindowResult) -> None:
        whole = [
            part
            for part in result.slots
            if part.rows > 1 and not part.committed.finish and part.committed.tokens
        ]
        if not whole:
            return
        state = self.state
        accepted = sum(part.committed.accepted for part in whole) / len(whole)
        state.mean += self.rate * (accepted - state.mean)
        state.windows += 1
        if state.windows < self.settle or (state.windows - self.settle) % self.every:
            return
        k = self.levels[state.level]
        below = self.levels[state.level - 1] if state.level else None
        if below is not None and state.mean <= below - self.fall:
            state.level, state.moves = state.level - 1, state.moves + 1
        elif state.level + 1 < len(self.levels) and state.mean > k - self.rise:
            state.level, state.moves = state.level + 1, state.moves + 1

    def release(self, request: str) -> None:
        """Nothing is kept of a single request."""

    def report(self) -> dict[str, Any]:
        state = self.state
        k = self.levels[state.level]
        reason = f"mean accepted length {state.mean:.2f} after {state.windows} windows, {state.moves} moves"
        return {"state": f"{k} drafts", "reason": reason, "level": k, "mean_accepted": state.mean}
