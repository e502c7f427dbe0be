"""A drafter that proposes nothing: asking it on costs time and brings no row."""

from __future__ import annotations

from collections.abc import Sequence

from mtp.windows import SlotView

LONG = 32  # windows in a row: look-up, which comes and goes, is never silent as long


class Silence:
    """Windows in a row that began without a draft although drafts had been asked for."""

    def __init__(self) -> None:
        self.asked = False  # in the last window
        self.windows = 0

    def hear(self, slots: Sequence[SlotView]) -> None:
        """slots: of the window that begins; those that may have their anchor alone say nothing."""
        held = [view.held for view in slots if view.limit > 1]
        if any(held):
            self.windows = 0
        elif held and self.asked:
            self.windows += 1

    @property
    def lasts(self) -> bool:
        return self.windows >= LONG

    def __str__(self) -> str:
        """Of a reason."""
        return f"; no draft in the last {self.windows} windows that asked for some" * self.lasts
