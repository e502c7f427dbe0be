"""Prompt look-up: drafts are what followed the last n tokens earlier in the request's own text.

No weights, any target.
"""

from __future__ import annotations

import torch
from torch import Tensor

from mtp.drafters.protocol import Drafted
from mtp.targets.protocol import Target
from triton_kernels import Packed


class PromptLookup:
    """The longest suffix of at most `ngram` tokens that occurs earlier wins, at its last place.

    How many drafts a slot holds varies from 0 (no occurrence) to the depth. It has no confidence of
    its own: always 0.
    """

    max_depth = 7

    def __init__(self, *, slots: int, context: int, ngram: int = 3, device: torch.device) -> None:
        check_ngram(ngram)
        self.context = context
        self._ngram = ngram
        # the last column is spare
        self._text = torch.zeros(slots, context + 1, dtype=torch.int32, device=device)
        self._lengths = torch.zeros(slots, dtype=torch.int32, device=device)

    def bind(self, target: Target) -> None:
        """Needs nothing of the target."""

    def prefill(self, slot: int, ids: Tensor, hidden: Tensor, start: int) -> None:
        self._text[slot, start : start + len(ids)] = ids
        self._lengths[slot] = start + len(ids)

    def advance(
        self, window: Packed, kept: Tensor, picks: Tensor, hidden: Tensor, depth: int
    ) -> Drafted:
        """Kept rows' picks join the text; then the look-up."""
        rows = torch.arange(window.ids.shape[0], device=kept.device)
        slots = window.slots.long()
        kept_row = (rows < window.starts[-1]) & (window.group_index < kept[slots])
        self._text[slots, torch.where(kept_row, window.positions + 1, self.context).long()] = picks
        first = window.starts[:-1].clamp(max=len(window.positions) - 1).long()
        self._lengths.copy_(
            torch.where(kept > 0, window.positions[first] + kept + 1, self._lengths)
        )
        return self._look_up(depth)

    def _look_up(self, depth: int) -> Drafted:
        slots, width = self._text.shape
        column = torch.arange(width, device=self._text.device)[None]  # [1, width]
        last = (self._lengths - 1).long()[:, None]  # [slots, 1]
        suffix = torch.ones(slots, width, dtype=torch.bool, device=self._text.device)
        # where the best occurrence ends, -1 = none
        end = torch.full((slots, 1), -1, device=self._text.device)
        for back in range(self._ngram):
            token = self._text.gather(1, (last - back).clamp(min=0))
            suffix &= (
                (self._text.roll(back, 1) == token)
                & (column >= back)
                & (column < last)
                & (last >= back)
            )
            found = torch.where(suffix, column, -1).amax(1, keepdim=True)
            end = torch.where(found >= 0, found, end)  # longer suffixes come later and win
        ahead = end + 1 + torch.arange(depth, device=self._text.device)[None]  # [slots, depth]
        counts = torch.where(end >= 0, (last - end).clamp(max=depth), 0)[:, 0].int()
        drafts = self._text.gather(1, ahead.clamp(0, width - 1))
        return Drafted(drafts, torch.zeros(slots, depth, device=self._text.device), counts)

    def clear(self, slot: int) -> None:
        self._lengths[slot] = 0


def check_ngram(ngram: object) -> None:
    """Raises ValueError, one line."""
    if isinstance(ngram, bool) or not isinstance(ngram, int) or ngram < 1:
        raise ValueError(f"drafter.ngram is {ngram!r}, expected an integer, at least 1")
