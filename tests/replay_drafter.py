"""A drafter that knows the right text and is wrong at chosen places: acceptance of every length on any random checkpoint."""

from __future__ import annotations

import torch

from mtp.drafters.protocol import Drafted


class ReplayDrafter:
    """texts: whole texts (prompt + output). A draft at position p is wrong where (7 * p + 3 * depth) % every == 0."""

    max_depth = 7

    def __init__(self, texts, *, slots, context, every=5):
        self.texts, self.context, self.every = [list(text) for text in texts], context, every
        self.seen = [[] for _ in range(slots)]

    def bind(self, target):
        pass

    def clear(self, slot):
        self.seen[slot] = []

    def prefill(self, slot, ids, hidden, start):
        self.seen[slot][start:] = ids.tolist()

    def advance(self, window, kept, picks, hidden, depth):
        drafts = torch.zeros(len(kept), depth, dtype=torch.int32)
        counts = torch.zeros(len(kept), dtype=torch.int32)
        for slot, count in enumerate(kept.tolist()):
            if count:
                first = int(window.starts[slot])
                self.seen[slot] += picks[first : first + count].tolist()
                drafts[slot], counts[slot] = self._drafts(self.seen[slot], depth)
        return Drafted(drafts, torch.full(drafts.shape, 0.5), counts)

    def _drafts(self, seen, depth):
        text = next((text for text in self.texts if text[: len(seen)] == seen), seen)
        ahead = text[len(seen) : len(seen) + depth]
        ahead = [token ^ ((7 * len(seen) + 3 * j) % self.every == 0) for j, token in enumerate(ahead)]
        return torch.tensor(ahead + [0] * (depth - len(ahead)), dtype=torch.int32), len(ahead)
