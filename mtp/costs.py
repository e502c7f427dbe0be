"""What a step costs in seconds, for planning and for virtual clocks."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class LinearCost:
    """T = base + row * rows + slot * slots + draft * depth, in seconds; a prefill costs prompt_token per prompt token."""

    base: float = 0.0226
    row: float = 0.0053
    slot: float = 0.0
    draft: float = 0.0008
    prompt_token: float = 0.0001

    def window(self, rows: int, slots: int, depth: int) -> float:
        return self.base + self.row * rows + self.slot * slots + self.draft * depth

    def prefill(self, tokens: int) -> float:
        return self.base + self.prompt_token * tokens
