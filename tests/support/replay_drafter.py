"""A drafter that knows the right text and is wrong at chosen places: acceptance of every length
on any random checkpoint."""

from __future__ import annotations

import torch

from mtp.drafters.protocol import Drafted


class ReplayDrafter:
    """texts: whole texts (prompt + output). The draft for position p is wrong where (7 * anchor
    position + 3 * p) % every == 0."""

    max_depth = 7

    def __init__(self, texts, *, slots, context, every=5):
        self.texts, self.context, self.every = [list(text) for text in texts], context, every
        self.ahead = torch.zeros(slots, context + 9, dtype=torch.int32)
        self.seen = [[] for _ in range(slots)]

    def bind(self, target):
        pass

    def clear(self, slot):
        self.seen[slot] = []
        self.ahead[slot] = 0

    def prefill(self, slot, ids, hidden, start):
        self.seen[slot][start:] = ids.tolist()
        seen = self.seen[slot]
        text = next((text for text in self.texts if text[: len(seen)] == seen), seen)
        self.ahead[slot, : len(text)] = torch.tensor(text, dtype=torch.int32)

    def advance(self, window, kept, picks, hidden, depth):
        last = (window.starts[:-1] + kept - 1).clamp(0, len(window.ids) - 1).long()
        anchor = window.positions[last][:, None] + 1  # [slots, 1], of the next group
        places = anchor + 1 + torch.arange(depth)[None]
        right = self.ahead.gather(1, places.clamp(max=self.ahead.shape[1] - 1).long())
        wrong = (7 * anchor + 3 * places) % self.every == 0
        return Drafted(
            right ^ wrong.int(), torch.full(right.shape, 0.5), torch.full_like(kept, depth)
        )
