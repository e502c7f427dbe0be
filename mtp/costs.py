"""What a step costs in seconds, for planning and for virtual clocks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


class Cost(Protocol):
    """Seconds. capture_s: of capturing one half of a window as a graph."""

    @property
    def capture_s(self) -> float: ...

    def window(self, rows: int, slots: int, depth: int, context: int = 0) -> float:
        """rows: of the window, padding included; depth: drafts every slot makes after it; context: its anchors' positions, summed."""
        ...

    def prefill(self, tokens: int) -> float: ...


@dataclass(frozen=True)
class LinearCost:
    """T = base + row * rows + slot * slots + draft * depth + context * context, in seconds; a prefill costs prompt_token per prompt
    token."""

    base: float = 0.0226
    row: float = 0.0053
    slot: float = 0.0
    draft: float = 0.0008
    prompt_token: float = 0.0001
    context: float = 0.0
    capture_s: float = 0.02

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < float("inf"):
                raise ValueError(f"cost.{name} is {value!r}, expected a finite number of seconds, at least 0")

    def window(self, rows: int, slots: int, depth: int, context: int = 0) -> float:
        return self.base + self.row * rows + self.slot * slots + self.draft * depth + self.context * context

    def prefill(self, tokens: int) -> float:
        return self.base + self.prompt_token * tokens
